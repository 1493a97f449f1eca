"""Data on disk belongs to a topic's id, not its name: kill -9 and power losses around deletion, creation and
truncation."""

from __future__ import annotations

import errno
from typing import NamedTuple

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log._tests.disks import carry_out
from kafkacompat.log._tests.logs import NOW_MS, all_values, batch_of, config, index_files
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_epochs,
    format_offsets,
    parse_epochs,
    parse_offsets,
)
from kafkacompat.log.flush import make_durable
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.log_segment import LogSegment
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.partition.following import truncate_to_divergence
from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.wire.messages.fetch_response import EpochEndOffset

NAME = TopicPartition("t", 0)
OLD, NEW = b"\1" * 16, b"\2" * 16
CONFIG = config(segment_bytes=2000, file_delete_delay_ms=1000)
A, B = ("/a", b"\1" * 16), ("/b", b"\2" * 16)
CHECKPOINTS = (HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, CLEANER_FILE)


def manager_on(
    disk: MemoryDisk, *directories: tuple[str, Uuid], notes: list[str] | None = None
) -> LogManager:
    for path, _ in directories or (A,):
        disk.make_directory(path)
    manager = LogManager(
        disk, directories or (A,), CONFIG, HandTime(), note=([] if notes is None else notes).append
    )
    manager.load_all()
    return manager


def new_log(
    manager: LogManager, topic_id: Uuid = NEW, directory_id: Uuid = A[1], name: TopicPartition = NAME
) -> UnifiedLog:
    """A durable log."""
    log = manager.get_or_create(name, topic_id, CONFIG, directory_id)
    log.flush()
    return log


def fill(log: UnifiedLog, first: int, end: int, epoch: int = 0) -> None:
    for number in range(first, end):
        log.append_as_leader(batch_of([b"%d" % number * 20]), epoch, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def numbers(log: UnifiedLog) -> list[int]:
    return [offset for offset, _ in all_values(log)]


def checkpoint_everything(manager: LogManager) -> None:
    upkeep = LogUpkeep(manager)
    for log in manager.logs.values():
        log.flush()
    for plan in (
        upkeep.checkpoint_high_watermarks(),
        upkeep.checkpoint_recovery_points(),
        upkeep.checkpoint_log_starts(),
    ):
        carry_out(plan)


def old_topic(disk: MemoryDisk, records: int = 100, deleted_to: int = 90) -> LogManager:
    """A topic that has entries in every checkpoint."""
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    fill(log, 0, records)
    log.increment_log_start_offset(deleted_to)
    checkpoint_everything(manager)
    return manager


def test_a_topic_made_anew_keeps_its_records_through_a_kill() -> None:
    for records in (50, 200):
        disk = MemoryDisk()
        manager = old_topic(disk)
        manager.delete_later(NAME)
        log = manager.get_or_create(NAME, NEW, CONFIG)
        fill(log, 0, records)
        again = manager_on(disk.copy()).logs[NAME]
        assert again.topic_id == NEW
        assert numbers(again) == list(range(records))
        assert again.recovery_point == 0


def test_a_topic_made_anew_has_no_high_watermark_of_the_old_one() -> None:
    disk = MemoryDisk()
    manager = old_topic(disk)
    manager.delete_later(NAME)
    log = manager.get_or_create(NAME, NEW, CONFIG)
    for number in range(200):
        log.append_as_leader(batch_of([b"%d" % number]), 0, NOW_MS)
    assert manager_on(disk.copy()).logs[NAME].high_watermark == 0


def test_a_checkpoint_begun_before_the_deletion_does_not_bring_the_old_topic_back() -> None:
    disk = MemoryDisk()
    manager = old_topic(disk)
    log = manager.logs[NAME]
    fill(log, 100, 110)
    log.flush()
    late = LogUpkeep(manager).checkpoint_recovery_points()
    assert late is not None
    manager.on_stale = lambda: None
    manager.delete_later(NAME)
    assert not manager.may_make(NAME)
    clearing = manager.clear_names([NAME])
    carry_out(clearing)
    assert manager.may_make(NAME)
    late.run()
    late.finish()
    assert manager.may_make(NAME)
    fill(new_log(manager), 0, 10)
    assert manager_on(disk.copy()).logs[NAME].recovery_point == 0


def test_no_log_is_made_while_the_disk_does_not_take_the_checkpoints() -> None:
    disk = MemoryDisk()
    manager = old_topic(disk)
    disk.failing = "recovery-point"
    manager.delete_later(NAME)
    with pytest.raises(LogRefused):
        manager.get_or_create(NAME, NEW, CONFIG)


def test_what_a_crash_left_in_the_checkpoints_goes_at_the_start() -> None:
    """The directory was renamed, and the process was killed before the checkpoints were written."""
    disk = MemoryDisk()
    manager = old_topic(disk)
    manager.logs[NAME].cleaned_to = 50
    manager.checkpoint_now()
    manager.on_stale = lambda: None
    manager.delete_later(NAME)
    found = disk.copy()
    for name in CHECKPOINTS:
        assert NAME in parse_offsets(found.read_bytes(f"/a/{name}"))
    again = manager_on(found)
    for name in CHECKPOINTS:
        assert parse_offsets(found.read_bytes(f"/a/{name}")) == {}
        assert NAME not in parse_offsets(found.synced[f"/a/{name}"])
    fill(new_log(again), 0, 50)
    assert numbers(manager_on(found.copy()).logs[NAME]) == list(range(50))


@pytest.mark.parametrize("way", ["stray", "moved", "discarded"])
def test_a_directory_that_loses_a_log_in_another_way_forgets_it_too(way: str) -> None:
    disk = MemoryDisk()
    manager = manager_on(disk, A, B)
    log = new_log(manager, OLD)
    fill(log, 0, 50)
    if way != "stray":
        future = manager.begin_future(NAME, manager.directories[1])
        records = log.read(0, 1 << 20, 50, True).records
        assert isinstance(records, FileSlice)
        future.append_as_follower(records.read(), 0)
        future.flush()
        future.set_high_watermark(30)
    checkpoint_everything(manager)
    if way == "stray":
        manager.mark_stray(NAME)
    elif way == "moved":
        moved = manager.promote_future(NAME)
        moved.flush()
        manager.retire_predecessor(moved)
    else:
        manager.discard_future(NAME)
    lost, kept = ("/b", "/a") if way == "discarded" else ("/a", "/b")
    for name in (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE):
        assert parse_offsets(disk.read_bytes(f"{lost}/{name}")) == {}
        assert (NAME in parse_offsets(disk.read_bytes(f"{kept}/{name}"))) == (way != "stray")


def test_no_copy_is_begun_where_checkpoints_speak_of_an_earlier_one() -> None:
    manager = manager_on(MemoryDisk(), A, B)
    fill(new_log(manager, OLD), 0, 50)
    manager.begin_future(NAME, manager.directories[1]).append_as_follower(batch_of([b"x"]).buffer, 0)
    manager.futures.logs[NAME].flush()
    manager.checkpoint_now()
    pending: list[int] = []
    manager.on_stale = lambda: pending.append(1)
    manager.discard_future(NAME)
    with pytest.raises(LogRefused):
        manager.begin_future(NAME, manager.directories[1])
    assert len(pending) == 2
    manager.checkpoint_now()
    assert manager.begin_future(NAME, manager.directories[1]).log_end_offset == 0


def test_what_a_truncation_makes_untrue_is_written_before_anybody_goes_on() -> None:
    """The recovery point is above the cut. Unsynced records appended there would not be checked after a power loss."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    fill(log, 0, 60)
    log.increment_log_start_offset(50)
    checkpoint_everything(manager)
    asked: list[int] = []
    manager.on_stale = lambda: asked.append(1)
    log.truncate_to(20)
    done = manager.when_true(log)
    assert not done.done
    assert asked == [1]
    manager.checkpoint_now()
    assert done.done
    assert [disk.read_bytes(f"/a/{name}").split()[4:] for name in CHECKPOINTS[::2]] == [[b"20"], [b"20"]]
    fill(log, 20, 70)
    again = manager_on(disk.copy()).logs[NAME]
    assert (again.log_start_offset, again.recovery_point, again.log_end_offset) == (20, 20, 70)
    log.truncate_to(65)
    assert manager.when_true(log).done
    assert asked == [1]


def test_a_checkpoint_that_somebody_waits_for_is_written_once_a_full_disk_has_room() -> None:
    """The cleaner's checkpoint is written after a cleaning only. Without one, a follower would wait forever."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    fill(log, 0, 60)
    log.cleaned_to = 50
    manager.checkpoint_now()
    manager.on_stale = lambda: None
    log.truncate_to(20)
    done = manager.when_true(log)
    disk.failing = CLEANER_FILE
    manager.checkpoint_now()
    assert not done.done
    disk.failing = None
    carry_out(LogUpkeep(manager).checkpoint_high_watermarks())
    assert done.done


def test_nobody_waits_for_the_checkpoints_of_a_full_disk_that_a_log_was_moved_from() -> None:
    disk = MemoryDisk()
    manager = manager_on(disk, A, B)
    log = new_log(manager, OLD)
    fill(log, 0, 50)
    checkpoint_everything(manager)
    future = manager.begin_future(NAME, manager.directories[1])
    records = log.read(0, 1 << 20, 50, True).records
    assert isinstance(records, FileSlice)
    future.append_as_follower(records.read(), 0)
    future.flush()
    manager.on_stale = lambda: None
    moved = manager.promote_future(NAME)
    moved.flush()
    carry_out(manager.retire_predecessor(moved))
    disk.failing = "/a/"
    manager.checkpoint_now()
    assert not manager.may_make(NAME)
    assert manager.when_true(moved).done
    moved.truncate_to(5)
    done = manager.when_true(moved)
    assert not done.done
    manager.checkpoint_now()
    assert done.done


def test_checkpoints_that_a_full_disk_refuses_do_not_pile_up() -> None:
    """While the disk is full, one write per few seconds, of every partition, would be remembered."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    (directory,) = manager.directories
    disk.failing = HIGH_WATERMARK_FILE
    for records in range(1, 20):
        fill(log, records - 1, records)
        if records == 15:
            log.truncate_to(10)
        carry_out(LogUpkeep(manager).checkpoint_high_watermarks())
        assert directory.said_of(HIGH_WATERMARK_FILE, NAME) == min(records, 14)
    assert len(directory._begun[HIGH_WATERMARK_FILE]) == 1
    disk.failing = None
    carry_out(LogUpkeep(manager).checkpoint_high_watermarks())
    assert directory.said_of(HIGH_WATERMARK_FILE, NAME) == log.high_watermark
    assert not directory._begun[HIGH_WATERMARK_FILE]


def test_a_request_that_waits_for_a_deleted_log_is_answered() -> None:
    manager = manager_on(MemoryDisk())
    log = new_log(manager, OLD)
    fill(log, 0, 60)
    checkpoint_everything(manager)
    manager.on_stale = lambda: None
    log.truncate_to(20)
    done = manager.when_true(log)
    manager.fail_directory(manager.directories[0], OSError("gone"))
    assert done.done
    assert manager.when_true(log).done


def test_the_mark_of_a_clean_stop_does_not_come_back() -> None:
    disk = MemoryDisk()
    manager_on(disk).shut_down(7)
    again = disk.lose_power()
    assert manager_on(again).previous_broker_epoch == 7
    assert manager_on(again.lose_power()).previous_broker_epoch == -1


class Copied(NamedTuple):
    """A minimal follower."""

    topic_partition: TopicPartition
    log: UnifiedLog


def test_an_epoch_ends_where_it_ended_after_records_were_deleted_and_a_kill() -> None:
    """The log start is checkpointed up to a minute after it moves. A follower with records that no other replica has
    must learn the end of their epoch."""
    leaders, followers = MemoryDisk(), MemoryDisk()
    leader = new_log(manager_on(leaders), OLD)
    follower = Copied(NAME, new_log(manager_on(followers), OLD))
    for log in (leader, follower.log):
        fill(log, 0, 10, epoch=1)
        fill(log, 10, 20, epoch=2)
    fill(follower.log, 20, 25, epoch=2)
    fill(leader, 20, 30, epoch=5)
    leader.increment_log_start_offset(22)
    leader.append_as_leader(batch_of([b"30"]), 6, NOW_MS)
    leader = manager_on(leaders.copy()).logs[NAME]
    assert leader.log_start_offset == 0
    assert leader.epoch_entries == [(1, 0), (2, 10), (5, 20), (6, 30)]
    told = leader.end_offset_for_epoch(follower.log.latest_epoch())
    truncate_to_divergence(follower, EpochEndOffset(epoch=told.epoch, end_offset=told.offset))
    assert follower.log.log_end_offset == 20


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ([(5, 22), (6, 30)], 0),
        ([(6, 30)], 0),
        ([(6, 30)], 15),
        ([(2, 12), (5, 20), (6, 30)], 0),
        ([(9, 12)], 0),
        ([], 0),
        (None, 0),
    ],
)
def test_epochs_that_begin_above_the_logs_start_are_taken_from_the_batches(
    found: list[tuple[int, int]] | None, start: int
) -> None:
    """Kafka trims the file as soon as records are deleted."""
    disk = MemoryDisk()
    log = new_log(manager_on(disk), OLD)
    for epoch, first, end in ((1, 0, 10), (2, 10, 20), (5, 20, 30), (6, 30, 40)):
        fill(log, first, end, epoch)
    log.flush()
    path = f"{log.directory}/leader-epoch-checkpoint"
    disk.remove(path)
    if found is not None:
        disk.write_atomic(path, format_epochs(found))
    disk.write_atomic("/a/log-start-offset-checkpoint", format_offsets({NAME: start} if start else {}))
    disk.write_atomic("/a/recovery-point-offset-checkpoint", format_offsets({NAME: 40}))
    again = manager_on(disk).logs[NAME]
    assert again.log_start_offset == start
    expected = [(1, 0), (2, 10), (5, 20), (6, 30)]
    assert again.epoch_entries == ([(2, 15), *expected[2:]] if start else expected)
    again.append_as_leader(batch_of([b"40"]), 6, NOW_MS)
    assert parse_epochs(disk.read_bytes(path)) == again.epoch_entries


def test_epochs_of_before_a_truncation_do_not_outlive_the_batches() -> None:
    """After a power loss the old file is back: it has an epoch that was truncated, within the range of the new
    batches."""
    disk = MemoryDisk()
    log = new_log(manager_on(disk), OLD)
    fill(log, 0, 20, epoch=3)
    fill(log, 20, 40, epoch=7)
    before = disk.read_bytes(f"{log.directory}/leader-epoch-checkpoint")
    log.truncate_to(20)
    fill(log, 20, 60, epoch=3)
    fill(log, 60, 70, epoch=8)
    disk.write_atomic(f"{log.directory}/leader-epoch-checkpoint", before)
    assert manager_on(disk.copy()).logs[NAME].epoch_entries == [(3, 0), (8, 60)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [b"", b"version: 0\ntopic_", None])
def test_a_log_without_a_topic_id_is_no_topics(kept: bytes | None, clean: bool) -> None:
    """Also after a clean stop: the controller relies on the broker's data, so the stop is reported as unclean."""
    disk = MemoryDisk()
    manager = old_topic(disk)
    path = f"{manager.logs[NAME].directory}/partition.metadata"
    if clean:
        manager.shut_down(7)
    disk.remove(path)
    if kept is not None:
        disk.write_atomic(path, kept)
    notes: list[str] = []
    again = manager_on(disk, notes=notes)
    assert again.get(NAME) is None
    assert again.previous_broker_epoch == -1
    (stray,) = [name for name in disk.list_directory("/a") if name.startswith("t-0.")]
    assert stray.endswith("-stray")
    assert stray in notes[0]
    assert numbers(again.get_or_create(NAME, NEW, CONFIG)) == []


def test_a_directory_that_a_crash_left_before_it_held_anything_goes() -> None:
    disk = MemoryDisk()
    manager_on(disk).shut_down(7)
    for name in ("/a/t-0", "/a/t-1"):
        disk.make_directory(name)
    disk.open("/a/t-1/00000000000000000000.log", create=True)
    again = manager_on(disk)
    assert again.logs == {}
    assert again.previous_broker_epoch == 7
    assert [name.rpartition("-")[2] for name in disk.list_directory("/a") if name.startswith("t-")] == [
        "delete",
        "delete",
    ]
    carry_out(LogUpkeep(again).remove_expired_deletions(0))
    assert not [name for name in disk.list_directory("/a") if name.startswith("t-")]


@pytest.mark.parametrize("with_id", [True, False])
def test_no_log_is_made_over_another_one(with_id: bool) -> None:
    """The existing directory could not be renamed."""
    disk = MemoryDisk()
    manager = old_topic(disk)
    disk.failing = "-delete"
    manager.delete_later(NAME)
    assert manager.get(NAME) is None
    disk.failing = None
    if not with_id:
        disk.remove("/a/t-0/partition.metadata")
    assert numbers(new_log(manager)) == []
    assert [name for name in disk.list_directory("/a") if name.endswith("-stray")]


def test_nothing_is_committed_before_a_power_loss_would_leave_the_log_to_its_topic() -> None:
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = manager.get_or_create(NAME, OLD, CONFIG)
    fill(log, 0, 10)
    assert (log.is_durable, log.high_watermark) == (False, 0)
    assert manager_on(disk.lose_power()).get(NAME) is None
    flush = log.begin_making_durable()
    synced: list[tuple[str, str]] = []
    disk.refuse = lambda operation, path: synced.append((operation, path))
    assert make_durable([flush]) == [None]
    log.finish_flush(flush)
    assert synced[-3:] == [
        ("sync", "/a/t-0/partition.metadata"),
        ("sync_directory", "/a/t-0"),
        ("sync_directory", "/a"),
    ]
    fill(log, 10, 11)
    assert (log.is_durable, log.high_watermark, log.recovery_point) == (True, 11, 0)
    found = manager_on(disk.lose_power())
    assert found.logs[NAME].topic_id == OLD


def test_a_sync_that_was_begun_under_another_name_says_nothing_of_this_one() -> None:
    disk = MemoryDisk()
    log = manager_on(disk).get_or_create(NAME, OLD, CONFIG)
    former = log.begin_making_durable()
    assert make_durable([former]) == [None]
    disk.rename("/a/t-0", "/a/t-0.moved")
    log.relocate("/a/t-0.moved")
    log.finish_flush(former)
    assert not log.is_durable
    fill(log, 0, 10)
    assert log.high_watermark == 0
    flush = log.begin_making_durable()
    assert make_durable([flush]) == [None]
    log.finish_flush(flush)
    assert log.is_durable


def test_a_flush_makes_a_new_log_durable_as_well() -> None:
    disk = MemoryDisk()
    log = manager_on(disk).get_or_create(NAME, OLD, CONFIG)
    fill(log, 0, 10)
    log.flush()
    assert log.is_durable
    assert numbers(manager_on(disk.lose_power()).logs[NAME]) == list(range(10))


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_a_stop_left_behind_new_is_not_taken_for_durable(clean: bool) -> None:
    """The process ended before anything was synced, and the next process relies on that data."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    manager.get_or_create(NAME, OLD, CONFIG)
    if clean:
        manager.shut_down(7)
    again = manager_on(disk.copy())
    log = again.logs[NAME]
    if not log.is_durable:
        flush = log.begin_making_durable()
        assert make_durable([flush]) == [None]
        log.finish_flush(flush)
    fill(log, 0, 10)
    log.flush()
    assert log.high_watermark == 10
    after = manager_on(log._disk.lose_power())  # type: ignore[attr-defined]
    assert numbers(after.logs[NAME]) == list(range(10))
    assert after.logs[NAME].topic_id == OLD


def test_an_id_whose_sync_has_failed_is_written_anew() -> None:
    """After a kill the page cache still shows it, the next sync skips it, and it is not on the disk."""
    disk = MemoryDisk()
    log = manager_on(disk).get_or_create(NAME, OLD, CONFIG)
    disk.lost_syncs["partition.metadata"] = OSError(errno.EIO, "lost")
    assert make_durable([log.begin_making_durable()]) != [None]
    disk = disk.copy()
    log = manager_on(disk).logs[NAME]
    flush = log.begin_making_durable()
    assert make_durable([flush]) == [None]
    log.finish_flush(flush)
    fill(log, 0, 10)
    log.flush()
    assert numbers(manager_on(disk.lose_power()).logs[NAME]) == list(range(10))


def test_logs_that_are_made_durable_together_sync_the_directory_above_once() -> None:
    disk = MemoryDisk()
    manager = manager_on(disk, A, B)
    logs = [
        manager.get_or_create(TopicPartition("t", number), OLD, CONFIG, (A, B)[number % 2][1])
        for number in range(6)
    ]
    flushes = [log.begin_making_durable() for log in logs]
    synced: list[str] = []

    def refuse(operation: str, path: str) -> OSError | None:
        if operation == "sync_directory":
            synced.append(path)
        return OSError(errno.EIO, "lost") if path == "/b" else None

    disk.refuse = refuse
    failures = make_durable(flushes)
    assert [failure is None for failure in failures] == [True, False] * 3
    assert synced.count("/a") == 1
    assert synced.count("/b") == 1


def test_epochs_are_durable_beside_the_mark_of_a_clean_stop() -> None:
    """The epoch of a leader that appended nothing is written only at the close."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager)
    fill(log, 0, 10, epoch=3)
    log.flush()
    log.assign_epoch_start(4, 10)
    path = f"{log.directory}/leader-epoch-checkpoint"
    manager.shut_down(7)
    assert disk.lose_power().read_bytes(path) == disk.read_bytes(path) == format_epochs([(3, 0), (4, 10)])


def test_a_checkpoint_whose_worker_was_refused_is_written_with_the_next_plan() -> None:
    disk = MemoryDisk()
    manager = manager_on(disk, A, B)
    log = new_log(manager, OLD)
    fill(log, 0, 5)
    log.set_high_watermark(3)
    for _ in range(3):
        assert manager.checkpoints.plan(HIGH_WATERMARK_FILE) is not None  # and is never run
    log.set_high_watermark(5)
    carry_out(manager.checkpoints.plan(HIGH_WATERMARK_FILE))
    assert parse_offsets(disk.read_bytes(f"/a/{HIGH_WATERMARK_FILE}")) == {NAME: 5}
    assert manager.checkpoints.plan(HIGH_WATERMARK_FILE) is None
    assert not manager.directories[0]._begun[HIGH_WATERMARK_FILE]


C = ("/c", b"\3" * 16)


def lies_thrice(disk: MemoryDisk, *, future: bool) -> None:
    """A deleted topic's log in /a, whose directory was offline, and two logs of the recreated topic in /b and /c.

    The log in /b has all records. The log in /c has only the first few: it was about to replace the other one when the
    power was lost.
    """
    for (path, directory_id), topic_id, records in ((A, OLD, 70), (B, NEW, 60), (C, NEW, 20)):
        own = MemoryDisk()
        fill(new_log(manager_on(own, (path, directory_id)), topic_id, directory_id), 0, records)
        target = f"{path}/t-0.{'0' * 32}-future" if future else f"{path}/t-0"
        disk.make_directory(path)
        disk.make_directory(target)
        for file, content in own.files.items():
            if file.startswith(f"{path}/t-0/"):
                disk.files[target + file.removeprefix(f"{path}/t-0")] = content


@pytest.mark.parametrize("order", [(A, B, C), (B, A, C), (C, B, A), (A, C, B)])
@pytest.mark.parametrize("future", [False, True])
def test_of_two_logs_of_a_topic_made_anew_the_one_that_has_more_counts_beside_one_of_the_former_topic(
    order: tuple[tuple[str, Uuid], ...], future: bool
) -> None:
    disk = MemoryDisk()
    lies_thrice(disk, future=future)
    manager = manager_on(disk, *order)
    manager.settle_rivals(lambda name: NEW)
    log = manager.futures.logs[NAME] if future else manager.logs[NAME]
    assert (log.topic_id, numbers(log)) == (NEW, list(range(60)))
    assert log.directory.startswith("/b/")
    assert sorted(path for path in disk.directories if path.startswith("/a/") and path.endswith("-stray"))
    again = manager_on(disk.copy(), *order)
    again.settle_rivals(lambda name: NEW)
    log = again.futures.logs[NAME] if future else again.logs[NAME]
    assert (log.topic_id, numbers(log)) == (NEW, list(range(60)))


@pytest.mark.parametrize("was_being_read", [True, False])
def test_indexes_that_are_built_anew_for_a_deleted_topic_are_not_put_in_the_place_of_another_s(
    was_being_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic that was made anew has files of the same names."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    fill(log, 0, 100)
    upkeep = LogUpkeep(manager)
    manager.index_rebuilds.report(log, log.segments[0])
    anew: list[UnifiedLog] = []

    def make_anew() -> None:
        manager.delete_later(NAME)
        anew.append(new_log(manager))
        fill(anew[0], 100, 103)
        anew[0].flush()

    def finish_reindex(segment: LogSegment) -> None:
        make_anew()
        finish(segment)

    plan = upkeep.rebuild_indexes()
    assert plan is not None
    finish = LogSegment.finish_reindex
    with monkeypatch.context() as patch:
        if was_being_read:
            patch.setattr(LogSegment, "finish_reindex", finish_reindex)
        else:
            make_anew()
        plan.run()
    fill(anew[0], 103, 120)
    anew[0].flush()
    before = index_files(disk, anew[0].directory)
    plan.finish()
    assert upkeep.rebuild_indexes() is None
    assert index_files(disk, anew[0].directory) == before
    again = manager_on(disk.copy()).logs[NAME]
    assert numbers(again) == list(range(20))


def test_no_indexes_are_built_anew_for_a_topic_that_was_deleted_before_their_turn() -> None:
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = new_log(manager, OLD)
    fill(log, 0, 100)
    for segment in log.segments:
        manager.index_rebuilds.report(log, segment)
    manager.delete_later(NAME)
    new_log(manager)
    assert LogUpkeep(manager).rebuild_indexes() is None
