"""ListOffsets by time while the partition, its log or the client changes."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Faults
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import batch_of, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.lookup import TimestampLookup
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition import list_offsets
from kafkacompat.partition._tests.kit import (
    LedPartitions,
    failing,
    partition_image,
    topic_image,
    with_partitions,
)
from kafkacompat.partition.list_offsets import JOBS_MAX, SEARCHES_AT_ONCE, TRIES_MAX
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import LogRefused, WorkersBusy
from kafkacompat.records import compression
from kafkacompat.records.batch import BatchCorrupt, build_batch, trusted_batch
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode

T0 = TopicPartition("t", 0)


def world_with(partitions: int = 1, records: int = 3) -> LedPartitions:
    world = LedPartitions(topic_image("t", {at: partition_image(epoch=3) for at in range(partitions)}))
    for at in range(partitions):
        for _ in range(records):
            world.produce(partition=at)
    return world


def ask(
    world: LedPartitions,
    partition: int = 0,
    *,
    epoch: int = -1,
    timestamp_ms: int = 0,
    connection_id: int = -1,
) -> Deferred[OffsetLookup]:
    name = TopicPartition("t", partition)
    asked = world.manager.list_offset(name, timestamp_ms, False, epoch, -1, connection_id)
    assert isinstance(asked, Deferred)
    return asked


def test_the_log_is_searched_by_a_worker() -> None:
    world = world_with()
    touched: list[str] = []
    world.disk.refuse = lambda operation, path: touched.append(path)
    asked = ask(world)
    assert not asked.done
    assert touched == []
    world.workers.run()
    assert touched
    assert asked.result() == OffsetLookup(ErrorCode.NONE, world.time.now_ms(), 0, 3)


@pytest.mark.parametrize(("named", "code"), [(3, ErrorCode.FENCED_LEADER_EPOCH), (-1, ErrorCode.NONE)])
def test_a_new_leader_epoch_in_between(named: int, code: ErrorCode) -> None:
    """A client that named the epoch gets an error for the new one. Another client gets the result of a search in the
    new epoch."""
    world = world_with()
    asked = ask(world, epoch=named)
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=4)}))
    world.workers.run()
    if code is ErrorCode.NONE:
        assert not asked.done, "it is searched again"
    assert world.found(asked).error is code


@pytest.mark.parametrize(("replica_id", "end"), [(-1, 0), (0, 1)])
def test_a_replica_is_told_the_end_of_the_log_and_a_consumer_what_is_committed(
    replica_id: int, end: int
) -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 0))}))
    world.produce()
    found = world.manager.list_offset(T0, -1, False, -1, replica_id)
    assert isinstance(found, OffsetLookup)
    assert (found.error, found.offset) == (ErrorCode.NONE, end)
    of_time = world.found(world.manager.list_offset(T0, 0, False, -1, replica_id))
    assert (of_time.error, of_time.offset) == (ErrorCode.NONE, end - 1)


def test_another_leader_in_between() -> None:
    world = world_with()
    asked = ask(world)
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), leader=2, epoch=4)}))
    world.workers.run()
    assert asked.result().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_topic_deleted_in_between() -> None:
    world = world_with()
    asked = ask(world)
    world.publish(type(world.image)(offset=world.image.offset + 1))
    world.workers.run()
    assert asked.result().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_changed_under_the_search_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with()
    tries: list[TimestampLookup] = []

    def finish(log: UnifiedLog, lookup: TimestampLookup) -> bool:
        tries.append(lookup)
        return len(tries) == 3

    monkeypatch.setattr(UnifiedLog, "finish_lookup", finish)
    assert world.found(ask(world)).offset == 0
    assert len(tries) == 3


def test_a_log_that_never_stands_still_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with()
    tries: list[TimestampLookup] = []
    monkeypatch.setattr(UnifiedLog, "finish_lookup", lambda log, lookup: tries.append(lookup))
    assert world.found(ask(world)).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert len(tries) == TRIES_MAX


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (LogRefused(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (OSError(24, "too many open files"), ErrorCode.KAFKA_STORAGE_ERROR),
        (BatchCorrupt("a batch with the length -7"), ErrorCode.CORRUPT_MESSAGE),
        (MemoryError(), ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
)
@pytest.mark.parametrize("method", ["begin_lookup", "finish_lookup"])
def test_a_search_that_fails_leaves_no_other_without_an_answer(
    method: str, problem: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with(partitions=3)
    monkeypatch.setattr(UnifiedLog, method, failing(world.log(partition=1), method, problem))
    asked = [ask(world, at) for at in range(3)]
    for _ in range(3):
        world.workers.run()
    assert [each.result().error for each in asked] == [ErrorCode.NONE, code, ErrorCode.NONE]


@pytest.mark.parametrize("method", ["begin_lookup", "finish_lookup"])
def test_a_bug_in_one_search_leaves_no_other_without_an_answer(
    method: str, monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    world = world_with(partitions=3)
    monkeypatch.setattr(UnifiedLog, method, failing(world.log(partition=1), method, KeyError("a bug")))
    asked = [ask(world, at) for at in range(3)]
    for _ in range(3):
        world.workers.run()
    codes = [each.result().error for each in asked]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert len(faults.take()) == 1


@pytest.mark.parametrize("name", ["refusal", "answer_found"])
@pytest.mark.parametrize("work", [list_offsets.USUAL_WORK, -1])
def test_a_bug_in_an_answer_ends_no_search_of_others(
    name: str, work: int, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    """`work` -1: every search is a long one."""
    monkeypatch.setattr(list_offsets, "USUAL_WORK", work)
    world = world_with()
    asked = [ask(world) for _ in range(JOBS_MAX)]
    with monkeypatch.context() as patch:
        patch.setattr(list_offsets, name, lambda *_: 1 // 0)
        while world.workers.submitted:
            world.workers.run()
    assert {each.result().error for each in asked} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(faults.take()) == JOBS_MAX
    assert world.found(ask(world)).error is ErrorCode.NONE


def test_a_bug_in_a_job_ends_no_search_of_others(faults: Faults) -> None:
    world = world_with()
    asked = ask(world)
    bug = KeyError("a bug")
    world.workers.submitted.pop()[1].fail(bug)
    assert asked.result().error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert faults.take() == [bug]
    assert world.found(ask(world)).error is ErrorCode.NONE


def test_another_log_in_its_place() -> None:
    """The log has moved to another directory meanwhile."""
    world = world_with()
    asked = ask(world)
    log = world.manager.by_name[T0].log = open_log(MemoryDisk())
    for _ in range(3):
        log.append_as_leader(batch_of([b"value"]), 3, 0)
    log.set_high_watermark(3)
    log.increment_log_start_offset(2)
    assert world.found(asked).offset == 2


def test_few_jobs_at_once_each_of_several_searches() -> None:
    world = world_with(partitions=3 * SEARCHES_AT_ONCE * JOBS_MAX, records=1)
    asked = [ask(world, at) for at in range(3 * SEARCHES_AT_ONCE * JOBS_MAX)]
    jobs = 0
    while not all(one.done for one in asked):
        assert 0 < len(world.workers.submitted) <= JOBS_MAX
        jobs += len(world.workers.submitted)
        world.workers.run()
    assert {one.result().error for one in asked} == {ErrorCode.NONE}
    assert jobs < len(asked) / 4


def test_connections_take_turns() -> None:
    world = world_with()
    many = [ask(world, connection_id=1) for _ in range(20 * SEARCHES_AT_ONCE)]
    few = [ask(world, connection_id=each) for each in (2, 2, 3)]
    world.workers.run()  # the searches that began at once
    world.workers.run()
    assert all(each.done for each in few)
    assert sum(each.done for each in many) <= 4 * SEARCHES_AT_ONCE
    while not all(each.done for each in many):
        world.workers.run()
    assert {each.result().offset for each in [*many, *few]} == {0}


def test_a_long_search_is_done_in_pieces_and_others_do_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_offsets, "USUAL_WORK", 10_000)
    world = world_with(partitions=2, records=1)
    count = 60_000
    now_ms = world.time.now_ms()
    records = [Record(at, now_ms + at // (count - 1), None, b"x") for at in range(count)]
    batch = build_batch(records, compression=compression.ZSTD)
    log = world.log()
    log.append_as_leader(trusted_batch(batch), 3, now_ms)
    log.set_high_watermark(count + 1)
    long = [ask(world, timestamp_ms=now_ms + 1, connection_id=each) for each in range(8)]
    world.workers.run()
    usual = [ask(world, 1, connection_id=0), ask(world, 1, connection_id=9)]
    while not all(each.done for each in usual):
        # Long searches take turns. One of them has its body in memory.
        assert len(world.workers.submitted) <= JOBS_MAX + 1
        assert not all(each.done for each in long)
        world.workers.run()
    assert sum(each.done for each in long) == 0
    jobs = 0
    while not all(each.done for each in long):
        assert len(world.workers.submitted) == 1
        jobs += 1
        world.workers.run()
    for each in long:
        assert each.result() == OffsetLookup(ErrorCode.NONE, now_ms + 1, count, 3)
    assert jobs > 8 * (count // list_offsets.PIECE_WORK)


def test_more_than_may_wait_are_refused_and_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "SEARCHES_MAX", 4)
    world = world_with()
    asked = [ask(world) for _ in range(5)]
    assert asked[4].result().error is ErrorCode.OFFSET_NOT_AVAILABLE
    while not all(one.done for one in asked):
        world.workers.run()
    assert {one.result().error for one in asked[:4]} == {ErrorCode.NONE}
    assert world.found(ask(world)).error is ErrorCode.NONE


def test_what_nobody_waits_for_is_not_searched() -> None:
    world = world_with()
    running = [ask(world) for _ in range(JOBS_MAX)]
    waiting = ask(world)
    waiting.abandon()
    running[0].abandon()
    while world.workers.submitted:
        world.workers.run()
    assert not waiting.done
    assert not running[0].done
    assert running[1].done
    assert world.manager._searches._unanswered == 0


def test_a_worker_that_cannot_be_had() -> None:
    world = world_with()
    asked = ask(world)
    _, answer = world.workers.submitted.pop()
    answer.fail(WorkersBusy("busy"))
    assert asked.result().error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert world.found(ask(world)).error is ErrorCode.NONE


def test_the_callback_that_reports_room_may_end_requests_and_answer_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All within the callback that reports room: other requests leave, and new ones are answered at once."""
    monkeypatch.setattr(list_offsets, "SEARCHES_PACED", 1)
    world = world_with()
    asked = ask(world)
    searching = world.manager._searches
    rooms = [searching.room() for _ in range(4)]
    first, second, third, fourth = [room for room in rooms if room is not None]
    refused: list[OffsetLookup] = []

    def again(_: Deferred[None]) -> None:
        second.abandon()
        searching._unanswered += 1
        searching._done_with_one()  # as for a search that is answered at once
        refused.append(OffsetLookup(ErrorCode.NONE))

    first.on_done(again)
    world.workers.run()
    assert asked.done
    assert refused
    assert all(room.done for room in (first, second, third, fourth))
    assert not searching._rooms


@pytest.mark.parametrize("work", [list_offsets.USUAL_WORK, -1])
def test_workers_that_take_no_job_leave_nobody_without_an_answer(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of others fill the queue, while very many searches wait. `work` -1: every search is a long one."""
    monkeypatch.setattr(list_offsets, "USUAL_WORK", work)
    world = world_with()
    asked = [ask(world) for _ in range(SEARCHES_AT_ONCE * 2_000)]
    busy: Deferred[Any] = Deferred()
    busy.fail(WorkersBusy("10000 jobs wait"))
    with monkeypatch.context() as patched:
        patched.setattr(world.workers, "submit", lambda _: busy)
        world.workers.run()
    assert {each.result().error for each in asked if each.done} == {
        ErrorCode.OFFSET_NOT_AVAILABLE,
        *([ErrorCode.NONE] if work > 0 else []),
    }
    assert all(each.done for each in asked)
    assert world.manager._searches._unanswered == 0
    assert world.found(ask(world)).error is ErrorCode.NONE
