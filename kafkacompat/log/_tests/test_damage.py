"""Every kind of damage to every kind of file, after a clean stop and after a kill: the start succeeds, the other
partitions are served, data below the damage is readable, and refused files are named."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.disks import CONFIG, PATHS, Broker, append
from kafkacompat.log._tests.logs import NOW_MS, batch_of, marker, values_in
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.index_rebuild import IndexRebuild
from kafkacompat.log.log_loader import DAMAGE
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import FileSlice, LogRead, LogRefused
from kafkacompat.records.batch import has_valid_crc, parse_header
from kafkacompat.wire.errors import ErrorCode

NAME = TopicPartition("t", 0)
DIRECTORY = "/a/t-0"
RECORDS = 60

Spoil = Callable[[bytearray], bytes | None]
"""The replacement of a file's bytes. None deletes the file."""


def flipped(position: Callable[[int], int]) -> Spoil:
    def flip(data: bytearray) -> bytes:
        if data:
            data[position(len(data)) % len(data)] ^= 0xFF
        return data

    return flip


WAYS: dict[str, Spoil] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut by a byte": lambda data: data[:-1],
    "cut in half": lambda data: data[: len(data) // 2],
    "a byte more": lambda data: data + b"\x01",
    "a short tail of zeros": lambda data: data + bytes(5),
    "a tail of zeros": lambda data: data + bytes(500),
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: random.Random(7).randbytes(len(data) + 3),
    "a tail of garbage": lambda data: data + random.Random(8).randbytes(300),
    "the first byte": flipped(lambda size: 0),
    "the first length": flipped(lambda size: 8),
    "the first magic": flipped(lambda size: 16),
    "the middle": flipped(lambda size: size // 2),
    "the last byte": flipped(lambda size: size - 1),
}


def last_batch(log: UnifiedLog) -> int:
    return list(log.segments[-1].headers())[-1].position


def filled() -> MemoryDisk:
    """Four partitions of several segments with transactions and epochs; everything synced and checkpointed."""
    broker = Broker(MemoryDisk())
    for number in range(4):
        log = broker.log(number)
        append(log, 20, 3)
        for _ in range(6):
            value = b"%d" % log.log_end_offset * 20
            log.append_as_leader(
                batch_of([value], producer_id=9, producer_epoch=0, is_transactional=True), 4, NOW_MS
            )
        log.append_as_leader(marker(9, committed=False), 4, NOW_MS)
        append(log, RECORDS - log.log_end_offset, 5)
    for log in broker.manager.logs.values():
        log.flush()
    upkeep = LogUpkeep(broker.manager)
    for plan in (
        upkeep.checkpoint_high_watermarks(),
        upkeep.checkpoint_recovery_points(),
        upkeep.checkpoint_log_starts(),
    ):
        if plan is not None:
            plan.run()
            plan.finish()
    return broker.disk


def stopped(clean: bool) -> MemoryDisk:
    return stopped_once(clean).copy()


@functools.cache
def stopped_once(clean: bool) -> MemoryDisk:
    disk = filled()
    if clean:
        broker = Broker(disk)
        broker.manager.shut_down(7)
        assert broker.notes == []
    return disk


def read_mended(log: UnifiedLog, offset: int) -> LogRead:
    """Read, and repeat it after damaged indexes were rebuilt, as the node does in the background."""
    for _ in log.segments:
        try:
            return log.read(offset, 1, log.log_end_offset, True)
        except LogRefused as refused:
            if refused.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            segment = log.segments[log._segments.index_of(offset)]
            rebuild = IndexRebuild(log._disk, log, segment, lambda each: True)
            rebuild.run()
            rebuild.finish()
    return log.read(offset, 1, log.log_end_offset, True)


def values_of(log: UnifiedLog) -> dict[int, bytes | None]:
    """The values that can be read, batch by batch. A start after a clean stop does not check data below the end."""
    found: dict[int, bytes | None] = {}
    for offset in range(log.log_start_offset, min(log.log_end_offset, 2 * RECORDS)):
        try:
            read = read_mended(log, offset)
            assert isinstance(read.records, FileSlice)
            data = read.records.read()
            if not has_valid_crc(data, parse_header(data)):
                continue  # a reader would also skip it
            values = values_in(read)
        except (*DAMAGE, IsADirectoryError, LogRefused):
            continue
        found.update(values)
    return found


WHOLE = {offset: b"%d" % offset * 20 for offset in range(RECORDS) if offset != 26}


def assert_serves(broker: Broker, *, but: TopicPartition | None) -> None:
    """The other partitions have all their records and accept writes."""
    for number in range(4):
        name = TopicPartition("t", number)
        if name == but:
            continue
        log = broker.manager.logs[name]
        assert values_of(log) == WHOLE
        append(log, 1)


def spoil(disk: MemoryDisk, path: str, way: Spoil) -> bool:
    """Damage a file. Returns whether its bytes have changed."""
    before = bytes(disk.files[path])
    after = way(bytearray(before))
    if after is None:
        del disk.files[path]
    else:
        disk.files[path] = bytearray(after)
    return after != before


def files_of_a_partition() -> list[str]:
    disk = filled()
    return disk.list_directory(DIRECTORY)


def kinds() -> list[str]:
    """The files of one closed segment and of the active one, and all other files."""
    names = files_of_a_partition()
    logs = [name[:20] for name in names if name.endswith(".log")]
    kept = (logs[0], logs[-1])
    return [name for name in names if not name[:20].isdigit() or name.startswith(kept)] + [
        name for name in names if name.endswith((".txnindex", ".snapshot")) and not name.startswith(kept)
    ]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", kinds())
def test_a_file_of_a_partition(name: str, way: str, clean: bool) -> None:
    disk = stopped(clean)
    path = f"{DIRECTORY}/{name}"
    if path not in disk.files:
        return  # a clean stop leaves no such file
    if not spoil(disk, path, WAYS[way]):
        return
    broker = Broker(disk)
    assert_serves(broker, but=NAME)
    log = broker.manager.get(NAME)
    if log is None:
        assert any(re.search(rf"{DIRECTORY}[ /:]", note) for note in broker.notes)
        assert name == "partition.metadata" or broker.manager.previous_broker_epoch == -1
        return
    assert_writable_to(log)
    found = values_of(log)
    assert all(value == WHOLE.get(offset, value) for offset, value in found.items())
    if not name.endswith(".log"):
        # All of these can be rebuilt from the records.
        assert found.items() >= WHOLE.items()
        assert [epoch for epoch, _ in log.epoch_entries][:3] == [3, 4, 5]
        return
    base = int(name[:20])
    assert {offset for offset in WHOLE if offset < base} <= set(found)
    if log.log_end_offset - 1 < RECORDS:
        assert broker.notes
        assert broker.manager.previous_broker_epoch == -1


def assert_writable_to(log: UnifiedLog) -> None:
    """Appends succeed, or fail with an error that clients know. Written records are there after another start."""
    end = log.log_end_offset
    try:
        append(log, 1, 6)
    except LogRefused:
        return
    assert log.log_end_offset == end + 1
    assert values_in(log.read(end, 1, end + 1, True)) == [(end, b"%d" % end * 20)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("position", range(61))
def test_any_byte_of_the_last_batchs_header(position: int, clean: bool) -> None:
    disk = stopped(clean)
    active = Broker(disk.copy()).manager.logs[NAME].segments[-1]
    last = list(active.headers())[-1]
    disk.files[f"{active.stem}.log"][last.position + position] ^= 0xFF
    broker = Broker(disk)
    assert_serves(broker, but=NAME)
    log = broker.manager.logs[NAME]
    # An offset that is too large, but still within a segment's range, looks like a gap from compaction.
    assert log.log_end_offset in (last.base_offset, RECORDS) or 5 <= position <= 7
    if log.log_end_offset < RECORDS:
        assert broker.notes
    found = values_of(log)
    assert {offset: found[offset] for offset in WHOLE if offset < last.base_offset}
    end = log.log_end_offset
    append(log, 1, 1 << 30)
    again = broker.restarted().manager.logs[NAME]
    assert again.log_end_offset == end + 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", [*kinds(), ""])
def test_a_directory_where_a_file_belongs_or_a_file_where_a_directory(name: str, clean: bool) -> None:
    disk = stopped(clean)
    if name:
        path = f"{DIRECTORY}/{name}"
        disk.files.pop(path, None)
        disk.directories.add(path)
    else:
        disk.remove_tree(DIRECTORY)
        disk.files[DIRECTORY] = bytearray(b"what?")
    broker = Broker(disk)
    assert broker.online == [True, True]
    assert_serves(broker, but=NAME)
    if broker.manager.get(NAME) is not None:
        # For a closed segment, which is not opened before it is read, or for one that is recreated.
        log = broker.manager.logs[NAME]
        others = {offset for offset in WHOLE if f"{log.segment_base_offset(offset):020d}" != name[:20]}
        assert {offset: WHOLE[offset] for offset in others}.items() <= values_of(log).items()
        return
    assert any(DIRECTORY in note and "is offline" in note for note in broker.notes)
    assert not any("Traceback" in note for note in broker.notes)
    with pytest.raises(LogRefused, match="could not be opened"):
        broker.manager.get_or_create(NAME, b"\7" * 16, CONFIG, is_new=False)
    # The leader has the missing records: the log begins empty, and the old files stay.
    log = broker.manager.get_or_create(NAME, b"\7" * 16, CONFIG)
    assert log.log_end_offset == 0
    assert any(each.startswith("t-0.") and each.endswith("-stray") for each in disk.list_directory("/a"))


DIRECTORY_FILES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", [*WAYS, "a directory"])
@pytest.mark.parametrize("name", DIRECTORY_FILES)
def test_a_file_of_a_log_directory(name: str, way: str, clean: bool) -> None:
    disk = stopped(clean)
    path = f"/a/{name}"
    if way == "a directory":
        disk.files.pop(path, None)
        disk.directories.add(path)
    elif path in disk.files:
        spoil(disk, path, WAYS[way])
    broker = Broker(disk)
    assert broker.online[1]
    if not broker.online[0]:
        assert way == "a directory"
        assert any(note.startswith("Stopping serving logs in dir /a") for note in broker.notes)
        return
    assert_serves(broker, but=None)


def test_things_that_are_nobodys() -> None:
    disk = stopped(clean=True)
    for path in PATHS:
        disk.directories |= {f"{path}/lost+found", f"{path}/t-0"}
        disk.files[f"{path}/notes.txt"] = bytearray(b"x")
        disk.files[f"{path}/t-0/notes.txt"] = bytearray(b"x")
        disk.files[f"{path}/t-0/12345678901234567890123.log"] = bytearray(b"x")
    broker = Broker(disk)
    assert_serves(broker, but=None)
