"""Syncs that fail, are reported once, or cannot begin: the log never assumes more data on the disk than there is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.disks import CONFIG, DIRECTORY_IDS, PATHS, Broker, append, carry_out, refusing
from kafkacompat.log._tests.logs import (
    NOW_MS,
    TOPIC_ID,
    all_values,
    batch_of,
    config,
    look_up,
    marker,
    open_log,
)
from kafkacompat.log._tests.memory_disk import Inode, MemoryDisk
from kafkacompat.log.checkpoint import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, RECOVERY_POINT_FILE
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import AbortedTransaction, SyncFailed

FAILURES = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM]


def flush_overdue(broker: Broker, now_ms: int) -> None:
    for log in broker.manager.logs.values():
        log.config = config(flush_ms=1)
    upkeep = LogUpkeep(broker.manager)
    for place in upkeep.places():
        plan = upkeep.flush_overdue(place, now_ms)
        if plan is not None:
            carry_out(plan)


@pytest.mark.parametrize("error", FAILURES, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("alone", [True, False])
def test_a_failed_sync_takes_the_directory_whatever_the_error(error: int, alone: bool) -> None:
    """A full disk that refuses a write has lost nothing. One that refuses a sync has."""
    broker = Broker(MemoryDisk(), alone=alone)
    for number in range(4):
        append(broker.log(number), 5)
    broker.disk.lost_syncs["/a/t-0/"] = OSError(error, "lost")
    flush_overdue(broker, 1000)
    assert broker.online == [False, True]
    assert broker.lost == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert "the sync" in broker.notes[-1] or "lost" in broker.notes[-1]
    assert [log.recovery_point for log in broker.manager.logs.values()] == [5, 5]


def test_the_next_sync_that_succeeds_vouches_for_nothing_that_a_failed_one_covered() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 3)
    log.flush()
    append(log, 3)
    disk.lost_syncs[".log"] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        log.flush()
    append(log, 1)
    with pytest.raises(SyncFailed, match="an earlier sync"):
        log.flush()
    assert log.recovery_point == 3
    after = open_log(disk.lose_power(), recovery_point=log.recovery_point)
    assert after.log_end_offset == 3
    assert after.recovery_point <= 3


def test_the_memory_disk_forgets_as_linux_does() -> None:
    """The second sync of a file reports nothing of what the first one lost."""
    disk = MemoryDisk()
    disk.make_directory("/d")
    file = disk.open("/d/f", create=True)
    disk.sync_directory("/d")
    file.write_now(b"aa")
    file.sync()
    file.write_now(b"bb")
    disk.lost_syncs["/d/f"] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        file.sync()
    file.write_now(b"cc")
    file.sync()
    assert file.read_cold(0, 9) == b"aabbcc"
    assert disk.lose_power().read_bytes("/d/f") == b"aa\0\0cc"
    file.truncate(3)
    file.write_now(b"dd")
    file.sync()
    assert disk.lose_power().read_bytes("/d/f") == b"aa\0dd"


def test_of_two_syncs_under_way_one_that_fails_spoils_the_other() -> None:
    """This holds for any thread that gets the error, and for any order of the results."""
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 3)
    first = log.begin_flush()
    append(log, 3)
    second = log.begin_flush()
    disk.lost_syncs[".log"] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        first.run()
    with pytest.raises(SyncFailed):
        second.run()
    log.finish_flush(second)
    assert log.recovery_point == 0


@pytest.mark.parametrize("shortage", [errno.EMFILE, errno.ENFILE])
def test_a_sync_that_cannot_begin_is_tolerated_and_the_recovery_point_stays(shortage: int) -> None:
    broker = Broker(MemoryDisk(), alone=False)
    append(broker.log(0), 30)
    broker.disk.refuse = refusing("open", "/a", shortage)
    flush_overdue(broker, 1000)
    assert broker.online == [True, True]
    assert broker.log(0).recovery_point == 0
    broker.disk.refuse = None
    flush_overdue(broker, 2000)
    assert broker.log(0).recovery_point == 30


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("alone", [True, False])
def test_a_full_disk_is_read_on_where_nobody_else_has_what_is_in_it(error: int, alone: bool) -> None:
    """With other brokers the partitions move to them. A single broker that goes offline would only make the records
    unavailable."""
    broker = Broker(MemoryDisk(), alone=alone)
    log = broker.log(0)
    broker.disk.refuse = refusing("write", "/a", error)
    with pytest.raises(OSError, match="refused") as refused:
        append(log, 1)
    broker.manager.log_failed(log, refused.value)
    assert broker.online == [alone, True]


def a_flush_of_everything() -> MemoryDisk:
    """Unsynced files and directories of every kind that a flush syncs."""
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=1500, index_interval_bytes=100))
    for _ in range(30):
        log.append_as_leader(batch_of([b"x" * 50], producer_id=7, producer_epoch=0), 4, NOW_MS)
    log.append_as_leader(batch_of([b"x"], producer_id=7, producer_epoch=0, is_transactional=True), 4, NOW_MS)
    log.append_as_leader(marker(7, committed=False), 4, NOW_MS)
    log.roll(log.log_end_offset, NOW_MS)
    return disk


@pytest.mark.parametrize(
    "part", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "names"]
)
def test_a_flush_syncs_every_kind_of_file_and_their_names(part: str) -> None:
    disk = a_flush_of_everything()
    log = open_log(disk)
    append(log, 1)
    if part == "names":
        disk.refuse = refusing("sync_directory", "/logs/t-0")
    else:
        disk.lost_syncs[part] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        log.flush()
    assert log.recovery_point == 0


def test_what_was_flushed_is_there_after_a_power_loss() -> None:
    """Only synced data is read: records, epochs, the producers' state, and all their names."""
    disk = a_flush_of_everything()
    log = open_log(disk)
    append(log, 1)
    log.flush()
    before = all_values(log)
    snapshots = [name for name in disk.list_directory("/logs/t-0") if name.endswith(".snapshot")]
    assert snapshots
    after_loss = disk.lose_power()
    for name in snapshots:
        assert after_loss.read_bytes(f"/logs/t-0/{name}") == disk.read_bytes(f"/logs/t-0/{name}")
    after = open_log(after_loss, recovery_point=log.recovery_point)
    assert all_values(after) == before
    assert after.epoch_entries == log.epoch_entries
    assert [each.producer_id for each in after.active_producers()] == [7]


DAY_MS = 86_400_000
OLD_AND_NEW = config(index_interval_bytes=600, retention_ms=2 * DAY_MS)


def with_a_late_record(disk: MemoryDisk) -> UnifiedLog:
    """The last record is 5 days later than the last entry that an append has added to the time index."""
    log = open_log(disk, OLD_AND_NEW)
    for timestamp_ms in [NOW_MS] * 5 + [NOW_MS + 5 * DAY_MS]:
        log.append_as_leader(batch_of([b"x" * 100], timestamp_ms), 4, NOW_MS)
    log.set_high_watermark(6)
    return log


def assert_knows_its_late_record(log: UnifiedLog) -> None:
    assert log.segments[0].largest_timestamp() == (NOW_MS + 5 * DAY_MS, 5)
    found = look_up(log, NOW_MS + 4 * DAY_MS)
    assert found is not None
    assert found.offset == 5
    assert log.enforce_retention(NOW_MS + 6 * DAY_MS) == 0


def test_a_clean_stop_after_a_flush_syncs_the_last_entry_of_the_time_index() -> None:
    """Otherwise retention takes the records for older than they are, and nobody finds them by their time."""
    disk = MemoryDisk()
    log = with_a_late_record(disk)
    log.flush()
    log.close()
    assert_knows_its_late_record(
        open_log(disk.lose_power(), OLD_AND_NEW, clean=True, recovery_point=6, high_watermark=6)
    )


@pytest.mark.parametrize("is_under_way", [False, True])
def test_the_close_of_a_segment_whose_records_are_synced_is_synced_too(is_under_way: bool) -> None:
    disk = MemoryDisk()
    log = with_a_late_record(disk)
    flush = log.begin_flush()
    if is_under_way:
        flush.run()
        log.roll(6, NOW_MS)
        log.finish_flush(flush)
    else:
        flush.run()
        log.finish_flush(flush)
        log.roll(6, NOW_MS)
    append(log, 1)
    log.flush()
    assert log.recovery_point == 7
    assert_knows_its_late_record(open_log(disk.lose_power(), OLD_AND_NEW, recovery_point=7, high_watermark=7))


def test_a_closed_segment_is_synced_once() -> None:
    disk = MemoryDisk()
    log = with_a_late_record(disk)
    log.flush()
    log.roll(6, NOW_MS)
    log.flush()
    synced: list[str] = []
    disk.refuse = lambda operation, path: synced.append(path) if operation == "sync" else None
    append(log, 1)
    log.flush()
    assert synced
    assert not any(path.startswith(log.segments[0].stem) for path in synced)


def test_a_clean_stop_syncs_the_names_that_came_after_the_first_flush_of_a_segment() -> None:
    """Readers of committed records would get aborted ones, and the log would not know its last epoch."""
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 1)
    log.close()
    log = open_log(disk, clean=True, recovery_point=1)
    batch = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(batch, 5, NOW_MS)
    log.append_as_leader(marker(7, committed=False), 5, NOW_MS)
    log.close()
    again = open_log(disk.lose_power(kept=("/logs",)), clean=True, recovery_point=3)
    assert again.aborted_transactions(0, 3)[0] == [AbortedTransaction(7, 1)]
    assert again.epoch_entries == [(4, 0), (5, 1)]


def test_a_clean_stop_syncs_the_names_that_the_last_flush_has_not() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 1)
    log.flush()
    append(log, 1, epoch=5)
    log.flush()
    log.close()
    again = open_log(disk.lose_power(kept=("/logs",)), clean=True, recovery_point=2)
    assert again.epoch_entries == [(4, 0), (5, 1)]


def test_a_flush_without_new_names_syncs_no_directory() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 1)
    log.flush()
    disk.refuse = refusing("sync_directory", "/logs")
    append(log, 1)
    log.flush()
    assert log.recovery_point == 2


@pytest.mark.parametrize("lost", [LEADER_EPOCH_FILE, f"{0:020d}.txnindex"])
def test_indexes_that_a_start_has_made_anew_are_synced_before_a_clean_mark(lost: str) -> None:
    """Their segments lie below the recovery point. Of a file that was written anew a power loss may leave the beginning, and
    retention would take the records for older than they are."""
    disk = a_flush_of_everything()
    log = open_log(disk)
    append(log, 1)
    log.close()
    path, is_clean = f"/logs/t-0/{lost}", lost != LEADER_EPOCH_FILE
    disk.files[path] = Inode(b"torn")
    written: set[str] = set()
    synced: set[str] = set()

    def note(operation: str, path: str) -> None:
        if operation == "write":
            written.add(path)
        elif operation == "sync":
            synced.add(path)

    disk.refuse = note
    log = open_log(disk, clean=is_clean, recovery_point=log.recovery_point)
    append(log, 1)
    log.close()
    assert len(log.segments) > 2
    assert f"{log.segments[0].stem}.timeindex" in written
    assert written <= synced


def test_a_checkpoint_whose_sync_fails_takes_the_directory_and_the_old_one_stays() -> None:
    broker = Broker(MemoryDisk())
    append(broker.log(0), 3)
    flush_overdue(broker, 1000)
    carry_out(LogUpkeep(broker.manager).checkpoint_recovery_points())
    before = broker.disk.read_bytes(f"/a/{RECOVERY_POINT_FILE}")
    append(broker.log(0), 3)
    flush_overdue(broker, 2000)
    broker.disk.lost_syncs[RECOVERY_POINT_FILE] = OSError(errno.ENOSPC, "lost")
    carry_out(LogUpkeep(broker.manager).checkpoint_recovery_points())
    assert broker.online == [False, True]
    assert broker.disk.read_bytes(f"/a/{RECOVERY_POINT_FILE}") == before


def test_a_checkpoint_that_a_full_disk_refuses_takes_nothing() -> None:
    broker = Broker(MemoryDisk())
    append(broker.log(0), 3)
    broker.disk.refuse = refusing("write_atomic", "/a", errno.ENOSPC)
    carry_out(LogUpkeep(broker.manager).checkpoint_high_watermarks())
    assert broker.online == [True, True]


def test_a_stop_whose_sync_fails_leaves_no_clean_mark_and_the_next_start_finds_what_is_lost() -> None:
    broker = Broker(MemoryDisk())
    append(broker.log(0), 3)
    append(broker.log(1), 3)
    broker.disk.lost_syncs["/a/t-0/"] = OSError(errno.EIO, "lost")
    broker.manager.shut_down(77)
    assert [broker.disk.exists(f"{path}/.kafka_cleanshutdown") for path in PATHS] == [False, True]
    again = broker.restarted(power_lost=True)
    assert again.log(0).log_end_offset == 0


def test_a_stop_after_a_failed_sync_that_nobody_was_told_of_yet_is_not_clean() -> None:
    """A worker's result may arrive after the logs are closed."""
    broker = Broker(MemoryDisk())
    log = broker.log(0)
    append(log, 3)
    flush = log.begin_flush()
    broker.disk.lost_syncs["/a/t-0/"] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        flush.run()
    broker.manager.shut_down(77)
    assert not broker.disk.exists("/a/.kafka_cleanshutdown")


def test_a_copy_whose_sync_fails_takes_its_directory_only() -> None:
    broker = Broker(MemoryDisk())
    current = broker.log(0)
    append(current, 3)
    name = current.topic_partition
    future = broker.manager.begin_future(name, broker.manager.directories[1])
    records = current.read(0, 1000, 3, True).records
    assert not isinstance(records, bytes)
    future.append_as_follower(records.read(), 4)
    broker.disk.lost_syncs["-future/"] = OSError(errno.ENOSPC, "lost")
    with pytest.raises(SyncFailed) as caught:
        future.flush()
    broker.manager.future_failed(name, caught.value)
    assert broker.online == [True, False]
    assert broker.manager.get(name) is current
    assert all_values(current)


def test_real_syncs_that_fail_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    disk.write_atomic(str(tmp_path / "checkpoint"), b"old")
    monkeypatch.setattr(os, "fsync", full)
    for sync in (
        file.sync,
        lambda: disk.sync_directory(str(tmp_path)),
        lambda: disk.write_atomic(str(tmp_path / "checkpoint"), b"new"),
    ):
        with pytest.raises(SyncFailed, match="the sync failed: No space left") as caught:
            sync()
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename.startswith(str(tmp_path))
    assert disk.read_bytes(str(tmp_path / "checkpoint")) == b"old"


def test_a_new_partitions_directory_is_durable_with_its_first_flush() -> None:
    disk = MemoryDisk()
    synced: list[str] = []
    disk.refuse = lambda operation, path: synced.append(path) if operation == "sync_directory" else None
    broker = Broker(disk)
    log = broker.manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, CONFIG, DIRECTORY_IDS[0])
    append(log, 3)
    log.flush()
    assert {"/a/t-0", "/a"} <= set(synced)
    synced.clear()
    append(log, 3)
    log.flush()
    assert synced == []
    log.roll(log.log_end_offset, NOW_MS)
    append(log, 3)
    log.flush()
    assert synced == ["/a/t-0"]


def test_the_next_start_reads_from_the_disk_what_a_failed_sync_covered() -> None:
    """The page cache outlives the process and shows data that is not on the disk. A sync of pages that count as
    written reports nothing."""
    broker = Broker(MemoryDisk())
    log = broker.log(0)
    append(log, 3)
    flush_overdue(broker, 1000)
    carry_out(LogUpkeep(broker.manager).checkpoint_recovery_points())
    append(log, 3)
    broker.disk.lost_syncs["/a/t-0/"] = OSError(errno.EIO, "lost")
    flush_overdue(broker, 2000)
    again = broker.restarted()
    assert any("read from the disk" in note for note in again.notes)
    log = again.log(0)
    # What the start has cut or written is synced again.
    assert (log.log_end_offset, log.recovery_point) == (3, 0)
    append(log, 2)
    log.flush()
    after = Broker(again.disk.lose_power())
    assert all_values(after.log(0)) == all_values(log)
    assert after.notes == []


def test_the_next_start_writes_anew_the_epochs_that_a_failed_sync_covered() -> None:
    """If the batches were cleaned away meanwhile, only the epoch file has their epochs."""
    broker = Broker(MemoryDisk())
    log = broker.log(0)
    append(log, 3)
    log.append_as_leader(batch_of([b"x"]), 5, NOW_MS)
    broker.disk.lost_syncs[LEADER_EPOCH_FILE] = OSError(errno.EIO, "lost")
    flush_overdue(broker, 1000)
    again = broker.restarted()
    log = again.log(0)
    log.flush()
    told = again.disk.read_bytes(f"{log.directory}/{LEADER_EPOCH_FILE}")
    assert told
    assert again.disk.lose_power().read_bytes(f"{log.directory}/{LEADER_EPOCH_FILE}") == told


def test_a_real_file_forgets_what_is_cached_and_reads_it_again(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.write_now(b"abc")
    file.forget_cached()
    assert file.read_cold(0, 10) == b"abc"


class Killed(BaseException):
    """The process is gone; no handler catches it."""


@pytest.mark.parametrize("lost", [LEADER_EPOCH_FILE, PARTITION_METADATA_FILE])
def test_a_start_after_a_failed_sync_may_be_killed_wherever_it_is(lost: str) -> None:
    """The mark is removed last. By then everything that was in the page cache only is durable, also for later starts."""
    broker = Broker(MemoryDisk())
    log = broker.log(0)
    append(log, 3)
    log.append_as_leader(batch_of([b"x"]), 5, NOW_MS)
    broker.disk.lost_syncs[lost] = OSError(errno.EIO, "lost")
    flush_overdue(broker, 1000)
    told = [broker.disk.read_bytes(f"/a/t-0/{name}") for name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE)]
    killed = steps = 0
    while killed == steps:
        steps += 1
        disk, done = broker.disk.copy(), 0

        def kill(operation: str, path: str, until: int = steps) -> None:
            nonlocal done
            done += 1
            if done == until:
                raise Killed

        disk.refuse = kill
        try:
            Broker(disk)
        except Killed:
            killed += 1
        disk.refuse = None
        again = Broker(disk.copy())
        append(again.log(0), 1, epoch=5)
        again.log(0).flush()
        after = again.disk.lose_power()
        assert [
            after.read_bytes(f"/a/t-0/{name}") for name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE)
        ] == told
    assert killed > 10


@pytest.mark.parametrize("operation", ["write_atomic", "sync", "remove"])
def test_a_start_after_a_failed_sync_that_the_disk_refuses_leaves_the_mark(operation: str) -> None:
    broker = Broker(MemoryDisk())
    append(broker.log(0), 3)
    broker.disk.lost_syncs[LEADER_EPOCH_FILE] = OSError(errno.EIO, "lost")
    flush_overdue(broker, 1000)
    disk = broker.disk.copy()
    disk.refuse = refusing(operation, "/a/t-0", errno.ENOSPC)
    Broker(disk)
    assert disk.exists("/a/t-0/sync-failed")
