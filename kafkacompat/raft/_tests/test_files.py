"""Files of the quorum compared with bytes that Apache Kafka 4.3.0 wrote, and refusals that name directory and setting."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat._tests.doubles import CountingRandom, HandTime
from kafkacompat.config import LogConfig, parse_properties
from kafkacompat.ids import uuid_from_text, uuid_to_text
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import FileSlice, HalfDone, SyncFailed
from kafkacompat.raft import snapshot
from kafkacompat.raft.election_state import (
    BrokenElectionState,
    format_election_state,
    parse_election_state,
)
from kafkacompat.raft.metadata_log import PartitionMetadataLog, open_metadata_log
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.snapshot import (
    BrokenSnapshot,
    SnapshotContent,
    batch_records,
    format_snapshot,
    pack_values,
    parse_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)
from kafkacompat.raft.storage import (
    DirectoryLocks,
    FormatRequest,
    MetaProperties,
    StorageProblem,
    format_meta_properties,
    format_properties,
    format_storage,
    load_directories,
    parse_meta_properties,
)
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.records._tests.bombs import batch_around, record
from kafkacompat.records.batch import iterate_batches

GOLDEN = Path(__file__).parent / "golden"
WHOLE = (GOLDEN / "bootstrap.checkpoint").read_bytes()
NOW_MS = 1_795_234_709_000


def test_meta_properties_as_kafka_writes_them() -> None:
    text = (GOLDEN / "meta.properties").read_text()
    meta = parse_meta_properties(text, "meta.properties")
    assert meta == MetaProperties("AAAAAAAAAAAAAAAAAAAAbQ", 1, uuid_from_text("r7J9Y3ekS3G-9zlfz0ac8A"), 1)
    assert format_meta_properties(meta, NOW_MS) == text


def test_meta_properties_version_0_is_read() -> None:
    assert parse_meta_properties("broker.id=7\nversion=0\n", "x") == MetaProperties(None, 7, None, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2\n", "version 2"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "one"),
        ("version=1\ncluster.id=x\nnode.id=1_0\n", "1_0"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n", "uuid"),
    ],
)
def test_broken_meta_properties_name_the_file(text: str, reason: str) -> None:
    with pytest.raises(StorageProblem, match=reason) as caught:
        parse_meta_properties(text, "/data/meta.properties")
    assert "/data/meta.properties" in str(caught.value)


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0x24F), min_size=1), st.text(st.characters(max_codepoint=0x24F))
    )
)
def test_properties_written_are_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties, ("a comment",))) == properties


@pytest.mark.parametrize(
    ("text", "kraft_version"),
    [
        (
            b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":1}],"data_version":0}',
            0,
        ),
        (
            b'{"leaderId":11,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
            1,
        ),
    ],
)
def test_quorum_state_round_trip_in_kafkas_bytes(text: bytes, kraft_version: int) -> None:
    assert format_election_state(parse_election_state(text), kraft_version) == text


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"data_version":2}', b'{"data_version":1,"leaderId":1}', b"\xff"]
)
def test_a_broken_quorum_state_is_refused(text: bytes) -> None:
    with pytest.raises(BrokenElectionState):
        parse_election_state(text)


@pytest.mark.parametrize("name", ["0-0.checkpoint", "bootstrap.checkpoint"])
def test_snapshots_of_kafka_are_read_and_written_alike(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    content = parse_snapshot(data)
    written = format_snapshot(content, 0, NOW_MS)
    assert len(written) == len(data)
    again = parse_snapshot(written)
    assert (list(again.values), again.voters, again.kraft_version) == (
        list(content.values),
        content.voters,
        content.kraft_version,
    )
    theirs, ours = list(iterate_batches(data)), list(iterate_batches(written))
    for expected, actual in zip(theirs, ours, strict=True):
        # Only the timestamp of writing may differ, and with it the CRC.
        body = slice(expected.position + 61, expected.position + expected.size)
        if expected.is_control or not content.voters:
            assert len(data[body]) == len(written[body])
        assert (actual.base_offset, actual.attributes, actual.record_count, actual.size) == (
            expected.base_offset,
            expected.attributes,
            expected.record_count,
            expected.size,
        )


@given(st.data())
def test_a_damaged_snapshot_is_never_taken_for_a_whole_one(data: st.DataObject) -> None:
    whole = (GOLDEN / "bootstrap.checkpoint").read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        position = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]
    try:
        content = parse_snapshot(damaged)
    except BrokenSnapshot:
        return
    # Base offset and leader epoch are outside the CRC. They do not change the result.
    assert list(content.values) == list(parse_snapshot(whole).values)


def test_large_snapshots_are_cut_into_batches() -> None:
    values = [bytes(3_000_000)] * 7
    batches = list(pack_values(values, 0, 1, NOW_MS))
    assert len(batches) == 4
    assert max(map(len, batches)) <= 8 * 1024 * 1024
    assert len(parse_snapshot(format_snapshot(SnapshotContent(values), 1, NOW_MS)).values) == 7


def test_snapshot_names() -> None:
    assert snapshot_file_name(14026, 3) == "00000000000000014026-0000000003.checkpoint"
    assert parse_snapshot_name("00000000000000014026-0000000003.checkpoint") == (14026, 3)
    assert parse_snapshot_name("00000000000000014026-0000000003.checkpoint.part") is None


FIRST_SNAPSHOT = "/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def request(*log_dirs: str, cluster_id: str = "c", node_id: int = 1, ignore: bool = False) -> FormatRequest:
    return FormatRequest(log_dirs, None, node_id, cluster_id, (b"\x01",), ignore_formatted=ignore)


def test_format_gives_every_directory_an_identity() -> None:
    disk, random, written = MemoryDisk(), CountingRandom(), []
    disk.refuse = lambda operation, path: written.append(path) if operation == "write_atomic" else None
    format_storage(disk, request("/a", "/b"), random, NOW_MS)
    found = load_directories(disk, ["/a", "/b"], None, 1, random, NOW_MS)
    assert (found.cluster_id, found.metadata_directory, len(set(found.directory_ids.values()))) == (
        "c",
        "/a",
        2,
    )
    assert parse_snapshot(disk.files[FIRST_SNAPSHOT]) == SnapshotContent([b"\x01"], NOW_MS)
    assert written == [FIRST_SNAPSHOT, "/a/meta.properties", "/b/meta.properties"]


def test_a_format_begins_with_the_metadata_directory() -> None:
    """What is formatted without it belongs to a node whose metadata is not there."""
    disk = MemoryDisk()

    def full(operation: str, path: str) -> OSError | None:
        is_refused = (operation, path) == ("write_atomic", "/a/meta.properties")
        return OSError("full") if is_refused else None

    disk.refuse = full
    with pytest.raises(OSError, match="full"):
        format_storage(disk, replace(request("/a", "/b"), metadata_log_dir="/b"), CountingRandom(), NOW_MS)
    assert "/b/meta.properties" in disk.files


def test_a_format_for_earlier_releases_writes_bootstrap_checkpoint_in_each_directory() -> None:
    disk = MemoryDisk()
    asked = replace(request("/a", "/b"), has_bootstrap_snapshot=False)
    format_storage(disk, asked, CountingRandom(), NOW_MS)
    assert FIRST_SNAPSHOT not in disk.files
    for directory in ("/a", "/b"):
        assert parse_snapshot(disk.files[f"{directory}/bootstrap.checkpoint"]).values == [b"\x01"]
    voter = VoterNode(2, bytes(15) + b"\x09", (("CONTROLLER", "h", 9093),))
    dynamic = replace(asked, log_dirs=("/c",), initial_voters=(voter,))
    format_storage(disk, dynamic, CountingRandom(), NOW_MS)
    content = parse_snapshot(disk.files[FIRST_SNAPSHOT.replace("/a", "/c")])
    assert (content.values, content.voters) == ([], (voter,))


def test_a_node_without_the_controller_role_begins_no_log() -> None:
    disk = MemoryDisk()
    format_storage(disk, replace(request("/a"), is_controller=False), CountingRandom(), NOW_MS)
    assert sorted(disk.files) == ["/a/meta.properties"]


def test_a_controller_that_joins_later_has_the_version_of_its_quorum_and_no_voters() -> None:
    disk = MemoryDisk()
    format_storage(disk, replace(request("/a"), kraft_version=1), CountingRandom(), NOW_MS)
    content = parse_snapshot(disk.files[FIRST_SNAPSHOT])
    assert (content.values, content.kraft_version, content.voters) == ([b"\x01"], 1, ())


def test_a_standalone_format_writes_the_voters() -> None:
    disk = MemoryDisk()
    asked = FormatRequest(("/a",), None, 1, "c", (b"\x01",), (("CONTROLLER", "h", 9093),))
    format_storage(disk, asked, CountingRandom(), NOW_MS)
    content = parse_snapshot(disk.files[FIRST_SNAPSHOT])
    directory_id = parse_meta_properties(disk.files["/a/meta.properties"].decode(), "").directory_id
    assert directory_id is not None
    assert content.voters == (VoterNode(1, directory_id, (("CONTROLLER", "h", 9093),)),)
    assert content.kraft_version == 1


def test_a_formatted_directory_is_left_alone() -> None:
    disk, random = MemoryDisk(), CountingRandom()
    format_storage(disk, request("/a"), random, NOW_MS)
    with pytest.raises(StorageProblem, match=r"/a is already formatted"):
        format_storage(disk, request("/a"), random, NOW_MS)
    with pytest.raises(StorageProblem, match=r"belongs to node 1"):
        format_storage(disk, request("/a", node_id=2, ignore=True), random, NOW_MS)
    before = {path: bytes(data) for path, data in disk.files.items()}
    format_storage(disk, request("/a", ignore=True), random, NOW_MS)
    assert disk.files == before


def test_foreign_and_doubled_directories_are_refused_by_name() -> None:
    disk, random = MemoryDisk(), CountingRandom()
    with pytest.raises(StorageProblem, match=r"/a .*not formatted"):
        load_directories(disk, ["/a"], None, 1, random, NOW_MS)
    format_storage(disk, request("/a"), random, NOW_MS)
    format_storage(disk, request("/b", cluster_id="other"), random, NOW_MS)
    with pytest.raises(StorageProblem, match=r"/b belongs to cluster.id other"):
        load_directories(disk, ["/a", "/b"], None, 1, random, NOW_MS)
    with pytest.raises(StorageProblem, match=r"node.id is 5"):
        load_directories(disk, ["/a"], None, 5, random, NOW_MS)
    disk.files["/b/meta.properties"] = disk.files["/a/meta.properties"]
    with pytest.raises(StorageProblem, match=r"/a and /b .* same"):
        load_directories(disk, ["/a", "/b"], None, 1, random, NOW_MS)
    reserved = MetaProperties("c", 1, (2).to_bytes(16, "big"))
    disk.files["/b/meta.properties"] = format_meta_properties(reserved, NOW_MS).encode()
    with pytest.raises(
        StorageProblem,
        match=rf"/b has the reserved directory.id {uuid_to_text(reserved.directory_id or b'')}",
    ):
        load_directories(disk, ["/a", "/b"], None, 1, random, NOW_MS)


def test_a_new_directory_beside_a_formatted_one_is_refused_unless_it_is_to_be_formatted() -> None:
    disk, random = MemoryDisk(), CountingRandom()
    format_storage(disk, request("/a"), random, NOW_MS)
    with pytest.raises(StorageProblem, match=r"/new of log\.dirs is not formatted.*--ignore-formatted"):
        load_directories(disk, ["/a", "/new"], None, 1, random, NOW_MS)
    assert "/new/meta.properties" not in disk.files
    first = load_directories(disk, ["/a", "/new"], None, 1, random, NOW_MS, format_missing=True)
    assert load_directories(disk, ["/a", "/new"], None, 1, random, NOW_MS) == first


def test_a_metadata_log_outside_of_the_metadata_directory_is_refused() -> None:
    disk, random = MemoryDisk(), CountingRandom()
    format_storage(disk, request("/a", "/b"), random, NOW_MS)
    disk.make_directory("/a/__cluster_metadata-0")
    assert load_directories(disk, ["/a", "/b"], None, 1, random, NOW_MS).metadata_directory == "/a"
    for directories, metadata_directory in ((["/b", "/a"], None), (["/a", "/b"], "/b")):
        with pytest.raises(
            StorageProblem, match=r"/a of log\.dirs has a metadata log.*metadata\.log\.dir.* is /b"
        ):
            load_directories(disk, directories, metadata_directory, 1, random, NOW_MS)


def test_a_locked_directory_is_refused_by_name(tmp_path: Path) -> None:
    held, free = tmp_path / "held", tmp_path / "free"
    held.mkdir()
    free.mkdir()
    program = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(held / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StorageProblem, match=str(held)):
            DirectoryLocks(RealDisk(), [str(free), str(held)])
        other.communicate()
    locks = DirectoryLocks(RealDisk(), [str(free), str(held)])
    assert os.path.exists(held / ".lock")
    locks.release()


def test_of_a_batch_of_control_records_no_more_are_read_than_one_step_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (head,) = [each for each in iterate_batches(WHOLE) if each.position == 0]
    first = memoryview(WHOLE)
    assert len(list(batch_records(first, head))) == head.record_count
    monkeypatch.setattr(snapshot, "CONTROL_RECORDS_MOST", head.record_count - 1)
    with pytest.raises(BrokenSnapshot, match="control batch at byte 0"):
        list(batch_records(first, head))


def test_headers_of_metadata_are_not_looked_at() -> None:
    inside = b"\0\0\0\1\2v\xfe\xff\xff\x07" + b"\xff" * 100
    body = record(inside)
    batch = memoryview(batch_around(body, 0))
    (header,) = iterate_batches(batch)
    assert [(each.value, each.headers) for each in batch_records(batch, header)] == [(b"v", ())]


@pytest.mark.parametrize("error", [SyncFailed, HalfDone])
@pytest.mark.parametrize("shorten", ["truncate_to", "truncate_fully_and_start_at", "enforce_retention"])
def test_only_want_of_room_is_passed_over_where_the_log_gets_shorter(
    shorten: str, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a sync that failed for lack of space, or a change that stopped half way, the state of the log is unknown."""

    def refused(*_: object) -> None:
        raise error(errno.ENOSPC, "no room")

    disk = MemoryDisk()
    disk.make_directory("/data")
    log = open_metadata_log(disk, "/data", LogConfig(), HandTime(), clean=False)
    monkeypatch.setattr(UnifiedLog, shorten, refused)
    with pytest.raises(error):
        log.drop_below(0) if shorten == "enforce_retention" else getattr(log, shorten)(0)


@pytest.mark.parametrize("ends", ["killed", "closed", "goes on"])
@pytest.mark.parametrize("indexed", [-1, 3, 19])
def test_a_full_disk_does_not_stop_a_truncation_half_way(indexed: int, ends: str) -> None:
    """A node waits for space for its metadata. Shortening the log needs none."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    config = LogConfig(index_interval_bytes=0)
    log = open_metadata_log(disk, "/data", config, HandTime(), clean=False)
    for value in range(20):
        epoch = 1 + value // 10
        log.append_batch(
            PackedValues([b"%d" % value] * 4).batch(log.log_end_offset, epoch, NOW_MS), epoch, NOW_MS
        )
        if value == indexed:
            log.log.segments[-1].write_indexes()

    def full(operation: str, path: str) -> OSError | None:
        if operation in ("write", "create", "write_atomic"):
            return OSError(errno.ENOSPC, "the disk is full", path)
        return None

    disk.refuse = full
    log.truncate_to(30)
    disk.refuse = None
    assert (log.log_end_offset, log.latest_epoch()) == (28, 1)
    if ends == "closed":
        log.close()
    if ends != "goes on":
        log = open_metadata_log(disk.copy(), "/data", config, HandTime(), clean=ends == "closed")
    assert (log.log_end_offset, log.latest_epoch()) == (28, 1)
    log.append_batch(PackedValues([b"new"]).batch(28, 3, NOW_MS), 3, NOW_MS)
    assert [header.base_offset for header in iterate_batches(_all_of(log))] == [*range(0, 28, 4), 28]


def test_closed_segments_below_a_snapshot_go_on_a_full_disk_that_takes_no_new_one() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    log = open_metadata_log(disk, "/data", LogConfig(segment_bytes=500), HandTime(), clean=False)
    while len(log.log.segments) < 4:
        log.append_batch(PackedValues([b"x" * 100]).batch(log.log_end_offset, 1, NOW_MS), 1, NOW_MS)
    log.log.set_high_watermark(log.log_end_offset)
    active = log.log.segments[-1]

    def full(operation: str, path: str) -> OSError | None:
        if operation in ("write", "create", "write_atomic"):
            return OSError(errno.ENOSPC, "the disk is full", path)
        return None

    disk.refuse = full
    log.drop_below(log.log_end_offset)
    assert log.log.segments == [active]


def _all_of(log: PartitionMetadataLog) -> bytes:
    records = log.read(0, 1 << 20, log.log_end_offset, True).records
    assert isinstance(records, FileSlice)
    return records.read()


def test_the_directory_of_a_new_metadata_log_is_private_and_an_old_ones_mode_stays(tmp_path: Path) -> None:
    """It has the keys of SCRAM users. An administrator may open it to a group."""
    config, before = LogConfig(), os.umask(0)
    try:
        for _ in range(2):
            open_metadata_log(RealDisk(), str(tmp_path), config, HandTime(), clean=True).log.close()
            directory = tmp_path / "__cluster_metadata-0"
            mode = directory.stat().st_mode & 0o777
            directory.chmod(0o750)
    finally:
        os.umask(before)
    assert (mode, directory.stat().st_mode & 0o777) == (0o750, 0o750)


def test_the_first_snapshots_of_a_formatted_directory_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        voter = VoterNode(1, bytes(15) + b"\x09", (("CONTROLLER", "127.0.0.1", 1),))
        request = FormatRequest(
            (str(tmp_path),), None, 1, "AAAAAAAAAAAAAAAAAAAAAQ", (), initial_voters=(voter,)
        )
        format_storage(RealDisk(), request, CountingRandom(), NOW_MS)
        format_storage(
            RealDisk(),
            replace(request, log_dirs=(str(tmp_path / "old"),), has_bootstrap_snapshot=False),
            CountingRandom(),
            NOW_MS,
        )
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    assert modes["bootstrap.checkpoint"] == 0o600
    assert modes["00000000000000000000-0000000000.checkpoint"] == 0o400
    assert modes["__cluster_metadata-0"] == 0o700
