"""The cleaner's parts and rules one by one: which log is picked, which records are kept, what cancels a cleaning."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import json
import math
import random
import struct
import sys
from array import array
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import TOPIC_ID, marker, open_log
from kafkacompat.log._tests.memory_disk import CountingDisk, MemoryDisk
from kafkacompat.log._tests.test_manager import manager_on
from kafkacompat.log.cleaner import filtering
from kafkacompat.log.cleaner._tests.cleaning import (
    COMPACT,
    DIRECTORY,
    LIMITS,
    NAME,
    NOW_MS,
    append,
    batches,
    carry_out,
    clean,
    cleaner_of,
    last_values,
    new_log,
    records,
)
from kafkacompat.log.cleaner.candidates import LogToClean, Search, candidate
from kafkacompat.log.cleaner.cleaner import GAP_BYTES, BatchPositions, Cleaner, CleaningStopped
from kafkacompat.log.cleaner.job import (
    GROUPED_AT_ONCE,
    CleanerLimits,
    SegmentFile,
    group_segments,
    job_from_json,
    job_to_json,
)
from kafkacompat.log.cleaner.log_cleaner import LogCleaner, Throttler
from kafkacompat.log.cleaner.offset_map import KeptOffsets, OffsetMap
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.segment_indexes import TXN_INDEX_SUFFIX
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import FileSlice, HalfDone, SyncFailed
from kafkacompat.records._tests.test_batch import legacy_message
from kafkacompat.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    assemble,
    build_batch,
    iterate_batches,
    trusted_batch,
)
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record, as_long, encode_records
from kafkacompat.records.scan import Columns

FILLER = b"x" * 700
"""After two of these, the next batch rolls the segment."""


def fill(log: UnifiedLog, count: int = 3, key: bytes = b"filler") -> None:
    for _ in range(count):
        append(log, [(key, FILLER)])


# -- the offset map


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=40), max_size=40),
    st.sampled_from([8, 16, 40]),
    st.sampled_from([2_000, 30_000, 1 << 20]),
)
def test_the_map_knows_the_last_offset_of_each_key(puts: list[list[int]], width: int, memory: int) -> None:
    """Short keys, keys of a digest's length and long ones; in the dict, in the buckets and in both."""
    offset_map, model = OffsetMap(memory, 0.9), dict[bytes, int]()
    offset = 0
    for numbers in puts:
        keys = [b"%0*d" % (width, number) for number in numbers]
        if not offset_map.has_room(len(keys)):
            assert len(model) + len(keys) > offset_map.capacity
            break
        offset_map.put(keys, range(offset, offset + len(keys)))
        model.update(zip(keys, range(offset, offset + len(keys)), strict=True))
        offset += len(keys)
    asked = [*model, b"unknown", b"unknown but longer than a digest"]
    assert offset_map.find(asked) == [*model.values(), -1, -1]


@pytest.mark.parametrize(
    ("load_factor", "as_much_as"), [(7.0, 1.0), (1e300, 1.0), (0.0, -3.0), (math.nan, 0.0)]
)
def test_no_load_factor_takes_more_than_the_memory(load_factor: float, as_much_as: float) -> None:
    assert OffsetMap(1 << 20, load_factor).capacity == OffsetMap(1 << 20, as_much_as).capacity


def test_the_map_stays_within_its_memory() -> None:
    """Measured with tracemalloc: a full map uses no more memory than it was given."""
    import tracemalloc

    memory = 6 << 20
    tracemalloc.start()
    offset_map = OffsetMap(memory, 0.9)
    number = 0
    while offset_map.has_room(500):
        offset_map.put(
            [b"some-key-%010d" % i for i in range(number, number + 500)], range(number, number + 500)
        )
        number += 500
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= memory
    assert number > memory // 60, "a large part of the memory is used for keys"


@settings(max_examples=100)
@given(
    st.sets(st.integers(0, 200_000), max_size=60),
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 90_000)), max_size=12),
)
def test_survivors_lie_where_they_were_put(offsets: set[int], asked: list[tuple[int, int]]) -> None:
    """As single marks and, if there is no room for those, in windows and across them; in any order of calls."""
    shuffled = sorted(offsets, key=lambda offset: offset * 7919 % 1009)
    for marks_most in (0, 300_000):
        kept_offsets = KeptOffsets(shuffled, 0, 290_000, array("q"), marks_most)
        for first, span in asked:
            wanted = bytes(offset in offsets for offset in range(first, first + span + 1))
            assert kept_offsets.between(first, first + span) == wanted
            assert kept_offsets.any_between(first, first + span) == (1 in wanted)


def test_only_what_may_stay_of_a_noted_segment_is_read() -> None:
    """Batches of ten offsets and GAP_BYTES, with two offsets missing after each."""
    noted = BatchPositions()
    note = noted.begin()
    for number in range(6):
        note.add(100 + 12 * number, GAP_BYTES * number)
    noted.add(100, note)
    segment = SegmentFile("", 100, 172, 6 * GAP_BYTES)

    def places(*worth: int, last_offsets: tuple[int, ...] = ()) -> list[tuple[int, int]]:
        found = noted.places(
            segment, lambda first, last: any(first <= one <= last for one in worth), last_offsets
        )
        assert found is not None
        return [(start // GAP_BYTES, end // GAP_BYTES) for start, end in found]

    assert places() == []
    assert places(100, 109, 124) == [(0, 1), (2, 3)]
    assert places(112, 124, 171) == [(1, 3), (5, 6)]
    assert places(last_offsets=(-1, 99, 145, 172, 999)) == [(3, 4)]
    assert noted.places(SegmentFile("", 172, 180, 10), lambda first, last: True, ()) is None


def test_segments_are_noted_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.log.cleaner.cleaner.POSITIONS_MOST", 3)
    noted = BatchPositions()
    for base in (0, 10, 20):
        note = noted.begin()
        note.add(base, 0)
        note.add(base + 5, 50)
        noted.add(base, note)
    known = [
        noted.places(SegmentFile("", base, base + 10, 100), lambda first, last: True, ())
        for base in (0, 10, 20)
    ]
    assert known == [[(0, 100)], None, None]


def test_batches_with_tombstones_are_known_as_far_as_they_were_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tombstones = array("q", [10, 30])
    kept_offsets = KeptOffsets([], 0, 100, tombstones, 0)
    assert [base for base in range(0, 50, 10) if kept_offsets.may_hold_tombstones(base)] == [10, 30]
    monkeypatch.setattr("kafkacompat.log.cleaner.offset_map.TOMBSTONE_BATCHES_MOST", 2)
    assert [base for base in range(0, 50, 10) if kept_offsets.may_hold_tombstones(base)] == [10, 30, 40]


# -- what stays


def test_the_clean_part_loses_what_the_dirty_part_replaces() -> None:
    """The offsets of its batches have gaps."""
    disk = MemoryDisk()
    log = new_log(disk, dataclasses.replace(COMPACT, segment_bytes=6000))
    made = random.Random(3)

    def write(keys: range, count: int, mark: bytes) -> None:
        for _ in range(count):
            append(log, [(b"key-%03d" % made.choice(keys), mark * made.randrange(20, 25)) for _ in range(9)])

    write(range(300), 120, b"a")
    append(log, [(b"key-000", None), (b"key-001", b"b" * 20)])
    write(range(300, 301), 40, b"a")
    clean(disk, log)
    write(range(150, 301), 120, b"c")
    write(range(300, 301), 40, b"c")
    values = last_values(log)
    assert clean(disk, log) == 1
    assert last_values(log) == values
    cleaned = [record.key for offset, record in records(log) if offset < log.segments[-1].base_offset]
    assert len(cleaned) == len(set(cleaned)) > 250


# -- what is picked


def test_segments_are_grouped_up_to_a_segments_size_and_span() -> None:
    segments = [SegmentFile("", at * 10, at * 10 + 10, size) for at, size in enumerate([40, 40, 40, 0, 10])]
    small = [(8, 12)] * 5
    groups = group_segments(segments, small, segment_bytes=100, index_bytes=1000)
    assert [len(group) for group in groups] == [2, 3]
    assert [len(group) for group in group_segments(segments, small, segment_bytes=1000, index_bytes=17)] == [
        1
    ] * 5
    far = [
        SegmentFile("", 0, 10, 5),
        SegmentFile("", 10, 1 << 31, 5),
        SegmentFile("", 1 << 31, (1 << 31) + 2, 5),
    ]
    assert [len(group) for group in group_segments(far, small[:3], segment_bytes=100, index_bytes=100)] == [
        2,
        1,
    ]


def test_many_small_segments_change_places_in_several_steps() -> None:
    """One step of the loop renames the files of a group, however many small segments there are."""
    segments = [SegmentFile("", at, at + 1, 1) for at in range(2 * GROUPED_AT_ONCE + 3)]
    groups = group_segments(segments, [(8, 12)] * len(segments), segment_bytes=1 << 30, index_bytes=1 << 20)
    assert [len(group) for group in groups] == [GROUPED_AT_ONCE, GROUPED_AT_ONCE, 3]
    assert [segment for group in groups for segment in group] == segments


def test_the_active_segment_and_what_is_not_stable_stay_as_they_are() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 4)
    found = candidate(log, NOW_MS)
    assert found is not None
    assert found.end_offset == log.segments[-1].base_offset
    append(log, [(b"t", b"")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    stable = log.log_end_offset - 1
    fill(log, 6)
    found = candidate(log, NOW_MS)
    assert found is not None
    assert found.end_offset <= stable
    assert log.segments[found.segments].base_offset == found.end_offset
    log.append_as_leader(marker(1, committed=True), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    found = candidate(log, NOW_MS)
    assert found is not None
    assert found.end_offset == log.segments[-1].base_offset


def dirtiest(log: UnifiedLog, now_ms: int) -> LogToClean | None:
    def refuse(log: UnifiedLog, error: Exception) -> None:
        raise error

    search = Search([log], now_ms, lambda log: True, refuse)
    assert search.step()
    return search.best


def test_ratio_lag_and_policy_decide() -> None:
    disk = MemoryDisk()
    log = new_log(disk, dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=0.6))
    fill(log, 7)
    assert dirtiest(log, NOW_MS) is not None
    clean(disk, log)
    assert dirtiest(log, NOW_MS) is None
    for _ in range(4):
        append(log, [(b"%d" % log.log_end_offset, FILLER)])
    found = candidate(log, NOW_MS)
    assert found is not None
    assert 0 < found.ratio < 1
    # Young records wait however dirty the log is. Old ones do not, however clean it is.
    log.config = dataclasses.replace(log.config, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000)
    assert dirtiest(log, NOW_MS) is None
    assert dirtiest(log, NOW_MS + 2000) is not None
    log.config = dataclasses.replace(
        log.config, min_cleanable_dirty_ratio=1.0, min_compaction_lag_ms=0, max_compaction_lag_ms=1000
    )
    assert dirtiest(log, NOW_MS) is None
    overdue = dirtiest(log, NOW_MS + 2000)
    assert overdue is not None
    assert overdue.overdue_ms == 1000
    log.config = dataclasses.replace(log.config, cleanup_policy=("delete",))
    assert dirtiest(log, NOW_MS + 2000) is None


def test_records_without_a_time_are_as_young_as_their_file() -> None:
    """min.compaction.lag.ms applies to them too."""
    disk = MemoryDisk()
    disk.now_ms = NOW_MS
    log = new_log(disk, dataclasses.replace(COMPACT, min_compaction_lag_ms=1000))
    while len(log.segments) < 3:
        append(log, [(b"k", FILLER)], timestamp_ms=-1)
    assert candidate(log, NOW_MS + 999) is None
    assert candidate(log, NOW_MS + 1000) is not None


@pytest.mark.parametrize("damage", ["file gone", "first batch"])
def test_a_log_that_cannot_be_judged_holds_no_other_up(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, good_disk = MemoryDisk(), MemoryDisk()
    bad = new_log(
        disk, dataclasses.replace(COMPACT, min_compaction_lag_ms=1000, max_compaction_lag_ms=10_000)
    )
    while len(bad.segments) < 3:
        append(bad, [(b"k", FILLER)], timestamp_ms=-1)
    good = new_log(good_disk)
    good.topic_partition = TopicPartition("u", 0)
    fill(good, 5)
    notes: list[str] = []
    cleaner = cleaner_of(disk, bad, notes=notes)
    manager = cleaner._manager
    manager.logs[good.topic_partition] = good  # type: ignore[index]
    if damage == "file gone":

        def gone(path: str) -> int:
            raise FileNotFoundError(path)

        monkeypatch.setattr(disk, "modified_ms", gone)
    else:
        bad.segments[0].rolling_timestamp_ms = None
        disk.files[f"{DIRECTORY}/{0:020d}.log"][8:12] = bytes(4)
    found = cleaner.begin(NOW_MS + 2000)
    assert found is not None
    assert found.log is good
    if damage == "first batch":
        assert set(cleaner.uncleanable) == {NAME}
        assert "as uncleanable" in notes[0]
        return
    assert len(manager.failed) == 1  # type: ignore[attr-defined]
    # If both logs are in one directory, the other one is offline too.
    found.abandon()
    monkeypatch.setattr(manager, "partition_failed", lambda name, error: manager.logs.clear())  # type: ignore[attr-defined]
    assert cleaner.begin(NOW_MS + 2000) is None


def test_a_log_whose_transactions_cannot_be_read_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, good_disk = MemoryDisk(), MemoryDisk()
    bad, good = new_log(disk), new_log(good_disk)
    good.topic_partition = TopicPartition("u", 0)
    fill(bad, 7)
    fill(good, 5)
    cleaner = cleaner_of(disk, bad)
    cleaner._manager.logs[good.topic_partition] = good  # type: ignore[index]
    bad.segments[-1].aborted.attached = bad.segments[-1].aborted._span = None
    disk.files[bad.segments[-1].stem + TXN_INDEX_SUFFIX] = bytearray(5)
    assert cleaner.begin(NOW_MS) is None
    assert set(cleaner.uncleanable) == {NAME}
    found = cleaner.begin(NOW_MS)
    assert found is not None
    assert found.log is good


def test_a_checkpoint_outside_the_log_means_its_start() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 8)
    for wrong in (-1, log.log_end_offset + 1):
        log.cleaned_to = wrong
        found = candidate(log, NOW_MS)
        assert found is not None
        assert found.first_dirty_offset == 0
    log.cleaned_to = 1
    assert log.increment_log_start_offset(3)
    found = candidate(log, NOW_MS)
    assert found is not None
    assert found.first_dirty_offset == 3


# -- what stays


def test_a_tombstone_gets_a_horizon_and_goes_after_it() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [(b"a", b"1"), (b"b", b"1")], compression=3)
    append(log, [(b"a", None), (b"b", b"2")], compression=3)
    fill(log, 3)
    clean(disk, log, NOW_MS)
    (header,) = [header for header, _ in batches(log) if header.base_offset == 2]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.delete_horizon_ms == NOW_MS + COMPACT.delete_retention_ms
    assert [(offset, one.timestamp_ms, one.value) for offset, one in records(log)][:2] == [
        (2, NOW_MS, None),
        (3, NOW_MS + 1, b"2"),
    ]
    fill(log, 3)
    clean(disk, log, header.delete_horizon_ms - 1)
    assert b"a" in last_values(log)
    fill(log, 3)
    clean(disk, log, header.delete_horizon_ms)
    assert b"a" not in last_values(log)
    assert last_values(log)[b"b"] == b"2"


def test_markers_outlive_their_data_by_the_horizon_and_aborted_data_goes_at_once() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [(b"a", b"kept")])
    append(log, [(b"a", b"aborted")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
    append(log, [(b"b", b"old")], producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(2, committed=True), 0, NOW_MS)
    append(log, [(b"b", b"new")])
    fill(log, 3)

    def markers() -> list[tuple[int, int, int]]:
        return [
            (header.producer_id, header.record_count, header.delete_horizon_ms)
            for header, _ in batches(log)
            if header.is_control
        ]

    # The producers are dropped, so that only the rules of transactions keep their batches.
    assert len(list(log.expire_producers(NOW_MS + 10**9, 1))) == 2
    clean(disk, log, NOW_MS)
    assert last_values(log)[b"a"] == b"kept"
    assert last_values(log)[b"b"] == b"new"
    assert markers() == [(1, 1, -1), (2, 1, -1)]
    assert [entry.producer_id for segment in log.segments for entry in segment.aborted.index.entries()] == [1]
    fill(log, 3)
    clean(disk, log, NOW_MS)
    horizon = NOW_MS + COMPACT.delete_retention_ms
    assert markers() == [(1, 1, horizon), (2, 1, horizon)]
    assert not [entry for segment in log.segments for entry in segment.aborted.index.entries()]
    fill(log, 3)
    clean(disk, log, horizon)
    assert markers() == []
    assert last_values(log)[b"a"] == b"kept"


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - NOW_MS])
def test_tombstones_and_markers_stay_for_ever_with_a_horizon_beyond_the_end_of_time(
    retention_ms: int,
) -> None:
    """As in Kafka, where the sum overflows: nothing gets a horizon, and what has one goes after it."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [(b"gone", None)])
    fill(log, 3)
    clean(disk, log, NOW_MS)
    log.config = dataclasses.replace(COMPACT, delete_retention_ms=retention_ms)
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None), (b"b", b"2")])
    append(log, [(b"b", b"old")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(1, committed=True), 0, NOW_MS)
    append(log, [(b"b", b"new")])
    assert len(list(log.expire_producers(NOW_MS + 10**9, 1))) == 1
    for turn in range(3):
        fill(log, 3)
        assert clean(disk, log, NOW_MS + turn * 10**6) >= 1
    values = last_values(log)
    assert (values[b"a"], values[b"b"]) == (None, b"new")
    assert b"gone" not in values
    assert [header.record_count for header, _ in batches(log) if header.is_control] == [1]
    assert all(header.delete_horizon_ms < 0 for header, _ in batches(log))


@pytest.mark.parametrize("base_ms", [2**63 - 1, -(2**63)])
def test_timestamps_whose_sums_overflow_are_cleaned_and_count_as_in_kafka(base_ms: int) -> None:
    """A client writes them under the timestamp type LogAppendTime, where only the batch's largest timestamp is checked."""
    disk = MemoryDisk()
    log = new_log(disk)
    step = 1 if base_ms > 0 else -1
    sent = [
        Record(0, base_ms, b"a", b"1"),
        Record(1, base_ms + step, b"b", b"1"),
        Record(2, base_ms + 9 * step, b"c", None),
    ]
    batch = assemble(
        encode_records(sent, base_ms),
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=2,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    log.append_as_leader(trusted_batch(batch), 0, NOW_MS)
    append(log, [(b"a", b"2")])
    fill(log, 3)
    cleaner = cleaner_of(disk, log)
    assert clean(disk, log, cleaner=cleaner) == 1
    assert not cleaner.uncleanable
    (header, kept) = batches(log)[0]
    body = Columns(kept[HEADER_SIZE:], header.record_count)
    assert header.delete_horizon_ms == NOW_MS + COMPACT.delete_retention_ms
    as_in_java = [as_long(header.base_timestamp_ms + delta) for delta in body.timestamp_deltas()]
    assert as_in_java == [as_long(base_ms + step), as_long(base_ms + 9 * step)]
    assert header.max_timestamp_ms == max(as_in_java)
    assert {key: last_values(log)[key] for key in (b"a", b"b", b"c")} == {b"a": b"2", b"b": b"1", b"c": None}


def test_tombstones_and_markers_of_a_tiered_log_stay_and_get_no_horizon() -> None:
    """What they delete may be in the remote storage."""
    disk = MemoryDisk()
    log = new_log(disk)
    log.is_tiered = True
    append(log, [(b"a", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"b", b"aborted")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
    assert len(list(log.expire_producers(NOW_MS + 10**9, 1))) == 1
    for turn in range(4):
        fill(log, 3)
        clean(disk, log, NOW_MS + turn * 10**6)
        assert last_values(log)[b"a"] is None
        assert b"b" not in last_values(log)
        kept = [header for header, _ in batches(log) if header.is_control or header.base_offset == 1]
        assert [(header.base_offset, header.delete_horizon_ms) for header in kept] == [(1, -1), (3, -1)]
        entries = [entry for segment in log.segments for entry in segment.aborted.index.entries()]
        assert [entry.producer_id for entry in entries] == [1]


@pytest.mark.parametrize("own_process", [False, True])
def test_the_work_reads_the_aborted_transactions_wherever_their_markers_lie(own_process: bool) -> None:
    """The loop's thread, which begins the cleaning, does not read them: each segment may have such a file, though few
    do."""
    disk = CountingDisk()
    log = new_log(disk)
    options = {"producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    append(log, [(b"a", b"kept"), (b"b", b"kept"), (b"c", b"kept")])
    for producer_id, key in ((1, b"a"), (2, b"b"), (3, b"c")):
        append(log, [(key, b"aborted")], producer_id=producer_id, **options)
    log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
    fill(log, 2)
    append(log, [(b"d", b"open")], producer_id=4, **options)
    for producer_id in (2, 3):
        fill(log, 4)
        log.append_as_leader(marker(producer_id, committed=False), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    holding = [at for at, segment in enumerate(log.segments) if segment.aborted.index.size]
    last = len(log.segments) - 1
    assert holding[0] == 0 < holding[1] < holding[2] == last
    log.close()
    log = open_log(disk, COMPACT, clean=True, high_watermark=log.high_watermark)
    disk.opened.clear()
    cleaning = cleaner_of(disk, log).begin(NOW_MS)
    assert cleaning is not None
    assert {path for path in disk.opened if path.endswith(".txnindex")} <= {
        log.segments[last].stem + ".txnindex"
    }
    work = cleaning._work
    assert isinstance(work, Cleaner)
    assert len(work._job.segments) <= holding[1]
    if own_process:
        job = job_from_json(json.loads(json.dumps(job_to_json(work._job))))
        cleaning._work = Cleaner(disk, job, lambda size: None)
    carry_out(cleaning, NOW_MS)
    assert set(disk.opened) >= {log.segments[0].stem + ".txnindex"}
    assert not any(segment.aborted.index.kept_bytes for segment in log.segments[:-1])
    values = [record.value for _, record in records(log)]
    assert b"aborted" not in values
    assert values.count(b"kept") == 3


def test_records_without_a_key_go_and_the_rounds_last_batch_stays_empty() -> None:
    """The topic was not compacted before."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [(None, b"1"), (b"a", b"2"), (None, None)])
    append(log, [(b"a", b"3")])
    append(log, [(None, FILLER), (None, FILLER)])
    append(log, [(b"a", FILLER), (b"a", FILLER)])
    append(log, [(b"a", FILLER)])
    clean(disk, log)
    assert [one.key for _, one in records(log) if one.key is None] == []
    ends = [header.last_offset + 1 for header, _ in batches(log)]
    assert log.segments[-1].base_offset in ends


def test_small_segments_become_one_and_what_they_were_goes_later() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    deletions: list[str] = []
    log._segments._delete_later = lambda paths, delay_ms: deletions.extend(paths)
    for number in range(200):
        append(log, [(b"%d" % (number % 7), b"v" * 90)])
    before = len(log.segments)
    clean(disk, log)
    assert len(log.segments) == before, "each was full, so each has its own cleaned segment"
    fill(log)
    clean(disk, log)
    assert len(log.segments) < before
    assert {path for path in disk.files if path.endswith(".deleted")} == set(deletions)
    assert not any(path.endswith((".cleaned", ".swap")) for path in disk.files)
    assert log.segments[0].base_offset == 0
    read = log.read(0, 1000, log.log_end_offset, True)
    assert read.records


# -- what calls a cleaning off


def step_until_written(disk: MemoryDisk, log: UnifiedLog, notes: list[str]) -> tuple:  # type: ignore[type-arg]
    cleaner = cleaner_of(disk, log, notes=notes)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    cleaning.run()
    assert any(path.endswith(".cleaned") for path in disk.files)
    return cleaner, cleaning


@pytest.mark.parametrize(
    "event", ["truncated", "truncated at the end", "deleted", "retention", "closed", "moved", "other policy"]
)
def test_what_happens_to_the_log_meanwhile_calls_its_cleaning_off(event: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 9)
    notes: list[str] = []
    cleaner, cleaning = step_until_written(disk, log, notes)
    if event == "truncated":
        log.truncate_to(4)
    elif event == "truncated at the end":
        log.truncate_to(log.log_end_offset - 1)
    elif event == "deleted":
        del cleaner._manager.logs[NAME]
    elif event == "closed":
        cleaner._manager.closed = True
    elif event == "moved":
        cleaner._manager.futures.logs[NAME] = log
    elif event == "other policy":
        log.config = dataclasses.replace(COMPACT, cleanup_policy=("delete",))
    else:
        log.config = dataclasses.replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=3000)
        assert log.enforce_retention(NOW_MS)
    before = records(log)
    cleaning.finish(NOW_MS)
    carry_out(cleaning, NOW_MS)
    assert records(log) == before
    assert not any(path.endswith((".cleaned", ".swap")) for path in disk.files)
    assert cleaner.uncleanable == {}
    assert not cleaner._manager.failed
    if event in ("truncated", "truncated at the end", "retention"):
        fill(log, 4)
        assert clean(disk, log, cleaner=cleaner)


def test_a_log_is_left_as_it_is_while_a_copy_of_it_is_made(tmp_path: Path) -> None:
    """Otherwise a record in the copy would reappear after the tombstone is cleaned away before the copy reaches it. A
    transaction in the copy would stay open if its marker is gone."""
    manager = manager_on(tmp_path)
    log = manager.get_or_create(NAME, TOPIC_ID, COMPACT, manager.directories[0].directory_id)
    log.flush()
    options = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    append(log, [(b"a", b"of before")])
    append(log, [(b"b", b"aborted")], **options)
    copied = log.log_end_offset
    append(log, [(b"a", None)])
    log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
    append(log, [(b"c", b"of after")])
    fill(log, 3)
    assert len(list(log.expire_producers(NOW_MS + 10**9, 1))) == 1
    copy = manager.begin_future(NAME, manager.directories[1])
    copy.flush()

    def copy_to(offset: int) -> None:
        while copy.log_end_offset < offset:
            read = log.read(copy.log_end_offset, 1, offset, True).records
            assert isinstance(read, FileSlice)
            copy.append_as_follower(read.read(), 0)

    copy_to(copied)
    cleaner = LogCleaner(manager, RealDisk(), lambda: LIMITS, lambda: lambda size: None, lambda note: None)
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + COMPACT.delete_retention_ms):
        clean(RealDisk(), log, now_ms, cleaner=cleaner)
        fill(log, 3)
    copy_to(log.log_end_offset)
    copy.set_high_watermark(log.log_end_offset)
    assert manager.promote_future(NAME) is copy
    assert last_values(copy)[b"a"] is None
    assert copy.last_stable_offset == copy.high_watermark == log.log_end_offset
    assert cleaner.begin(NOW_MS) is not None, "in its new place it is cleaned again"


def test_a_damaged_batch_makes_the_partition_uncleanable_and_nothing_changes() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 5)
    disk.files[f"{DIRECTORY}/{2:020d}.log"][70:80] = b"\xff" * 10
    notes: list[str] = []
    cleaner = cleaner_of(disk, log, notes=notes)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    size = log.size_bytes()
    carry_out(cleaning, NOW_MS)
    assert set(cleaner.uncleanable) == {NAME}
    assert "as uncleanable" in notes[0]
    assert log.size_bytes() == size
    assert cleaner.begin(NOW_MS) is None


def test_a_full_disk_is_the_directorys_affair() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 5)
    cleaner = cleaner_of(disk, log)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    disk.failing = ".cleaned"
    carry_out(cleaning, NOW_MS)
    assert len(cleaner._manager.failed) == 1  # type: ignore[attr-defined]
    assert cleaner.uncleanable == {}
    disk.failing = None
    assert clean(disk, log, cleaner=cleaner)


def test_a_log_whose_disk_is_full_keeps_no_other_from_its_turn() -> None:
    disk = MemoryDisk()
    full, other = new_log(disk), open_log(disk, COMPACT, directory="/logs/t-1")
    other.topic_partition = TopicPartition("t", 1)
    cleaner = cleaner_of(disk, full)
    cleaner._manager.logs[other.topic_partition] = other
    for log in (full, other):
        fill(log, 5)
    disk.failing = DIRECTORY
    cleaned = []
    for _ in range(3):
        cleaning = cleaner.begin(NOW_MS)
        assert cleaning is not None
        carry_out(cleaning, NOW_MS)
        cleaned.append(cleaning.log)
    assert cleaned == [full, other, full], "the first one is tried again"
    assert other.cleaned_to > 0
    disk.failing = None
    assert clean(disk, full, cleaner=cleaner)
    assert full.cleaned_to > 0


def test_a_cleaned_segment_has_index_entries_however_large_the_interval_is() -> None:
    """A read walks from one entry to the next, on the loop."""
    disk = MemoryDisk()
    log = new_log(disk, dataclasses.replace(COMPACT, segment_bytes=1 << 20, index_interval_bytes=1 << 30))
    for number in range(14):
        append(log, [(b"k%d" % number, bytes(100_000))])
    assert clean(disk, log)
    segment = log.segments[0]
    assert segment.size > 900_000
    assert len(segment.indexes.pair(segment.size)[0]) >= 2


def test_a_swap_that_stops_half_way_takes_the_directory_along_before_anything_else_comes() -> None:
    """Other operations meanwhile would work on files that differ from the log's state. After a truncation the start
    would complete the swap and restore what was cut."""
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 9)
    cleaner, cleaning = step_until_written(disk, log, [])
    disk.refuse = lambda operation, path: (
        OSError(errno.EIO, "no more") if operation == "rename" and path.endswith(".deleted") else None
    )
    cleaning.finish(NOW_MS)
    assert [type(error) for error in cleaner._manager.failed] == [HalfDone]
    disk.refuse = None
    log.truncated = True
    carry_out(cleaning, NOW_MS)
    assert cleaner.uncleanable == {}


def test_a_map_too_small_for_all_keys_takes_several_cleanings() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    chance = random.Random(3)
    for _ in range(600):
        append(log, [(b"key %d" % chance.randrange(200), b"v%d" % chance.randrange(10**6))])
    before = last_values(log)
    assert clean(disk, log, limits=CleanerLimits(map_bytes=64, load_factor=0.9, io_bytes=1)) > 3
    assert last_values(log) == before
    clean(disk, log, limits=LIMITS)
    assert last_values(log) == before


def test_a_batch_larger_than_a_read_is_read_whole() -> None:
    disk = MemoryDisk()
    log = new_log(disk, dataclasses.replace(COMPACT, segment_bytes=500_000))
    for number in range(6):
        info = build_batch([Record(0, NOW_MS, b"k", bytes([number]) * 200_000)])
        assert len(info) > 200_000
        append(log, [(b"k", bytes([number]) * 200_000)])
    assert clean(disk, log, limits=CleanerLimits(map_bytes=1 << 20, load_factor=0.9, io_bytes=1)) == 1
    assert last_values(log) == {b"k": bytes([5]) * 200_000}


class Throttled:
    """A throttle whose waits take no time. `rates` in bytes per second; the next one applies after each wait."""

    def __init__(self, *rates: float) -> None:
        self._rates = list(rates)
        self._now_s = 100.0
        self.waited_s = 0.0
        self.longest_s = 0.0
        self.throttle = Throttler(lambda: self._rates[0], lambda: self._now_s, self.wait)

    def wait(self, seconds: float) -> bool:
        self.pass_by(seconds)
        self.waited_s += seconds
        self.longest_s = max(self.longest_s, seconds)
        if len(self._rates) > 1:
            del self._rates[0]
        return False

    def pass_by(self, seconds: float) -> None:
        self._now_s += seconds


def test_the_throttle_waits_for_the_rate_and_ends_when_told() -> None:
    throttled = Throttled(1000.0)
    throttle = throttled.throttle
    throttle(500)
    assert throttled.waited_s == 0, "the first read waits for nothing"
    throttle(250)
    assert throttled.waited_s == pytest.approx(0.5)
    throttled.pass_by(10)
    throttle(5000)
    assert throttled.waited_s == pytest.approx(0.5)
    throttle(1)
    assert throttled.waited_s == pytest.approx(5.5)
    throttle.stop()
    with pytest.raises(CleaningStopped):
        throttle(1)


def test_a_throttle_with_kafkas_default_rate_waits_for_no_clock() -> None:
    def wait(seconds: float) -> bool:
        raise AssertionError(f"it waits for {seconds} s")

    throttle = Throttler(lambda: sys.float_info.max, lambda: 7.0, wait)
    for _ in range(3):
        throttle(1 << 20)
    assert throttle.moved_bytes == 3 << 20


@pytest.mark.parametrize("rate", [0.0, -5.0, 1e-300, float("nan")])
def test_a_throttle_that_lets_nothing_through_waits_for_another_rate(rate: float) -> None:
    """Any number may be set while the broker runs. A waiting thread continues soon after the setting is corrected."""
    throttled = Throttled(rate, rate, rate, 1e308)
    throttled.throttle(1000)
    throttled.throttle(1000)
    assert 0 < throttled.waited_s <= 4
    assert throttled.longest_s <= 1


def test_a_throttle_without_a_bound_never_waits() -> None:
    """Nor if two reads come within one tick of the clock."""
    throttled = Throttled(math.inf)
    for _ in range(3):
        throttled.throttle(1000)
        throttled.pass_by(1e-9)
        throttled.throttle(1000)
    assert throttled.waited_s == 0


def old_log(disk: MemoryDisk, *messages: bytes) -> UnifiedLog:
    """A log whose first segment has these messages of the old formats."""
    disk.now_ms = NOW_MS
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{0:020d}.log", create=True).write_now(b"".join(messages))
    return open_log(disk, COMPACT)


def wrapped(magic: int, last_offset: int, *messages: tuple[bytes | None, bytes | None]) -> bytes:
    first = last_offset + 1 - len(messages) if magic == 0 else 0
    inner = [legacy_message(magic, first + at, *each) for at, each in enumerate(messages)]
    return legacy_message(magic, last_offset, None, gzip.compress(b"".join(inner)), attributes=1)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_become_batches(magic: int) -> None:
    """Segments of very old brokers. As in Kafka, what stays of them is written as batches of magic 2."""
    disk = MemoryDisk()
    log = old_log(
        disk,
        legacy_message(magic, 0, b"a", b"old"),
        legacy_message(magic, 1, b"c", b"kept"),
        legacy_message(magic, 2, None, b"no key"),
        legacy_message(magic, 3, b"d", None),
        wrapped(magic, 6, (b"a", b"wrapped"), (b"b", b"wrapped"), (b"e", None)),
    )
    assert log.log_end_offset == 7
    append(log, [(b"a", b"new")])
    log.roll(log.log_end_offset, NOW_MS)
    fill(log, 3)
    clean(disk, log, NOW_MS)
    stamp = NOW_MS if magic else -1
    assert [(offset, one.key, one.value, one.timestamp_ms) for offset, one in records(log)][:4] == [
        (1, b"c", b"kept", stamp),
        (3, b"d", None, stamp),
        (5, b"b", b"wrapped", stamp),
        (6, b"e", None, stamp),
    ]
    assert last_values(log)[b"a"] == b"new"
    horizon_ms = NOW_MS + COMPACT.delete_retention_ms
    assert [
        (
            each.magic,
            each.base_offset,
            each.last_offset,
            each.codec,
            each.delete_horizon_ms,
            each.max_timestamp_ms,
        )
        for each in islice(log.segments[0].headers(), 3)
    ] == [
        (2, 1, 1, 0, -1, stamp),
        (2, 3, 3, 0, horizon_ms, stamp),
        (2, 5, 6, 1, horizon_ms, stamp),
    ]
    # The tombstones go when their horizon is over.
    fill(log, 3)
    clean(disk, log, horizon_ms - 1)
    assert {b"d", b"e"} <= last_values(log).keys()
    fill(log, 3)
    clean(disk, log, horizon_ms)
    assert not {b"d", b"e"} & last_values(log).keys()
    assert last_values(log)[b"b"] == b"wrapped"


def test_old_tombstones_get_no_horizon_beyond_the_end_of_time() -> None:
    disk = MemoryDisk()
    log = old_log(disk, legacy_message(1, 0, b"c", b"1"), legacy_message(1, 1, b"d", None))
    log.config = dataclasses.replace(COMPACT, delete_retention_ms=2**63 - 1)
    log.roll(log.log_end_offset, NOW_MS)
    append(log, [(b"x", b"x")])
    assert clean(disk, log) == 1
    assert last_values(log)[b"d"] is None
    assert all(header.delete_horizon_ms < 0 for header, _ in batches(log))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_tombstones_expire_by_the_age_of_their_file(magic: int) -> None:
    disk = MemoryDisk()
    log = old_log(disk, legacy_message(magic, 0, b"c", b"kept"), legacy_message(magic, 1, b"d", None))
    log.roll(log.log_end_offset, NOW_MS)
    append(log, [(b"x", b"x")])
    log.roll(log.log_end_offset, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.cleaned_to = 3
    disk.ages[f"{DIRECTORY}/{0:020d}.log"] = NOW_MS - 10 * COMPACT.delete_retention_ms
    fill(log, 3)
    clean(disk, log, NOW_MS)
    assert b"d" not in last_values(log)
    assert last_values(log)[b"c"] == b"kept"


def test_a_key_deleted_inside_an_old_wrapper_does_not_come_back() -> None:
    """The wrapper also has a record that stays. The tombstone is among the later messages, and goes first."""
    disk = MemoryDisk()
    log = old_log(
        disk,
        wrapped(1, 2, (b"gone", b"value"), (b"stays", b"value"), (b"other", b"value")),
        legacy_message(1, 3, b"gone", None),
    )
    for now_ms in (NOW_MS, NOW_MS + 2 * COMPACT.delete_retention_ms):
        log.roll(log.log_end_offset, now_ms)
        fill(log, 3)
        clean(disk, log, now_ms)
        assert last_values(log).get(b"gone") is None
    assert b"gone" not in last_values(log)
    assert last_values(log)[b"stays"] == b"value"


def test_damage_in_an_old_message_is_not_hidden_by_a_new_crc() -> None:
    disk = MemoryDisk()
    log = old_log(disk, legacy_message(1, 0, b"a", b"value"), legacy_message(1, 1, b"b", b"value"))
    log.roll(log.log_end_offset, NOW_MS)
    fill(log, 3)
    content = disk.files[f"{DIRECTORY}/{0:020d}.log"]
    content[30] ^= 1
    before = bytes(content)
    clean(disk, log, NOW_MS)
    assert disk.files[f"{DIRECTORY}/{0:020d}.log"] == before, "it is left as it is"


def test_a_segment_that_apache_kafka_cleaned_is_read_though_its_index_is_made_otherwise() -> None:
    """Kafka's cleaner writes runs of batches. An index entry has the last offset of a run with the position of the
    run."""
    disk = MemoryDisk()
    log = new_log(disk, dataclasses.replace(COMPACT, segment_bytes=6000))
    for number in range(60):
        append(log, [(b"%d" % number, b"v" * 150), (b"again", b"x")])
    clean(disk, log)
    log.close()
    before = records(log)
    (base,) = {segment.base_offset for segment in log.segments[:1]}
    headers = list(log.segments[0].headers())
    entries, at = b"", 0
    while at + 6 < len(headers):
        run = headers[at : at + 6]
        if at:
            entries += struct.pack(">ii", run[-1].last_offset - base, run[0].position)
        at += 6
    disk.files[f"{DIRECTORY}/{base:020d}.index"][:] = entries
    again = open_log(disk, COMPACT, clean=True, high_watermark=log.log_end_offset)
    for offset, wanted in before:
        read = again.read(offset, 1, again.log_end_offset, True)
        data = read.records.read() if isinstance(read.records, FileSlice) else read.records
        (header,) = iterate_batches(data)
        assert header.base_offset <= offset <= header.last_offset
        assert wanted in [one for _, one in records_of(data, header)]
    clean(disk, again)
    assert records(again) == before


@pytest.mark.parametrize("part", [".log.cleaned", ".index.cleaned", "names"])
def test_a_cleaning_whose_sync_fails_is_the_directorys_affair(part: str) -> None:
    """A failed sync of the cleaned files, or of their names. Also if the log has changed meanwhile."""
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 5)
    cleaner = cleaner_of(disk, log)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    if part == "names":
        disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "lost") if operation == "sync_directory" else None
        )
    else:
        disk.lost_syncs[part] = OSError(errno.ENOSPC, "lost")
    while not cleaning.done:
        cleaning.run()
        log.truncated = isinstance(cleaning._error, SyncFailed)
        cleaning.finish(NOW_MS)
    assert [type(error) for error in cleaner._manager.failed] == [SyncFailed]  # type: ignore[attr-defined]


def test_a_batch_of_more_records_than_are_taken_apart_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [(b"%d" % at, b"") for at in range(11)])
    for number in range(60):
        append(log, [(b"k", b"%d" % number * 9)])
    before = records(log)
    notes: list[str] = []
    monkeypatch.setattr(filtering, "RECORDS_MOST", 10)
    cleaner = cleaner_of(disk, log, notes=notes)
    assert clean(disk, log, cleaner=cleaner) == 1
    assert records(log) == before
    assert notes == [
        "Marking partition t-0 as uncleanable until the next start: "
        "the batch at offset 0 has 11 records, of which the cleaner takes 10"
    ]


def test_the_meter_tells_of_the_last_search_and_cleaning() -> None:
    disk, now_ms = MemoryDisk(), 5_000
    log = new_log(disk, dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=1.0))
    fill(log)
    cleaner = cleaner_of(disk, log)
    cleaner._monotonic_ms = lambda: now_ms
    assert cleaner.begin(NOW_MS) is None
    assert (cleaner.meter.dirty_ratio, cleaner.meter.searched_ms) == (1.0, 5_000), "dirty, and not enough"
    log.config = COMPACT
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    now_ms = 8_000
    carry_out(cleaning, NOW_MS)
    assert cleaner.meter.clean_time_ms == 3_000
    assert cleaner.meter.buffer_utilization > 0
    assert cleaner.begin(NOW_MS) is None
    assert (cleaner.meter.dirty_ratio, cleaner.meter.searched_ms) == (0.0, 8_000)
