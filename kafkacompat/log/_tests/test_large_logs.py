"""Logs of many segments: the data that a step of the loop reads, opens, renames and keeps does not grow with the log."""

from __future__ import annotations

import gc
import random

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import (
    DIRECTORY,
    NOW_MS,
    all_values,
    batch_of,
    config,
    look_up,
    marker,
    open_log,
    values_in,
)
from kafkacompat.log._tests.memory_disk import CountingDisk
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.index_rebuild import IndexRebuilds
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.log_segment import LogSegment
from kafkacompat.log.segment_list import DROPPED_AT_ONCE
from kafkacompat.log.unified_log import RETIRED_AT_ONCE, SYNCED_AT_ONCE, UnifiedLog
from kafkacompat.log.upkeep import FLUSHED_AT_ONCE, LogUpkeep
from kafkacompat.ports import LogRefused, TimestampOffset, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import ErrorCode

SETTINGS = config(segment_bytes=700, index_interval_bytes=100)


class LoopDisk(CountingDisk):
    """A disk that can forbid file access to the loop's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []
        self.refuse = self._note

    def _note(self, operation: str, path: str) -> None:
        self.touched.append(f"{operation} {path}")

    def reads(self) -> list[str]:
        """The operations since the last call."""
        touched, self.touched = self.touched, []
        return [one for one in touched if not one.startswith(("rename", "exists"))]


def test_reading_everything_leaves_few_files_open() -> None:
    """A consumer that reads from the start would otherwise leave the file of each segment open."""
    disk = CountingDisk()
    log = open_log(disk, SETTINGS)
    open_files = log.segments[-1]._open_files
    open_files._most = lambda: 3
    at = 0
    while len(log.segments) < 30:
        log.append_as_leader(batch_of([b"v%d" % at], NOW_MS + at), 0, NOW_MS)
        at += 1
        assert len(open_files) <= 3
    for _ in range(2):
        found = all_values(log)
        assert [value for _, value in found[:at]] == [b"v%d" % number for number in range(at)]
        assert len(open_files) == 3
        log.append_as_leader(batch_of([b"more"], NOW_MS + at), 0, NOW_MS)
    log.close()
    assert not len(open_files)


def test_a_segment_that_nobody_has_is_not_kept_open() -> None:
    disk = CountingDisk()
    log = open_log(disk, SETTINGS)
    log.append_as_leader(batch_of([b"v"], NOW_MS), 0, NOW_MS)
    open_files = log.segments[-1]._open_files
    assert len(open_files) == 1
    del log
    gc.collect()
    assert not len(open_files)


def filled(
    disk: CountingDisk, segments: int, settings: object = SETTINGS, *, step_ms: int = 10
) -> UnifiedLog:
    log = open_log(disk, settings)  # type: ignore[arg-type]
    at = 0
    while len(log.segments) < segments:
        log.append_as_leader(batch_of([b"v%d" % at], NOW_MS + at * step_ms), 0, NOW_MS)
        at += 1
    log.close()
    return open_log(disk, settings, clean=True, high_watermark=log.log_end_offset)  # type: ignore[arg-type]


def manager_with(disk: CountingDisk, logs: int, segments: int, **settings: object) -> LogManager:
    """After a clean restart."""
    chosen = config(segment_bytes=700, index_interval_bytes=100, **settings)
    for restart in (False, True):
        manager = LogManager(disk, [("/logs", b"\1" * 16)], chosen, HandTime())
        disk.make_directory("/logs")
        manager.load_all()
        if restart:
            return manager
        for number in range(logs):
            log = manager.get_or_create(TopicPartition("t", number), b"\2" * 16, chosen)
            at = 0
            while len(log.segments) < segments:
                log.append_as_leader(batch_of([b"v%d" % at], NOW_MS - 1000 + at), 0, NOW_MS)
                at += 1
            log.flush()
            log.is_durable = True
            log.set_high_watermark(log.log_end_offset)
        manager.shut_down(1)
    raise AssertionError


def test_retention_reads_the_end_of_one_time_index_a_log_and_nothing_on_the_loop() -> None:
    disk = LoopDisk()
    manager = manager_with(disk, 20, 30, retention_ms=100_000_000)
    whole = LogUpkeep(manager).begin_retention(NOW_MS)
    disk.bytes_read = 0
    disk.opened.clear()
    disk.reads()
    steps = 0
    while (step := whole.next()) is not None:
        assert disk.reads() == [], "the loop's part"
        step.run()
        disk.reads()
        step.finish()
        assert disk.reads() == [], "the loop's part"
        steps += 1
    assert whole.removed == 0
    assert disk.bytes_read == 20 * 12
    assert {path.rsplit(".", 1)[1] for path in disk.opened} == {"timeindex"}
    assert max(disk.opened.values()) == 1
    assert not any(segment.indexes.kept_bytes() for log in manager.logs.values() for segment in log.segments)
    again = LogUpkeep(manager).begin_retention(NOW_MS)
    while (step := again.next()) is not None:
        step.run()
        step.finish()
    assert disk.reads() == [], "it is known by now"


def test_a_step_of_retention_drops_a_bounded_number_of_segments() -> None:
    disk = LoopDisk()
    manager = manager_with(disk, 3, 2 * DROPPED_AT_ONCE + 20, retention_ms=1000)
    whole = LogUpkeep(manager).begin_retention(NOW_MS + 10_000)
    while (step := whole.next()) is not None:
        before = sum(len(log.segments) for log in manager.logs.values())
        step.run()
        step.finish()
        # A log may have begun an empty segment in place of its last one.
        assert before - sum(len(log.segments) for log in manager.logs.values()) <= 2 * DROPPED_AT_ONCE
    assert [len(log.segments) for log in manager.logs.values()] == [1, 1, 1]
    assert whole.removed == 3 * (2 * DROPPED_AT_ONCE + 20)


def test_retention_asks_no_more_of_a_log_than_the_first_that_stays() -> None:
    disk = CountingDisk()
    manager = manager_with(disk, 1, 40, retention_ms=990)
    disk.bytes_read = 0
    upkeep = LogUpkeep(manager)
    whole = upkeep.begin_retention(NOW_MS)
    while (step := whole.next()) is not None:
        step.run()
        step.finish()
    assert 0 < whole.removed < 6
    assert disk.bytes_read <= 12 * (whole.removed + 2)


def test_readers_of_old_segments_in_turn_read_no_index_twice() -> None:
    """With only one index in memory per log, two consumers would evict each other's index."""
    disk = CountingDisk()
    log = filled(disk, 40)
    places = [log.segments[3].base_offset + 1, log.segments[20].base_offset + 2]
    for offset in places:
        assert values_in(log.read(offset, 1, log.log_end_offset, True)) == [(offset, b"v%d" % offset)]
    disk.opened.clear()
    for _ in range(10):
        for offset in places:
            log.read(offset, 1, log.log_end_offset, True)
    assert not any(path.endswith("index") for path in disk.opened)


@pytest.mark.parametrize("timestamp_ms", [NOW_MS + 5000, None, NOW_MS + 10**9])
def test_a_lookup_by_time_reads_nothing_on_the_loop(timestamp_ms: int | None) -> None:
    disk = LoopDisk()
    log = filled(disk, 60)
    disk.reads()
    lookup = log.begin_lookup(timestamp_ms)
    # The active segment's files are opened once, when its indexes are first needed.
    assert all(log.segments[-1].stem in one for one in disk.reads())
    lookup.run()
    disk.reads()
    assert log.finish_lookup(lookup)
    assert disk.reads() == []
    log.begin_lookup(timestamp_ms)
    assert disk.reads() == []


@pytest.mark.parametrize("seed", range(30))
def test_lookups_by_time_are_right_and_walk_little(seed: int) -> None:
    """The timestamps go up and down, so the time index has few entries that are far apart."""
    chance = random.Random(seed)
    disk = CountingDisk()
    settings = config(
        segment_bytes=chance.choice([3000, 100_000]), index_interval_bytes=chance.choice([1, 400])
    )
    log = open_log(disk, settings)
    stamps: list[int] = []
    highest = NOW_MS
    for at in range(300):
        step = chance.random()
        if step < 0.1:
            highest += chance.randrange(50)
        stamp = highest - chance.randrange(40) if step < 0.9 else -1
        log.append_as_leader(batch_of([b"v%d" % at], stamp), 0, NOW_MS)
        stamps.append(stamp)
        if step > 0.995:
            log.close()
            log = open_log(disk, settings, clean=True, high_watermark=log.log_end_offset)
        elif step > 0.98:
            log.truncate_to(max(log.log_end_offset - chance.randrange(1, 40), log.high_watermark))
            del stamps[log.log_end_offset :]
    log.set_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(chance.randrange(len(stamps)))
    start = log.log_start_offset
    for target in range(NOW_MS - 45, highest + 3, 7):
        found = [at for at in range(start, len(stamps)) if stamps[at] >= target]
        expected = TimestampOffset(stamps[found[0]], found[0], 0) if found else None
        assert look_up(log, target) == expected
    known = max(stamps[log.segments[0].base_offset :], default=-1)
    latest = look_up(log, None)
    if latest is not None:
        assert latest.timestamp_ms == max(stamps[start:])
    else:
        assert known < 0 or max(stamps[start:]) < known


def test_a_lookup_by_time_walks_an_index_interval_though_the_time_index_has_no_entry_nearby() -> None:
    disk = CountingDisk()
    settings = config(segment_bytes=1 << 20, index_interval_bytes=400)
    log = open_log(disk, settings)
    log.append_as_leader(batch_of([b"first"], NOW_MS), 0, NOW_MS)
    for _ in range(3000):
        log.append_as_leader(batch_of([b"older"], NOW_MS - 50), 0, NOW_MS)
    log.append_as_leader(batch_of([b"later"], NOW_MS + 50), 0, NOW_MS)
    for _ in range(10):
        log.append_as_leader(batch_of([b"older"], NOW_MS - 50), 0, NOW_MS)
    disk.bytes_read = 0
    assert look_up(log, NOW_MS + 1) == TimestampOffset(NOW_MS + 50, 3001, 0)
    assert disk.bytes_read < 40_000


def test_what_changes_under_a_lookup_makes_it_void() -> None:
    disk = CountingDisk()
    log = filled(disk, 20)
    old = log.begin_lookup(NOW_MS)
    old.run()
    log.set_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(5)
    assert not log.finish_lookup(old), "what it found is deleted"
    early = log.begin_lookup(NOW_MS + 10**6)
    late = log.begin_lookup(None)
    late.run()
    log.truncate_to(log.log_end_offset - 1)
    early.run()
    assert not log.finish_lookup(early)
    assert not log.finish_lookup(late)
    gone = log.begin_lookup(NOW_MS)
    for path in log.segments[0].paths():
        disk.remove(path)
    gone.run()
    assert gone.moved
    assert not log.finish_lookup(gone)


def test_a_truncation_of_many_segments_takes_several_steps_each_of_which_leaves_a_whole_log() -> None:
    disk = LoopDisk()
    later: list[str] = []
    log = filled(disk, 3 * DROPPED_AT_ONCE)
    log._segments._delete_later = lambda paths, delay_ms: later.extend(paths)
    calls = 0
    while log.log_end_offset > 4:
        before = len(log.segments)
        log.truncate_to(4)
        calls += 1
        assert before - len(log.segments) <= DROPPED_AT_ONCE
        again = open_log(disk.copy(), SETTINGS, clean=True)
        assert again.log_end_offset == log.log_end_offset
    assert calls == 3
    assert len(later) > 2 * DROPPED_AT_ONCE
    assert all(path.endswith(".deleted") and path in disk.files for path in later), "nothing is unlinked here"
    log.append_as_leader(batch_of([b"new"]), 1, NOW_MS)
    assert values_in(log.read(4, 1000, 5, True)) == [(4, b"new")]


def test_a_truncation_reads_little_of_a_log_without_producers() -> None:
    disk = CountingDisk()
    log = open_log(disk, config(segment_bytes=1 << 24, index_interval_bytes=4000))
    for _ in range(3000):
        log.append_as_leader(batch_of([b"v" * 1000]), 0, NOW_MS)
    log.segments[-1].let_go()
    for end in (2990, 1500):
        disk.bytes_read = 0
        log.truncate_to(end)
        assert disk.bytes_read < 200_000 < log.segments[-1].size // 5
        assert log.log_end_offset == end
        assert log.segments[-1].next_offset() == end
    log.append_as_leader(batch_of([b"v"], producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    log.append_as_leader(batch_of([b"v"], producer_id=7, producer_epoch=0, base_sequence=1), 0, NOW_MS)
    log.truncate_to(1501)
    assert [(each.producer_id, each.last_sequence) for each in log.active_producers()] == [(7, 0)]
    log.truncate_to(1500)
    assert list(log.active_producers()) == []


def test_a_log_of_many_segments_starts_anew_in_steps() -> None:
    disk = LoopDisk()
    log = filled(disk, 2 * DROPPED_AT_ONCE + 3)
    log._segments._delete_later = lambda paths, delay_ms: None
    end = log.log_end_offset
    calls = 0
    while log.log_start_offset != end + 100:
        log.truncate_fully_and_start_at(end + 100)
        calls += 1
    assert calls == 3
    assert log.log_end_offset == log.high_watermark == end + 100
    assert len(log.segments) == 1


def test_damaged_indexes_are_built_anew_aside_and_reads_are_refused_until_then() -> None:
    disk = LoopDisk()
    log = filled(disk, 10)
    index_rebuilds = IndexRebuilds(disk, lambda line: None)
    told: list[str] = []
    index_rebuilds.watch(lambda: told.append("damage"))
    log._segments._rebuild_later = None
    segment = log.segments[2]
    segment.rebuild_later = lambda one: index_rebuilds.report(log, one)
    whole = disk.read_bytes(segment.stem + ".index")
    disk.files[segment.stem + ".index"] = disk.files[segment.stem + ".index"][:-3]  # type: ignore[assignment]
    offset = segment.base_offset + 3
    for _ in range(2):
        disk.reads()
        with pytest.raises(LogRefused) as refused:
            log.read(offset, 1, log.log_end_offset, True)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not any(".log" in one for one in disk.reads()), "the batches are not walked here"
    assert told == ["damage"]
    rebuild = index_rebuilds.begin()
    assert rebuild is not None
    rebuild.run()
    assert rebuild.finish()
    index_rebuilds.done(rebuild)
    assert index_rebuilds.begin() is None
    assert disk.read_bytes(segment.stem + ".index") == whole
    assert values_in(log.read(offset, 1, log.log_end_offset, True)) == [(offset, b"v%d" % offset)]
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".rebuilt")]


def test_indexes_that_are_damaged_again_are_built_anew_again() -> None:
    disk = CountingDisk()
    log = filled(disk, 10)
    index_rebuilds = IndexRebuilds(disk, lambda line: None)
    segment = log.segments[2]
    segment.rebuild_later = lambda one: index_rebuilds.report(log, one)
    offset = segment.base_offset + 3
    for _ in range(2):
        del disk.files[segment.stem + ".index"][-3:]
        with pytest.raises(LogRefused, match="are being rebuilt"):
            log.read(offset, 1, log.log_end_offset, True)
        rebuild = index_rebuilds.begin()
        assert rebuild is not None
        rebuild.run()
        assert rebuild.finish()
        index_rebuilds.done(rebuild)
    assert values_in(log.read(offset, 1, log.log_end_offset, True)) == [(offset, b"v%d" % offset)]


def test_a_rebuild_that_lacks_memory_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would begin it again, and reads would be refused until the next start."""
    log = filled(CountingDisk(), 10)
    told: list[str] = []
    index_rebuilds = IndexRebuilds(log._disk, lambda line: None)
    index_rebuilds.watch(lambda: told.append("damage"))
    index_rebuilds.report(log, log.segments[2])
    rebuild = index_rebuilds.begin()
    assert rebuild is not None

    def lacks_memory(segment: LogSegment) -> None:
        raise MemoryError

    monkeypatch.setattr(LogSegment, "build_indexes_beside", lacks_memory)
    rebuild.run()
    with pytest.raises(OSError, match="no memory") as lack:
        rebuild.finish()
    assert passes(lack.value)
    index_rebuilds.done(rebuild)
    index_rebuilds.report(log, log.segments[2])
    assert told == ["damage", "damage"]
    assert log.segments[2].damage is None


def test_damage_that_stays_is_told_by_another_error_each_time() -> None:
    """An error keeps the frames that it has left. If the same one were raised again, it would lead to all earlier readers."""
    disk = LoopDisk()
    log = filled(disk, 10)
    index_rebuilds = IndexRebuilds(disk, lambda line: None)
    segment = log.segments[2]
    segment.rebuild_later = lambda one: index_rebuilds.report(log, one)
    del disk.files[segment.stem + ".index"][-3:]
    disk.files[segment.stem + ".log"][16] = 9  # no format has this number
    offset = segment.base_offset + 3
    with pytest.raises(LogRefused):
        log.read(offset, 1, log.log_end_offset, True)
    rebuild = index_rebuilds.begin()
    assert rebuild is not None
    rebuild.run()
    assert not rebuild.finish()
    index_rebuilds.done(rebuild)
    errors = []
    for _ in range(2):
        with pytest.raises(BatchCorrupt) as damage:
            log.read(offset, 1, log.log_end_offset, True)
        errors.append((damage.value, len(damage.traceback)))
    (one, length), (other, its_length) = errors
    assert one is not other
    assert length == its_length


@pytest.mark.parametrize("is_torn", [False, True])
def test_what_is_built_anew_is_dropped_when_as_many_bytes_are_others_meanwhile(is_torn: bool) -> None:
    """A follower is truncated and then gets its leader's batches: the positions of the old batches do not fit the new
    ones."""
    disk = CountingDisk()
    log = open_log(disk, config(segment_bytes=1 << 20, index_interval_bytes=1))
    short, long = b"s", b"l" * 50
    for value in (b"first", short, long, short, long):
        log.append_as_leader(batch_of([value]), 0, NOW_MS)
    (segment,) = log.segments
    size = segment.size
    index_rebuilds = IndexRebuilds(disk, lambda line: None)
    index_rebuilds.report(log, segment)
    rebuild = index_rebuilds.begin()
    assert rebuild is not None
    rebuild.run()
    if is_torn:
        rebuild.error = BatchCorrupt("seen while it was cut")
    log.truncate_to(1)
    for value in (long, short, long, short):
        log.append_as_leader(batch_of([value]), 0, NOW_MS)
    assert segment.size == size
    assert not rebuild.finish()
    assert segment.damage is None
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".rebuilt")]
    segment.let_go()
    for offset, value in enumerate((b"first", long, short, long, short)):
        assert values_in(log.read(offset, 1, log.log_end_offset, True)) == [(offset, value)]


def test_what_is_built_anew_is_dropped_when_the_segment_has_gone_meanwhile() -> None:
    disk = CountingDisk()
    log = filled(disk, 10)
    segment = log.segments[5]
    index_rebuilds = IndexRebuilds(disk, lambda line: None)
    index_rebuilds.report(log, segment)
    rebuild = index_rebuilds.begin()
    assert rebuild is not None
    rebuild.run()
    log.truncate_to(segment.base_offset - 1)
    names = disk.list_directory(DIRECTORY)
    assert not rebuild.finish()
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".rebuilt")]
    assert [name for name in names if not name.endswith(".rebuilt")] == disk.list_directory(DIRECTORY)


def test_a_missing_index_is_made_when_the_log_is_opened() -> None:
    disk = CountingDisk()
    log = filled(disk, 6)
    path = log.segments[1].stem + ".timeindex"
    whole = disk.read_bytes(path)
    disk.remove(path)
    open_log(disk, SETTINGS, clean=True)
    assert disk.read_bytes(path) == whole


def test_a_flush_takes_bounded_numbers_of_logs_and_segments_until_all_is_durable() -> None:
    disk = LoopDisk()
    manager = LogManager(disk, [("/logs", b"\1" * 16)], SETTINGS, HandTime())
    disk.make_directory("/logs")
    manager.load_all()
    for number in range(2 * FLUSHED_AT_ONCE + 10):
        log = manager.get_or_create(TopicPartition("t", number), b"\2" * 16, SETTINGS)
        while len(log.segments) < (2 * SYNCED_AT_ONCE if not number else 2):
            log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    upkeep = LogUpkeep(manager)
    plans = 0
    goes_on = True
    while goes_on:
        plan = upkeep.flush_closed_segments("/logs")
        assert plan is not None
        assert len(plan._items) <= FLUSHED_AT_ONCE
        assert all(len(flush._files) <= SYNCED_AT_ONCE for _, flush in plan._items)
        plan.run()
        goes_on = plan.finish()
        plans += 1
    assert plans == 3
    assert upkeep.flush_closed_segments("/logs") is None


def rolled_logs(disk: CountingDisk, count: int) -> LogManager:
    """Each log has a closed segment that is not synced."""
    manager = LogManager(disk, [("/logs", b"\1" * 16)], SETTINGS, HandTime())
    disk.make_directory("/logs")
    manager.load_all()
    for number in range(count):
        log = manager.get_or_create(TopicPartition("t", number), b"\2" * 16, SETTINGS)
        while len(log.segments) < 2:
            log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    return manager


def test_logs_that_have_rolled_are_synced_though_the_first_of_them_were_synced_otherwise() -> None:
    """As at a start after a kill, when the periodic flush comes before all of them are synced."""
    manager = rolled_logs(CountingDisk(), FLUSHED_AT_ONCE + 10)
    upkeep = LogUpkeep(manager)
    told: list[str] = []
    upkeep.watch_rolls(told.append)
    periodic = upkeep.flush_closed_segments("/logs")
    assert periodic is not None
    periodic.run()
    assert periodic.finish()
    goes_on = True
    while goes_on:
        plan = upkeep.flush_rolled("/logs")
        assert plan is not None
        plan.run()
        goes_on = plan.finish()
    assert all(log.recovery_point == log.segments[-1].base_offset for log in manager.logs.values())
    assert told == ["/logs"]
    log = manager.logs[TopicPartition("t", 0)]
    while len(log.segments) < 3:
        log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    assert told == ["/logs", "/logs"]


def test_rolls_are_told_of_again_after_a_flush_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is begun again by nobody else, and what was left would keep all later rolls from being told of."""
    manager = rolled_logs(CountingDisk(), 3)
    upkeep = LogUpkeep(manager)
    told: list[str] = []
    upkeep.watch_rolls(told.append)

    def lacks_memory(log: UnifiedLog, **options: bool) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "begin_flush", lacks_memory)
        with pytest.raises(MemoryError):
            upkeep.flush_rolled("/logs")
    log = manager.logs[TopicPartition("t", 0)]
    while len(log.segments) < 3:
        log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    assert told == ["/logs", "/logs"]


def test_a_flush_of_many_closed_segments_looks_at_no_file_of_theirs_on_the_loop() -> None:
    disk = LoopDisk()
    log = open_log(disk, SETTINGS)
    while len(log.segments) < 80:
        log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    again = open_log(disk, SETTINGS)  # after a kill: none of it is known to be durable
    disk.touched.clear()
    flush = again.begin_flush()
    assert len(disk.touched) < 20
    flush.run()
    again.finish_flush(flush)
    assert again.recovery_point == again.log_end_offset
    closed = {segment.stem for segment in again.segments[:-1]}
    assert {path for path in disk.files if path.rpartition(".")[0] in closed} <= set(disk.synced)
    assert again.segments[-1].stem + ".log" in disk.synced


def test_a_read_of_committed_records_asks_only_segments_that_have_aborted_transactions() -> None:
    disk = CountingDisk()
    log = filled(disk, 50)
    log.append_as_leader(
        batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True), 0, NOW_MS
    )
    first = log.log_end_offset - 1
    log.append_as_leader(marker(7, committed=False), 0, NOW_MS)
    while len(log.segments) < 60:
        log.append_as_leader(batch_of([b"y" * 90]), 0, NOW_MS)
    assert [one.first_offset for one in log.aborted_transactions(0, log.log_end_offset)[0]] == [first]
    assert len(log._segments._may_have_aborted()) == 1
    log.roll(log.log_end_offset, NOW_MS)
    assert len(log._segments._may_have_aborted()) == 1
    log.truncate_to(first)
    assert log.aborted_transactions(0, log.log_end_offset)[0] == []


def test_a_log_that_goes_looks_for_the_index_pages_of_its_last_segments_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(CountingDisk(), RETIRED_AT_ONCE + 20)
    for segment in log._segments.items:
        segment.indexes.pair(segment.size)
    looked: list[int] = []
    monkeypatch.setattr(IndexCache, "drop", lambda cache, generation, pages: looked.append(generation))
    log.release()
    assert len(looked) == 2 * RETIRED_AT_ONCE
