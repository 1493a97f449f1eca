"""A large new topic: its logs are opened gradually, a worker creates their files, and requests need not wait."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from types import CoroutineType

import pytest

from conftest import Faults
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.log._tests.disks import refusing
from kafkacompat.partition._tests.kit import LedPartitions, image_of, partition_image, topic_image
from kafkacompat.partition._tests.test_fetch import parameters, want
from kafkacompat.partition.fetch import LONG_FROM, OPENED_A_STEP, READ_A_STEP
from kafkacompat.partition.hosted_partitions import (
    OPENED_A_SLICE,
    OPENED_AT_ONCE_MAX,
    RETRY_INTERVAL_MS,
    SLICE_INTERVAL_MS,
)
from kafkacompat.ports import WorkersBusy
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode

COUNT = OPENED_AT_ONCE_MAX + 3 * OPENED_A_SLICE
TURNS = 100
"""Enough for all tests."""
LAST = TopicPartition("t", COUNT - 1)
OPENED_MS, OPENED_MS_MAX = 1, 10
"""Of one log on a slow disk, and of all logs of one step."""


def large(count: int = COUNT, epoch: int = 0) -> MetadataImage:
    return image_of(topic_image("t", {index: partition_image(epoch=epoch) for index in range(count)}))


def opened(world: LedPartitions) -> int:
    return len(world.log_manager.logs)


def go_on(world: LedPartitions) -> None:
    """Run workers and timers until nothing is left to do."""
    for _ in range(TURNS):
        world.time.advance(RETRY_INTERVAL_MS)
        world.workers.run()


def test_a_large_topic_opens_its_logs_bit_by_bit() -> None:
    world = LedPartitions()
    world.publish(large())
    assert opened(world) == OPENED_AT_ONCE_MAX
    world.time.advance(SLICE_INTERVAL_MS)
    assert opened(world) == OPENED_AT_ONCE_MAX
    for slices in range(1, 4):
        world.workers.run()
        assert opened(world) == OPENED_AT_ONCE_MAX + slices * OPENED_A_SLICE
    world.settle()
    assert world.time.pending() == []
    assert len(world.log_manager.placed) == 3 * OPENED_A_SLICE
    assert all(world.log_manager.asked_as_new.values())
    assert world.produce("t", COUNT - 1).error is ErrorCode.NONE
    world.publish(large(COUNT + 40))
    go_on(world)
    assert opened(world) == COUNT + 40


def test_a_topic_of_coordinators_opens_its_logs_bit_by_bit_or_when_one_is_asked_for() -> None:
    world = LedPartitions()
    world.publish(image_of(topic_image(OFFSETS_TOPIC, {each: partition_image() for each in range(50)})))
    assert opened(world) * OPENED_MS <= OPENED_MS_MAX
    before = opened(world)
    assert world.manager.core((OFFSETS_TOPIC, 49)) is not None
    assert opened(world) == before + 1


def test_what_a_stop_cut_short_goes_on_after_the_start() -> None:
    world = LedPartitions()
    there = [TopicPartition("t", index) for index in range(OPENED_A_SLICE)]
    image = large(COUNT + OPENED_A_SLICE)
    topic_id = image.topics["t"].id
    for name in there:
        world.log_manager.get_or_create(name, topic_id, LogConfig(), is_new=True)
    world.manager.on_image(MetadataImage(), image)
    assert opened(world) == OPENED_A_SLICE + OPENED_AT_ONCE_MAX
    assert not any(world.log_manager.asked_as_new[name] for name in there)
    go_on(world)
    assert opened(world) == COUNT + OPENED_A_SLICE


def test_a_partition_that_is_asked_for_is_opened_at_once() -> None:
    world = LedPartitions()
    world.publish(large())
    assert world.produce(*LAST).error is ErrorCode.NONE
    assert world.manager.core_by_id(world.image.topics["t"].id, COUNT - 2) is not None
    assert opened(world) == OPENED_AT_ONCE_MAX + 2
    assert world.log_manager.placed == []
    go_on(world)
    assert opened(world) == COUNT
    assert world.log_manager.discarded == []


def carried_out(world: LedPartitions, answering: object, count: Callable[[], int]) -> int:
    """Carry a fetch out. Return how much more there is of what is counted after one of its steps, at most."""
    assert isinstance(answering, CoroutineType)
    before, most = count(), 0
    answer = Tasks(world.time).run("a fetch", answering)
    while True:
        most = max(most, count() - before)
        if answer.done:
            return most
        before = count()
        world.time.fire_next()


def test_a_fetch_of_many_new_partitions_opens_a_few_in_each_step() -> None:
    world = LedPartitions()
    count = OPENED_AT_ONCE_MAX + 5 * OPENED_A_STEP
    world.publish(large(count))
    answering = world.engine.fetch(parameters(max_wait_ms=0), [want(world, at) for at in range(count)], ())
    assert carried_out(world, answering, lambda: opened(world)) <= OPENED_A_STEP
    assert opened(world) == count


def test_a_fetch_of_a_topic_made_anew_opens_a_few_logs_in_each_step() -> None:
    """Its partitions are as empty as those that the session has been told of."""
    world = LedPartitions()
    count = OPENED_AT_ONCE_MAX + 5 * OPENED_A_STEP
    by_name = {"uses_topic_ids": False, "version": 12, "max_wait_ms": 0, "session_id": 1}
    world.publish(large(count))
    go_on(world)
    assert opened(world) == count
    full = parameters(**{**by_name, "session_id": 0, "session_epoch": 0})
    world.engine.fetch(full, [want(world, at) for at in range(count)], ())
    world.publish(image_of())
    anew = large(count).topics["t"]
    world.publish(image_of(replace(anew, id=b"n" * 16)))
    again = world.engine.fetch(parameters(**by_name, session_epoch=1), [], ())
    assert carried_out(world, again, lambda: opened(world)) <= OPENED_A_STEP


def test_the_right_to_idle_partitions_of_a_session_is_asked_for_in_steps() -> None:
    world = LedPartitions()
    count = LONG_FROM + 100
    world.publish(large(count))
    for at in range(count):
        world.manager.core(("t", at))
    world.settle()
    asked: list[str | None] = []

    def may_read(name: str | None) -> bool:
        asked.append(name)
        return True

    options = {"max_wait_ms": 0, "may_read": may_read}
    full = parameters(**options, session_epoch=0)
    carried_out(world, world.engine.fetch(full, [want(world, at) for at in range(count)], ()), lambda: 0)
    again = world.engine.fetch(parameters(**options, session_id=1, session_epoch=1), [], ())
    asked.clear()
    assert carried_out(world, again, lambda: len(asked)) <= READ_A_STEP
    assert len(asked) >= count


def test_what_is_asked_for_while_a_worker_makes_its_files_keeps_its_own() -> None:
    world = LedPartitions()
    world.publish(large())
    world.time.advance(SLICE_INTERVAL_MS)
    next_one = TopicPartition("t", OPENED_AT_ONCE_MAX)
    assert world.produce(*next_one).error is ErrorCode.NONE
    log = world.log_manager.logs[next_one]
    go_on(world)
    assert world.log_manager.logs[next_one] is log
    assert world.log_manager.discarded == [next_one]
    assert opened(world) == COUNT


def test_an_awaited_partition_that_is_deleted_never_comes() -> None:
    world = LedPartitions()
    world.publish(large())
    world.time.advance(SLICE_INTERVAL_MS)
    world.publish(image_of())
    go_on(world)
    assert opened(world) == 0
    assert world.manager.leader_error(LAST) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(world.log_manager.discarded) == OPENED_A_SLICE


def test_files_made_for_a_deleted_topic_are_not_those_of_the_next_one_of_its_name() -> None:
    world = LedPartitions()
    first = large()
    world.publish(first)
    world.time.advance(SLICE_INTERVAL_MS)
    world.publish(image_of())
    (topic,) = large().topics.values()
    renewed = topic_image("t", topic.partitions, generation=1)
    world.publish(image_of(renewed))
    go_on(world)
    assert len(world.log_manager.discarded) == OPENED_A_SLICE
    assert opened(world) == COUNT
    assert {log.topic_id for log in world.log_manager.logs.values()} == {renewed.id}


def test_a_newer_image_of_a_waiting_partition_holds() -> None:
    world = LedPartitions()
    world.publish(large())
    world.time.advance(SLICE_INTERVAL_MS)
    world.publish(large(epoch=7))
    go_on(world)
    assert opened(world) == COUNT
    core = world.manager.core(LAST)
    assert core is not None
    assert core.leader_epoch == 7


def test_what_cannot_be_placed_is_made_by_whoever_opens_it() -> None:
    world = LedPartitions()
    world.publish(large())
    world.disk.refuse = refusing("rename", "/data/a/t-", errno.ENOSPC)
    go_on(world)
    assert opened(world) == COUNT
    assert world.log_manager.placed == []
    assert len(world.log_manager.discarded) == COUNT - OPENED_AT_ONCE_MAX


def test_without_a_directory_what_waits_is_a_storage_error() -> None:
    world = LedPartitions()
    world.publish(large())
    world.log_manager.fail_directory(world.log_manager.directories[0], OSError(errno.EIO, "broken"))
    go_on(world)
    assert opened(world) == 0
    assert world.log_manager.placed == []
    assert world.produce(*LAST).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("problem", "is_a_bug"), [(WorkersBusy("64 wait"), False), (KeyError("a bug"), True)]
)
def test_without_a_free_worker_it_is_tried_again(
    problem: Exception,
    is_a_bug: bool,
    monkeypatch: pytest.MonkeyPatch,
    faults: Faults,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = LedPartitions()
    world.publish(large())

    def busy(function: object) -> Deferred[None]:
        answer: Deferred[None] = Deferred()
        answer.fail(problem)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(world.workers, "submit", busy)
        world.time.advance(3 * RETRY_INTERVAL_MS)
        assert opened(world) == OPENED_AT_ONCE_MAX
        assert world.produce(*LAST).error is ErrorCode.NONE
    faults.take()  # the syncs of the opened logs meet it too
    assert ("making the files of new partitions failed" in caplog.text) is is_a_bug
    go_on(world)
    assert opened(world) == COUNT


def test_after_the_stop_nothing_is_opened() -> None:
    world = LedPartitions()
    world.publish(large())
    world.time.advance(SLICE_INTERVAL_MS)
    world.log_manager.closed = True
    go_on(world)
    assert opened(world) == OPENED_AT_ONCE_MAX
    assert world.log_manager.placed == []


def spoken_of(*, directories: int = 1) -> LedPartitions:
    """The checkpoints still have entries of the deleted t-0."""
    world = LedPartitions(topic_image("t"), directories=directories)
    world.log_manager.on_stale = lambda: None
    assert world.produce().error is ErrorCode.NONE
    world.log_manager.checkpoint_now()
    world.publish(image_of())
    return world


def test_a_name_that_checkpoints_speak_of_is_free_once_they_are_written_anew() -> None:
    world = spoken_of()
    world.publish(image_of(topic_image("t", 2, generation=1)))
    world.settle()
    assert list(world.log_manager.logs) == [TopicPartition("t", 1)]
    assert world.produce("t", 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.produce("t", 1).error is ErrorCode.NONE
    world.disk.failing = "checkpoint"
    for _ in range(3):
        world.time.advance(RETRY_INTERVAL_MS)
        world.workers.run()
        assert opened(world) == 1
    world.disk.failing = None
    go_on(world)
    assert opened(world) == 2
    assert world.produce("t", 0).base_offset == 0


def test_a_replica_that_begins_empty_waits_for_its_name_as_well() -> None:
    """The replica was here before, was moved away, and comes back. This node learns that from its first image."""
    world = spoken_of(directories=2)
    world.log_manager.fail_directory(world.log_manager.directories[1], OSError(errno.EIO, "broken"))
    world.manager.hosted.placing = BeginsEmpty()  # type: ignore[assignment]
    world.manager.on_image(MetadataImage(), image_of(topic_image("t", generation=1)))
    assert opened(world) == 0
    go_on(world)
    assert opened(world) == 1


class BeginsEmpty:
    def recover(self, image: MetadataImage) -> None:
        """Nothing to rename."""

    def may_begin_empty(self, image: object) -> bool:
        return True

    def role_taken(self, core: object, image: object) -> None:
        """The log is in the right directory."""
