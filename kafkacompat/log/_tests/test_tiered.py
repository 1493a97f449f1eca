"""A log whose closed segments are copied to a remote storage: its two starts, local retention, truncation, restarts."""

from __future__ import annotations

import errno

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import (
    DIRECTORY,
    NAME,
    NOW_MS,
    SMALL,
    TIERED,
    TOPIC_ID,
    batch_of,
    config,
    fill,
    open_tiered,
)
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import LOG_START_FILE, REMOTE_CLEANING
from kafkacompat.log.directory import offsets_of
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.opening import LogOpener
from kafkacompat.log.producer_snapshots import SnapshotCorrupt, decode_snapshot
from kafkacompat.log.retention import SegmentFacts, count_tiered
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.ports import HalfDone, LogRefused
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import ErrorCode

COMPACTED_ONLY: dict[str, object] = {
    "cleanup_policy": ("compact",),
    "local_retention_bytes": 1,
    "retention_bytes": 1,
    "retention_ms": -1,
}


def opener(disk: MemoryDisk, *, remote_storage: bool = False) -> LogOpener:
    """Of a node, which has a remote storage or not."""
    services = LogServices(remote_storage=remote_storage)
    return LogOpener(disk, HandTime(), lambda line: None, IndexCache(1 << 20), services)


def made_by(
    makes: LogOpener, name: TopicPartition = NAME, settings: LogConfig = SMALL, segments: int = 4
) -> UnifiedLog:
    """A log of so many segments."""
    log = makes.open_log(DIRECTORY, name, TOPIC_ID, SMALL, clean=True)
    log.config = settings
    log.is_durable = True
    fill(log, segments)
    return log


def code_of(log: UnifiedLog, offset: int) -> ErrorCode:
    with pytest.raises(LogRefused) as refused:
        log.read(offset, 1000, log.log_end_offset, True)
    return refused.value.code


def test_what_is_not_copied_stays_whatever_local_retention_says() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    assert log.enforce_retention(NOW_MS) == 0
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 0)


def test_local_retention_deletes_what_is_copied_and_the_log_start_stays() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 20)
    assert log.segments[0].base_offset == 20
    assert log.epoch_entries == [(0, 0), (1, 20)]
    assert code_of(log, 0) == code_of(log, 19) == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert code_of(log, -1) == code_of(log, 41) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.readable_bytes(0, 40) == 0


def test_local_retention_follows_retention_by_default() -> None:
    log = open_tiered(MemoryDisk(), config(remote_storage_enable=True, retention_ms=-1, retention_bytes=-1))
    fill(log)
    log.note_copied_to(39)
    assert log.enforce_retention(NOW_MS) == 0
    log.config = config(remote_storage_enable=True, retention_ms=5, retention_bytes=-1)
    assert log.enforce_retention(NOW_MS + 1000) == 4
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 40)


def test_an_active_segment_that_is_due_is_closed_so_that_it_can_be_copied() -> None:
    log = open_tiered(MemoryDisk(), config(remote_storage_enable=True, local_retention_ms=5, retention_ms=-1))
    fill(log, 1)
    assert log.enforce_retention(NOW_MS + 1000) == 0
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    log.note_copied_to(9)
    assert log.enforce_retention(NOW_MS + 1000) == 1


def test_local_retention_deletes_without_a_cleanup_policy() -> None:
    """As in Kafka, where remote.storage.enable is possible with an empty cleanup.policy."""
    settings = config(remote_storage_enable=True, local_retention_bytes=1, cleanup_policy=())
    log = open_tiered(MemoryDisk(), settings)
    fill(log)
    log.note_copied_to(29)
    assert log.enforce_retention(NOW_MS) == 3


def test_without_copying_retention_moves_the_log_start() -> None:
    log = open_tiered(
        MemoryDisk(), config(remote_storage_enable=True, remote_log_copy_disable=True, retention_bytes=1)
    )
    fill(log)
    log.enforce_retention(NOW_MS)
    assert log.log_start_offset == log.local_log_start_offset == log.segments[0].base_offset > 0


def test_delete_records_moves_both_starts_and_frees_what_is_not_copied() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(9)
    log.enforce_retention(NOW_MS)
    log.increment_log_start_offset(5)
    assert (log.log_start_offset, log.local_log_start_offset) == (5, 10)
    log.increment_log_start_offset(30)
    assert (log.log_start_offset, log.local_log_start_offset) == (30, 30)
    assert log.enforce_retention(NOW_MS) == 2
    assert log.segments[0].base_offset == 30


def test_a_truncation_below_the_local_start_keeps_the_log_start_and_earlier_epochs() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(29)
    log.enforce_retention(NOW_MS)
    assert log.local_log_start_offset == 30
    log.truncate_to(15)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 15, 15)
    assert log.epoch_entries == [(0, 0)]
    assert log.highest_offset_in_remote_storage == 14
    assert log.high_watermark == 15


def test_a_truncation_forgets_what_was_copied_of_another_history() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(29)
    log.truncate_to(25)
    assert log.highest_offset_in_remote_storage == 24 - 5  # batches go whole


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_knows_both_starts_epochs_and_producers(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    log.increment_log_start_offset(3)
    start = offsets_of(LOG_START_FILE, {log.topic_partition: log})[log.topic_partition]
    assert start == 3
    log.close()
    again = open_tiered(disk, log_start_offset=start, clean=clean, high_watermark=40)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (3, 20, 40)
    assert again.epoch_entries[-1] == (1, 20)
    assert again.epoch_for_offset(3) == 0
    assert again.producer_count == 1
    assert again.highest_offset_in_remote_storage == -1


def test_a_topic_that_is_tiered_no_longer_begins_where_its_files_do() -> None:
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    log.close()
    again = open_tiered(disk, SMALL, log_start_offset=0)
    assert again.log_start_offset == again.local_log_start_offset == 20
    assert code_of(again, 3) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_disabling_moves_the_log_start_to_the_local_start() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    log.config = SMALL
    assert log.log_start_offset == 20
    assert log.highest_offset_in_remote_storage == -1
    log.note_copied_to(30)
    assert log.highest_offset_in_remote_storage == -1


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_internal_topics_are_never_tiered(topic: str) -> None:
    assert not open_tiered(MemoryDisk(), topic=topic).is_tiered


def test_a_node_without_remote_storage_has_no_tiered_log() -> None:
    disk = MemoryDisk()
    parts = open_directory(disk, DIRECTORY, TIERED, NOW_MS, clean=True)
    assert not UnifiedLog(disk, DIRECTORY, TopicPartition("t", 0), TOPIC_ID, TIERED, parts).is_tiered


def test_how_many_local_copies_may_go() -> None:
    facts = [SegmentFacts(1, end, 0, end == 30) for end in (10, 20, 30)]
    assert count_tiered(facts, -1, 0) == 0
    assert count_tiered(facts, 8, 0) == 0
    assert count_tiered(facts, 9, 0) == 1
    assert count_tiered(facts, 25, 0) == 2
    assert count_tiered(facts, 29, 0) == 3
    assert count_tiered(facts, -1, 20) == 2
    assert count_tiered(facts, -1, 30) == 2


def test_a_replica_begins_after_a_remote_segment_with_its_epochs_and_producers() -> None:
    leader = open_tiered(MemoryDisk())
    fill(leader)
    path = leader.snapshot_path(20)
    assert path is not None
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log, 1)
    assert log.start_after_remote_segment(20, 3, [(0, 0), (1, 20)], leader._disk.read_bytes(path))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 20, 20)
    assert log.epoch_entries == [(0, 3)]
    assert log.latest_epoch() == 0
    assert log.producer_count == 1
    assert log.high_watermark == 20
    log.append_as_leader(batch_of([b"y"], producer_id=5, producer_epoch=0, base_sequence=20), 1, NOW_MS)
    log.close()
    again = open_tiered(disk, log_start_offset=3, high_watermark=21)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (3, 20, 21)
    assert again.epoch_entries == [(0, 3), (1, 20)]
    assert again.producer_count == 1


def test_a_damaged_snapshot_of_the_remote_storage_changes_nothing() -> None:
    log = open_tiered(MemoryDisk())
    fill(log)
    with pytest.raises(SnapshotCorrupt):
        log.start_after_remote_segment(90, 3, [(0, 0)], b"damaged")
    assert log.log_end_offset == 40


class Crash(BaseException):
    pass


def begun_anew(at: int, *, own_segments: int, loses_power: bool) -> tuple[UnifiedLog, bool]:
    """A replica begins after a remote segment, and ends before this operation on its disk. Returns its log after the next
    start, and whether it came to its end before."""
    leader = open_tiered(MemoryDisk())
    fill(leader)
    snapshot = leader.snapshot_maker(20)()
    disk = MemoryDisk()
    replica = made_by(opener(disk, remote_storage=True), settings=TIERED, segments=own_segments)
    replica.is_durable = False
    replica.flush()
    left = [at]

    def refuse(operation: str, path: str) -> OSError | None:
        left[0] -= 1
        if not left[0]:
            raise Crash
        return None

    disk.refuse = refuse
    is_over = False
    try:
        while not replica.start_after_remote_segment(20, 3, [(0, 0), (1, 20)], snapshot):
            pass
        is_over = True
    except Crash:
        pass
    disk.refuse = None
    found = opener(disk.lose_power() if loses_power else disk.copy(), remote_storage=True).open_log(
        DIRECTORY, NAME, None, SMALL, clean=False, high_watermark=20
    )
    found.config = TIERED
    return found, is_over


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("own_segments", [1, 4])
def test_a_replica_that_begins_after_a_remote_segment_is_whole_or_begins_again(
    own_segments: int, loses_power: bool
) -> None:
    """Without the epochs of what is in the remote storage only, as a leader it would take it for expired."""
    ends: set[int] = set()
    for at in range(1, 1000):
        log, is_over = begun_anew(at, own_segments=own_segments, loses_power=loses_power)
        ends.add(log.log_end_offset)
        first = log.segments[0].base_offset
        if log.log_end_offset == 20 and first == 20:
            assert log.epoch_entries == [(0, 3)], at
            assert log.producer_count == 1
        else:
            assert first <= 3, at
            assert log.log_end_offset in (0, 3, *range(10, own_segments * 10 + 1, 10)), at
        if is_over:
            break
    else:
        raise AssertionError("it has no end")
    # Without a flush, the name of the new segment is not durable.
    assert ends >= {0, own_segments * 10} | (set() if loses_power else {3, 20})


def test_a_replica_that_has_begun_after_a_remote_segment_survives_a_power_loss() -> None:
    leader = open_tiered(MemoryDisk())
    fill(leader)
    disk = MemoryDisk()
    replica = made_by(opener(disk, remote_storage=True), settings=TIERED)
    replica.is_durable = False
    replica.flush()
    snapshot = leader.snapshot_maker(20)()
    assert replica.start_after_remote_segment(20, 3, [(0, 0), (1, 20)], snapshot)
    replica.append_as_leader(batch_of([b"y"], producer_id=6, producer_epoch=0, base_sequence=0), 1, NOW_MS)
    replica.flush()
    again = opener(disk.lose_power(), remote_storage=True).open_log(
        DIRECTORY, NAME, None, SMALL, clean=False, recovery_point=21, log_start_offset=3, high_watermark=21
    )
    again.config = TIERED
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (3, 20, 21)
    assert again.epoch_entries == [(0, 3), (1, 20)]
    assert again.producer_count == 2


@pytest.mark.parametrize("operations", ["write_atomic", "open", "rename", "sync_directory"])
def test_a_full_disk_leaves_a_replica_that_begins_after_a_remote_segment_whole(operations: str) -> None:
    leader = open_tiered(MemoryDisk())
    fill(leader)
    snapshot = leader.snapshot_maker(20)()
    disk = MemoryDisk()
    log = made_by(opener(disk, remote_storage=True), settings=TIERED, segments=1)
    epochs: list[tuple[int, int]] = [(0, 0), (1, 20)]
    left = [1]

    def refuse(operation: str, path: str) -> OSError | None:
        if operation != operations:
            return None
        left[0] -= 1
        return OSError(errno.ENOSPC, "full", path) if not left[0] else None

    for number in range(1, 9):
        left[0] = number
        disk.refuse = refuse
        try:
            done = log.start_after_remote_segment(20, 3, epochs, snapshot)
        except HalfDone:
            disk.refuse = None
            # The directory goes offline, and the next start looks at it.
            log = opener(disk, remote_storage=True).open_log(DIRECTORY, NAME, None, SMALL, clean=False)
            log.config = TIERED
        except OSError:
            disk.refuse = None
            assert log.log_end_offset == log.segments[0].base_offset or log.log_end_offset == 10
        else:
            disk.refuse = None
            assert done
            break
    assert log.start_after_remote_segment(20, 3, epochs, snapshot)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 20, 20)
    assert (log.epoch_entries, log.producer_count) == ([(0, 3)], 1)


def test_a_start_without_a_checkpoint_keeps_the_remote_part() -> None:
    """The process was killed before the log start was written. The leader finds it in the remote storage."""
    disk = MemoryDisk()
    tiering = opener(disk, remote_storage=True)
    log = made_by(tiering, settings=TIERED)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    again = tiering.open_log(DIRECTORY, NAME, None, SMALL, clean=False, high_watermark=40)
    again.config = TIERED
    assert (again.log_start_offset, again.local_log_start_offset) == (0, 20)
    untiered = tiering.open_log(DIRECTORY, NAME, None, SMALL, clean=False, high_watermark=40)
    untiered.config = config()
    assert untiered.log_start_offset == 20


@pytest.mark.parametrize("clean", [True, False])
def test_a_node_without_remote_storage_keeps_start_and_epochs_of_a_tiered_log(clean: bool) -> None:
    """It was started without by mistake, and the next start has it again."""
    disk = MemoryDisk()
    log = made_by(opener(disk, remote_storage=True), settings=TIERED)
    log.note_copied_to(29)
    log.enforce_retention(NOW_MS)
    log.increment_log_start_offset(3)
    log.close()
    name = log.topic_partition
    start = offsets_of(LOG_START_FILE, {name: log})[name]
    found = opener(disk).open_log(
        DIRECTORY, name, None, SMALL, clean=clean, log_start_offset=start, high_watermark=40
    )
    assert (found.log_start_offset, found.local_log_start_offset) == (3, 30)
    assert offsets_of(LOG_START_FILE, {name: found}) == {name: 3}
    found.config = TIERED
    assert not found.is_tiered
    assert (found.log_start_offset, found.local_log_start_offset) == (3, 30)
    found.close()
    again = open_tiered(disk, log_start_offset=3, high_watermark=40)
    assert (again.log_start_offset, again.epoch_entries) == (3, [(0, 3), (1, 20)])
    assert again.producer_count == 1


def test_a_log_that_is_not_tiered_begins_with_its_files_once_that_is_known() -> None:
    """The checkpoint is from before retention, or is not there."""
    disk = MemoryDisk()
    log = made_by(opener(disk), settings=config(retention_bytes=1))
    log.enforce_retention(NOW_MS)
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > 0
    log.close()
    again = opener(disk).open_log(DIRECTORY, NAME, None, SMALL, clean=True, high_watermark=40)
    again.config = SMALL
    assert (again.log_start_offset, again.local_log_start_offset) == (start, start)
    assert again.epoch_entries == log.epoch_entries


def test_internal_topics_begin_with_their_files_at_once() -> None:
    disk = MemoryDisk()
    name = TopicPartition("__consumer_offsets", 0)
    tiering = opener(disk, remote_storage=True)
    log = made_by(tiering, name, config(retention_bytes=1))
    log.enforce_retention(NOW_MS)
    log.close()
    again = tiering.open_log(DIRECTORY, name, None, SMALL, clean=True)
    assert again.log_start_offset == log.log_start_offset > 0


def test_a_log_start_below_the_files_is_written_before_the_settings_are_known() -> None:
    """A log is opened before its topic's settings are there, and checkpoints may be written in between."""
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    log.close()
    parts = open_directory(disk, DIRECTORY, SMALL, NOW_MS, clean=True, log_start_offset=3, may_be_tiered=True)
    name = TopicPartition("t", 0)
    again = UnifiedLog(disk, DIRECTORY, name, TOPIC_ID, SMALL, parts, LogServices(remote_storage=True))
    assert offsets_of(LOG_START_FILE, {name: again}) == {name: 3}


def test_epochs_of_what_is_in_the_remote_storage_only_survive_a_power_loss() -> None:
    """No local batch has them any more."""
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log)
    log.note_copied_to(19)
    log.enforce_retention(NOW_MS)
    log.increment_log_start_offset(5)
    log.assign_epoch_start(7, 40)
    log.append_as_leader(batch_of([b"x"], NOW_MS), 7, NOW_MS)
    log.flush()
    log.note_copied_to(29)
    log.enforce_retention(NOW_MS)
    epochs = log.epoch_entries
    assert epochs[0] == (0, 5)
    disk.sync_directory(DIRECTORY)  # the names, with whatever contents
    again = open_tiered(disk.lose_power(), clean=False, log_start_offset=5)
    assert (again.local_log_start_offset, again.epoch_entries) == (30, epochs)


def test_a_replica_that_begins_anew_at_its_leaders_start_knows_no_earlier_epochs() -> None:
    """With them it would seem to have records of an old epoch up to there, and be truncated below its leader's start."""
    log = open_tiered(MemoryDisk())
    fill(log)
    log.note_copied_to(29)
    log.truncate_fully_and_start_at(90, anew=True)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (90, 90, 90)
    assert (log.epoch_entries, log.latest_epoch()) == ([], -1)


def test_a_full_disk_lets_copied_segments_go() -> None:
    """Nothing else would ever make room."""
    disk = MemoryDisk()
    log = open_tiered(disk)
    fill(log)
    log.note_copied_to(29)

    def is_full(operation: str, path: str) -> OSError | None:
        wants_room = operation in ("write", "create", "write_atomic")
        return OSError(errno.ENOSPC, "the disk is full", path) if wants_room else None

    disk.refuse = is_full
    assert log.enforce_retention(NOW_MS) == 3
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)
    disk.refuse = None
    again = open_tiered(disk.lose_power(kept=("/logs",)), clean=False, log_start_offset=0)
    assert again.epoch_entries == [(0, 0), (1, 20)]


def with_producers(disk: MemoryDisk) -> UnifiedLog:
    """Four segments of two batches by two producers each. The last producer snapshot is missing."""
    log = open_tiered(disk)
    for number in range(8):
        if number and number % 2 == 0:
            log.roll(log.log_end_offset, NOW_MS)
        log.append_as_leader(
            batch_of([b"x"], producer_id=number % 2, producer_epoch=0, base_sequence=number // 2), 0, NOW_MS
        )
    log._snapshots.remove(6)
    return log


def sequences(snapshot: bytes) -> list[tuple[int, int]]:
    return sorted((each.producer_id, each.batches[-1].last_sequence) for each in decode_snapshot(snapshot))


def test_a_missing_snapshot_is_made_of_an_earlier_one_and_what_follows() -> None:
    disk = MemoryDisk()
    log = with_producers(disk)
    assert sequences(log.snapshot_maker(6)()) == [(0, 2), (1, 2)]
    disk.remove(f"{DIRECTORY}/{0:020}.log")  # it is not read
    assert sequences(log.snapshot_maker(6)()) == [(0, 2), (1, 2)]


def test_a_snapshot_is_made_in_another_thread_while_the_log_goes_on() -> None:
    disk = MemoryDisk()
    log = with_producers(disk)
    disk.write_atomic(f"{DIRECTORY}/{4:020}.snapshot", b"damaged")
    make = log.snapshot_maker(6)
    before = list(log._snapshots.offsets)
    log.append_as_leader(batch_of([b"x"], producer_id=5, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    assert sequences(make()) == [(0, 2), (1, 2)]
    assert log._snapshots.offsets == before  # that of the loop is not touched
    log.truncate_to(0)
    with pytest.raises((OSError, BatchCorrupt)):
        make()


def test_without_producers_no_records_are_read_for_a_snapshot() -> None:
    disk = MemoryDisk()
    log = open_tiered(disk)
    for _ in range(3):
        log.append_as_leader(batch_of([b"x"]), 0, NOW_MS)
        log.roll(log.log_end_offset, NOW_MS)
    log._snapshots.remove(2)
    disk.remove(f"{DIRECTORY}/{1:020}.log")
    assert decode_snapshot(log.snapshot_maker(2)()) == []


def test_a_start_removes_what_a_cleaning_of_the_remote_part_has_left() -> None:
    disk = MemoryDisk()
    log = made_by(opener(disk, remote_storage=True), settings=TIERED)
    log.close()
    folder = f"{DIRECTORY}/{REMOTE_CLEANING}"
    disk.make_directory(folder)
    disk.open(f"{folder}/{0:020}.log", create=True).close()
    again = opener(disk, remote_storage=True).open_log(DIRECTORY, NAME, TOPIC_ID, SMALL, clean=True)
    assert again.log_end_offset == log.log_end_offset
    assert not disk.exists(folder)


def test_copied_segments_of_a_compacted_topic_leave_the_disk() -> None:
    settings = config(**{**COMPACTED_ONLY, "remote_storage_enable": True})
    log = made_by(opener(MemoryDisk(), remote_storage=True), settings=settings)
    assert log.enforce_retention(NOW_MS) == 0
    log.note_copied_to(log.segments[2].base_offset - 1)
    assert log.enforce_retention(NOW_MS) == 2
    assert (log.log_start_offset, log.local_log_start_offset) == (0, log.segments[0].base_offset)


def test_of_a_compacted_topic_that_is_not_tiered_nothing_goes() -> None:
    log = made_by(opener(MemoryDisk()), settings=config(**COMPACTED_ONLY))
    assert log.enforce_retention(NOW_MS) == 0
