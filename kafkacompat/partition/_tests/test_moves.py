"""Replicas and directories on a real disk, with a simulated controller: telling it, copying, the throttle, the swap.

KIP-113, KIP-858, and the meaning of UNASSIGNED, LOST and MIGRATING.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.config.topic import MIRRORING
from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, NO_LEADER, TopicPartition, Uuid
from kafkacompat.log._tests.logs import NOW_MS as LOG_NOW_MS
from kafkacompat.log._tests.logs import SMALL, all_values, fill, open_tiered
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.flush import LogFlush
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.segment_list import DROPPED_AT_ONCE
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.partition import placement, replica_alter_log_dirs_manager
from kafkacompat.partition._tests.kit import NODE_ID, batch_of, image_of, partition_image, topic_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.following import BATCHES_AT_ONCE
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.placement import Placement
from kafkacompat.partition.replica_alter_log_dirs_manager import (
    ASSIGNED_POLL_MS,
    AT_ONCE_BYTES,
    COPY_BYTES,
)
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.ports import LogRefused, SyncFailed
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode

A, B, C = b"\xa0" * 16, b"\xb0" * 16, b"\xc0" * 16
NAME = TopicPartition("t", 0)
UNLIMITED = 2**63 - 1


class Settings:
    def __init__(self) -> None:
        self.values = {
            "num.replica.alter.log.dirs.threads": 2,
            "replica.alter.log.dirs.io.max.bytes.per.second": UNLIMITED,
            "alter.log.dirs.replication.quota.window.num": 11,
            "alter.log.dirs.replication.quota.window.size.seconds": 1,
            "replica.fetch.backoff.ms": 1000,
        }

    def get_int(self, name: str) -> int:
        return self.values[name]


class Disks:
    """A broker's partitions on three directories; `told` is what the controller was told."""

    def __init__(self, path: Path) -> None:
        self.time = HandTime()
        self.workers = HandWorkers()
        self.settings = Settings()
        self.told: list[tuple[Uuid, int, Uuid, Callable[[], None] | None]] = []
        self.config = LogConfig()
        for name in "abc":
            (path / name).mkdir(exist_ok=True)
        self.logs = LogManager(
            RealDisk(),
            [(str(path / name), each) for name, each in zip("abc", (A, B, C), strict=True)],
            self.config,
            self.time,
        )
        self.logs.load_all()
        self.services = partition_services(
            NODE_ID,
            self.logs,
            self.time,
            self.workers,
            lambda topic: self.config,
            numbers=self.settings.values,
        )
        self.manager = ReplicaManager(self.services)
        self.placement = Placement(self.services, self.manager.hosted, lambda *told: self.told.append(told))
        self.image = MetadataImage()

    def publish(self, *directories: Uuid, **changes: object) -> None:
        """Publish one partition for each directory, which the metadata names for it. Without directories the topic
        does not exist."""
        partitions = {
            index: replace(partition_image(), directories=(directory,), **changes)  # type: ignore[arg-type]
            for index, directory in enumerate(directories)
        }
        old, self.image = self.image, image_of(*([topic_image("t", partitions)] if partitions else []))
        self.manager.on_image(old, self.image)

    def core(self) -> Partition:
        core = self.manager.core(NAME)
        assert core is not None
        return core

    def log(self) -> UnifiedLog:
        log = self.logs.get(NAME)
        assert log is not None
        return log

    def append(self, count: int = 1, size: int = 10) -> None:
        for number in range(count):
            value = b"%d" % number + b"." * size
            assert not self.manager.append(
                NAME, batch_of(value, now_ms=self.time.now_ms()), 1, 13, False
            ).error

    def path(self, name: str) -> str:
        return next(each.path for each in self.logs.directories if each.path.endswith(f"/{name}"))

    def home(self) -> str:
        home = self.logs.directory_of(NAME)
        assert home is not None
        return home.path[-1]

    def run(self, rounds: int = 50) -> None:
        for _ in range(rounds):
            self.time.advance(0)
            self.workers.run()

    def accept(self) -> None:
        """The controller accepts the newest assignment."""
        accepted = self.told[-1][3]
        assert accepted is not None
        accepted()
        self.time.advance(ASSIGNED_POLL_MS)
        self.run()


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def test_a_log_is_made_where_the_metadata_name_a_directory(disks: Disks) -> None:
    disks.publish(C, B)
    assert disks.home() == "c"
    assert disks.logs.directory_of(TopicPartition("t", 1)) is disks.logs.directories[1]
    assert disks.told == []


@pytest.mark.parametrize("named", [DIRECTORY_UNASSIGNED, DIRECTORY_LOST, bytes(16), b"\xdd" * 16])
def test_I15_what_the_metadata_leave_open_is_chosen_here_and_told(disks: Disks, named: Uuid) -> None:
    disks.publish(named)
    assert disks.home() == "a"
    assert disks.told == [(disks.core().topic_id, 0, A, None)]


def test_after_a_start_the_log_stays_where_it_lies_and_that_is_told(disks: Disks, tmp_path: Path) -> None:
    disks.publish(B)
    disks.append(3)
    disks.logs.shut_down(1)
    again = Disks(tmp_path)
    again.publish(A)
    assert again.home() == "b"
    assert again.log().log_end_offset == 3
    assert [each[2] for each in again.told] == [B]


def test_a_move_copies_tells_and_only_then_changes_places(disks: Disks) -> None:
    disks.publish(A)
    disks.append(30)
    before = disks.log()
    values = all_values(before)
    disks.run()
    assert disks.placement.max_move_lag() == 0
    assert disks.placement.moved_bytes_per_second() is None
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    assert disks.placement.max_move_lag() == 30
    assert disks.placement.moved_bytes_per_second() == 0
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    disks.run()
    assert [each[:3] for each in disks.told] == [(disks.core().topic_id, 0, B)]
    assert disks.log() is before
    # Appends while the controller is told are copied too, up to the swap.
    disks.append(5)
    disks.time.advance(ASSIGNED_POLL_MS)
    assert disks.logs.futures.logs[NAME].log_end_offset == 35
    assert disks.log() is before
    disks.append(5)
    disks.accept()
    assert disks.home() == "b"
    log = disks.log()
    assert disks.core().log is log
    assert [value for _, value in all_values(log)][:30] == [value for _, value in values]
    assert (log.log_end_offset, log.high_watermark) == (40, 40)
    assert log.recovery_point == 40
    assert disks.placement.max_move_lag() == 0
    rate = disks.placement.moved_bytes_per_second()
    assert rate is not None
    assert rate > 0
    assert disks.logs.futures.logs == {}
    disks.append(1)
    assert log.log_end_offset == 41
    assert disks.time.pending() == []


def test_the_log_of_a_mirror_has_no_epoch_of_its_leader_after_a_move(disks: Disks) -> None:
    """The leader would take it for records of its own, and its followers would not find it at the next leader."""
    disks.config = LogConfig(mirror_state=MIRRORING, mirror_leader_epoch=1 << 20)
    disks.publish(A, leader_epoch=1 << 20)
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    disks.run()
    disks.accept()
    assert disks.home() == "b"
    assert disks.log().latest_epoch() == -1


def test_the_old_log_keeps_its_name_until_the_new_one_is_durable(disks: Disks, tmp_path: Path) -> None:
    disks.publish(A)
    disks.append(30)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    # Append after the sync of the copy.
    disks.append(5)
    assert disks.told[-1][3] is not None
    disks.told[-1][3]()
    disks.time.advance(ASSIGNED_POLL_MS)
    assert disks.home() == "b"
    assert disks.log().recovery_point == 30
    assert (tmp_path / "a" / "t-0").exists()
    assert disks.placement.alter(NAME, disks.path("a")) is ErrorCode.KAFKA_STORAGE_ERROR
    disks.run()
    assert disks.log().recovery_point == 35
    assert [each.name.rpartition("-")[2] for each in (tmp_path / "a").glob("t-0*")] == ["delete"]
    assert disks.time.pending() == []


def test_the_sync_of_the_new_log_is_tried_again_and_its_failure_leaves_the_old_one(
    disks: Disks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.publish(A)
    disks.append(30)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.append(5)
    assert disks.told[-1][3] is not None
    disks.told[-1][3]()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "begin_flush", full)
        disks.time.advance(ASSIGNED_POLL_MS)
        disks.run()
        assert disks.home() == "b"

    def broken(*_: object) -> None:
        raise SyncFailed(errno.EIO, "broken")

    monkeypatch.setattr(LogFlush, "run", broken)
    disks.time.advance(disks.settings.get_int("replica.fetch.backoff.ms"))
    disks.run()
    assert not disks.logs.directories[1].online
    assert (tmp_path / "a" / "t-0").exists()


def test_the_old_log_is_not_served_while_the_directory_of_the_new_one_is_away(
    disks: Disks, tmp_path: Path
) -> None:
    """Only the new log has the records acknowledged after the swap."""
    disks.publish(A)
    disks.append(30)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    assert disks.told[-1][3] is not None
    disks.told[-1][3]()
    disks.time.advance(ASSIGNED_POLL_MS)
    disks.append(10)
    disks.logs.fail_directory(disks.logs.directories[1], OSError(errno.EIO, "broken"))
    trouble = tmp_path / "b" / "replication-offset-checkpoint"
    for _ in range(2):
        trouble.unlink(missing_ok=True)
        trouble.mkdir()
        without = Disks(tmp_path)
        assert [each.online for each in without.logs.directories] == [True, False, True]
        without.publish(B)
        assert without.manager.core(NAME) is None
        assert without.manager.leader_error(NAME) is ErrorCode.KAFKA_STORAGE_ERROR
        assert without.told == []
        without.logs.shut_down(1)
        trouble.rmdir()
    again = Disks(tmp_path)
    again.publish(B)
    assert (again.home(), again.log().log_end_offset) == ("b", 40)


LAST_KNOWN: dict[str, Any] = {"isr": (), "leader": NO_LEADER, "last_known_elr": (NODE_ID,)}
ELIGIBLE: dict[str, Any] = {"isr": (NODE_ID + 1,), "eligible_leader_replicas": (NODE_ID,)}


@pytest.mark.parametrize(
    ("named", "what", "is_away", "serves"),
    [
        (B, {"isr": (NODE_ID,)}, True, False),
        (B, {"isr": (NODE_ID,)}, False, True),
        (B, {"isr": (NODE_ID + 1,)}, True, True),
        (B, LAST_KNOWN, True, False),
        (B, LAST_KNOWN, False, True),
        (B, ELIGIBLE, True, False),
        (C, {"isr": (NODE_ID,)}, True, True),
        (DIRECTORY_UNASSIGNED, {"isr": (NODE_ID,)}, True, True),
        (DIRECTORY_LOST, {"isr": (NODE_ID,)}, True, True),
        (bytes(16), {"isr": (NODE_ID,)}, True, True),
    ],
)
def test_a_log_beside_the_directory_that_the_metadata_name_is_served_unless_that_is_away(
    disks: Disks, tmp_path: Path, named: Uuid, what: dict[str, Any], is_away: bool, serves: bool
) -> None:
    disks.publish(A)
    disks.append(3)
    if is_away:
        (tmp_path / "b" / "replication-offset-checkpoint").mkdir()
    again = Disks(tmp_path)
    again.publish(named, **what)
    assert (again.manager.core(NAME) is not None) == serves
    assert (tmp_path / "a" / "t-0").exists()


def test_records_arrive_whole_from_many_segments_and_large_pieces(disks: Disks) -> None:
    disks.config = replace(disks.config, segment_bytes=COPY_BYTES * 2)
    disks.publish(A)
    disks.append(12, size=AT_ONCE_BYTES + 100)
    assert len(disks.log().segments) > 1
    values = all_values(disks.log())
    disks.placement.alter(NAME, disks.path("c"))
    disks.time.advance(0)
    assert disks.workers.submitted, "a worker reads what is more than a little"
    disks.run()
    disks.accept()
    assert disks.home() == "c"
    assert all_values(disks.log()) == values


def test_a_copy_follows_the_truncations_of_its_log(disks: Disks) -> None:
    """The case of KIP-101 within a node: records copied from a losing epoch are dropped, and later epochs are copied
    again."""
    disks.publish(A)
    disks.append(10)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    assert disks.logs.futures.logs[NAME].log_end_offset == 10
    disks.log().truncate_to(6)
    disks.publish(A, leader_epoch=3, partition_epoch=3)
    disks.append(8)
    disks.accept()
    assert disks.home() == "b"
    assert disks.log().epoch_entries == [(0, 0), (3, 6)]
    assert disks.log().log_end_offset == 14


def test_a_copy_that_was_cut_back_waits_for_its_checkpoints_also_where_the_disk_refused_its_epochs(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later copies are in the page cache only. A start would take them for checked up to the former end of the copy."""
    disks.publish(A)
    disks.append(10)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    future = disks.logs.futures.logs[NAME]
    assert future.recovery_point == 10
    disks.logs.checkpoint_now()
    disks.logs.on_stale = lambda: None
    disks.log().truncate_to(6)
    disks.publish(A, leader_epoch=3, partition_epoch=3)
    disks.append(8)
    write_epochs = UnifiedLog._write_epochs

    def full(log: UnifiedLog, *, sync: bool = False) -> None:
        if log is future:
            raise OSError(errno.ENOSPC, "full")
        write_epochs(log, sync=sync)

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "_write_epochs", full)
        disks.time.advance(ASSIGNED_POLL_MS)
        assert future.log_end_offset == 6
    disks.time.advance(2 * disks.settings.get_int("replica.fetch.backoff.ms"))
    disks.run()
    assert future.log_end_offset == 6
    disks.logs.checkpoint_now()
    disks.accept()
    assert (disks.home(), disks.log().log_end_offset) == ("b", 14)


def test_a_copy_that_the_logs_start_has_overtaken_begins_anew(disks: Disks) -> None:
    disks.publish(A)
    disks.append(3)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.log().truncate_fully_and_start_at(100)
    disks.append(2)
    disks.accept()
    assert disks.home() == "b"
    assert (disks.log().log_start_offset, disks.log().log_end_offset) == (100, 102)


def test_a_copy_of_many_segments_is_cut_back_in_steps(disks: Disks) -> None:
    disks.config = replace(disks.config, segment_bytes=300)
    disks.publish(A)
    disks.append(3 * DROPPED_AT_ONCE, size=200)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run(1000)
    future = disks.logs.futures.logs[NAME]
    assert len(future.segments) == 3 * DROPPED_AT_ONCE
    # Its leader's log diverges from the third record on, and the copy drops some segments per step.
    disks.log().truncate_to(2)
    while disks.log().log_end_offset > 2:
        disks.log().truncate_to(2)
    disks.publish(A, leader_epoch=3, partition_epoch=3)
    disks.append(2, size=200)
    ends = []
    for _ in range(10):
        disks.time.advance(ASSIGNED_POLL_MS)
        ends.append(future.log_end_offset)
        disks.workers.run()
    assert ends[-1] == 4
    disks.log().truncate_fully_and_start_at(100)
    disks.append(2, size=200)
    disks.accept()
    assert disks.home() == "b"
    assert (disks.log().log_start_offset, disks.log().log_end_offset) == (100, 102)


def test_the_throttle_holds_copies_back(disks: Disks) -> None:
    disks.settings.values["replica.alter.log.dirs.io.max.bytes.per.second"] = 100_000
    disks.publish(A)
    disks.append(30, size=100_000)
    began = disks.time.ms
    disks.placement.alter(NAME, disks.path("b"))
    for _ in range(1000):
        disks.time.advance(100)
        disks.workers.run()
        if disks.told:
            break
    assert disks.told
    seconds = (disks.time.ms - began) / 1000
    assert 15 < seconds < 40, f"3 MB at 100 kB/s took {seconds} s"


def test_so_many_moves_at_a_time(disks: Disks) -> None:
    disks.publish(A, A, A)
    disks.settings.values["num.replica.alter.log.dirs.threads"] = 1
    for index in range(3):
        assert disks.placement.alter(TopicPartition("t", index), disks.path("b")) is ErrorCode.NONE
    disks.run()
    assert [each[1] for each in disks.told] == [0]
    disks.accept()
    assert [each[1] for each in disks.told] == [0, 1]


def test_a_move_back_ends_it_and_what_was_told_is_taken_back(disks: Disks) -> None:
    disks.publish(A)
    disks.append(3)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    assert disks.placement.alter(NAME, disks.path("a")) is ErrorCode.NONE
    assert [each[2] for each in disks.told] == [B, A]
    assert disks.logs.futures.logs == {}
    disks.told[0][3]()  # type: ignore[misc]  # a late answer
    disks.run()
    assert disks.home() == "a"
    # Then move on to a third directory.
    disks.placement.alter(NAME, disks.path("b"))
    assert disks.placement.alter(NAME, disks.path("c")) is ErrorCode.NONE
    disks.run()
    disks.accept()
    assert disks.home() == "c"


def test_a_restart_goes_on_with_a_move(disks: Disks, tmp_path: Path) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.append(5)
    disks.logs.shut_down(1)
    again = Disks(tmp_path)
    # The controller has already recorded the new directory, but the log is still in the old one.
    again.publish(B)
    assert [each[2] for each in again.told] == [A]
    assert again.logs.futures.logs[NAME].log_end_offset == 20
    again.run()
    assert [each[2] for each in again.told] == [A, B]
    again.accept()
    assert again.home() == "b"
    assert again.log().log_end_offset == 25


def test_a_start_after_a_crash_between_the_two_renames(disks: Disks, tmp_path: Path) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    (tmp_path / "a" / "t-0").rename(tmp_path / "a" / "t-0.0123-delete")
    again = Disks(tmp_path)
    again.publish(B)
    assert again.home() == "b"
    assert again.log().log_end_offset == 20
    assert again.told == []


@pytest.mark.parametrize("what", [{"isr": (NODE_ID,)}, LAST_KNOWN, {"isr": (NODE_ID + 1,)}])
def test_a_copy_is_not_served_while_its_log_may_lie_in_a_directory_that_is_away(
    disks: Disks, tmp_path: Path, what: dict[str, Any]
) -> None:
    """The controller was already told the new directory, and only the old log has the newest records, which a leader
    would restore."""
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.append(5)
    is_filled = what == {"isr": (NODE_ID + 1,)}
    trouble = tmp_path / "a" / "replication-offset-checkpoint"
    trouble.mkdir()
    without = Disks(tmp_path)
    without.publish(B, **what)
    assert (without.manager.core(NAME) is not None) == is_filled
    assert (without.logs.get(NAME) is not None) == is_filled
    if not is_filled:
        trouble.rmdir()
        again = Disks(tmp_path)
        again.publish(B)
        assert (again.home(), again.log().log_end_offset) == ("a", 25)


def test_a_future_log_of_no_replica_is_a_stray(disks: Disks, tmp_path: Path) -> None:
    disks.publish(A)
    disks.placement.alter(NAME, disks.path("b"))
    again = Disks(tmp_path)
    again.publish()
    assert again.logs.futures.logs == {}
    assert [each for each in (tmp_path / "b").iterdir() if each.name.endswith("-stray")]


def test_at_a_start_logs_of_no_replica_here_are_strays(disks: Disks, tmp_path: Path) -> None:
    """Logs of partitions that were deleted, moved away or recreated while the node was down."""
    disks.publish(A, A, A)
    disks.append(4)
    disks.logs.shut_down(1)
    again = Disks(tmp_path)
    again.manager.on_image(
        MetadataImage(),
        image_of(
            topic_image("t", {0: replace(partition_image(), directories=(A,))}, generation=1),
            topic_image("u", 1),
        ),
    )
    strays = sorted(each.name for each in (tmp_path / "a").iterdir() if each.name.endswith("-stray"))
    assert [name.split(".")[0] for name in strays] == ["t-0", "t-1", "t-2"]
    assert again.log().log_end_offset == 0
    third = Disks(tmp_path)
    third.manager.on_image(MetadataImage(), image_of(topic_image("t", 1, generation=1)))
    assert third.log().log_end_offset == 0
    assert sorted(each.name for each in (tmp_path / "a").iterdir() if each.name.endswith("-stray")) == strays


def test_the_target_fails_while_copying(disks: Disks) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.logs.future_failed(NAME, OSError(5, "broken"))
    disks.time.advance(ASSIGNED_POLL_MS)
    assert [each[2] for each in disks.told] == [B, A]
    assert disks.home() == "a"
    disks.append(1)
    assert disks.placement.alter(NAME, disks.path("c")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert disks.time.pending() == []


def test_a_sync_of_the_copy_that_cannot_begin_is_tried_again(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "begin_flush", full)
        disks.run()
    assert disks.told == []
    disks.time.advance(disks.settings.get_int("replica.fetch.backoff.ms"))
    disks.run()
    assert [each[2] for each in disks.told] == [B]


def small_segments(disks: Disks, tmp_path: Path, count: int = 40) -> Disks:
    """The same directories after a clean restart. The partition's log has several closed segments."""
    disks.config = LogConfig(internal_segment_bytes=1000)
    disks.publish(A)
    disks.append(count)
    assert len(disks.log().segments) > 3
    disks.logs.shut_down(1)
    again = Disks(tmp_path)
    again.config = disks.config
    again.publish(A)
    return again


def test_a_move_goes_on_when_the_damaged_indexes_of_its_log_are_rebuilt(disks: Disks, tmp_path: Path) -> None:
    disks = small_segments(disks, tmp_path)
    Path(disks.log().segments[1].stem + ".index").write_bytes(b"\xff" * 11)
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    disks.run()
    assert disks.told == []
    plan = LogUpkeep(disks.logs).rebuild_indexes()
    assert plan is not None
    plan.run()
    plan.finish()
    disks.time.advance(1000)
    disks.run()
    disks.accept()
    assert disks.home() == "b"
    assert disks.log().log_end_offset == 40


PASSING = [
    BatchCorrupt("a batch with the length -7"),
    LogRefused(ErrorCode.KAFKA_STORAGE_ERROR),
    OSError(errno.EMFILE, "too many open files"),
    MemoryError(),
]


@pytest.mark.parametrize("problem", PASSING)
@pytest.mark.parametrize("method", ["read", "end_offset_for_epoch", "append_as_follower", "begin_flush"])
def test_no_problem_that_passes_ends_a_move(
    disks: Disks, method: str, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.publish(A)
    disks.append(3)
    right, left = getattr(UnifiedLog, method), [problem]

    def once(log: UnifiedLog, *arguments: Any, **options: Any) -> Any:
        if left and disks.logs.futures.logs:
            raise left.pop()
        return right(log, *arguments, **options)

    monkeypatch.setattr(UnifiedLog, method, once)
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    for _ in range(3):
        disks.run()
        disks.time.advance(1000)
    assert left == []
    disks.run()
    disks.accept()
    assert disks.home() == "b"


@pytest.mark.parametrize("problem", PASSING)
def test_no_problem_that_passes_keeps_what_a_move_has_left(
    disks: Disks, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is there, the partition cannot move again."""
    disks.publish(A)
    disks.append(3)
    right, left = UnifiedLog.begin_flush, [problem]

    def once(log: UnifiedLog, **options: Any) -> Any:
        if left and disks.logs.predecessors.get(NAME) is not None:
            raise left.pop()
        return right(log, **options)

    monkeypatch.setattr(UnifiedLog, "begin_flush", once)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.accept()
    assert disks.home() == "b"
    assert left == []
    assert disks.logs.predecessors.get(NAME) is not None
    disks.time.advance(1000)
    disks.run()
    assert disks.logs.predecessors.get(NAME) is None


def test_the_disk_has_no_room_when_the_logs_change_places(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.publish(A)
    disks.append(3)
    right, left = UnifiedLog.take_remote_part_of, [OSError(errno.ENOSPC, "full")]

    def once(log: UnifiedLog, other: Any) -> None:
        if left and log.log_end_offset == 3:
            raise left.pop()
        right(log, other)

    monkeypatch.setattr(UnifiedLog, "take_remote_part_of", once)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.accept()
    assert left == []
    disks.time.advance(1000)
    disks.run()
    core = disks.manager.core(NAME)
    assert core is not None
    assert core.log is disks.log()
    assert disks.home() == "b"


def test_the_origin_fails_while_copying(disks: Disks) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.logs.partition_failed(NAME, OSError(5, "broken"))
    # The metadata name the target, where the replica is not yet: it must count as lost.
    assert [each[2] for each in disks.told] == [B, A]
    assert disks.manager.core(NAME) is None
    disks.time.advance(ASSIGNED_POLL_MS)
    assert disks.time.pending() == []


def test_a_deleted_partition_takes_its_move_along(disks: Disks, tmp_path: Path) -> None:
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.publish()
    disks.run()
    assert disks.logs.futures.logs == {}
    assert not [each for each in (tmp_path / "b").iterdir() if each.name.endswith("-future")]
    assert disks.time.pending() == []


def test_a_partition_that_is_deleted_after_its_origin_has_failed_takes_its_copy_along(
    disks: Disks, tmp_path: Path
) -> None:
    """Otherwise the copy would take the place of the log of a later topic of that name."""
    disks.publish(A)
    disks.append(20)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    disks.logs.partition_failed(NAME, OSError(5, "broken"))
    disks.publish()
    assert disks.logs.futures.logs == {}
    assert not [each for each in (tmp_path / "b").iterdir() if each.name.endswith("-future")]
    disks.run()
    made_anew = topic_image("t", {0: replace(partition_image(), directories=(C,))}, generation=1)
    disks.manager.on_image(disks.image, image_of(made_anew))
    disks.run()
    assert disks.core().topic_id == disks.log().topic_id == made_anew.id
    disks.append(1)
    disks.run()
    assert [each[2] for each in disks.told] == [B, A]
    assert (disks.log().log_end_offset, disks.home()) == (1, "c")


def test_refusals(disks: Disks) -> None:
    disks.publish(A)
    alter = disks.placement.alter
    assert alter(NAME, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(TopicPartition("x" * 240, 0), disks.path("b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(TopicPartition("unknown", 0), disks.path("b")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    disks.logs.cordoned = frozenset({B})
    assert alter(NAME, disks.path("b")) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    disks.logs.partition_failed(NAME, OSError(5, "broken"))
    assert alter(NAME, disks.path("c")) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_to_come_lies_where_it_was_asked_for(disks: Disks) -> None:
    elsewhere: dict[str, object] = {"replicas": (2,), "isr": (2,), "leader": 2}
    disks.publish(A, **elsewhere)
    assert disks.placement.alter(NAME, disks.path("c")) is ErrorCode.REPLICA_NOT_AVAILABLE
    disks.publish(DIRECTORY_UNASSIGNED, partition_epoch=1)
    assert disks.home() == "c"
    assert [each[2] for each in disks.told] == [C]


def test_of_very_many_directories_that_were_asked_for_the_newest_count(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of replicas that never come must not keep later ones from their directories."""
    monkeypatch.setattr(placement, "PREFERENCES_MAX", 3)
    for number in range(5):
        disks.placement.alter(TopicPartition("never", number), disks.path("b"))
    disks.placement.alter(NAME, disks.path("b"))
    disks.placement.alter(TopicPartition("never", 0), disks.path("b"))
    disks.placement.alter(NAME, disks.path("c"))
    for number in (1, 2):
        disks.placement.alter(TopicPartition("never", number), disks.path("b"))
    assert len(disks.logs.preferred) == 3
    disks.publish(DIRECTORY_UNASSIGNED)
    assert disks.home() == "c"


def a_replica(directory: Uuid, isr: tuple[int, ...], **changes: Any) -> PartitionRegistration:
    partition = partition_image(replicas=(2, NODE_ID), isr=isr, leader=2)
    return replace(partition, directories=(A, directory), **changes)


OUT_OF_THE_ISR = {
    "its directory is online": (a_replica(B, (2,)), True),
    "its directory is to be chosen": (a_replica(DIRECTORY_UNASSIGNED, (2,)), True),
    "its directory is offline": (a_replica(A, (2,)), False),
    "in the ISR": (a_replica(B, (2, NODE_ID)), False),
    "in the ISR, its directory to be chosen": (a_replica(DIRECTORY_UNASSIGNED, (2, NODE_ID)), False),
    "eligible": (a_replica(B, (2,), eligible_leader_replicas=(NODE_ID,)), False),
    "last known": (a_replica(B, (), leader=NO_LEADER, last_known_elr=(NODE_ID,)), False),
    "without a leader": (a_replica(B, (2,), leader=NO_LEADER), False),
}
"""A replica, and whether its leader may restore it from the beginning."""


@pytest.mark.parametrize("what", OUT_OF_THE_ISR)
def test_while_a_directory_is_offline_only_replicas_that_a_leader_fills_begin_empty(
    disks: Disks, what: str
) -> None:
    disks.logs.fail_directory(disks.logs.directories[0], OSError(5, "broken"))
    replica, serves = OUT_OF_THE_ISR[what]
    disks.manager.on_image(MetadataImage(), image_of(topic_image("t", {0: replica})))
    assert (disks.manager.core(NAME) is not None) == serves


@pytest.mark.parametrize("what", ["last known", "its directory is online"])
def test_a_log_that_cannot_be_opened_is_set_aside_only_where_a_leader_fills_another(
    tmp_path: Path, what: str
) -> None:
    """A replica outside the ISR because of an unclean election at this start may still have the only copy of some
    records."""
    disks = Disks(tmp_path)
    disks.publish(B)
    disks.append(3)
    disks.logs.shut_down(7)
    log_file = tmp_path / "b" / "t-0" / f"{0:020d}.log"
    log_file.rename(tmp_path / "kept")
    log_file.mkdir()
    again = Disks(tmp_path)
    replica, is_filled = OUT_OF_THE_ISR[what]
    again.manager.on_image(MetadataImage(), image_of(topic_image("t", {0: replica})))
    again.time.advance(10)
    again.run()
    assert (again.manager.core(NAME) is not None) == is_filled
    assert len([each for each in (tmp_path / "b").iterdir() if each.name.endswith("-stray")]) == is_filled


def test_very_many_small_batches_are_copied_with_the_loop_in_between(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.publish(A)
    disks.append(2 * BATCHES_AT_ONCE + 10, size=1)
    assert disks.placement.alter(NAME, disks.path("b")) is ErrorCode.NONE
    future = disks.logs.futures.logs[NAME]
    appended: list[int] = []
    copy = replica_alter_log_dirs_manager.copy_records

    def counted(*arguments: Any) -> None:
        before = future.log_end_offset
        copy(*arguments)
        appended.append(future.log_end_offset - before)

    monkeypatch.setattr(replica_alter_log_dirs_manager, "copy_records", counted)
    disks.run()
    assert appended == [BATCHES_AT_ONCE, BATCHES_AT_ONCE, 10]


def test_a_copy_of_a_tiered_log_knows_what_lies_in_the_remote_storage_from_its_beginning() -> None:
    """The directory of the current log may fail before the copy takes its place."""
    current = open_tiered(MemoryDisk())
    fill(current)
    current.note_copied_to(29)
    current.enforce_retention(LOG_NOW_MS)
    current.increment_log_start_offset(3)
    # A start that finds a copy does not know its settings.
    copy = SimpleNamespace(log=open_tiered(MemoryDisk(), SMALL))
    settling = replica_alter_log_dirs_manager.settle(copy, current, lambda: True)  # type: ignore[arg-type]
    assert "begins anew at 30" in (at_once(settling) or "")
    assert (copy.log.log_start_offset, copy.log.log_end_offset) == (3, 30)
    assert copy.log.epoch_entries == [(0, 0), (1, 20)]
