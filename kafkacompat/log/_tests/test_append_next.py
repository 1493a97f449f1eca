"""`append_next` does to a log what `append_as_leader` does, or nothing. So does its compiled gait."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafkacompat.compiled import OFF, SWITCH
from kafkacompat.log import producer_snapshots
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, batch_of, config, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import LEADER_EPOCH_FILE
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.log_segment import TAIL_BATCHES, LogSegment
from kafkacompat.log.producer_snapshots import decode_snapshot, encode_snapshot
from kafkacompat.log.unified_log import (
    UnifiedLog,
    append_next_compiled,
    append_next_in_python,
    set_high_watermark_compiled,
    set_high_watermark_in_python,
)
from kafkacompat.ports import FileSlice, LogRefused, TransactionTerms
from kafkacompat.records._tests.examples import examples

AppendNext: TypeAlias = Callable[..., int]


@pytest.fixture(params=["python", "compiled"])
def append_next(request: pytest.FixtureRequest) -> AppendNext:
    if request.param == "python":
        return append_next_in_python
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    compiled: AppendNext = append_next_compiled
    return compiled


class Step(NamedTuple):
    values: list[bytes]
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    ends_transaction: bool
    """A marker is written before."""


steps = st.builds(
    Step,
    st.lists(st.sampled_from([b"", b"v" * 60, b"v" * 300]), min_size=1, max_size=3),
    st.sampled_from([NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 5000, NOW_MS - 5000, -1]),
    st.sampled_from([-1, 1, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(-1, 9),
    st.sampled_from([3, 3, 3, 4]),
    st.sampled_from([False, False, False, False, True]),
)
ALWAYS_PLAIN = [Step([b"v"], NOW_MS, 1, 0, at, 3, False) for at in range(9)]


def state(log: UnifiedLog) -> Any:
    segments = []
    for each in log.segments:
        data = each._disk.open(each.stem + ".log").read_cold(0, each.size)
        offsets, times = each.indexes.pair(each.size)
        tail = (list(each._tail_offsets), list(each._tail_positions), each._tail_starts_after)
        largest = (each.max_timestamp_ms, each.max_timestamp_offset, each.rolling_timestamp_ms)
        segments.append(
            (
                data,
                [offsets.entry(at) for at in range(len(offsets))],
                [times.entry(at) for at in range(len(times))],
                tail,
                largest,
                each.bytes_since_index_entry,
            )
        )
    producers = encode_snapshot(log.producer_state.producers.values())
    retained = [each.batches for each in log.producer_state.producers.values()]
    offsets_of = (log.log_end_offset, log.producer_state.end_offset, log.last_stable_offset)
    return segments, bytes(producers), retained, offsets_of, list(log.epoch_entries), log.latest_epoch()


def appended(log: UnifiedLog, step: Step, append_next: AppendNext | None) -> Any:
    producer = {
        "producer_id": step.producer_id,
        "producer_epoch": step.producer_epoch,
        "base_sequence": max(step.sequence, 0) if step.producer_id >= 0 else step.sequence,
    }
    if step.ends_transaction:
        try:
            log.append_as_leader(marker(2, committed=True), 3, NOW_MS, TransactionTerms())
        except LogRefused as refused:
            return refused.code
    batch = batch_of(step.values, step.timestamp_ms, **producer)
    if append_next is not None:
        before = state(log)
        first_offset = append_next(
            log,
            batch.buffer,
            batch.size,
            batch.record_count,
            batch.max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            step.leader_epoch,
        )
        if first_offset >= 0:
            return first_offset
        assert state(log) == before
    try:
        return log.append_as_leader(batch, step.leader_epoch, NOW_MS).first_offset
    except LogRefused as refused:
        return refused.code


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(steps, max_size=12),
    st.sampled_from([400, 2000]),
    st.sampled_from([100, 4096]),
    st.sampled_from([24, 10 * 1024 * 1024]),
)
@example(ALWAYS_PLAIN, 2000, 100, 10 * 1024 * 1024)
def test_both_appends_leave_the_same_log(
    append_next: AppendNext, done: list[Step], segment_bytes: int, interval: int, index_bytes: int
) -> None:
    options = config(
        segment_bytes=segment_bytes,
        index_interval_bytes=interval,
        segment_index_bytes=index_bytes,
        segment_ms=3000,
    )
    short, usual = open_log(MemoryDisk(), options), open_log(MemoryDisk(), options)
    for step in done:
        assert appended(short, step, append_next) == appended(usual, step, None)
        assert state(short) == state(usual)


def test_the_batches_of_a_known_producer_need_no_closer_look(append_next: AppendNext) -> None:
    log = open_log(MemoryDisk())
    for step in ALWAYS_PLAIN:
        batch = batch_of(step.values, producer_id=1, producer_epoch=0, base_sequence=step.sequence)
        found = append_next(log, batch.buffer, batch.size, 1, NOW_MS, 1, 0, step.sequence, 3)
        assert found == (
            step.sequence if step.sequence else -1
        )  # the first one makes the epoch and the producer
        if found < 0:
            log.append_as_leader(batch, 3, NOW_MS)
    assert log.log_end_offset == len(ALWAYS_PLAIN)


def test_a_snapshot_that_is_being_encoded_has_the_producer_as_it_was(
    append_next: AppendNext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_snapshots, "ENCODED_A_STEP", 1)
    disk = MemoryDisk()
    log = open_log(disk)

    def batch(producer_id: int, sequence: int) -> Any:
        return batch_of([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    for producer_id in (1, 2):
        log.append_as_leader(batch(producer_id, 0), 3, NOW_MS)
    log.roll(2, NOW_MS)
    log.append_as_leader(batch(1, 1), 3, NOW_MS)
    following = batch(2, 1)
    assert append_next(log, following.buffer, following.size, 1, NOW_MS, 2, 0, 1, 3) == 3
    while not log.go_on_with_snapshot():
        pass
    taken = decode_snapshot(disk.read_bytes(f"{DIRECTORY}/{2:020d}.snapshot"))
    assert {each.producer_id: each.batches[-1].last_sequence for each in taken} == {1: 0, 2: 0}


@pytest.mark.parametrize("reason", ["none", "transaction", "verification"])
def test_what_transactions_have_to_say_is_for_the_closer_look(append_next: AppendNext, reason: str) -> None:
    """A producer may not write outside its open transaction, and must begin where its verification says."""
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS)
    sequence = 1
    if reason == "transaction":
        opening = batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)
        log.append_as_leader(opening, 3, NOW_MS)
        sequence = 2
    elif reason == "verification":
        log.start_verification(1, 0, 0, bumps_epochs=False, now_ms=NOW_MS)
    before = state(log)
    batch = batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence)
    found = append_next(log, batch.buffer, batch.size, 1, NOW_MS, 1, 0, sequence, 3)
    assert (found, state(log) == before) == ((1, False) if reason == "none" else (-1, True))


def test_the_first_batch_of_an_epoch_comes_after_the_file_with_the_epoch(append_next: AppendNext) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    log.assign_epoch_start(4, log.log_end_offset)
    batch = batch_of([b"v"])
    of_the_batch = batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 4
    assert append_next(log, *of_the_batch) == -1
    log.append_as_leader(batch, 4, NOW_MS)
    assert b"4 1" in disk.read_bytes(f"{DIRECTORY}/{LEADER_EPOCH_FILE}")
    assert append_next(log, *of_the_batch) == 2


def test_many_batches_fill_the_pages_of_the_indexes_and_the_memory_of_the_tail(
    append_next: AppendNext,
) -> None:
    options = config(segment_bytes=1 << 20, index_interval_bytes=10)
    short, usual = open_log(MemoryDisk(), options), open_log(MemoryDisk(), options)
    count = 2 * TAIL_BATCHES + 100
    looked_at = 0
    for at in range(count):
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": at}
        batch, same = (batch_of([b"v"], NOW_MS + at, **producer) for _ in range(2))
        if append_next(short, batch.buffer, batch.size, 1, NOW_MS + at, 1, 0, at, 3) < 0:
            looked_at += 1
            short.append_as_leader(batch, 3, NOW_MS)
        usual.append_as_leader(same, 3, NOW_MS)
    assert state(short) == state(usual)
    assert short.log_end_offset == count
    assert looked_at < 20


@pytest.mark.parametrize("producer_id", [-1, 1])
def test_a_batch_that_cannot_be_written_leaves_the_log_as_it_was(
    append_next: AppendNext, producer_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(MemoryDisk(), config(index_interval_bytes=10))
    epoch = -1 if producer_id < 0 else 0

    def following(at: int) -> int:
        sequence = -1 if producer_id < 0 else at
        batch = batch_of(
            [b"v"], NOW_MS + at, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        stamp = NOW_MS + at, producer_id, epoch, sequence, 3
        return append_next(log, batch.buffer, batch.size, 1, *stamp)

    log.append_as_leader(
        batch_of([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=epoch), 3, NOW_MS
    )
    assert [following(at) for at in (1, 2)] == [1, 2]
    before, segment = state(log), log.segments[-1]
    with monkeypatch.context() as broken:

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

        broken.setattr(type(segment.file), "write_now", full)
        with pytest.raises(OSError, match="full"):
            following(3)
    assert state(log) == before
    assert segment._may_have_left_bytes
    assert following(3) == 3


HOSTILE: list[Any] = [None, -1, 0, 1 << 31, 1 << 63, 1 << 64, True, 1.5, "x", b""]


ANOTHER_VALID_BATCH = {
    ("producer", -1),
    ("producer epoch", 0),
    ("timestamp", -1),
    ("timestamp", 0),
    ("timestamp", 1 << 31),
}
PLACES = ["batch", "size", "count", "timestamp", "producer", "producer epoch", "sequence", "leader epoch"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_what_cannot_be_a_batch_has_no_effect(place: str, value: Any) -> None:
    """The compiled gait says nothing of what is unusual, and writes nothing."""
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS)
    before = state(log)
    batch = batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=1)
    given: list[Any] = [bytearray(batch.buffer), batch.size, 1, NOW_MS, 1, 0, 1, 3]
    given[PLACES.index(place)] = value
    if type(value) is int and (place, value) in ANOTHER_VALID_BATCH:
        return
    assert append_next_compiled(log, *given) == -1
    assert state(log) == before


@pytest.mark.parametrize("records", [b"", bytearray(15), bytes(100)], ids=["empty", "short", "read-only"])
def test_what_cannot_be_stamped_has_no_effect(records: Any) -> None:
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    before = state(log)
    assert append_next_compiled(log, records, 100, 1, NOW_MS, -1, -1, -1, 3) == -1
    assert state(log) == before


BOUNDS = ["_bounded", "_room", "_latest_ms", "_last_offset"]


@pytest.mark.parametrize(
    "name",
    ["size", "base_offset", "_file", "indexes", "max_timestamp_ms", *BOUNDS],
)
@pytest.mark.parametrize("value", [None, "x", 1 << 70, ...], ids=["None", "text", "large", "empty"])
def test_a_slot_with_something_else_has_no_effect(name: str, value: Any) -> None:
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    log = open_log(MemoryDisk(), config(index_interval_bytes=10))
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    segment = log.segments[-1]
    owner: Any = log if name in BOUNDS else segment
    if value is ...:
        delattr(owner, name)
    elif (name, value) not in {("_file", "x"), ("_file", 1 << 70)}:  # whatever is there is asked to write
        setattr(owner, name, value)
    else:
        return
    batch = batch_of([b"v"])
    given = batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 3
    assert append_next_compiled(log, *given) == -1
    assert log.log_end_offset == 1
    if value is None and name == "_bounded":
        log._bounded = segment
        assert append_next_compiled(log, *given) == 1


def test_only_a_later_timestamp_becomes_the_largest(append_next: AppendNext) -> None:
    """An index that Kafka has written may tell of an offset within a batch. A truncation leaves such an entry, although the
    offset comes again."""
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    segment = log.segments[-1]
    segment.max_timestamp_ms, segment.max_timestamp_offset = NOW_MS + 5000, 1
    batch = batch_of([b"v"])
    assert append_next(log, batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 3) == 1
    assert (segment.max_timestamp_ms, segment.max_timestamp_offset) == (NOW_MS + 5000, 1)


def test_an_offset_beyond_all_has_no_effect() -> None:
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    log.log_end_offset = log.segments[-1].base_offset = (1 << 63) - 1
    batch = batch_of([b"v"])
    assert append_next_compiled(log, batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 3) == -1
    assert log.log_end_offset == (1 << 63) - 1


BY_FILE = [Step([b"v" * 300], NOW_MS + at, 1, 0, at, 3, False) for at in range(9)]


def test_a_file_of_the_real_disk_gets_the_same_bytes(append_next: AppendNext, tmp_path: Path) -> None:
    """Written in C, without the file's own method."""
    real, usual = open_log(RealDisk(), directory=str(tmp_path / "t-0")), open_log(MemoryDisk())
    for step in BY_FILE:
        assert appended(real, step, append_next) == appended(usual, step, None)
    assert state(real) == state(usual)
    assert real.segments[-1].file.size() == real.segments[-1].size
    real.release()


def test_a_full_disk_leaves_the_file_and_the_log_as_they_were(
    append_next: AppendNext, tmp_path: Path
) -> None:
    """The system writes what fits. Bytes at the end that are no batch would be read as one."""
    log = open_log(RealDisk(), directory=str(tmp_path / "t-0"))
    for step in BY_FILE[:3]:
        assert appended(log, step, append_next) == step.sequence
    before, segment = state(log), log.segments[-1]
    batch = batch_of(BY_FILE[3].values, NOW_MS, producer_id=1, producer_epoch=0, base_sequence=3)
    given = batch.buffer, batch.size, 1, NOW_MS, 1, 0, 3, 3
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (segment.size + 100, limits[1]))
    try:
        with pytest.raises(OSError) as failed:
            append_next(log, *given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    path = segment.stem + ".log"
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, path)
    assert (os.stat(path).st_size, segment.file.size()) == (segment.size, segment.size)
    assert state(log) == before
    assert segment._may_have_left_bytes
    assert append_next(log, *given) == 3
    assert os.stat(path).st_size == segment.size
    log.release()


def test_a_file_without_a_descriptor_is_not_written(append_next: AppendNext, tmp_path: Path) -> None:
    log = open_log(RealDisk(), directory=str(tmp_path / "t-0"))
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    before, batch = state(log), batch_of([b"v"])
    given = batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 3
    log.segments[-1].file.close()
    with pytest.raises(OSError) as failed:
        append_next(log, *given)
    assert failed.value.errno == errno.EBADF
    log.segments[-1].release()
    assert state(log) == before


@pytest.mark.parametrize("slot", ["_fd", "_size"])
@pytest.mark.parametrize("value", [None, "x", -1, 1 << 31, 1 << 70, ...], ids=repr)
def test_what_cannot_be_a_file_is_for_the_files_own_method(slot: str, value: Any, tmp_path: Path) -> None:
    if append_next_compiled is None:
        pytest.skip("no compiler built kafkacompat.log._append")
    log = open_log(RealDisk(), directory=str(tmp_path / "t-0"))
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    file, batch = log.segments[-1].file, batch_of([b"v"])
    asked = []

    def write_now(self: Any, *buffers: Any) -> int:
        asked.append(self)
        return 0

    right = getattr(file, slot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(file), "write_now", write_now)
        if slot == "_size" and value == 1 << 31:
            value = -2
        if value is ...:
            delattr(file, slot)
        else:
            setattr(file, slot, value)
        assert append_next_compiled(log, batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 3) == 1
    assert asked == [file]
    setattr(file, slot, right)
    log.release()


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([-1, 0, 1, 5, 9]),
    st.sampled_from([0, 5, 9]),
    st.sampled_from([0, 5, 9]),
    st.booleans(),
    st.sampled_from([-1, 0, 3]),
)
def test_both_gaits_move_the_high_watermark_alike(
    offset: int, end: int, before: int, is_durable: bool, unstable: int
) -> None:
    found = []
    for gait in (set_high_watermark_in_python, set_high_watermark_compiled):
        if gait is None:
            pytest.skip("no compiler built kafkacompat.log._append")
        log = open_log(MemoryDisk())
        told: list[int] = []
        log.log_end_offset, log.high_watermark, log.is_durable = end, before, is_durable
        log._state.first_unstable_offset = unstable
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log._state), "on_high_watermark", lambda _, at, told=told: told.append(at))
            assert gait(log, offset) is None
        found.append((log.high_watermark, told))
    assert found[0] == found[1]


@pytest.mark.parametrize("slot", ["log_end_offset", "high_watermark", "_state"])
@pytest.mark.parametrize("value", [None, "x", 1.5, 1 << 70, ...], ids=repr)
def test_both_gaits_say_the_same_of_a_high_watermark_that_is_none(slot: str, value: Any) -> None:
    found: list[Any] = []
    for gait in (set_high_watermark_in_python, set_high_watermark_compiled):
        if gait is None:
            pytest.skip("no compiler built kafkacompat.log._append")
        log = open_log(MemoryDisk())
        log.log_end_offset = 9
        if value is ...:
            delattr(log, slot)
        else:
            setattr(log, slot, value)
        try:
            gait(log, 5)
        except (TypeError, AttributeError) as error:
            found.append(repr(error))
        else:
            found.append(log.high_watermark)
    assert found[0] == found[1]


def test_what_is_compiled_is_used() -> None:
    is_left_out = os.environ.get(SWITCH) == OFF
    assert (append_next_compiled is None) == (is_left_out or find_spec("kafkacompat.log._append") is None)
    assert UnifiedLog.append_next == (append_next_compiled or append_next_in_python)
    assert UnifiedLog.set_high_watermark == (set_high_watermark_compiled or set_high_watermark_in_python)


FROM_ANOTHER_SOURCE = """
import sys
from types import ModuleType

def methods_of_log(*classes):
    raise {error}("another source")

other = sys.modules["kafkacompat.log._append"] = ModuleType("_append")
other.methods_of_log = methods_of_log
from kafkacompat.log import unified_log
assert unified_log.UnifiedLog.append_next is unified_log.append_next_in_python
assert unified_log.UnifiedLog.set_high_watermark is unified_log.set_high_watermark_in_python
"""


@pytest.mark.parametrize("error", ["AttributeError", "TypeError"])
def test_a_module_that_was_compiled_from_another_source_is_not_used(error: str) -> None:
    """It may know another slot, or take other classes."""
    subprocess.run([sys.executable, "-c", FROM_ANOTHER_SOURCE.format(error=error)], check=True)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=12), st.sampled_from([400, 2000]), st.sampled_from([100, 4096]))
@example(ALWAYS_PLAIN, 2000, 100)
def test_a_follower_appends_one_batch_in_the_short_way_as_any_other(
    done: list[Step], segment_bytes: int, interval: int
) -> None:
    options = config(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=3000)
    leader, short, usual = (open_log(MemoryDisk(), options) for _ in range(3))
    for step in done:
        before = leader.log_end_offset
        appended(leader, step, None)
        for one in batches_from(leader, before):
            # The short way needs memory that may be written.
            assert short.append_as_follower(bytearray(one), 4) == usual.append_as_follower(one, 4)
            assert state(short) == state(usual)
    assert short.log_end_offset == leader.log_end_offset


def batches_from(log: UnifiedLog, offset: int) -> list[bytes]:
    found = []
    while offset < log.log_end_offset:
        read = log.read(offset, 1, log.log_end_offset, True)
        assert isinstance(read.records, FileSlice)
        found.append(read.records.read())
        offset = read.end_offset
    return found


def test_a_follower_appends_the_next_batch_of_a_known_producer_in_the_short_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    append_many = LogSegment.append_many
    monkeypatch.setattr(
        LogSegment, "append_many", lambda self, *words: (taken.append("usual"), append_many(self, *words))
    )
    leader, follower = open_log(MemoryDisk()), open_log(MemoryDisk())
    for step in ALWAYS_PLAIN:
        before = leader.log_end_offset
        appended(leader, step, None)
        (one,) = batches_from(leader, before)
        follower.append_as_follower(bytearray(one), 3)
    assert taken == ["usual"], "the first one makes the epoch and the producer"
    assert state(follower)[2:] == state(leader)[2:]


@pytest.mark.parametrize("harm", ["crc", "offset", "end", "later epoch"])
def test_a_follower_takes_nothing_in_the_short_way_that_needs_a_closer_look(harm: str) -> None:
    leader, follower = open_log(MemoryDisk()), open_log(MemoryDisk())
    for step in ALWAYS_PLAIN[:2]:
        appended(leader, step, None)
    first, second = map(bytearray, batches_from(leader, 0))
    follower.append_as_follower(first, 3)
    if harm == "crc":
        second[-1] ^= 1
    elif harm == "offset":
        second[7] = 0
    elif harm == "end":
        del second[-1]
    if harm in ("crc", "offset"):
        with pytest.raises(LogRefused):
            follower.append_as_follower(second, 3)
    else:
        follower.append_as_follower(second, 2 if harm == "later epoch" else 3)
    assert follower.log_end_offset == 1
