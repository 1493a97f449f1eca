"""A future log replaces the current one on the memory disk: the state after a kill or power loss at any moment."""

from __future__ import annotations

import errno

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.disks import CONFIG, DIRECTORY_IDS, Broker, append, carry_out, refusing
from kafkacompat.log._tests.logs import TOPIC_ID, all_values
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import LogRefused

NAME = TopicPartition("t", 0)
ALL = ("/a", "/b")


def a_move(synced: int = 10) -> tuple[Broker, UnifiedLog, UnifiedLog]:
    """A durable log of ten batches in /a, and its copy in /b, of which `synced` batches are durable."""
    broker = Broker(MemoryDisk())
    current = broker.log(0)
    append(current, 10)
    current.flush()
    append(current, 10)
    current.flush()
    future = broker.manager.begin_future(NAME, broker.manager.directories[1])
    copy(current, future, synced)
    future.flush()
    copy(current, future, 20)
    return broker, current, future


def copy(current: UnifiedLog, future: UnifiedLog, end: int) -> None:
    while future.log_end_offset < end:
        read = current.read(future.log_end_offset, 1, end, True).records
        assert not isinstance(read, bytes)
        future.append_as_follower(read.read(), 4)


def change_places(broker: Broker) -> UnifiedLog:
    """Swap the logs in the order in which the mover does."""
    log = broker.manager.promote_future(NAME)
    log.flush()
    carry_out(broker.manager.retire_predecessor(log))
    return log


def directories_of(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.directories if path.count("/") == 2 and "/t-0" in path)


@pytest.mark.parametrize("kept", [(), ("/a",), ("/b",), ALL])
@pytest.mark.parametrize("retired", [False, True])
def test_a_power_loss_in_the_change_of_places_loses_nothing_durable(
    kept: tuple[str, ...], retired: bool
) -> None:
    broker, _, _ = a_move()
    if retired:
        change_places(broker)
        broker.manager.deletions.remove(broker.manager.deletions.take_due(None))
    else:
        broker.manager.promote_future(NAME)
    again = broker.restarted(power_lost=True, kept=kept)
    log = again.manager.get(NAME)
    if log is None:
        log = again.manager.promote_future(NAME)
    assert again.online == [True, True], again.notes
    assert len(all_values(log)) == 20


def test_a_kill_before_the_old_log_goes_is_settled_for_the_new_one() -> None:
    broker, _, _ = a_move()
    log = broker.manager.promote_future(NAME)
    append(log, 3, epoch=5)
    assert directories_of(broker.disk) == ["/a/t-0", "/b/t-0"]
    again = broker.restarted()
    assert again.online == [True, True]
    assert again.manager.directory_of(NAME) is again.manager.directories[1]
    assert len(all_values(again.manager.logs[NAME])) == 23
    # The other log has no records that this one lacks, so it is deleted.
    assert [path.rpartition("-")[2] for path in directories_of(again.disk)] == ["delete", "0"]
    assert any("lies in both" in note for note in again.notes)


@pytest.mark.parametrize("kept", [(), ("/a",), ("/b",), ALL])
def test_a_power_loss_after_a_kill_was_settled_loses_nothing_durable(kept: tuple[str, ...]) -> None:
    """The start deletes the old log, which was the only one with all flushed data."""
    broker, _, _ = a_move(synced=10)
    log = broker.manager.promote_future(NAME)
    append(log, 3, epoch=5)
    again = broker.restarted()
    assert again.manager.directory_of(NAME) is again.manager.directories[1]
    last = again.restarted(power_lost=True, kept=kept)
    assert last.online == [True, True], last.notes
    assert len(all_values(last.manager.logs[NAME])) >= 20


def test_an_old_log_stays_where_the_new_one_cannot_be_made_durable_at_a_start() -> None:
    broker, _, _ = a_move(synced=10)
    append(broker.manager.promote_future(NAME), 3, epoch=5)
    disk = broker.disk.copy()
    disk.lost_syncs["/b/t-0"] = OSError(errno.EIO, "the disk")
    again = Broker(disk)
    assert again.online == [True, False]
    assert again.manager.get(NAME) is None
    assert directories_of(disk) == ["/a/t-0", "/b/t-0"]


@pytest.mark.parametrize("first", [0, 1])
def test_the_log_of_the_later_epoch_is_taken_and_what_the_other_has_alone_is_kept(first: int) -> None:
    """This holds for any order of the directories."""
    disk = MemoryDisk()
    for number, epoch, count in ((first, 4, 8), (1 - first, 6, 5)):
        log = Broker(disk).log(number)
        append(log, count, epoch)
        log.flush()
    disk.rename(f"{ALL[1]}/t-1", f"{ALL[1]}/t-0")
    broker = Broker(disk)
    assert broker.manager.logs[NAME].latest_epoch() == 6
    assert broker.manager.directory_of(NAME) is broker.manager.directories[1 - first]
    assert [path.rpartition("-")[2] for path in directories_of(disk)].count("stray") == 1
    assert Broker(disk).manager.logs[NAME].log_end_offset == 5


def test_two_future_logs_of_a_partition_do_not_end_the_start() -> None:
    broker, _, future = a_move()
    disk = broker.disk
    other = "/a/t-0.0123-future"
    disk.directories.add(other)
    for path in [path for path in disk.files if path.startswith(future.directory)]:
        disk.files[other + path[len(future.directory) :]] = bytearray(disk.files[path])
    again = broker.restarted()
    assert again.online == [True, True]
    assert again.manager.futures.logs[NAME].log_end_offset == 20
    assert sum(path.endswith("-future") for path in directories_of(again.disk)) == 1


def test_the_old_log_waits_for_the_new_one_and_its_checkpoints_speak_of_it() -> None:
    broker, current, _ = a_move()
    current.increment_log_start_offset(2)
    manager = broker.manager
    manager.checkpoint_now()
    log = manager.promote_future(NAME)
    manager.checkpoint_now()
    assert b"t 0 2" in broker.disk.files["/a/log-start-offset-checkpoint"]
    with pytest.raises(LogRefused):
        manager.begin_future(NAME, manager.directories[0])
    log.flush()
    plan = manager.retire_predecessor(log)
    assert plan is not None
    assert not manager.deletions.take_due(None)
    carry_out(plan)
    assert [path for _, path, _ in manager.deletions.take_due(None)] == directories_of(broker.disk)[:1]
    assert b"t 0" not in broker.disk.files["/a/log-start-offset-checkpoint"]
    assert manager.retire_predecessor(log) is None


def test_a_clean_stop_in_between_lets_go_of_the_old_log() -> None:
    broker, _, _ = a_move()
    broker.manager.promote_future(NAME)
    broker.manager.shut_down(7)
    again = broker.restarted(power_lost=True)
    assert again.manager.previous_broker_epoch == 7
    assert directories_of(again.disk) == ["/b/t-0"]
    assert len(all_values(again.manager.logs[NAME])) == 20


def test_a_deletion_in_between_takes_both() -> None:
    broker, _, _ = a_move()
    log = broker.manager.promote_future(NAME)
    broker.manager.delete_later(NAME)
    assert [path.rpartition("-")[2] for path in directories_of(broker.disk)] == ["delete", "delete"]
    assert broker.manager.retire_predecessor(log) is None


def test_a_new_log_that_cannot_be_made_durable_leaves_the_old_one() -> None:
    broker, _, _ = a_move(synced=10)
    log = broker.manager.promote_future(NAME)
    broker.disk.lost_syncs["/b"] = OSError(errno.EIO, "the disk")
    with pytest.raises(OSError) as failure:
        log.flush()
    broker.manager.log_failed(log, failure.value)
    assert broker.manager.retire_predecessor(log) is None
    assert broker.online == [True, False]
    again = broker.restarted(power_lost=True)
    assert len(all_values(again.manager.logs[NAME])) == 20


def test_an_old_log_that_cannot_be_let_go_takes_its_directory_along() -> None:
    broker, _, _ = a_move()
    log = broker.manager.promote_future(NAME)
    log.flush()
    broker.disk.refuse = refusing("sync_directory", "/a")
    carry_out(broker.manager.retire_predecessor(log))
    assert broker.online == [False, True]
    assert broker.manager.get(NAME) is log
    assert DIRECTORY_IDS[1] == broker.manager.directories[1].directory_id


def test_a_directory_that_a_deletion_could_not_rename_is_out_of_the_way_of_a_move() -> None:
    """The topic was deleted while the disk took no writes, and exists again in the other directory. The name that it left would
    take all partitions of that directory offline."""
    broker = Broker(MemoryDisk())
    append(broker.manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[1]), 3)
    broker.disk.refuse = refusing("rename", "/b", errno.EROFS)
    broker.manager.delete_later(NAME)
    broker.disk.refuse = None
    assert directories_of(broker.disk) == ["/b/t-0"]
    current = broker.manager.get_or_create(NAME, b"\x09" * 16, CONFIG, DIRECTORY_IDS[0])
    append(current, 2)
    copy(current, broker.manager.begin_future(NAME, broker.manager.directories[1]), 2)
    log = change_places(broker)
    assert broker.online == [True, True], broker.notes
    assert broker.manager.get(NAME) is log
    assert [path.rpartition("-")[2] for path in directories_of(broker.disk)] == ["delete", "0", "stray"]
    assert broker.restarted().manager.logs[NAME].topic_id == b"\x09" * 16


def test_what_a_copy_drops_is_removed_later_wherever_it_lies_by_then() -> None:
    """Removing a large file may take long."""
    broker = Broker(MemoryDisk())
    current = broker.log(0)
    append(current, 40)
    current.flush()
    future = broker.manager.begin_future(NAME, broker.manager.directories[1])
    copy(current, future, 40)
    assert len(future.segments) == 3
    touched: list[str] = []
    broker.disk.refuse = lambda operation, path: touched.append(f"{operation} {path}")  # type: ignore[func-returns-value]
    future.truncate_to(1)
    removed = [each for each in touched if each.startswith("remove")]
    assert all(each.endswith(".snapshot") for each in removed)
    copy(current, future, 40)
    change_places(broker)
    due = broker.manager.deletions.take_due(None)
    assert any(path.endswith(".deleted") for _, path, _ in due)
    assert all(broker.disk.exists(path) for _, path, _ in due)
    broker.manager.deletions.remove(due)
    assert not [path for path in broker.disk.files if path.endswith(".deleted")]
    assert len(all_values(future)) == 40
