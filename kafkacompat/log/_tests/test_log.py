"""The log's answers to appends and reads, case by case."""

from __future__ import annotations

import errno
import gzip
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafkacompat.log._tests.disks import refusing
from kafkacompat.log._tests.logs import (
    DIRECTORY,
    NOW_MS,
    all_values,
    batch_of,
    config,
    index_files,
    look_up,
    marker,
    open_log,
    values_in,
)
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import FileSlice, IndexesRebuilt, LogRefused, TimestampOffset, passes
from kafkacompat.records._tests.test_batch import legacy_message
from kafkacompat.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, assemble, build_batch
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode


def three_batches(**changes: object) -> UnifiedLog:
    log = open_log(MemoryDisk(), config(segment_bytes=1 << 20, **changes))
    for i in range(3):
        log.append_as_leader(batch_of([b"%d%d" % (i, k) for k in range(4)], NOW_MS + 10 * i), i, NOW_MS)
    return log


def test_a_read_gives_the_whole_batch_that_holds_the_offset() -> None:
    """Records before the offset may come along; the client drops them."""
    log = three_batches()
    for offset in range(4, 8):
        assert [o for o, _ in values_in(log.read(offset, 1 << 20, 12, True))] == list(range(4, 12))


def test_a_read_stops_at_the_bound() -> None:
    log = three_batches()
    assert [o for o, _ in values_in(log.read(0, 1 << 20, 8, True))] == list(range(8))
    assert log.read(8, 1 << 20, 8, True).records == b""
    assert log.read(12, 1 << 20, 12, True).records == b""


def test_limits_leave_at_least_one_batch_where_asked() -> None:
    log = three_batches()
    whole = log.segments[0].size // 3
    one = log.read(0, 0, 12, True)
    assert len(one.records) == whole
    none = log.read(0, whole - 1, 12, False)
    assert none.records == b""
    assert none.first_batch_truncated
    assert len(log.read(0, whole + 10, 12, True).records) == whole + 10


def test_offsets_outside_the_log() -> None:
    log = three_batches()
    log.set_high_watermark(12)
    log.increment_log_start_offset(5)
    for offset in (-1, 0, 4, 13):
        with pytest.raises(LogRefused) as caught:
            log.read(offset, 100, 12, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_in(log.read(5, 1 << 20, 12, True))[0][0] == 4


def test_log_start_beyond_the_high_watermark_is_refused() -> None:
    log = three_batches()
    with pytest.raises(LogRefused) as caught:
        log.increment_log_start_offset(1)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_high_watermark_moves_only_forward_and_inside() -> None:
    log = three_batches()
    for asked, expected in ((5, 5), (3, 5), (99, 12)):
        log.set_high_watermark(asked)
        assert log.high_watermark == expected
    log.truncate_to(4)
    assert log.high_watermark == 4


@pytest.mark.parametrize("offset", [5, 6, 7])
def test_a_batch_cut_in_its_middle_goes_whole(offset: int) -> None:
    """If a leader's log begins within a batch (DeleteRecords), its previous epoch ends there. A follower that cuts its
    own batch and claims to end at that offset could never append the leader's batch. Found by the simulation."""
    log = three_batches()
    log.set_high_watermark(4)
    log.truncate_to(offset)
    assert log.log_end_offset == 4
    log.append_as_follower(bytes(batch_of([b"a", b"b", b"c", b"d"], base_offset=4, leader_epoch=2).buffer), 2)
    assert log.log_end_offset == 8


def test_timestamps_special_cases() -> None:
    """The result has the record's own epoch. There is no result beyond the end."""
    log = three_batches()
    found = look_up(log, NOW_MS + 11)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (5, NOW_MS + 11, 1)
    first = look_up(log, 0)
    assert first is not None
    assert first.offset == 0
    assert look_up(log, NOW_MS + 24) is None
    latest = look_up(log, None)
    assert latest is not None
    assert (latest.offset, latest.timestamp_ms) == (11, NOW_MS + 23)
    log.set_high_watermark(12)
    log.increment_log_start_offset(6)
    after = look_up(log, 0)
    assert after is not None
    assert after.offset == 6


def test_no_timestamps_at_all() -> None:
    log = open_log(MemoryDisk())
    assert look_up(log, None) is None
    assert look_up(log, 0) is None
    for _ in range(3):
        log.append_as_leader(batch_of([b"x"], -1), 3, NOW_MS)
    assert look_up(log, 0) is None
    # The first record, as in Kafka.
    assert look_up(log, None) == TimestampOffset(-1, 0, 3)
    log.set_high_watermark(3)
    log.increment_log_start_offset(2)
    assert look_up(log, None) == TimestampOffset(-1, 2, 3)
    log.append_as_leader(batch_of([b"x"], 0), 3, NOW_MS)
    assert look_up(log, None) == TimestampOffset(0, 3, 3)


def test_the_earliest_of_equal_max_timestamps() -> None:
    log = open_log(MemoryDisk())
    for timestamp in (NOW_MS, NOW_MS + 9, NOW_MS + 9, NOW_MS + 1):
        log.append_as_leader(batch_of([b"x", b"y"], timestamp, 0), 0, NOW_MS)
    found = look_up(log, None)
    assert found is not None
    assert found.offset == 2


def test_a_batch_larger_than_a_segment() -> None:
    log = open_log(MemoryDisk(), config(segment_bytes=100))
    with pytest.raises(LogRefused) as caught:
        log.append_as_leader(batch_of([bytes(200)]), 0, NOW_MS)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_rolling_by_time_counts_from_the_first_batch() -> None:
    log = open_log(MemoryDisk(), config(segment_bytes=1 << 20, segment_ms=100))
    for ahead in (0, 100, 101, 102, 201, 202):
        log.append_as_leader(batch_of([b"x"], NOW_MS + ahead), 0, NOW_MS)
    assert [s.base_offset for s in log.segments] == [0, 2, 5]


def test_rolling_without_timestamps_counts_from_creation() -> None:
    log = open_log(MemoryDisk(), config(segment_bytes=1 << 20, segment_ms=100))
    for now in (NOW_MS, NOW_MS + 100, NOW_MS + 101):
        log.append_as_leader(batch_of([b"x"], -1), 0, now)
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_rolling_by_index_size_and_by_offset_distance() -> None:
    log = open_log(
        MemoryDisk(), config(segment_bytes=1 << 20, segment_index_bytes=40, index_interval_bytes=0)
    )
    for i in range(12):
        log.append_as_leader(batch_of([b"x"], NOW_MS + i), 0, NOW_MS)
    assert len(log.segments) > 2
    log.append_as_follower(
        build_batch([Record(0, NOW_MS, None, b"far")], base_offset=1 << 40, leader_epoch=0), 0
    )
    assert log.segments[-1].base_offset == 1 << 40
    assert all_values(log)[-1] == (1 << 40, b"far")


@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize(
    "later", [{"index_interval_bytes": 4096}, {"segment_index_bytes": 60}, {"index_interval_bytes": 0}]
)
def test_no_index_grows_beyond_its_bound_when_settings_change(
    later: dict[str, int], is_started_again: bool
) -> None:
    disk = MemoryDisk()
    before = config(segment_bytes=1 << 20, segment_index_bytes=120, index_interval_bytes=100)
    log = open_log(disk, before)
    for i in range(10):
        log.append_as_leader(batch_of([b"x" * 100], NOW_MS + i), 0, NOW_MS)
    after = replace(before, **later)
    if is_started_again:
        log.close()
        log = open_log(disk, after, clean=True)
    log.config = after
    assert len(log.segments) == 1
    for i in range(10, 100):
        log.append_as_leader(batch_of([b"x" * 100], NOW_MS + i), 0, NOW_MS)
    assert len(log.segments) > 1
    most = before.segment_index_bytes
    for segment in log.segments:
        offsets, times = segment._search(lambda offsets, times: (len(offsets), len(times)))
        assert offsets <= most // 8
        assert times <= most // 12


def test_a_large_index_interval_has_an_entry_in_every_quarter_of_a_mebibyte_all_the_same() -> None:
    log = open_log(
        MemoryDisk(), config(segment_bytes=1 << 22, segment_index_bytes=1 << 20, index_interval_bytes=1 << 30)
    )
    for i in range(20):
        log.append_as_leader(batch_of([b"x" * 60_000], NOW_MS + i), 0, NOW_MS)
    (segment,) = log.segments
    assert segment._search(lambda offsets, times: len(offsets)) == segment.size // (262_144 + 60_000)


def test_a_failed_write_changes_nothing() -> None:
    """On a full disk the error reaches the caller, and the log accepts appends when there is space again."""
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_leader(batch_of([b"a"], producer_id=1, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    disk.failing = ".log"
    again = batch_of([b"b"], producer_id=1, producer_epoch=0, base_sequence=1)
    with pytest.raises(OSError, match="full"):
        log.append_as_leader(again, 0, NOW_MS)
    assert log.log_end_offset == 1
    disk.failing = None
    assert log.append_as_leader(again, 0, NOW_MS).first_offset == 1
    assert all_values(log) == [(0, b"a"), (1, b"b")]


def test_a_repetition_appends_nothing() -> None:
    log = open_log(MemoryDisk())
    options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    first = log.append_as_leader(batch_of([b"a", b"b"], **options), 0, NOW_MS)
    second = log.append_as_leader(batch_of([b"a", b"b"], **options), 0, NOW_MS)
    assert (second.first_offset, second.last_offset, second.duplicate) == (
        first.first_offset,
        first.last_offset,
        True,
    )
    assert log.log_end_offset == 2


def test_aborted_transactions_come_by_first_offset_over_segments() -> None:
    log = open_log(MemoryDisk(), config(segment_bytes=400))
    for i in range(4):
        for producer in (1, 2):
            log.append_as_leader(
                batch_of(
                    [b"x" * 90],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=i,
                    is_transactional=True,
                ),
                0,
                NOW_MS,
            )
        for producer in (2, 1):
            log.append_as_leader(marker(producer, committed=i % 2 == 0), 0, NOW_MS)
    log.set_high_watermark(16)
    assert len(log.segments) > 1
    found = [(a.producer_id, a.first_offset) for a in log.aborted_transactions(0, 16)[0]]
    assert found == [(1, 4), (2, 5), (1, 12), (2, 13)]
    assert [(a.producer_id, a.first_offset) for a in log.aborted_transactions(8, 13)[0]] == [(1, 12)]
    assert log.aborted_transactions(8, 12)[0] == []
    assert log.last_stable_offset == 16


def test_the_stable_offset_is_never_below_the_start() -> None:
    """The first record of an open transaction was deleted."""
    log = open_log(MemoryDisk(), config(segment_bytes=400, retention_ms=1000))
    options = {"producer_epoch": 0, "is_transactional": True}
    log.append_as_leader(batch_of([b"x"]), 0, NOW_MS)
    log.append_as_leader(batch_of([b"x"], producer_id=1, base_sequence=0, **options), 0, NOW_MS)
    for _ in range(9):
        log.append_as_leader(batch_of([b"x" * 90]), 0, NOW_MS)
    log.set_high_watermark(11)
    assert log.last_stable_offset == 1
    log.increment_log_start_offset(6)
    assert log.last_stable_offset == 6
    assert log.enforce_retention(NOW_MS + 5000)
    assert log.last_stable_offset == log.log_start_offset > 6
    log.append_as_leader(batch_of([b"x"], producer_id=2, base_sequence=0, **options), 0, NOW_MS)
    log.append_as_leader(batch_of([b"x"]), 0, NOW_MS)
    log.set_high_watermark(13)
    log.append_as_leader(marker(1, committed=True), 0, NOW_MS)
    log.set_high_watermark(14)
    assert log.last_stable_offset == 11


def test_the_stable_offset_never_passes_the_high_watermark() -> None:
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"x"]), 0, NOW_MS)
    log.append_as_leader(
        batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True), 0, NOW_MS
    )
    assert log.last_stable_offset == 0
    log.set_high_watermark(2)
    assert log.last_stable_offset == 1
    log.append_as_leader(marker(1, committed=True), 0, NOW_MS)
    assert log.last_stable_offset == 1
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3


def test_followers_refuse_damage_and_wrong_offsets_and_leave_out_later_epochs() -> None:
    def data(offset: int, epoch: int) -> bytearray:
        return build_batch([Record(0, NOW_MS, None, b"v")], base_offset=offset, leader_epoch=epoch)

    log = open_log(MemoryDisk())
    damaged = data(0, 1)
    damaged[-1] ^= 1
    with pytest.raises(LogRefused) as crc:
        log.append_as_follower(damaged, 1)
    assert crc.value.code == ErrorCode.CORRUPT_MESSAGE
    log.append_as_follower(data(5, 1) + data(6, 2) + data(7, 3), 2)
    assert (log.log_end_offset, log.latest_epoch()) == (7, 2)
    with pytest.raises(LogRefused) as offset:
        log.append_as_follower(data(6, 2), 2)
    assert offset.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.epoch_entries == [(1, 5), (2, 6)]


def test_a_slice_outlives_its_segment() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config(retention_ms=0))
    for i in range(60):
        log.append_as_leader(batch_of([b"v%d" % i * 9], NOW_MS - 1000), 0, NOW_MS)
    log.set_high_watermark(60)
    held = log.read(0, 100, 60, True).records
    assert isinstance(held, FileSlice)
    before = held.read()
    assert log.enforce_retention(NOW_MS) > 1
    assert log.log_start_offset == log.log_end_offset == 60
    assert held.read() == before
    assert [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")] == [f"{60:020d}.log"]


def test_retention_makes_room_on_a_full_disk_though_the_active_segment_is_due_too() -> None:
    """To close the active segment takes room for its indexes, which only the removal of the others makes."""
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=700, retention_ms=1000))
    while len(log.segments) < 4:
        log.append_as_leader(batch_of([b"x" * 50]), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    active = log.segments[-1]
    disk.refuse = refusing("create write write_atomic", "/", errno.ENOSPC)
    assert log.enforce_retention(NOW_MS + 5000) == 3
    assert log.segments == [active]
    assert log.log_start_offset == active.base_offset
    with pytest.raises(OSError, match="refused"):
        log.enforce_retention(NOW_MS + 5000)
    disk.refuse = None
    assert log.enforce_retention(NOW_MS + 5000) == 1
    assert log.log_start_offset == log.log_end_offset


def test_cold_reads_and_old_segments() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=700, index_interval_bytes=50))
    values = [b"value %d" % i for i in range(200)]
    for value in values:
        log.append_as_leader(batch_of([value]), 0, NOW_MS)
    log.close()
    disk.cold = True
    again = open_log(disk, config(segment_bytes=700, index_interval_bytes=50), clean=True)
    for offset in range(199, -1, -7):
        assert values_in(again.read(offset, 1, 200, True)) == [(offset, values[offset])]
    assert again.segment_base_offset(0) == 0
    assert again.readable_bytes(0, 200) == again.size_bytes()
    assert index_files(disk)


def test_an_append_never_syncs_by_itself() -> None:
    """The caller of the append applies flush.messages, in a worker thread (partition/log_syncs.py)."""
    disk = MemoryDisk()
    log = open_log(disk, config(flush_messages=1))
    log.append_as_leader(batch_of([b"x"]), 0, NOW_MS)
    assert log.recovery_point == 0
    flush = log.begin_flush()
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 1
    assert disk.synced[f"{DIRECTORY}/{0:020d}.log"] == bytes(disk.files[f"{DIRECTORY}/{0:020d}.log"])


def test_closed_segments_are_flushed_without_the_active_one() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=300))
    while len(log.segments) < 4:
        log.append_as_leader(batch_of([b"x" * 50]), 0, NOW_MS)
    flush = log.begin_flush(closed_only=True)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == log.segments[-1].base_offset
    for segment in log.segments[:-1]:
        assert disk.synced[f"{segment.stem}.log"] == bytes(disk.files[f"{segment.stem}.log"])
    assert f"{log.segments[-1].stem}.log" not in disk.synced


def test_the_largest_timestamp_outlives_a_clean_restart() -> None:
    """Older records may follow directly. Retention must not judge the newer record by their age."""
    disk, kept = MemoryDisk(), config(segment_bytes=1 << 20, retention_ms=1000)
    log = open_log(disk, kept)
    log.append_as_leader(batch_of([b"young"], NOW_MS), 0, NOW_MS)
    log.close()
    log = open_log(disk, kept, clean=True)
    log.append_as_leader(batch_of([b"old"], NOW_MS - 5000), 0, NOW_MS)
    log.set_high_watermark(2)
    found = look_up(log, NOW_MS)
    assert found is not None
    assert found.offset == 0
    assert log.enforce_retention(NOW_MS) == 0


def test_a_flush_from_before_a_truncation_does_not_vouch_for_what_came_after_it() -> None:
    log = open_log(MemoryDisk(), config(segment_bytes=1 << 20))
    for number in range(4):
        log.append_as_leader(batch_of([b"%d" % number]), 0, NOW_MS)
    flush = log.begin_flush()
    log.truncate_to(2)
    for number in range(4):
        log.append_as_leader(batch_of([b"other %d" % number]), 1, NOW_MS)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point <= 2
    log.flush()
    assert log.recovery_point == log.log_end_offset


@pytest.mark.parametrize("body", [b"", b"\x0e\0\0\0\1\1\0\0", b"\x10\0\0\0\4\0\0\1\0"])
def test_a_marker_that_cannot_be_read_is_refused_before_anything_is_written(body: bytes) -> None:
    bad = assemble(
        body,
        base_offset=1,
        leader_epoch=0,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        last_offset_delta=0,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        producer_id=1,
        producer_epoch=0,
        base_sequence=-1,
        record_count=1,
    )
    good = build_batch([Record(0, NOW_MS, None, b"v")], leader_epoch=0)
    log = open_log(MemoryDisk())
    with pytest.raises(LogRefused) as refused:
        log.append_as_follower(good + bad, 0)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.segments[-1].size) == (0, 0)
    log.append_as_follower(good, 0)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("offset", [2, 3, 4, 5])
def test_a_truncation_inside_an_old_wrapper_ends_the_log_before_it(magic: int, offset: int) -> None:
    """Its header has only its last offset."""
    first = 2 if magic == 0 else 0
    inner = b"".join(legacy_message(magic, first + each, b"k", b"v") for each in range(4))
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{0:020d}.log", create=True).write_now(
        legacy_message(magic, 0, b"k", b"v")
        + legacy_message(magic, 1, b"k", b"v")
        + legacy_message(magic, 5, None, gzip.compress(inner), attributes=1)
        + legacy_message(magic, 6, b"k", b"v")
    )
    log = open_log(disk)
    assert log.log_end_offset == 7
    log.truncate_to(offset, NOW_MS)
    assert log.log_end_offset == 2
    assert [found for found, _ in all_values(log)] == [0, 1]
    log.append_as_leader(batch_of([b"next"]), 0, NOW_MS)
    assert [found for found, _ in all_values(log)] == [0, 1, 2]
    log.truncate_to(0, NOW_MS)
    assert log.log_end_offset == 0


def test_a_truncation_inside_a_wrapper_at_the_beginning_of_a_segment() -> None:
    inner = b"".join(legacy_message(1, each, b"k", b"v") for each in range(4))
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    wrapper = legacy_message(1, 13, None, gzip.compress(inner), attributes=1)
    disk.open(f"{DIRECTORY}/{10:020d}.log", create=True).write_now(wrapper)
    log = open_log(disk)
    log.truncate_to(12, NOW_MS)
    assert log.log_end_offset == 10


Refused = Callable[[MemoryDisk, UnifiedLog], type[Exception]]


def no_descriptor(disk: MemoryDisk, log: UnifiedLog) -> type[Exception]:
    disk.refuse = refusing("open", log.segments[0].stem + ".log", errno.EMFILE)
    return OSError


def damaged_index(disk: MemoryDisk, log: UnifiedLog) -> type[Exception]:
    """It is rebuilt meanwhile."""
    segment = log.segments[0]
    del disk.files[segment.stem + ".index"][-3:]
    segment.indexes.forget()
    segment.rebuild_later = lambda _: None
    return IndexesRebuilt


@pytest.mark.parametrize("refused", [no_descriptor, damaged_index])
@pytest.mark.parametrize("beyond", [1, 25])
def test_a_truncation_that_is_refused_for_now_changes_nothing(refused: Refused, beyond: int) -> None:
    """There are no snapshots, because the disk had no room for them. So the producers' state as of the new end is read from
    the whole log."""
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(60):
        batch = batch_of(
            [b"v"], producer_id=number % 4, producer_epoch=0, base_sequence=number // 4, base_offset=number
        )
        log.append_as_follower(batch.buffer, 0)
    log.flush()
    for path in [path for path in disk.files if path.endswith(".snapshot")]:
        disk.remove(path)
    log = open_log(disk, clean=True)
    before = list(log.active_producers())
    wanted = refused(disk, log)
    with pytest.raises(wanted) as met:
        log.truncate_to(60 - beyond)
    assert passes(met.value)
    assert log.log_end_offset == 60
    assert list(log.active_producers()) == before
    disk.refuse = None
    log.segments[0].rebuild_later = None
    log.truncate_to(60 - beyond)
    assert log.log_end_offset == 60 - beyond
    assert list(log.active_producers()) == list(open_log(disk.copy()).active_producers()) != before
