"""A load meets a disk that refuses a read, indexes that are being rebuilt, or damaged data. What passes is waited for.
Damage is left to another replica. Over real logs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandWorkers
from kafkacompat.api.offset_fetch import HANDLER as FETCH
from kafkacompat.coordinator._tests.clients import GROUP, commit
from kafkacompat.coordinator._tests.kit import NODE_ID
from kafkacompat.coordinator._tests.real_log import DIRECTORY_ID, FOLLOWER, NAME, RealWorld, broker
from kafkacompat.coordinator.loading import LOAD_RETRY_MS, READ_TRIES, RETRY_MAX_MS
from kafkacompat.coordinator.shard import DAMAGED_RETRY_MS, Shard, ShardState
from kafkacompat.ids import DIRECTORY_LOST, NO_LEADER
from kafkacompat.log._tests.memory_disk import MemoryFile
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.partition.placement import LOOK_MS, Placement
from kafkacompat.ports import WorkersBusy
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

COMMITS = 40


def passing(number: int) -> OSError:
    return OSError(number, "passes")


class KeptWorld(RealWorld):
    """A group's commits in several closed segments. `stop` and `start` are a clean restart."""

    def __init__(self, *, followed: bool = False) -> None:
        self.told: list[bytes] = []
        """The directories that the controller was told."""
        super().__init__(followed=followed)
        self.log().config = replace(self.log().config, internal_segment_bytes=1000)
        for offset in range(COMMITS):
            commit(self, offset)
            if followed:
                self.follow()
        assert len(self.kept_log.segments) > 3
        self.stop()

    def _make(self) -> Any:
        made = super()._make()
        self.placement = Placement(
            self.manager.hosted._services,
            self.manager.hosted,
            lambda topic, index, where, _: self._tell(topic, where),
        )
        return made

    def _tell(self, topic_id: bytes, directory_id: bytes) -> None:
        if topic_id == self._offsets_topic(NODE_ID).id:
            self.told.append(directory_id)

    @property
    def logs(self) -> LogManager:
        logs = self.manager.hosted._log_manager
        assert isinstance(logs, LogManager)
        return logs

    @property
    def kept_log(self) -> UnifiedLog:
        log = self.log()
        assert isinstance(log, UnifiedLog)
        return log

    def stop(self) -> None:
        self.stems = [segment.stem for segment in self.kept_log.segments]
        self.coordinator.stop()
        self.logs.shut_down(1)

    def start(self) -> Shard:
        self.coordinator = self._make()
        topics, self.image = (
            list(self.image.topics.values()),
            replace(self.image, offset=-1, topics={}, topics_by_id={}),
        )
        self.publish(topics)
        return self.shard

    @property
    def shard(self) -> Shard:
        (shard,) = self.coordinator._shards
        return shard

    def damage_index(self) -> None:
        self.disk.files[self.stems[1] + ".index"][:] = b"\xff" * 11

    def damage_data(self) -> None:
        self.disk.files[self.stems[1] + ".log"][100] ^= 1

    def mend(self) -> None:
        plan = LogUpkeep(self.logs).rebuild_indexes()
        assert plan is not None
        plan.run()
        plan.finish()

    def fail_reads(self, error: OSError, times: int | None = None) -> list[str]:
        """Reads of the second segment fail, all or the first ones. Returns the paths whose reads failed."""
        failed: list[str] = []

        def refuse(operation: str, path: str) -> OSError | None:
            if path != self.stems[1] + ".log" or operation not in ("read", "open"):
                return None
            if times is not None and len(failed) >= times:
                return None
            failed.append(path)
            return error

        self.disk.refuse = refuse
        return failed


def _no_moves() -> Any:
    raise AssertionError("nothing is moved")


def asked(world: KeptWorld) -> Any:
    """What the group's client is told."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    (group,) = world.call(FETCH, request, 9).groups
    return group.error_code or group.topics[0].partitions[0].committed_offset


def test_a_load_waits_until_damaged_indexes_are_rebuilt() -> None:
    world = KeptWorld()
    world.damage_index()
    shard = world.start()
    world.time.advance(RETRY_MAX_MS)
    assert shard.state is ShardState.LOADING
    assert asked(world) == E.COORDINATOR_LOAD_IN_PROGRESS
    world.mend()
    world.time.advance(RETRY_MAX_MS)
    assert asked(world) == COMMITS - 1
    assert world.told == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_load_waits_until_there_are_descriptors_again(number: int) -> None:
    world = KeptWorld()
    failed = world.fail_reads(passing(number))
    shard = world.start()
    world.time.advance(20 * RETRY_MAX_MS)
    assert len(failed) > READ_TRIES
    assert shard.state is ShardState.LOADING
    world.disk.refuse = None
    world.time.advance(RETRY_MAX_MS)
    assert asked(world) == COMMITS - 1


def test_a_load_that_waits_reads_less_and_less_often() -> None:
    world = KeptWorld()
    failed = world.fail_reads(passing(errno.EMFILE))
    world.start()
    world.time.advance(LOAD_RETRY_MS)
    soon = len(failed)
    world.time.advance(60_000)
    assert soon == 2
    assert len(failed) <= soon + 60_000 // RETRY_MAX_MS + 6


@pytest.mark.parametrize("cold", [False, True])
def test_an_error_of_the_disk_that_does_not_repeat_ends_no_load(cold: bool) -> None:
    world = KeptWorld()
    world.disk.cold = cold
    failed = world.fail_reads(passing(errno.EIO), times=READ_TRIES - 1)
    shard = world.start()
    assert shard.loader is not None
    shard.loader.workers = workers = HandWorkers()
    for _ in range(20 * READ_TRIES):
        world.time.advance(RETRY_MAX_MS)
        workers.run_all()
    assert len(failed) == READ_TRIES - 1
    assert asked(world) == COMMITS - 1
    assert world.logs.directories[0].online


def test_a_load_whose_reads_no_worker_takes_goes_on_later() -> None:
    world = KeptWorld()
    world.disk.cold = True
    shard = world.start()
    assert shard.loader is not None
    shard.loader.workers = workers = HandWorkers()
    for _ in range(READ_TRIES + 2):
        world.time.advance(RETRY_MAX_MS)
        workers.submitted.pop()[1].fail(WorkersBusy("10000 jobs wait"))
    assert shard.state is ShardState.LOADING
    for _ in range(20):
        world.time.advance(RETRY_MAX_MS)
        workers.run_all()
    assert asked(world) == COMMITS - 1


def test_what_nobody_expected_of_a_worker_is_reported_and_tried_again(faults: Any) -> None:
    world = KeptWorld()
    world.disk.cold = True
    shard = world.start()
    assert shard.loader is not None
    shard.loader.workers = workers = HandWorkers()
    bugs = [ValueError(str(number)) for number in range(READ_TRIES + 2)]
    for bug in bugs:
        world.time.advance(RETRY_MAX_MS)
        workers.submitted.pop()[1].fail(bug)
    assert faults.take() == [bugs[0], bugs[1], bugs[3]]
    for _ in range(20):
        world.time.advance(RETRY_MAX_MS)
        workers.run_all()
    assert asked(world) == COMMITS - 1


def damaged(world: KeptWorld) -> None:
    world.damage_data()


def unreadable(world: KeptWorld) -> None:
    world.fail_reads(OSError(errno.EIO, "a bad sector"))


def cut(world: KeptWorld) -> None:
    del world.disk.files[world.stems[1] + ".log"][150:]


def emptied(world: KeptWorld) -> None:
    """A read of it gives nothing, as a read of a log whose last records compaction has removed does."""
    del world.disk.files[world.stems[1] + ".log"][:]


@pytest.mark.parametrize("harm", [damaged, unreadable, cut, emptied])
def test_a_damaged_replica_is_handed_over_to_one_that_is_in_sync(
    harm: Callable[[KeptWorld], None], caplog: pytest.LogCaptureFixture
) -> None:
    world = KeptWorld(followed=True)
    shard = world.start()
    harm(world)
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    assert shard.state is ShardState.FAILED
    assert asked(world) == E.NOT_COORDINATOR
    assert world.told == [DIRECTORY_LOST]
    assert "another replica" in caplog.text
    assert world.logs.directories[0].online
    world.lose_and_lead_by(FOLLOWER)
    assert world.told == [DIRECTORY_LOST]  # it is not corrected
    assert shard.state is ShardState.CLOSED


def test_a_read_that_gives_nothing_below_the_logs_end_does_not_end_a_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = KeptWorld(followed=True)
    shard = world.start()
    read = MemoryFile.try_read

    def try_read(file: MemoryFile, position: int, length: int) -> bytes | None:
        of_batches = file.path.startswith(world.stems[1]) and length > 200
        return b"" if of_batches else read(file, position, length)

    monkeypatch.setattr(MemoryFile, "try_read", try_read)
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    assert shard.state is ShardState.FAILED
    assert world.told == [DIRECTORY_LOST]


@pytest.mark.parametrize("harm", [damaged, unreadable])
def test_without_another_replica_a_damaged_one_is_tried_now_and_then(
    harm: Callable[[KeptWorld], None], caplog: pytest.LogCaptureFixture
) -> None:
    world = KeptWorld()
    before = {path: bytes(content) for path, content in world.disk.files.items()}
    world.start()
    harm(world)
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    assert asked(world) == E.NOT_COORDINATOR
    assert world.told == []
    assert "no other replica" in caplog.text
    world.disk.refuse = None
    world.disk.files[world.stems[1] + ".log"][:] = before[world.stems[1] + ".log"]
    world.time.advance(DAMAGED_RETRY_MS)
    assert asked(world) == COMMITS - 1


def test_a_replica_that_could_lead_again_takes_over_at_the_next_try() -> None:
    world = KeptWorld(followed=True)
    world.damage_data()
    world.brokers = (broker(NODE_ID), broker(FOLLOWER, fenced=True))
    world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    assert world.told == []
    old, world.image = (
        world.image,
        replace(world.image, brokers={each: broker(each) for each in (NODE_ID, FOLLOWER)}),
    )
    world.manager.on_image(old, world.image)
    assert world.told == []
    world.time.advance(DAMAGED_RETRY_MS)
    assert world.told == [DIRECTORY_LOST]


def test_a_lost_replica_is_offered_again_if_nobody_else_leads() -> None:
    world = KeptWorld(followed=True)
    world.damage_data()
    world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    world.lose_and_lead_by(FOLLOWER)
    world.told.clear()
    world.lose_and_lead_by(NO_LEADER)
    assert world.told == [DIRECTORY_ID]


def test_a_lost_replica_that_can_be_read_again_may_lead_again() -> None:
    world = KeptWorld(followed=True)
    world.fail_reads(OSError(errno.EIO, "a bad sector"))
    world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    world.lose_and_lead_by(FOLLOWER)
    world.told.clear()
    world.time.advance(3 * LOOK_MS)
    assert world.told == []
    world.disk.refuse = _no_memory
    world.time.advance(LOOK_MS)
    world.disk.refuse = None
    world.time.advance(LOOK_MS)
    assert world.told == [DIRECTORY_ID]
    world.time.advance(10 * LOOK_MS)
    assert len(world.told) == 1


def _no_memory(*_: Any) -> Any:
    raise MemoryError


def test_a_lost_replica_whose_bytes_are_wrong_stays_lost() -> None:
    world = KeptWorld(followed=True)
    world.damage_data()
    world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    world.lose_and_lead_by(FOLLOWER)
    world.told.clear()
    world.time.advance(3 * LOOK_MS)
    assert world.told == []
    world.damage_data()  # the same bit again
    world.time.advance(LOOK_MS)
    assert world.told == [DIRECTORY_ID]


def test_a_log_whose_damage_is_below_its_start_by_now_is_as_good_as_any() -> None:
    world = KeptWorld(followed=True)
    world.damage_data()
    world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    world.lose_and_lead_by(FOLLOWER)
    world.told.clear()
    log = world.logs.logs[NAME]
    log.set_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(log.log_end_offset)
    world.lose_and_lead_by(FOLLOWER)
    assert world.told == [DIRECTORY_ID]


def test_records_that_no_replica_can_tell_better_are_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their CRC is right, so the other replicas have the same bytes."""
    world = KeptWorld(followed=True)
    monkeypatch.setattr("kafkacompat.coordinator.loading.walk_records", _raise_value_error)
    shard = world.start()
    world.time.advance(READ_TRIES * RETRY_MAX_MS)
    assert (shard.state, world.told) == (ShardState.FAILED, [])


def _raise_value_error(*_: Any) -> Any:
    raise ValueError("a record that no machine reads")


def test_a_lack_of_memory_while_records_are_applied_begins_the_load_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = KeptWorld()
    shard = world.start()
    before, lacking = shard.machine, [True]
    replay = type(before).replay

    def lacks(self: Any, record: Any, offset: int, producer_id: int) -> None:
        replay(self, record, offset, producer_id)
        if offset == COMMITS // 2 and lacking:
            lacking.clear()
            raise MemoryError

    monkeypatch.setattr(type(before), "replay", lacks)
    world.time.advance(0)
    assert asked(world) == E.COORDINATOR_LOAD_IN_PROGRESS
    world.time.advance(RETRY_MAX_MS)
    assert shard.machine is not before
    assert asked(world) == COMMITS - 1


def test_a_log_that_begins_later_meanwhile_is_loaded_from_there_on() -> None:
    """DeleteRecords moves the start of a log while its load waits."""
    world = KeptWorld()
    world.fail_reads(passing(errno.EMFILE))
    shard = world.start()
    world.time.advance(RETRY_MAX_MS)
    assert shard.state is ShardState.LOADING
    log = world.kept_log
    log.increment_log_start_offset(log.segments[2].base_offset)
    world.time.advance(RETRY_MAX_MS)
    assert asked(world) == COMMITS - 1
