"""The manager on a real disk: several directories, clean and unclean restarts, deletion, checkpoints, a failing
directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import NOW_MS, TOPIC_ID, all_values, batch_of, config
from kafkacompat.log.directory import LogDirectory, parse_partition_directory
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.flush import LogFlush
from kafkacompat.log.log_manager import NOTE_AGAIN_MS, LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import FileSlice, LogRefused, Plan, SyncFailed
from kafkacompat.wire.errors import ErrorCode

CONFIG = config(file_delete_delay_ms=1000)
DIRECTORY_IDS = (b"\1" * 16, b"\2" * 16)


def manager_on(tmp_path: Path, notes: list[str] | None = None) -> LogManager:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir(exist_ok=True)
    manager = LogManager(
        RealDisk(),
        [(str(path), name) for path, name in zip(paths, DIRECTORY_IDS, strict=True)],
        CONFIG,
        HandTime(),
        note=(notes if notes is not None else []).append,
    )
    manager.load_all()
    return manager


def carry_out(plan: Plan | None) -> None:
    assert plan is not None
    plan.run()
    plan.finish()


def fill(manager: LogManager, partitions: int = 4) -> None:
    for number in range(partitions):
        log = manager.get_or_create(TopicPartition("t.x_y-z", number), TOPIC_ID, CONFIG)
        log.flush()
        for i in range(30):
            log.append_as_leader(batch_of([b"%d" % i * 20]), 4, NOW_MS)
        log.set_high_watermark(20)


def test_partitions_spread_and_come_back_after_a_clean_stop(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager)
    assert [len(status.logs) for status in manager.log_dirs()] == [2, 2]
    manager.logs[TopicPartition("t.x_y-z", 0)].increment_log_start_offset(3)
    values = {name: all_values(log) for name, log in manager.logs.items()}
    manager.shut_down(77)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":77}'
    assert (
        tmp_path / "a" / "replication-offset-checkpoint"
    ).read_text() == "0\n2\nt.x_y-z 0 20\nt.x_y-z 2 20\n"
    assert (
        tmp_path / "a" / "recovery-point-offset-checkpoint"
    ).read_text() == "0\n2\nt.x_y-z 0 30\nt.x_y-z 2 30\n"
    assert (tmp_path / "a" / "log-start-offset-checkpoint").read_text() == "0\n1\nt.x_y-z 0 3\n"
    again = manager_on(tmp_path)
    assert again.previous_broker_epoch == 77
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert {name: all_values(log) for name, log in again.logs.items()} == values
    log = again.logs[TopicPartition("t.x_y-z", 0)]
    assert (log.topic_id, log.high_watermark, log.log_start_offset, log.latest_epoch()) == (
        TOPIC_ID,
        20,
        3,
        4,
    )


def test_a_kill_loses_nothing_and_is_noticed(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager)
    for log in manager.logs.values():
        log.flush()
    upkeep = LogUpkeep(manager)
    carry_out(upkeep.checkpoint_recovery_points())
    carry_out(upkeep.checkpoint_high_watermarks())
    assert upkeep.checkpoint_high_watermarks() is None
    extra = manager.logs[TopicPartition("t.x_y-z", 1)]
    extra.append_as_leader(batch_of([b"after"]), 4, NOW_MS)
    values = {name: all_values(log) for name, log in manager.logs.items()}
    again = manager_on(tmp_path)
    assert again.previous_broker_epoch == -1
    assert {name: all_values(log) for name, log in again.logs.items()} == values
    # What the start has written to the segment is not synced.
    assert again.logs[TopicPartition("t.x_y-z", 1)].recovery_point == 20
    assert again.logs[TopicPartition("t.x_y-z", 1)].high_watermark == 20


def test_deletion_waits_and_slices_stay_readable(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    name = TopicPartition("t.x_y-z", 0)
    held = manager.logs[name].read(0, 100, 30, True).records
    assert isinstance(held, FileSlice)
    before = held.read()
    manager.delete_later(name)
    assert manager.get(name) is None
    marked = [entry for entry in os.listdir(tmp_path / "a") if entry.endswith("-delete")]
    assert len(marked) == 1
    assert marked[0].startswith("t.x_y-z-0.")
    upkeep = LogUpkeep(manager)
    assert upkeep.remove_expired_deletions(999) is None
    carry_out(upkeep.remove_expired_deletions(1000))
    assert not [entry for entry in os.listdir(tmp_path / "a") if entry.endswith("-delete")]
    assert held.read() == before


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EMFILE, "too many open files"),
        MemoryError(),
        # A full file system that copies on write refuses removals too, until another one makes room.
        OSError(errno.ENOSPC, "no space left on device"),
        OSError(errno.EDQUOT, "quota exceeded"),
    ],
)
def test_what_could_not_be_removed_for_a_while_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Otherwise the room that a deleted topic takes would be free after the next start only."""
    manager = manager_on(tmp_path)
    fill(manager, 1)
    manager.delete_later(TopicPartition("t.x_y-z", 0))
    upkeep = LogUpkeep(manager)

    def refused(disk: RealDisk, path: str) -> None:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "remove_tree", refused)
        carry_out(upkeep.remove_expired_deletions(1000))
    assert [entry for entry in os.listdir(tmp_path / "a") if entry.endswith("-delete")]
    carry_out(upkeep.remove_expired_deletions(6000))
    assert not [entry for entry in os.listdir(tmp_path / "a") if entry.endswith("-delete")]


def test_the_checkpoint_tells_where_the_dirty_part_begins_after_a_start(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 3)
    for number, cleaned_to in enumerate((12, 31)):
        manager.logs[TopicPartition("t.x_y-z", number)].cleaned_to = cleaned_to
    carry_out(LogUpkeep(manager).checkpoint_cleaned())
    assert LogUpkeep(manager).checkpoint_cleaned() is None
    again = manager_on(tmp_path)
    assert [log.cleaned_to for _, log in sorted(again.logs.items())] == [12, -1, -1]


def test_each_log_that_goes_is_told_of(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 3)
    left: list[int] = []
    manager.on_stale = lambda: left.append(len(manager.logs))
    manager.delete_later(TopicPartition("t.x_y-z", 0))
    manager.mark_stray(TopicPartition("t.x_y-z", 1))
    manager.delete_later(TopicPartition("t.x_y-z", 0))
    assert left == [2, 1]


def test_a_deletion_cut_short_is_finished_after_a_restart(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    manager.delete_later(TopicPartition("t.x_y-z", 0))
    again = manager_on(tmp_path)
    assert again.logs == {}
    carry_out(LogUpkeep(again).remove_expired_deletions(10**9))
    assert not [entry for entry in os.listdir(tmp_path / "a") if "t.x" in entry]


def test_a_long_topic_name_can_be_marked(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    name = TopicPartition("n" * 249, 10)
    manager.get_or_create(name, TOPIC_ID, CONFIG)
    manager.mark_stray(name)
    strays = [entry for entry in os.listdir(tmp_path / "a") if entry.endswith("-stray")]
    assert [len(entry) for entry in strays] == [255]
    assert manager_on(tmp_path).logs == {}


def test_another_topic_id_is_refused(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 1)
    with pytest.raises(LogRefused) as caught:
        manager.get_or_create(TopicPartition("t.x_y-z", 0), rb"\9" * 16, CONFIG)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_directory_may_be_asked_for(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    manager.get_or_create(TopicPartition("x", 0), TOPIC_ID, CONFIG, DIRECTORY_IDS[1])
    assert (tmp_path / "b" / "x-0" / "partition.metadata").exists()


def test_a_new_log_gets_the_directory_with_the_fewest_without_a_look_at_all_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_on(tmp_path)
    walks: list[str] = []

    class Homes(dict[TopicPartition, LogDirectory]):
        def values(self) -> Any:
            walks.append("values")
            return super().values()

    monkeypatch.setattr(manager, "_home", Homes())
    for number in range(4):
        manager.get_or_create(TopicPartition("a", number), TOPIC_ID, CONFIG, DIRECTORY_IDS[0])
    for number in range(3):
        manager.get_or_create(TopicPartition("b", number), TOPIC_ID, CONFIG, DIRECTORY_IDS[1])
    first, second = manager.directories
    assert manager.prepare(TopicPartition("t", 0), TOPIC_ID).directory is second
    manager.delete_later(TopicPartition("a", 0))
    manager.mark_stray(TopicPartition("a", 1))
    assert manager.prepare(TopicPartition("t", 0), TOPIC_ID).directory is first
    for number in range(2):
        manager.withhold(TopicPartition("b", number), "a test")
    assert manager.prepare(TopicPartition("t", 0), TOPIC_ID).directory is second
    moved = manager.begin_future(TopicPartition("a", 2), second)
    manager.promote_future(moved.topic_partition)
    assert [len(status.logs) for status in manager.log_dirs()] == [1, 2]
    assert manager.prepare(TopicPartition("t", 0), TOPIC_ID).directory is first
    assert walks == []


def test_a_failed_directory_takes_its_partitions_along(tmp_path: Path) -> None:
    notes: list[str] = []
    manager = manager_on(tmp_path, notes)
    fill(manager)
    manager.fail_directory(manager.directories[0], OSError("gone"))
    assert sorted(manager.logs) == [TopicPartition("t.x_y-z", 1), TopicPartition("t.x_y-z", 3)]
    assert [status.online for status in manager.log_dirs()] == [False, True]
    assert manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, CONFIG).directory.startswith(
        str(tmp_path / "b")
    )
    manager.fail_directory(manager.directories[1], OSError("gone"))
    with pytest.raises(LogRefused) as caught:
        manager.get_or_create(TopicPartition("new", 1), TOPIC_ID, CONFIG)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(notes) == 2


def test_the_metadata_log_is_left_to_raft(tmp_path: Path) -> None:
    (tmp_path / "a" / "__cluster_metadata-0").mkdir(parents=True)
    (tmp_path / "a" / "not a partition").mkdir()
    (tmp_path / "a" / "t-0.0123-future").mkdir()
    assert manager_on(tmp_path).logs == {}


def test_partition_directories() -> None:
    assert parse_partition_directory("a-b-12") == TopicPartition("a-b", 12)
    for name in ("a", "a-", "-1", "a-x", "a-1.abc-delete", "a-¹", "a-2147483648"):
        assert parse_partition_directory(name) is None


def test_files_that_a_crash_tore_do_not_take_the_directory_offline_after_a_clean_stop(tmp_path: Path) -> None:
    """The partition was not opened in between, for example because it was moved away."""
    manager = manager_on(tmp_path)
    manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, CONFIG)
    path = tmp_path / "a" / "t-0"
    (path / "leader-epoch-checkpoint").write_bytes(b"0\n1\n1 2")
    manager_on(tmp_path).shut_down(7)
    notes: list[str] = []
    again = manager_on(tmp_path, notes)
    assert [status.online for status in again.log_dirs()] == [True, True]
    assert notes == []
    assert list(again.logs) == [TopicPartition("t", 0)]


def test_a_full_disk_takes_no_directory_offline(tmp_path: Path) -> None:
    notes: list[str] = []
    manager = manager_on(tmp_path, notes)
    fill(manager)
    lost: list[TopicPartition] = []
    manager.when_offline(lost.extend)
    name = TopicPartition("t.x_y-z", 0)
    for _ in range(3):
        manager.partition_failed(name, OSError(errno.ENOSPC, "full"))
    assert name in manager.logs
    assert [note.rpartition(": ")[2] for note in notes] == ["[Errno 28] full"]
    manager._clock.ms += NOTE_AGAIN_MS  # type: ignore[attr-defined]
    manager.partition_failed(name, OSError(errno.ENOSPC, "full"))
    assert len(notes) == 2
    manager.partition_failed(name, OSError(errno.EIO, "broken"))
    assert lost == [name, TopicPartition("t.x_y-z", 2)]
    with pytest.raises(LogRefused) as caught:
        manager.get_or_create(name, TOPIC_ID, CONFIG, is_new=False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_closed_segments_are_synced_and_a_failed_sync_takes_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    manager = manager_on(tmp_path)
    fill(manager)
    upkeep = LogUpkeep(manager)
    log = manager.logs[TopicPartition("t.x_y-z", 0)]
    log.roll(30, NOW_MS)
    place = manager.directories[0].path
    carry_out(upkeep.flush_closed_segments(place))
    assert log.recovery_point == 30
    assert upkeep.flush_closed_segments(place) is None
    log.config = config(flush_ms=100)
    log.append_as_leader(batch_of([b"x"]), 4, NOW_MS)
    carry_out(upkeep.flush_overdue(place, 1000))
    assert log.recovery_point == 31
    log.append_as_leader(batch_of([b"x"]), 4, NOW_MS)
    assert upkeep.flush_overdue(place, 1099) is None
    plan = upkeep.flush_overdue(place, 1100)
    assert plan is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        plan.run()
    plan.finish()
    assert [status.online for status in manager.log_dirs()] == [False, True]
    assert log.recovery_point == 31


def test_a_log_whose_sync_cannot_begin_does_not_put_the_others_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_on(tmp_path)
    fill(manager)
    bad, good = (manager.logs[TopicPartition("t.x_y-z", index)] for index in (0, 2))
    for log in (bad, good):
        log.config = config(flush_ms=100)
        log.append_as_leader(batch_of([b"x"]), 4, NOW_MS)

    whole = UnifiedLog.begin_flush

    def begin_flush(log: UnifiedLog, **options: bool) -> LogFlush:
        if log is bad:
            raise OSError(errno.EIO, "broken")
        return whole(log, **options)

    monkeypatch.setattr(UnifiedLog, "begin_flush", begin_flush)
    carry_out(LogUpkeep(manager).flush_overdue(manager.directories[0].path, 1000))
    assert good.recovery_point == good.log_end_offset
    assert [status.online for status in manager.log_dirs()] == [False, True]


def test_real_files_cut_back_a_write_that_fails(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.write_now(b"abc", bytearray(b"def"), memoryview(b"ghi"))
    assert file.read_cold(0, 100) == b"abcdefghi"
    assert file.try_read(3, 3) in (b"def", None)
    file.truncate(4)
    assert file.write_now(b"X") == 1
    assert file.read_cold(0, 100) == b"abcdX"
    assert file.size() == 5
    for many in ([b"y"] * 1500,):
        assert file.write_now(*many) == 1500
    file.sync()
    file.close()
    with pytest.raises(OSError):
        file.write_now(b"z")


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for directory in tmp_path.iterdir() for path in directory.iterdir())


def test_a_prepared_log_is_one_like_any_other(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    made, placed = TopicPartition("t", 0), TopicPartition("t", 1)
    manager.get_or_create(made, TOPIC_ID, CONFIG)
    prepared = manager.prepare(placed, TOPIC_ID)
    prepared.run()
    assert [name for name in folders(tmp_path) if not name.endswith("-delete")] == ["t-0"]
    assert manager.place(prepared, CONFIG)
    assert folders(tmp_path) == ["t-0", "t-1"]
    assert [len(status.logs) for status in manager.log_dirs()] == [1, 1]
    assert manager.get_or_create(placed, TOPIC_ID, CONFIG) is manager.logs[placed]
    first, second = (Path(manager.logs[name].directory) for name in (made, placed))
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }
    for name in (made, placed):
        manager.logs[name].append_as_leader(batch_of([b"value"]), 4, NOW_MS)
    manager.shut_down(1)
    assert manager.closed
    again = manager_on(tmp_path)
    assert {name: log.log_end_offset for name, log in again.logs.items()} == {made: 1, placed: 1}
    assert again.logs[placed].topic_id == TOPIC_ID


def test_prepared_logs_without_a_place_go(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    name = TopicPartition("t", 0)
    late, never_run, unwanted = (manager.prepare(name, TOPIC_ID) for _ in range(3))
    late.run()
    unwanted.run()
    log = manager.get_or_create(name, TOPIC_ID, CONFIG)
    assert not manager.place(late, CONFIG)
    assert not manager.place(never_run, CONFIG)
    manager.discard(unwanted)
    assert manager.logs == {name: log}
    assert len(folders(tmp_path)) == 3
    carry_out(LogUpkeep(manager).remove_expired_deletions(0))
    assert folders(tmp_path) == ["t-0"]


def test_a_prepared_log_never_hides_what_lies_under_its_name(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    name = TopicPartition("t", 0)
    prepared = manager.prepare(name, TOPIC_ID)
    prepared.run()
    Path(prepared.directory.path, "t-0").mkdir()
    assert not manager.place(prepared, CONFIG)
    assert manager.logs == {}


def test_a_log_may_lie_in_a_directory_that_is_offline(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    here, elsewhere = TopicPartition("t", 0), TopicPartition("t", 1)
    manager.get_or_create(here, TOPIC_ID, CONFIG)
    assert (manager.may_have(here), manager.may_have(elsewhere)) == (True, False)
    manager.fail_directory(manager.directories[0], OSError(5, "gone"))
    assert manager.may_have(elsewhere)


def test_what_a_kill_leaves_of_a_prepared_log_goes_at_the_next_start(tmp_path: Path) -> None:
    manager_on(tmp_path).prepare(TopicPartition("t", 0), TOPIC_ID).run()
    manager = manager_on(tmp_path)
    assert manager.logs == {}
    manager.shut_down(1)
    assert [name for name in folders(tmp_path) if name.startswith("t-")] == []


def test_a_disk_that_refuses_a_prepared_log_is_met_by_whoever_opens_it(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    prepared = manager.prepare(TopicPartition("t", 0), TOPIC_ID)
    for directory in manager.directories:
        os.rmdir(directory.path)
        Path(directory.path).write_bytes(b"no directory")
    prepared.run()
    assert not manager.place(prepared, CONFIG)
    with pytest.raises(LogRefused):
        manager.get_or_create(TopicPartition("t", 0), TOPIC_ID, CONFIG)


def test_flushes_of_all_logs_are_timed(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    fill(manager, 3)
    assert manager.flush_times_ms.count == 3
    assert all(value > 0 for value in manager.flush_times_ms.ordered())
    log = manager.logs[TopicPartition("t.x_y-z", 0)]
    log.syncs.failure = SyncFailed(5, "broken")
    with pytest.raises(SyncFailed):
        log.flush()
    assert manager.flush_times_ms.count == 3, "a flush that failed has no time"
