"""Requests that wait for many partitions: the cost of one partition's move does not grow with the number of awaited
partitions."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log import log_segment
from kafkacompat.log.log_segment import LogSegment
from kafkacompat.partition._tests.kit import LedPartitions, broker_image, partition_image, topic_image
from kafkacompat.partition._tests.test_fetch import BATCH, filled, parameters, parked, rows, want
from kafkacompat.partition.delayed_operations import LOOK_US, TURN_US
from kafkacompat.partition.fetch import (
    LONG_FROM,
    LOOKED_AT_A_STEP,
    LOOKED_AT_US,
    PARTITION_US,
    READ_A_STEP,
    RECORDS_US,
    FetchReads,
)
from kafkacompat.partition.partition import Partition
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

COUNT = 60
AWAITED = [TopicPartition("t", index) for index in range(COUNT)]
LOOKS_A_MOVE = 3


class Looks:
    """Counts the checks of a leader."""

    def __init__(self, patch: pytest.MonkeyPatch, check: str) -> None:
        self.count = 0
        original = getattr(Partition, check)

        def counted(core: Partition, epoch: int) -> Any:
            self.count += 1
            return original(core, epoch)

        patch.setattr(Partition, check, counted)


def replicated() -> LedPartitions:
    partitions = {index: partition_image(replicas=(1, 2)) for index in range(COUNT)}
    world = LedPartitions(topic_image("t", partitions), brokers=[broker_image(1), broker_image(2)])
    for index in range(COUNT):
        world.produce("t", index, acks=-1)
    world.settle()
    return world


def test_an_append_to_many_looks_at_the_partition_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = replicated()
    waiting = world.manager.when_replicated(dict.fromkeys(AWAITED, 1), 1000)
    assert waiting is not None
    looks = Looks(monkeypatch, "has_led_since")
    for each in AWAITED:
        assert not waiting.done
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1)
    assert waiting.result() == dict.fromkeys(AWAITED, ErrorCode.NONE)
    assert COUNT <= looks.count <= LOOKS_A_MOVE * COUNT


def test_a_deletion_from_many_looks_at_the_partition_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = replicated()
    for each in AWAITED:
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1)
    waiting = world.manager.delete_records(dict.fromkeys(AWAITED, 1), 1000)
    looks = Looks(monkeypatch, "check_leader")
    for each in AWAITED:
        assert not waiting.done
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1, 1)
    assert waiting.result() == dict.fromkeys(AWAITED, (ErrorCode.NONE, 1))
    assert COUNT <= looks.count <= LOOKS_A_MOVE * COUNT


@pytest.mark.parametrize("has_sessions", [False, True])
@pytest.mark.parametrize("is_woken", [True, False])
def test_fetches_of_many_partitions_are_read_again_a_few_a_turn(
    has_sessions: bool, is_woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record, or one moment, ends the wait of many fetches."""
    partitions, fetches = 150, 40
    world = LedPartitions(topic_image("t", partitions))
    for each in range(partitions):
        world.manager.core(("t", each))
    asked = [want(world, each) for each in range(partitions)]
    waiting = [
        parked(world, *asked, session_epoch=0 if has_sessions else -1, max_wait_ms=1_000)
        for _ in range(fetches)
    ]
    read: list[int] = []
    original = FetchReads._read

    def counted(*arguments: Any) -> Any:
        read.append(1)
        return original(*arguments)

    monkeypatch.setattr(FetchReads, "_read", counted)
    if is_woken:
        world.produce("t", 7)
    else:
        world.time.ms += 1_000
        world.time.step()
    most = TURN_US // PARTITION_US + partitions
    while not all(each.done for each in waiting):
        assert len(read) <= most
        read.clear()
        assert world.time.step()
    for answered in waiting:
        found = [row.partition_index for row in rows(answered.result()) if row.records]
        assert found == ([7] if is_woken else [])


@pytest.mark.parametrize("partitions", [LONG_FROM, LONG_FROM + 100])
@pytest.mark.parametrize("is_woken", [True, False])
def test_fetches_of_idle_sessions_are_looked_at_a_few_a_turn(partitions: int, is_woken: bool) -> None:
    """Nearly all of their partitions have nothing to tell, but the right to each is looked at."""
    fetches = 60
    world = LedPartitions(topic_image("t", partitions))
    for each in range(partitions):
        world.manager.core(("t", each))
    world.settle()
    tasks = Tasks(world.time)
    looked_at: list[str | None] = []

    def may_read(topic: str | None) -> bool:
        looked_at.append(topic)
        return True

    def begun(session_id: int, *named: Any, **options: Any) -> Deferred[FetchResponse]:
        asked = parameters(may_read=may_read, session_id=session_id, **options)
        answer = world.engine.fetch(asked, named, ())
        if isinstance(answer, FetchResponse):
            return Deferred.of(answer)
        return answer if isinstance(answer, Deferred) else tasks.run("a long fetch", answer)

    asked = [want(world, each) for each in range(partitions)]
    sessions = [begun(0, *asked, session_epoch=0, max_wait_ms=0) for _ in range(fetches)]
    world.settle()
    waiting = [begun(each.result().session_id, session_epoch=1, max_wait_ms=1_000) for each in sessions]
    world.settle()
    assert len(world.engine.purgatory) == fetches
    looked_at.clear()
    if is_woken:
        world.produce("t", 7)
    else:
        world.time.ms += 1_000
        world.time.step()
    most = TURN_US // LOOKED_AT_US + partitions
    if partitions > LONG_FROM:
        most = (TURN_US // LOOKED_AT_A_STEP + 1) * READ_A_STEP
    while True:
        assert len(looked_at) <= most
        if all(each.done for each in waiting):
            break
        looked_at.clear()
        assert world.time.step()
    for answered in waiting:
        assert [row.partition_index for row in rows(answered.result())] == ([7] if is_woken else [])


def test_an_append_to_many_partitions_looks_at_a_few_of_those_who_wait_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fetches ask for more bytes than there are, so each of them is looked at for each partition."""
    partitions, fetches = 60, 50
    world = filled(partitions)
    world.settle()
    asked = [want(world, each, offset=1) for each in range(partitions)]
    waiting = [parked(world, *asked, min_bytes=1 << 20, max_wait_ms=60_000) for _ in range(fetches)]
    looks: list[int] = []
    original = FetchReads.available

    def counted(*arguments: Any) -> Any:
        looks.append(1)
        return original(*arguments)

    monkeypatch.setattr(FetchReads, "available", counted)
    world.manager.hold_wakeups()
    for each in range(partitions):
        world.produce("t", each)
    world.manager.release_wakeups()
    most = TURN_US // LOOK_US + 1
    count = 0
    while True:
        assert len(looks) <= most
        count += len(looks)
        looks.clear()
        if not world.time.step():
            break
    assert count == partitions * fetches
    assert not any(each.done for each in waiting)
    assert {each.total for each in world.engine.purgatory.consumers.all()} == {partitions * BATCH}


def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each place in a log that is found by reading the log."""
    found: list[int] = []
    original = LogSegment._scan

    def counted(segment: LogSegment, offset: int, *place: int) -> tuple[int, int] | None:
        found.append(offset)
        return original(segment, offset, *place)

    monkeypatch.setattr(LogSegment, "_scan", counted)
    return found


def test_a_look_at_a_fetch_that_is_far_behind_counts_only_what_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_segment, "TAIL_BATCHES", 4)
    world = LedPartitions(topic_image("t"))
    for _ in range(20):
        world.produce()
    world.settle()
    waiting = [parked(world, want(world, offset=1), min_bytes=30 * BATCH) for _ in range(5)]
    scanned = scans(monkeypatch)
    for _ in range(10):
        world.produce()
        world.settle()
    assert scanned == []
    assert not any(each.done for each in waiting)
    assert {each.total for each in world.engine.purgatory.consumers.all()} == {29 * BATCH}
    world.produce()
    world.settle()
    assert all(each.done for each in waiting)


def test_answers_with_records_from_far_behind_are_a_few_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segment, "TAIL_BATCHES", 4)
    world = LedPartitions(topic_image("t"))
    for _ in range(20):
        world.produce()
    world.settle()
    waiting = [parked(world, want(world, offset=1), min_bytes=1 << 20, max_wait_ms=1_000) for _ in range(300)]
    scanned = scans(monkeypatch)
    world.time.ms += 1_000
    most = TURN_US // RECORDS_US + 1
    while not all(each.done for each in waiting):
        scanned.clear()
        assert world.time.step()
        assert len(scanned) <= most
    assert all(row.records for each in waiting for row in rows(each.result()))


def test_a_fetch_that_waits_alone_is_answered_before_the_append_returns() -> None:
    world = LedPartitions(topic_image("t"))
    for offset in range(50):
        waiting = parked(world, want(world, offset=offset))
        world.produce()
        assert waiting.done
        assert len(world.time.pending()) <= 1, "only the timer of the deadlines"
