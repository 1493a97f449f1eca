"""The collector over real files: rotated, deleted, missing, too many. The broker is slow, and the collector dies."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO
from unittest import mock

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.pipeline._tests.collector_kit import READ_BYTES, TURN_S, CollectorKit, Written, a_collector
from kafkacompat.pipeline.collector import packed, running, state_file
from kafkacompat.pipeline.collector.followed import MAX_CHUNK_LINES, MAX_MARKS
from kafkacompat.pipeline.collector.saved_state import decode
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed

ROUNDS = 20 if os.environ.get("KAFKACOMPAT_SOAK") == "1" else 1


@pytest.fixture
def world() -> Iterator[CollectorKit]:
    with a_collector() as world:
        yield world


def run(world: CollectorKit, operations: list[tuple]) -> None:
    for name, *values in operations:
        match name:
            case "allow":
                world.shipper.allowed = values[0]
            case "deliver":
                world.shipper.deliver(values[0])
            case _:
                getattr(world, name)(*values)


def handles(folder: Path) -> int:
    """Return the number of this process's open files below the folder, also those without a name."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # other threads open and close files of their own
            count += os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder.resolve()}/")
    return count


LINES = st.integers(0, 4)
SILENCE_S = st.sampled_from([0.0, 1.0, 4.0])
OPERATION = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12), st.integers(0, 300)),
    st.tuples(st.just("rename_within"), LINES),
    st.tuples(st.just("rename_away"), LINES, SILENCE_S),
    st.tuples(st.just("delete"), LINES, SILENCE_S),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 6.0, 61.0, 130.0])),
    st.tuples(st.just("allow"), st.sampled_from([0, 1, 3, 1 << 30])),
    st.tuples(st.just("deliver"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["delete_rotated", "crash", "turn"])),
    st.tuples(st.just("pack_while_down"), LINES),
    st.tuples(st.just("replace_by_copy"), LINES),
)


@settings(max_examples=150 * ROUNDS)
@given(st.lists(OPERATION, max_size=30))
def test_every_line_arrives_once_while_its_file_can_be_read(operations: list[tuple]) -> None:
    with a_collector() as world:
        run(world, operations)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}
        assert {line: ids for line, ids in world.values().items() if ids > 1} == {}
        # No handle is left on the deleted files: the log, the server's handle on it, and the collector's.
        world.delete_rotated()
        world.wait(200.0)
        world.wait(200.0)
        assert world.collector.figures().files == 1
        assert handles(world.folder) <= 2
    assert handles(world.folder) == 0


@settings(max_examples=100 * ROUNDS)
@given(st.lists(st.one_of(OPERATION, st.tuples(st.just("copy_and_truncate"))), max_size=30))
def test_every_line_arrives_though_its_file_was_copied_and_truncated(operations: list[tuple]) -> None:
    with a_collector() as world:
        run(world, operations)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}


FIELDS = st.tuples(st.just("append_fields"), st.booleans(), LINES)


@settings(max_examples=150 * ROUNDS)
@given(st.lists(st.one_of(FIELDS, OPERATION, st.tuples(st.just("copy_and_truncate"))), max_size=30))
def test_every_line_arrives_with_the_fields_that_its_file_has_for_it(operations: list[tuple]) -> None:
    with a_collector() as world:
        run(world, operations)
        world.drain()
        assert world.missing() == []
        assert {
            line: found for line, found in world.fields.items() if found != {world.written_fields[line]}
        } == {}


def begins(line: bytes) -> bool:
    """Every third line begins a record."""
    return line[:6].isdigit() and int(line[:6]) % 3 == 0


@settings(max_examples=150 * ROUNDS)
@given(st.lists(OPERATION, max_size=30))
def test_lines_that_a_rule_puts_together_arrive(operations: list[tuple]) -> None:
    with a_collector(begins) as world:
        run(world, operations)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}
        for values in world.arrived.values():
            for value in values:
                assert not any(map(begins, value.split(b"\n")[1:])), value
        world.delete_rotated()
        world.wait(200.0)
        world.wait(200.0)
        assert handles(world.folder) <= 2
    assert handles(world.folder) == 0


@settings(max_examples=100 * ROUNDS)
@given(st.lists(st.one_of(OPERATION, st.tuples(st.just("copy_and_truncate"))), max_size=30))
def test_records_of_lines_arrive_though_their_file_was_copied_and_truncated(operations: list[tuple]) -> None:
    with a_collector(begins) as world:
        run(world, operations)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}


def test_a_log_that_is_replaced_by_a_copy_of_itself_while_a_record_waits_goes_on() -> None:
    with a_collector(begins) as world, mock.patch.object(running, "RECORD_WAIT_S", 5.0):
        world.append(1)
        world.turn()
        world.replace_by_copy(0)
        for _ in range(12):
            world.turn()
        assert not world.shipper.on_the_way
        world.wait(6.0)
        world.drain()
        assert world.missing() == []
        assert set(world.values().values()) == {1}


def test_a_record_whose_lines_come_late_keeps_its_event_id_after_a_crash() -> None:
    with a_collector(begins) as world:
        world.append(2)
        world.turn()
        world.wait(10.0)
        # The record is on the way, and the collector dies before the broker has acknowledged it.
        assert [line.value[:6] for _, _, lines in world.shipper.on_the_way for line in lines] == [b"000000"]
        world.append(1)
        world.crash()
        world.drain()
        assert world.missing() == []
        found = sorted((position, values) for (_, position), values in world.arrived.items())
        first, second, third = world.files[0].lines
        assert found == [(0, {first + b"\n" + second}), (2 * len(first) + 2, {third})]


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_record_whose_lines_come_late_keeps_its_event_id_after_a_crash_with_much_on_the_way(
    crashes: int,
) -> None:
    with a_collector(begins) as world:
        world.append(2)
        world.turn()
        world.wait(10.0)
        world.append(100)
        for _ in range(20):
            world.turn()
        # The next save covers many chunks, and the record is the first of them.
        world.wait(10.0)
        assert len(world.shipper.on_the_way) > 2 * MAX_MARKS
        for number in range(crashes):
            # The broker has the record, and the collector dies before it has saved that.
            world.shipper.deliver(0)
            world.crash()
            if number + 1 < crashes:
                for _ in range(20):
                    world.turn()
                world.wait(10.0)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}


def test_a_record_whose_file_cannot_be_read_lets_the_collector_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_collector(begins) as world:
        world.append(2)
        world.turn()
        refuse_reads_up_to(monkeypatch, world.log.stat().st_size)
        world.wait(10.0)
        assert "Input/output error" in world.troubles
        assert not world.collector.turn(world.now_s)


def refuse_reads_up_to(patch: pytest.MonkeyPatch, end: int) -> None:
    """Reads that end there fail, as on a network file system whose server is away for a moment."""
    read = os.pread

    def refuse(descriptor: int, length: int, offset: int) -> bytes:
        if offset + length == end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, length, offset)

    patch.setattr(os, "pread", refuse)


def test_a_record_whose_file_cannot_be_read_for_a_moment_is_sent_when_it_has_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_collector(begins) as world:
        world.append(2)
        world.turn()
        with monkeypatch.context() as patch:
            refuse_reads_up_to(patch, world.log.stat().st_size)
            world.wait(10.0)
        assert "Input/output error" in world.troubles
        world.append(2)
        world.drain()
        assert world.missing() == []


def test_a_record_whose_file_cannot_be_read_for_a_moment_is_sent_when_the_next_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_collector(begins) as world, mock.patch.object(running, "RECORD_WAIT_S", 5.0):
        world.append(3, 500)
        end = world.log.stat().st_size
        world.files[-1].stream.write(b"000003")
        for _ in range(6):
            world.turn()
        world.files[-1].stream.write(b" rest\n")
        world.files[-1].lines.append(b"000003 rest")
        with monkeypatch.context() as patch:
            refuse_reads_up_to(patch, end)
            world.turn()
        assert "Input/output error" in world.troubles
        world.turn()
        world.wait(6.0)
        world.drain()
        assert world.missing() == []


@pytest.mark.parametrize("before", [3, 400])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("allowed", [1 << 30, 3, 0])
def test_a_log_replaced_by_a_longer_copy_of_itself_goes_on(
    world: CollectorKit, before: int, down: bool, allowed: int
) -> None:
    world.append(before)
    world.drain()
    world.append(5)
    world.shipper.allowed = allowed
    world.turn()
    # Copies of less than 1024 bytes that were replaced themselves before they were read cannot be told from other files.
    for _ in range(3 if down or before > 3 else 1):
        if down:
            world.die()
        world.replace_by_copy(7)
        if down:
            world.begin()
        world.turn()
        world.append(1)
        world.turn()
    world.drain()
    world.wait(3.0)
    world.append(1)
    world.drain()
    assert world.missing() == []
    assert len({identity for identity, _ in world.arrived}) == 1
    assert set(world.values().values()) == {1}


def test_lines_that_a_server_still_writes_to_a_replaced_log_arrive_once(world: CollectorKit) -> None:
    world.append(400)
    world.drain()
    world.replace_by_copy(2, late=3)
    world.drain()
    stream = world.files[-1].stream
    world.files[-1].stream = open(os.dup(stream.fileno()), "ab", buffering=0)  # noqa: SIM115 - closed by the world
    world.replace_by_copy(2)
    world.turn()
    world.turn()
    # The copy has gone on by now. The old server writes on.
    world.files[-2].lines.append(b"a line of the old server")
    stream.write(b"a line of the old server\n")
    stream.close()
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}


def test_a_copy_without_a_name_is_kept_while_its_original_waits_for_the_broker(world: CollectorKit) -> None:
    world.append(5, 188)
    world.wait(0.0)
    world.append(1, 36)
    world.replace_by_copy(0)
    world.rename_away(1, 0.0)
    world.rename_away(0, 0.0)
    world.wait(61.0)
    world.drain()
    assert world.missing() == []


def test_a_short_copy_that_lost_its_name_like_its_original_arrives_once(world: CollectorKit) -> None:
    world.append(1, 0)
    world.wait(0.0)
    world.replace_by_copy(0)
    world.rename_away(0, 0.0)
    world.drain()
    assert list(world.values().values()) == [1]
    world.wait(61.0)
    world.wait(61.0)
    assert world.collector.figures().files == 1


def test_a_copy_waits_for_an_original_that_is_not_read_yet(world: CollectorKit) -> None:
    world.shipper.allowed = 0
    world.replace_by_copy(1)
    world.wait(0.0)
    world.replace_by_copy(0)
    for _ in range(3):
        world.rename_away(0, 0.0)
    world.drain()
    assert set(world.values().values()) == {1}


def test_a_copy_is_read_though_its_original_cannot_be(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.shipper.allowed = 0
    world.append(1)
    world.wait(0.0)
    original = next(iter(world.collector._following.files()))
    reader = world.disk.reader

    def read(offset: int, length: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(
        world.disk, "reader", lambda look: read if look.inode == original.inode else reader(look)
    )
    world.replace_by_copy(0)
    world.drain()
    assert world.missing() == []


def test_bytes_that_a_copy_has_are_not_told_as_lost(world: CollectorKit) -> None:
    """400 lines that nothing was read of, that were read in part, and that were deleted in a copy."""
    for allowed in (0, 3, 1 << 30):
        world.append(400, 13)
        world.shipper.allowed = allowed
        world.turn()
        world.turn()
        world.copy_and_truncate()
        world.turn()
        assert world.collector.figures().truncations > 0
        world.drain()
        assert world.missing() == []
        assert world.collector.figures().unread_at_truncation_bytes == 0
    (world.folder / "access.log.9").write_bytes(world.log.read_bytes())
    world.turn()
    (world.folder / "access.log.9").unlink()
    world.wait(6.0)
    world.wait(6.0)
    assert world.collector.figures().given_up_bytes == 0


def test_bytes_that_no_copy_has_are_told_as_lost(world: CollectorKit) -> None:
    for allowed, read in ((0, 0), (3, 800)):
        told = world.collector.figures().unread_at_truncation_bytes
        world.append(100, 13)
        world.shipper.allowed = allowed
        # Each turn reads 400 bytes.
        world.turn()
        world.turn()
        os.truncate(world.log, 0)
        world.turn()
        lost = world.collector.figures().unread_at_truncation_bytes - told
        assert lost == 2100 - read
        world.append(5)
        world.drain()


@pytest.mark.parametrize("end", ["delete", "rename_away"])
def test_unread_lines_of_a_file_without_a_name_wait_for_the_broker(world: CollectorKit, end: str) -> None:
    world.append(200)
    world.shipper.allowed = 3
    world.turn()
    getattr(world, end)(0, 0.0)
    for _ in range(10):
        world.wait(100.0)
    assert world.collector.figures().lag_bytes > 10_000
    world.drain()
    assert world.missing() == []


def test_lines_on_their_way_are_found_again_after_a_crash_though_their_file_was_renamed_long_ago(
    world: CollectorKit,
) -> None:
    world.append(20)
    world.turn()
    world.rename_away(0, 0.0)
    for _ in range(10):
        world.wait(100.0)
    world.crash()
    world.drain()
    assert world.missing() == []
    assert len(world.values()) == 20


def test_first_lines_of_a_log_that_is_replaced_by_its_copy_arrive_once(world: CollectorKit) -> None:
    """Neither file had a line when the collector looked last."""
    world.drain()
    world.append(1)
    world.replace_by_copy(1)
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}


def test_a_silent_file_that_is_renamed_is_read_until_the_server_notices(world: CollectorKit) -> None:
    world.append(1)
    world.drain()
    world.wait(61.0)
    world.wait(61.0)
    world.rename_away(1, 4.0)
    world.drain()
    assert world.missing() == []


def test_files_deleted_after_a_silence_are_forgotten(world: CollectorKit) -> None:
    world.drain()
    before = handles(world.folder)
    for number in range(50):
        path = world.folder / f"access.log.{number}"
        path.write_bytes(b"the first line of %d\n" % number)
        # Another open handle prevents the reuse of the inode.
        with open(path, "rb"):
            world.drain()
            world.wait(61.0)
            path.unlink()
            world.wait(61.0)
            world.wait(6.0)
    assert world.collector.figures().files == 1
    assert handles(world.folder) == before
    assert len(world.values()) == 50


def test_a_file_that_was_out_of_sight_goes_on_under_its_event_ids(world: CollectorKit) -> None:
    world.append(40)
    world.drain()
    for crash in (False, True):
        away = world.rename("away.")
        world.wait(61.0)
        world.wait(61.0)
        assert world.collector.figures().files == 0
        if crash:
            world.crash()
            world.turn()
        away.rename(world.log)
        world.append(2)
        world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}
    assert len({identity for identity, _ in world.arrived}) == 1


def test_a_log_that_is_a_link_to_the_file_of_the_day_is_read_through_every_switch(
    world: CollectorKit,
) -> None:
    """Also the file of the previous day, which the pattern no longer matches, if the collector dies after the switch."""
    world.drain()
    world.log.unlink()
    for day in range(3):
        world.files[-1].stream.close()
        path = world.folder / f"{day}.txt"
        world.files.append(Written(path))
        world.append(20)
        link = world.folder / "link"
        link.symlink_to(path)
        link.replace(world.log)
        world.shipper.allowed = 2
        world.turn()
        world.append(5)
        if day:
            world.crash()
    world.drain()
    assert world.missing() == []
    assert len(world.values()) == 75
    assert set(world.values().values()) == {1}


def test_a_file_packed_while_no_collector_ran_goes_on_under_its_event_ids(world: CollectorKit) -> None:
    world.append(100)
    world.shipper.allowed = 5
    world.turn()
    world.drain_some(2)
    world.pack_while_down(30)
    world.append(3)
    # It dies again while it reads the decompressed file.
    world.shipper.allowed = 4
    world.turn()
    world.turn()
    world.drain_some(1)
    assert world.missing() != []
    world.crash()
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}
    assert len({identity for identity, _ in world.arrived}) == 2
    assert world.collector.figures().lost_files == 0
    # Once it is shipped, it is not searched for again.
    world.wait(6.0)
    world.crash()
    for path in world.folder.glob("*.gz"):
        path.unlink()
    world.drain()
    assert world.collector.figures().lost_files == 0


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda text: lzma.compress(text, lzma.FORMAT_ALONE),
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", packed.OPENERS)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_packed_file_is_read_to_its_end(world: CollectorKit, is_whole: bool, suffix: str) -> None:
    world.append(40)
    world.drain()
    world.append(30)
    text = world.log.read_bytes()
    content = COMPRESS[suffix](text[:1000]) + COMPRESS[suffix](text[1000:])
    (world.folder / f"access.log.1{suffix}").write_bytes(content if is_whole else content[:-20])
    world.die()
    world.log.unlink()
    world.begin()
    world.reopen()
    world.drain()
    assert world.missing() == ([] if is_whole else world.files[0].lines[40:])
    assert set(world.values().values()) == {1}
    assert world.collector.figures().lost_files == (0 if is_whole else 1)
    assert (f"access.log.1{suffix}" in world.troubles) is not is_whole


def test_the_page_of_the_collector_names_the_packed_files_that_are_read() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "collector.md"
    named = {f".{found}" for found in re.findall(r"`\.(\w+)`", page.read_text(encoding="utf-8"))}
    assert set(packed.OPENERS) <= named


def test_a_file_with_frames_shorter_than_a_line_is_known_by_its_beginning(tmp_path: Path) -> None:
    text = b"a line of a log with many words\n" * 20
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text))
    pieces = [text[start : start + 10] for start in range(0, len(text), 10)]
    (tmp_path / "a.log.zst").write_bytes(b"".join(map(zstandard.compress, pieces)))
    found, _ = packed.beginnings([str(tmp_path / "a.log.gz"), str(tmp_path / "a.log.zst")])
    assert len(found) == 2
    assert len(set(found.values())) == 1


def test_a_frame_of_zstandard_that_asks_for_much_memory_is_not_read(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, format=zstandard.FORMAT_ZSTD1)
    path = tmp_path / "a.log.zst"
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with path.open("wb") as file, compressor.stream_writer(file) as writer:
        writer.write(b"a line\n" * 100)
    assert packed.beginnings([str(path)]) == ({}, {})


def test_packed_files_that_were_shipped_or_never_followed_are_not_shipped(world: CollectorKit) -> None:
    for name in ("access.log.7.gz", "other.gz", "access.log.8.zst"):
        (world.folder / name).write_bytes(gzip.compress(b"%s was here before\n" % name.encode()))
    world.append(40)
    world.drain()
    world.pack_while_down(0)
    world.append(1)
    world.rename_within(0)
    world.drain()
    world.pack_while_down(0)
    world.drain()
    assert world.missing() == []
    assert len(world.values()) == 42
    assert set(world.values().values()) == {1}


@pytest.mark.parametrize("content", [b"", b"no packed file", gzip.compress(b"other\n", mtime=0), None])
def test_a_file_that_is_not_found_again_is_counted(world: CollectorKit, content: bytes | None) -> None:
    world.append(40)
    world.drain()
    world.append(1)
    packed = gzip.compress(world.log.read_bytes())[:-20]
    world.die()
    world.log.unlink()
    (world.folder / "access.log.1.gz").write_bytes(packed if content is None else content)
    world.begin()
    world.reopen()
    world.append(1)
    world.drain()
    assert len(world.missing()) == 1
    assert world.collector.figures().lost_files == 1
    if content is None:
        assert "access.log.1.gz" in world.troubles


def packed_while_down(world: CollectorKit) -> Path:
    """The log, with a line that is not shipped, is compressed between two runs. Return the compressed file."""
    world.append(40)
    world.drain()
    world.append(1)
    path = world.folder / "access.log.5.gz"
    path.write_bytes(gzip.compress(world.log.read_bytes()))
    world.die()
    world.log.unlink()
    return path


@pytest.mark.parametrize("failure", [None, MemoryError("no room for the dictionary")])
def test_a_packed_file_that_cannot_be_read_does_not_hide_another(
    world: CollectorKit, failure: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed_while_down(world)
    names = [world.folder / f"access.log.{number}.gz" for number in (1, 2, 8, 9)]
    for name in names:
        name.write_bytes(path.read_bytes()[:-20])
    if failure is not None:

        def refuse(file: BinaryIO) -> BufferedIOBase:
            raise failure

        for name in names:
            name.rename(name.with_suffix(".xz"))
        monkeypatch.setitem(packed.OPENERS, ".xz", refuse)
    world.begin()
    world.reopen()
    world.drain()
    assert world.missing() == []
    assert world.collector.figures().lost_files == 0


def test_a_pipe_by_the_name_of_a_packed_file_keeps_nobody_waiting(world: CollectorKit) -> None:
    packed_while_down(world)
    os.mkfifo(world.folder / "access.log.1.gz")

    def waited(number: int, frame: object) -> None:
        raise AssertionError("it waits for somebody to write into the pipe")

    kept = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 30.0)
    try:
        world.begin()
        world.reopen()
        world.drain()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, kept)
    assert world.missing() == []


def no_room(patch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(packed.os, "pwrite", full)


def little_room(patch: pytest.MonkeyPatch) -> None:
    """The file would fit on the disk, but would leave no room for others."""
    patch.setattr(packed, "SPARE_BYTES", float("inf"))
    patch.setattr(packed, "SPARE_SHARE", 1.1)


@pytest.mark.parametrize("lacks", [no_room, little_room])
def test_what_there_was_no_room_to_unpack_is_looked_for_by_the_next_run(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch, lacks: Callable[[pytest.MonkeyPatch], None]
) -> None:
    packed_while_down(world)
    with monkeypatch.context() as patch:
        lacks(patch)
        world.begin()
        world.reopen()
        world.append(1)
        world.drain()
    assert len(world.missing()) == 1
    assert world.collector.figures().lost_files == 1
    assert "No space left" in world.troubles
    world.crash()
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}
    assert world.collector.figures().lost_files == 0


def test_a_packed_file_that_cannot_be_read_now_is_looked_for_by_the_next_run(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed_while_down(world)

    def refuse(path: str) -> BinaryIO:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    with monkeypatch.context() as patch:
        patch.setattr(packed, "_opened", refuse)
        world.begin()
        world.reopen()
        world.append(1)
        world.drain()
    assert len(world.missing()) == 1
    assert world.collector.figures().lost_files == 1
    assert "access.log.5.gz: Stale file handle" in world.troubles
    world.crash()
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}
    assert world.collector.figures().lost_files == 0


def test_a_state_that_cannot_be_saved_for_a_while_ends_nothing(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(40)
    world.drain()

    def full(text: str) -> None:
        raise PipelineFailed("the state cannot be saved: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(world.state, "save", full)
        world.append(5)
        world.drain()
    assert world.missing() == []
    assert "No space left" in world.troubles
    world.wait(2.0)
    assert "No space left" not in str(world.collector.figures().trouble)
    world.crash()
    world.drain()
    assert set(world.values().values()) == {1}


@pytest.mark.parametrize("rule", [None, begins])
def test_lines_of_a_new_log_wait_while_the_state_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[[bytes], bool] | None
) -> None:
    def full(text: str) -> None:
        raise PipelineFailed("the state cannot be saved: No space left on device")

    with a_collector(rule) as world:
        world.append(3)
        world.wait(10.0)
        world.drain()
        with monkeypatch.context() as patch:
            patch.setattr(world.state, "save", full)
            world.rename_within(0)
            world.append(6)
            world.wait(10.0)
            world.drain()
            # Their event ids are certain only when the state has them.
            assert len(world.missing()) == 6
            assert "No space left" in world.troubles
        world.wait(10.0)
        world.drain()
        assert world.missing() == []
        assert world.collector.figures().trouble is None
        world.crash()
        world.drain()
        assert set(world.values().values()) == {1}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EWOULDBLOCK, "another collector uses the state directory"),
        (errno.ENOLCK, "cannot be locked: No locks available"),
    ],
)
def test_a_state_directory_that_cannot_be_locked_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def refuse(file: object, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(state_file.fcntl, "flock", refuse)
    with pytest.raises(PipelineFailed, match=said):
        StateFile(str(tmp_path))


def test_a_state_that_can_never_be_saved_ends_the_collector(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> None:
        raise PipelineFailed("the state cannot be saved: Permission denied")

    monkeypatch.setattr(world.state, "save", refuse)
    world.append(1)
    with pytest.raises(PipelineFailed, match="Permission denied"):
        world.turn()


def test_a_collector_that_is_told_to_end_leaves_the_unpacking_to_the_next(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "PIECE_BYTES", 100)
    packed_while_down(world)
    asked = 0

    def stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    world.begin()
    for _ in range(3):
        world.now_s += TURN_S
        world.collector.turn(world.now_s, stopping)
    assert asked == 4
    assert len(world.missing()) == 1
    assert world.collector.figures().lost_files == 0
    world.crash()
    world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}


def test_an_inode_of_an_earlier_run_given_to_another_file_is_not_shipped(world: CollectorKit) -> None:
    world.append(5)
    world.drain()
    world.crash()
    path = world.rename("away.")
    path.write_bytes(b"another program's file, long enough to hold more than was read before " * 20 + b"\n")
    world.turn()
    world.drain()
    assert world.collector.figures().files == 0
    assert len(world.values()) == 5


def test_a_folder_that_cannot_be_read_for_a_while_after_a_crash_loses_nothing(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(5)
    world.drain()
    world.append(5)
    world.crash()
    world.rename("away.")

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(13, "not now", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        world.turn()
        assert world.collector.figures().trouble == f"{world.log}: not now"
    world.drain()
    assert world.missing() == []


def test_copies_held_by_an_earlier_run_are_forgotten_with_their_files(world: CollectorKit) -> None:
    world.append(40)
    world.drain()
    copy = world.folder / "access.log.copy"
    copy.write_bytes(world.log.read_bytes())
    world.drain()
    world.append(1)
    world.drain()
    assert decode(world.state.text or "")[1] != []
    copy.unlink()
    world.crash()
    world.append(1)
    world.drain()
    assert decode(world.state.text or "")[1] == []


def test_files_without_a_name_stay_open_beyond_the_bound_while_their_lines_are_not_shipped(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacompat.pipeline.collector.disk.MAX_FILES", 3)
    world.shipper.allowed = 0
    for _ in range(8):
        world.append(2)
        world.delete(0, 6.0)
    world.turn()
    assert world.collector.figures().beyond_files == 6
    world.drain()
    assert world.missing() == []
    world.wait(6.0)
    assert world.collector.figures().beyond_files == 0
    assert world.collector.figures().given_up_bytes == 0


def test_followed_files_keep_their_place_when_names_shift(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacompat.pipeline.collector.disk.MAX_FILES", 2)
    (world.folder / "access.log.z").write_bytes(b"z\n")
    world.drain()
    for number in range(3):
        (world.folder / f"access.log.{number}").write_bytes(b"%d\n" % number)
    for crash in (False, True):
        if crash:
            world.crash()
        with open(world.folder / "access.log.z", "ab") as file:
            file.write(b"more %d\n" % crash)
        world.drain()
        assert world.collector.figures().refused_files == 3
    assert set(world.values()) == {b"z", b"more 0", b"more 1"}


def test_short_lines_are_handed_over_in_bounded_numbers(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a short or empty line costs memory and a place in the client's queue."""
    monkeypatch.setattr(running, "READ_BYTES", 256 * 1024)
    world.append(1)
    world.drain()
    for values in ([b""] * 50_000, [b"%d" % number for number in range(30_000)]):
        world.files[-1].stream.write(b"".join(value + b"\n" for value in values))
        at = world.shipper.acknowledged_lines
        while world.shipper.acknowledged_lines < at + len(values):
            world.shipper.allowed = 1
            world.turn()
            (shipped,) = world.shipper.on_the_way
            assert 0 < len(shipped[2]) <= MAX_CHUNK_LINES
            world.shipper.deliver(0)
    assert len(world.arrived) == 80_001
    assert all(len(values) == 1 for values in world.arrived.values())


def test_each_file_gets_its_turn_while_the_broker_has_room_for_one_read(world: CollectorKit) -> None:
    """Each of two files grows faster than the broker takes lines."""
    turns = 20
    with open(world.folder / "access.log.other", "ab", buffering=0) as other:
        for turn in range(turns):
            world.append(2 * READ_BYTES // 60)
            other.write(b"".join(b"%04d.%04d %s\n" % (turn, line, b"y" * 60) for line in range(12)))
            world.shipper.allowed = 1
            world.turn()
            world.shipper.deliver(0)
    arrived = Counter(value[-1:] for values in world.arrived.values() for value in values)
    assert set(arrived) == {b"x", b"y"}
    assert min(arrived.values()) > max(arrived.values()) / 2


def test_bytes_that_go_with_their_file_are_counted(world: CollectorKit) -> None:
    world.append(1)
    world.files[-1].stream.write(b"no newline")
    world.drain()
    world.delete(0, 0.0)
    world.wait(6.0)
    assert world.collector.figures().given_up_bytes == len(b"no newline")


def test_a_file_that_cannot_be_opened_now_is_followed_later(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(3)

    def refuse(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        world.turn()
        assert world.collector.figures().trouble == f"{world.log}: too many open files"
    world.drain()
    assert world.missing() == []


class Stale:
    """Descriptors that have become stale, as when an NFS server has removed the file or lost its table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.descriptors: set[int] = set()
        self._fstat, self._pread, self._close = os.fstat, os.pread, os.close
        monkeypatch.setattr(os, "fstat", self.fstat)
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "close", self.close)

    def _check(self, descriptor: int) -> None:
        if descriptor in self.descriptors:
            raise OSError(errno.ESTALE, "Stale file handle")

    def fstat(self, descriptor: int) -> os.stat_result:
        self._check(descriptor)
        return self._fstat(descriptor)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        self._check(descriptor)
        return self._pread(descriptor, length, offset)

    def close(self, descriptor: int) -> None:
        self._close(descriptor)
        if descriptor in self.descriptors:
            self.descriptors.discard(descriptor)
            raise OSError(errno.ESTALE, "Stale file handle")


def descriptors_of(world: CollectorKit) -> set[int]:
    return {handle.descriptor for handle in world.disk._handles.values()}


def test_a_file_whose_handle_went_stale_is_opened_anew(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Stale(monkeypatch)
    world.append(3)
    world.drain()
    stale.descriptors = descriptors_of(world)
    world.append(2)
    world.drain()
    assert world.missing() == []
    assert len(world.values()) == 5


def test_a_file_that_is_gone_with_its_handle_is_given_up_and_counted(
    world: CollectorKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Stale(monkeypatch)
    world.append(1)
    world.files[-1].stream.write(b"no newline")
    world.drain()
    before = handles(world.folder)
    held = descriptors_of(world)
    world.delete(0, 0.0)
    stale.descriptors = held
    world.turn()
    assert "Stale file handle" in str(world.collector.figures().trouble)
    world.wait(61.0)
    world.wait(6.0)
    assert world.collector.figures().given_up_bytes == len(b"no newline")
    assert handles(world.folder) <= before
    world.append(1)
    world.drain()
    assert world.missing() == []


def test_handles_are_left_for_the_state_and_the_connections(world: CollectorKit) -> None:
    world.disk.max_handles = 3
    world.shipper.allowed = 0
    for _ in range(4):
        world.append(2)
        world.delete(0, 6.0)
    world.turn()
    assert world.collector.figures().files == 3
    assert world.collector.figures().refused_files == 1
    world.drain()
    world.wait(6.0)
    world.append(1)
    world.drain()
    assert world.collector.figures().files == 1
    assert world.collector.figures().refused_files == 0


def test_a_file_of_an_earlier_run_with_two_names_is_opened_once(world: CollectorKit) -> None:
    world.append(5)
    world.drain()
    link = world.folder / "elsewhere"
    link.mkdir()
    world.append(5)
    world.crash()
    (link / "other").hardlink_to(world.log)
    away = world.rename("away.")
    world.log.symlink_to(link / "nothing")
    before = handles(world.folder)
    world.turn()
    assert handles(world.folder) == before + 1
    assert away.exists()
    world.drain()
    assert world.missing() == []


def test_a_file_truncated_while_nobody_looked_gets_other_event_ids(world: CollectorKit) -> None:
    heading = b"#Fields: a b c\n"
    world.files[-1].stream.write(heading)
    world.append(3)
    world.turn()
    # The line arrives, and the collector dies before it gets the acknowledgement.
    world.shipper.deliver(0)
    world.crash()
    os.truncate(world.log, 0)
    world.files[-1].stream.write(heading)
    world.append(5)
    world.drain()
    assert world.missing() == []
    assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}


def test_a_file_renamed_a_second_time_is_read_for_as_long_again(world: CollectorKit) -> None:
    world.append(1)
    world.drain()
    away = world.rename("away.")
    world.wait(1.0)
    away.rename(world.log)
    world.wait(100.0)
    world.rename_away(1, 30.0)
    world.drain()
    assert world.missing() == []
