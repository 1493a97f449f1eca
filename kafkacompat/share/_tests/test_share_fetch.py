"""Share fetches over real logs: what is acquired, when a fetch waits, and what ends its wait."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from conftest import Faults
from kafkacompat.deferred import Deferred
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.kit import partition_image, topic_image, with_partitions
from kafkacompat.partition.delayed_operations import ANSWER_US, TURN_US
from kafkacompat.ports import WorkersBusy
from kafkacompat.share._tests.kit import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    ShareLeader,
    acquired,
    codes,
    offsets_sent,
    rows,
    taken,
)
from kafkacompat.share.delayed_share_fetch import (
    ACQUIRED_AT_ONCE,
    COUNTED_US,
    PARTITION_US,
    READ_WORK,
    WORK_US,
    DelayedShareFetch,
)
from kafkacompat.share.in_flight import InFlightBatch, InFlightRecords
from kafkacompat.share.service import ShareError
from kafkacompat.share.share_partition import SharePartition
from kafkacompat.share.share_partition_cache import GroupFetchMeter, LedPartition, SharePartitionCache
from kafkacompat.share.share_partition_manager import RELEASED_AT_ONCE
from kafkacompat.share.transitions import StateBatches
from kafkacompat.wire.errors import ErrorCode


def filled(batches: int = 1, records: int = 1, partition: int = 0, **overrides: str) -> ShareLeader:
    world = ShareLeader(**overrides)
    for _ in range(batches):
        world.produce("t", partition, *([b"value"] * records))
    return world


def test_a_first_fetch_acquires_what_the_log_has() -> None:
    world = filled(batches=3, records=2)
    response = world.fetched(partitions=[0])
    assert taken(response) == {0: [(0, 5, 1)]}
    assert offsets_sent(rows(response)[0]) == [0, 1, 2, 3, 4, 5]
    assert response.acquisition_lock_timeout_ms == 30_000


def test_what_one_member_holds_another_does_not_get() -> None:
    world = filled()
    assert taken(world.fetched("a", partitions=[0])) == {0: [(0, 0, 1)]}
    answer = world.parked("b", partitions=[0])
    world.time.advance(500)
    assert taken(answer.result()) == {}


def test_groups_do_not_know_of_each_other() -> None:
    world = filled()
    world.configure("other", share_auto_offset_reset="earliest")
    assert taken(world.fetched("a", partitions=[0])) == {0: [(0, 0, 1)]}
    assert taken(world.fetched("a", partitions=[0], group="other", connection=9)) == {0: [(0, 0, 1)]}


def test_a_group_without_offset_begins_at_the_end_by_default() -> None:
    world = filled(share_auto_offset_reset="latest")
    answer = world.parked(partitions=[0])
    world.produce("t", 0)
    assert taken(answer.result()) == {0: [(1, 1, 1)]}


def test_a_group_may_begin_some_time_ago() -> None:
    world = ShareLeader(share_auto_offset_reset="by_duration:PT1H")
    world.produce()
    world.time.advance(2 * 3_600_000)
    world.produce()
    answer = world.parked(partitions=[0])
    world.workers.run_all()
    assert taken(answer.result()) == {0: [(1, 1, 1)]}


def test_without_a_record_since_then_the_group_cannot_begin() -> None:
    world = ShareLeader(share_auto_offset_reset="by_duration:PT1H")
    answer = world.parked(partitions=[0])
    world.workers.run_all()
    world.time.advance(500)
    assert codes(answer.result()) == {0: ErrorCode.OFFSET_NOT_AVAILABLE}


def test_a_fetch_waits_for_records() -> None:
    world = ShareLeader()
    answer = world.parked(partitions=[0, 1])
    world.produce("t", 1)
    assert taken(answer.result()) == {1: [(0, 0, 1)]}


def test_a_fetch_waits_for_min_bytes() -> None:
    world = filled()
    answer = world.parked(partitions=[0], min_bytes=100)
    world.produce()
    assert taken(answer.result()) == {0: [(0, 1, 1)]}


def test_a_fetch_with_less_than_min_bytes_takes_what_there_is_in_the_end() -> None:
    world = filled()
    answer = world.parked(partitions=[0], min_bytes=1000)
    world.time.advance(500)
    assert taken(answer.result()) == {0: [(0, 0, 1)]}


def test_released_records_wake_others() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    answer = world.parked("b", partitions=[0])
    world.acknowledged("a", 1, {0: [(0, 0, RELEASE)]})
    assert taken(answer.result()) == {0: [(0, 0, 2)]}


def test_locks_that_run_out_wake_others() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    answer = world.parked("b", partitions=[0], max_wait_ms=60_000)
    world.time.advance(29_999)
    assert not answer.done
    world.time.advance(1)
    assert taken(answer.result()) == {0: [(0, 0, 2)]}


def test_a_renewed_lock_lasts_longer() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.time.advance(20_000)
    world.acknowledged("a", 1, {0: [(0, 0, RENEW)]}, is_renew=True)
    answer = world.parked("b", partitions=[0], max_wait_ms=60_000)
    world.time.advance(29_999)
    assert not answer.done
    world.time.advance(1)
    assert taken(answer.result()) == {0: [(0, 0, 2)]}


def test_a_member_that_leaves_releases_what_it_holds() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    answer = world.parked("b", partitions=[0])
    world.acknowledged("a", -1)
    assert taken(answer.result()) == {0: [(0, 0, 2)]}


def test_a_lost_connection_releases_what_its_member_holds() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    answer = world.parked("b", partitions=[0])
    world.disconnect("a")
    assert taken(answer.result()) == {0: [(0, 0, 2)]}
    assert len(world.shares.sessions) == 1


@pytest.mark.parametrize("method", ["looks", "drop_group"])
def test_a_bug_in_one_release_ends_no_other(
    method: str, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    world = ShareLeader(topic_image("t", 2))
    world.produce("t", 0)
    world.produce("t", 1)
    world.fetched("a", partitions=[0])
    owner = LedPartition if method == "looks" else SharePartitionCache
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, lambda *_: 1 // 0)
        world.disconnect("a")
    assert len(faults.take()) == 1
    world.fetched("b", partitions=[1])
    answer = world.parked("c", partitions=[1])
    world.disconnect("b")
    assert taken(answer.result()) == {1: [(0, 0, 2)]}


def test_a_member_that_comes_back_at_once_keeps_what_it_gets_then() -> None:
    """What a session of many partitions held is released in several turns of the loop. The member opens another session
    meanwhile."""
    last = 3 * RELEASED_AT_ONCE
    world = ShareLeader(topic_image("t", last + 1))
    world.fetched("b", partitions=[last], max_wait_ms=0)
    world.produce("t", last)
    assert taken(world.fetched("a", partitions=range(last + 1))) == {last: [(0, 0, 1)]}
    world.produce("t", last)
    world.disconnect("a")
    assert taken(world.fetched("a", partitions=[last], connection=7)) == {last: [(0, 0, 2), (1, 1, 1)]}
    answer = world.parked("b", epoch=1)
    world.settle()
    assert not answer.done
    assert codes(world.acknowledged("a", 1, {last: [(0, 1, ACCEPT)]})) == {last: ErrorCode.NONE}


def test_a_group_without_session_is_forgotten_with_its_last_connection() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.acknowledged("a", -1)
    assert world.shares.cache.count == 1
    world.disconnect("a")
    assert world.shares.cache.count == 0


def test_a_group_is_not_forgotten_before_its_state_is_written() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.persister.is_held = True
    world.disconnect("a")
    assert world.shares.cache.count == 1
    world.persister.answer_all()
    assert world.shares.cache.count == 0
    world.persister.is_held = False
    assert taken(world.fetched("b", partitions=[0])) == {0: [(0, 0, 2)]}


def test_accepted_records_are_not_delivered_again() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0])
    world.acknowledged("a", 1, {0: [(0, 0, ACCEPT)]})
    world.disconnect("a")
    assert taken(world.fetched("b", partitions=[0])) == {0: [(1, 1, 2)]}


def test_acknowledgements_come_with_the_next_fetch() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1)
    response = world.fetched("a", 1, partitions={0: [(0, 0, REJECT)]})
    assert taken(response) == {0: [(1, 1, 1)]}
    assert rows(response)[0].acknowledge_error_code == ErrorCode.NONE
    assert world.core().start_offset == 1


def test_the_answer_waits_for_the_write_of_its_acknowledgements() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1)
    world.persister.is_held = True
    answer = world.parked("a", 1, partitions={0: [(0, 0, ACCEPT)]})
    world.persister.write_error = ShareError(ErrorCode.NOT_COORDINATOR, "moved")
    world.persister.answer_all()
    row = rows(answer.result())[0]
    assert acquired(row) == [(1, 1, 1)]
    assert row.acknowledge_error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert row.acknowledge_error_message == "moved"


def test_a_fenced_write_drops_the_share_partition() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.persister.write_error = ShareError(ErrorCode.FENCED_LEADER_EPOCH)
    response = world.acknowledged("a", 1, {0: [(0, 0, ACCEPT)]})
    assert codes(response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert rows(response)[0].current_leader.leader_id == 1
    assert [node.node_id for node in response.node_endpoints] == [1]
    assert world.shares.cache.count == 0


def test_records_of_another_member_cannot_be_acknowledged() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.parked("b", partitions=[0])
    response = world.acknowledged("b", 1, {0: [(0, 0, ACCEPT)]})
    assert codes(response) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_state_that_cannot_be_read_is_told_when_the_fetch_ends() -> None:
    world = filled()
    world.persister.read_error = ShareError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    world.persister.is_held = True
    answer = world.parked("a", partitions=[0])
    world.persister.answer_all()
    assert not answer.done
    world.time.advance(500)
    assert codes(answer.result()) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.persister.read_error = ShareError()
    world.persister.is_held = False
    assert taken(world.fetched("a", 1)) == {0: [(0, 0, 1)]}


def test_a_fetch_whose_partitions_all_fail_does_not_wait() -> None:
    world = filled()
    world.persister.read_error = ShareError(ErrorCode.FENCED_STATE_EPOCH)
    response = world.fetched("a", partitions=[0])
    assert codes(response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_loading_is_awaited() -> None:
    world = filled()
    world.persister.is_held = True
    answers = [world.parked(member, partitions=[0]) for member in "ab"]
    assert len(world.persister.reads) == 1
    world.persister.answer_all()
    assert taken(answers[0].result()) == {0: [(0, 0, 1)]}
    assert not answers[1].done


def test_a_partition_led_elsewhere_is_refused() -> None:
    world = ShareLeader(topic_image("t", {0: partition_image(replicas=(1, 2), leader=2)}))
    response = world.fetched("a", partitions=[0])
    row = rows(response)[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader.leader_id == 2


def test_a_lost_leadership_ends_the_wait_and_drops_the_share_partition() -> None:
    world = ShareLeader(topic_image("t", {0: partition_image(replicas=(1, 2))}))
    answer = world.parked("a", partitions=[0], max_wait_ms=60_000)
    moved = partition_image(replicas=(1, 2), leader=2, epoch=1)
    world.publish(with_partitions(world.image, "t", {0: moved}))
    world.time.advance(0)
    assert taken(answer.result()) == {}
    assert world.shares.cache.count == 0
    assert codes(world.fetched("a", 1)) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_what_is_held_outlives_a_new_epoch_of_the_same_leader() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1)
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=1)}))
    world.time.advance(0)
    assert taken(world.fetched("b", partitions=[0])) == {0: [(1, 1, 1)]}
    world.acknowledged("a", 1, {0: [(0, 0, ACCEPT)]})
    assert world.persister.writes[-1][1].leader_epoch == 1


def test_state_is_loaded_anew_after_another_leader() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1)
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=2)}))
    world.time.advance(0)
    assert world.shares.cache.count == 0
    assert taken(world.fetched("b", partitions=[0])) == {0: [(0, 1, 1)]}


def test_a_deleted_topic_is_unknown_and_its_share_partitions_are_dropped() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.publish(replace(world.image, topics={}, topics_by_id={}))
    world.time.advance(0)
    assert world.shares.cache.count == 0
    assert codes(world.fetched("a", 1)) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_deleted_records_are_passed_over() -> None:
    world = filled(batches=4)
    world.parked("a", partitions=[0], max_records=0) if False else None
    world.fetched("a", partitions=[0], max_records=1)
    world.acknowledged("a", 1, {0: [(0, 0, RELEASE)]})
    world.log().increment_log_start_offset(2)
    response = world.fetched("a", 2)
    assert taken(response) == {}
    assert taken(world.fetched("a", 3)) == {0: [(2, 3, 1)]}


@pytest.mark.parametrize("mode", [0, 1])
def test_records_are_limited_by_batches_or_strictly(mode: int) -> None:
    world = filled(batches=3, records=10)
    response = world.fetched("a", partitions=[0], max_records=15, share_acquire_mode=mode)
    assert taken(response) == {0: [(0, 19, 1)]} if mode == 0 else {0: [(0, 14, 1)]}
    assert offsets_sent(rows(response)[0]) == list(range(20))


def test_an_unknown_mode_fails() -> None:
    response = filled().fetched("a", partitions=[0], share_acquire_mode=2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_only_batches_with_acquired_records_are_sent() -> None:
    world = filled(batches=5)
    world.fetched("a", partitions=[0], max_records=5)
    world.acknowledged("a", 1, {0: [(2, 3, RELEASE)]})
    response = world.fetched("b", partitions=[0])
    assert taken(response) == {0: [(2, 3, 2)]}
    assert offsets_sent(rows(response)[0]) == [2, 3]


def test_records_in_flight_are_limited() -> None:
    world = filled(batches=1, records=150, share_partition_max_record_locks="100")
    for _ in range(5):
        world.produce()
    assert taken(world.fetched("a", partitions=[0])) == {0: [(0, 149, 1)]}
    world.parked("b", partitions=[0])


def test_a_full_share_partition_goes_on_when_there_is_room() -> None:
    world = filled(batches=1, records=150, share_partition_max_record_locks="100")
    world.produce()
    assert taken(world.fetched("a", partitions=[0])) == {0: [(0, 149, 1)]}
    answer = world.parked("b", partitions=[0])
    world.acknowledged("a", 1, {0: [(0, 149, ACCEPT)]})
    assert taken(answer.result()) == {0: [(150, 150, 1)]}


def test_a_fetch_has_its_maximum_of_records_from_all_partitions_together() -> None:
    world = ShareLeader()
    for partition in range(3):
        world.produce("t", partition, b"a", b"b", b"c")
    found = taken(world.fetched(partitions=[0, 1, 2], max_records=4, share_acquire_mode=1))
    assert found == {0: [(0, 2, 1)], 1: [(0, 0, 1)]}


def test_a_first_batch_that_is_too_large_leaves_no_bytes_for_other_partitions() -> None:
    world = ShareLeader()
    world.produce("t", 0, b"x" * 500)
    world.produce("t", 1, b"y")
    assert taken(world.fetched(partitions=[0, 1], max_bytes=300)) == {0: [(0, 0, 1)]}
    assert taken(world.fetched(epoch=1, max_bytes=300)) == {1: [(0, 0, 1)]}


def test_an_earlier_lock_ends_before_a_later_one() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1, share_acquire_mode=1)
    world.configure(share_record_lock_duration_ms="15000")
    assert taken(world.fetched("b", partitions=[0], max_records=1, share_acquire_mode=1)) == {0: [(1, 1, 1)]}
    answer = world.parked("c", partitions=[0], max_wait_ms=60_000)
    world.time.advance(14_999)
    assert not answer.done
    world.time.advance(1)
    assert taken(answer.result()) == {0: [(1, 1, 2)]}


def test_a_group_that_comes_back_while_its_state_is_written_is_not_forgotten() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    core = world.core()
    world.persister.is_held = True
    world.disconnect("a")
    answer = world.parked("b", partitions=[0])
    world.persister.answer_all()
    assert taken(answer.result()) == {0: [(0, 0, 2)]}
    assert world.core() is core


def test_a_group_that_comes_back_while_records_are_released_is_not_forgotten() -> None:
    partitions = 3 * RELEASED_AT_ONCE
    world = ShareLeader(topic_image("t", partitions))
    for partition in range(partitions):
        world.produce("t", partition)
    assert len(taken(world.fetched("a", partitions=range(partitions)))) == partitions
    core = world.core()
    world.disconnect("a")
    assert taken(world.fetched("b", partitions=[0])) == {0: [(0, 0, 2)]}
    world.settle()
    assert world.core() is core


def test_a_share_partition_that_is_dropped_while_a_worker_reads_gives_nothing() -> None:
    world = filled()
    world.disk.cold = True
    answer = world.parked("a", partitions=[0])
    world.publish(replace(world.image, features={**world.image.features, "share.version": 1}))
    world.publish(
        replace(world.image, features={k: v for k, v in world.image.features.items() if k != "share.version"})
    )
    world.workers.run_all()
    response = answer.result()
    assert all(not row.acquired_records for row in rows(response).values())


def test_a_fetch_that_finds_a_lock_taken_for_several_steps_gets_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkacompat.share.delayed_share_fetch.ACQUIRED_AT_ONCE", 10)
    world = many_batches()
    answer = world.parked("a", partitions=[0, 1, 2], max_records=20, batch_size=1, share_acquire_mode=1)
    other = world.parked("b", partitions=[2], max_wait_ms=60_000)
    while not answer.done:
        world.time.step()
    assert taken(answer.result()) == {0: [(0, 7, 1)], 1: [(0, 7, 1)], 2: [(0, 3, 1)]}
    assert taken(other.result()) == {2: [(4, 7, 1)]}


def test_aborted_records_are_not_delivered_under_read_committed() -> None:
    world = ShareLeader(share_isolation_level="read_committed")
    from kafkacompat.records.batch import trusted_batch
    from kafkacompat.records.control import build_end_transaction_marker

    world.produce(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = world.parked("a", partitions=[0])
    world.produce()
    assert not answer.done
    marker = build_end_transaction_marker(
        committed=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0
    )
    log = world.log()
    log.append_as_leader(trusted_batch(marker), 0, world.time.now_ms())
    core = world.manager.by_name["t", 0]
    core.advance_alone()
    world.manager.advanced(core)
    assert taken(answer.result()) == {0: [(1, 2, 1)]}


def test_headers_that_are_not_in_the_page_cache_are_read_by_a_worker() -> None:
    world = filled(batches=2)
    world.disk.cold = True
    answer = world.parked("a", partitions=[0])
    other = world.parked("b", partitions=[0], max_records=1)
    world.workers.run_all()
    assert taken(answer.result()) == {0: [(0, 1, 1)]}
    assert not other.done


def test_a_fetch_that_no_worker_can_read_for_is_refused_and_frees_the_records() -> None:
    world = filled(batches=2)
    world.disk.cold = True
    answer = world.parked("a", partitions=[0])
    ((_, read),) = world.workers.submitted
    read.fail(WorkersBusy("10000 jobs wait for threads: cold reads"))
    assert codes(answer.result()) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    world.disk.cold = False
    assert taken(world.fetched("b", partitions=[0])) == {0: [(0, 1, 1)]}


def test_a_fetch_whose_read_fails_as_none_should_is_refused_and_reported(faults: Any) -> None:
    world = filled(batches=2)
    world.disk.cold = True
    answer = world.parked("a", partitions=[0])
    ((_, read),) = world.workers.submitted
    problem = KeyError("a bug")
    read.fail(problem)
    assert faults.take() == [problem]
    assert codes(answer.result()) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("problem", [MemoryError(), KeyError("a bug")], ids=["passes", "a bug"])
def test_a_look_that_breaks_off_keeps_no_lock(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(batches=2)
    world.fetched("b", partitions=[1], max_wait_ms=0)

    def fails(*_: object) -> int:
        raise problem

    with monkeypatch.context() as patched, suppress(MemoryError, KeyError):
        patched.setattr(UnifiedLog, "readable_bytes", fails)
        world.request_fetch("a", partitions=[0], min_bytes=1000)
    world.disconnect("a")
    ((first, last, _),) = taken(world.fetched("b", 1, partitions=[0]))[0]
    assert (first, last) == (0, 1)


def test_an_acknowledgement_that_breaks_off_leaves_no_record_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would neither be given to anybody nor be passed over."""
    world = filled(batches=2)
    world.fetched("a", partitions=[0])

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(StateBatches, "add", fails)
        with pytest.raises(MemoryError):
            world.acknowledged("a", 1, {0: [(0, 1, ACCEPT)]})
    assert taken(world.fetched("b", partitions=[0])) == {0: [(0, 1, 1)]}


def lacks_memory_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """The next call finds no memory."""
    former = getattr(owner, name)

    def lacks(*_: object, **__: object) -> Any:
        monkeypatch.setattr(owner, name, former)
        raise MemoryError

    monkeypatch.setattr(owner, name, lacks)


@pytest.mark.parametrize("step", ["can_acquire_records", "next_fetch_offset", "acquired", "_divided"])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
def test_a_fetch_for_which_there_is_no_memory_keeps_no_lock(
    step: str, waits: bool, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    """Otherwise nobody would get a record of the share-partitions until this node leads them no more."""
    world = ShareLeader()
    world.produce("t", 0)
    world.produce("t", 1)
    world.fetched("b", partitions=[0, 1])
    world.acknowledged("b", 1, {0: [(0, 0, ACCEPT)], 1: [(0, 0, ACCEPT)]})
    owners = {"acquired": GroupFetchMeter, "_divided": DelayedShareFetch}
    if waits:
        world.parked("a", partitions=[0, 1])
    lacks_memory_once(monkeypatch, owners.get(step, SharePartition), step)
    with suppress(MemoryError):
        world.produce("t", 0)
        world.produce("t", 1)
        if not waits:
            world.request_fetch("a", partitions=[0, 1], max_wait_ms=0)
    faults.take()
    world.disconnect("a")
    assert set(taken(world.fetched("b", 2, partitions=[0, 1]))) == {0, 1}


@pytest.mark.parametrize(
    "step",
    [(SharePartition, "expire_locks"), (InFlightRecords, "became_acquirable")],
    ids=["before it", "amid it"],
)
def test_locks_whose_end_lacks_memory_end_all_the_same(
    step: tuple[type, str], monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0])
    world.fetched("b", partitions=[0], max_wait_ms=0)
    lacks_memory_once(monkeypatch, *step)
    world.time.advance(30_000)
    assert [type(each) for each in faults.take()] == [MemoryError]
    world.time.advance(60_000)
    assert offsets_sent(rows(world.fetched("b", 1))[0]) == [0, 1]


@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=["taken", "refused"]
)
def test_a_write_whose_end_lacks_memory_leaves_no_record_behind(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0])
    world.persister.is_held = True
    world.request_acknowledge("a", 1, {0: [(0, 1, RELEASE)]})
    lacks_memory_once(monkeypatch, InFlightBatch, "index_of")
    world.persister.is_held = False
    world.persister.write_error = ShareError(code)
    world.persister.answer_all()
    world.persister.write_error = ShareError()
    assert [type(each) for each in faults.take()] == [MemoryError]
    world.time.advance(60_000)
    assert offsets_sent(rows(world.fetched("b", partitions=[0]))[0]) == [0, 1]


def test_a_release_that_lacks_memory_leaves_no_record_behind(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0])
    world.fetched("b", partitions=[0], max_wait_ms=0)
    lacks_memory_once(monkeypatch, StateBatches, "add")
    world.disconnect("a")
    assert [type(each) for each in faults.take()] == [MemoryError]
    world.time.advance(60_000)
    assert offsets_sent(rows(world.fetched("b", 1))[0]) == [0, 1]


def test_a_fetch_that_nobody_waits_for_acquires_nothing() -> None:
    world = filled()
    world.fetched("b", partitions=[1], max_wait_ms=0)
    world.disk.cold = True
    answer = world.parked("a", partitions=[0])
    answer.abandon()
    world.disconnect("a")
    world.workers.run_all()
    world.disk.cold = False
    assert taken(world.fetched("b", 1, partitions=[0])) == {0: [(0, 0, 1)]}


def test_an_abandoned_fetch_leaves_its_place() -> None:
    world = ShareLeader()
    world.parked("a", partitions=[0]).abandon()
    assert len(world.shares.fetches.purgatory) == 0


def test_many_waiting_fetches_get_one_record_each() -> None:
    world = ShareLeader()
    answers = [world.parked(f"m{each}", partitions=[0], max_records=1) for each in range(150)]
    for _ in range(150):
        world.produce()
    world.time.advance(0)
    # Those that have not looked yet when the next record comes do not wait for those before them.
    found = [acquired(rows(answer.result())[0]) for answer in answers]
    assert sorted(found) == [[(each, each, 1)] for each in range(150)]


def test_a_batch_of_records_is_divided_among_waiting_fetches() -> None:
    world = ShareLeader()
    answers = [
        world.parked(f"m{each}", partitions=[0], max_records=1, share_acquire_mode=1) for each in range(300)
    ]
    world.produce("t", 0, *([b"v"] * 300))
    most = TURN_US // (ANSWER_US + PARTITION_US + READ_WORK * WORK_US) + 1
    before = 0
    while before < 300:
        done = sum(answer.done for answer in answers)
        assert 0 < done - before <= most
        before = done
        world.time.step()
    assert [taken(answer.result()) for answer in answers] == [{0: [(each, each, 1)]} for each in range(300)]


def test_fetches_that_wait_for_more_bytes_are_looked_at_a_few_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look counts what the log has from the share-partition's next offset on, far from its end."""
    world = ShareLeader()
    answers = [world.parked(f"m{each}", partitions=[0], min_bytes=1 << 20) for each in range(300)]
    looks: list[int] = []
    original = UnifiedLog.readable_bytes

    def counted(log: UnifiedLog, offset: int, bound: int) -> int:
        looks.append(offset)
        return original(log, offset, bound)

    monkeypatch.setattr(UnifiedLog, "readable_bytes", counted)
    world.produce()
    most = TURN_US // COUNTED_US + 1
    found = 0
    while True:
        assert len(looks) <= most
        found += len(looks)
        looks.clear()
        if not world.time.step():
            break
    assert found >= 300
    assert not any(answer.done for answer in answers)


def test_a_step_reads_of_a_bounded_number_of_partitions() -> None:
    """A fetch may acquire one batch of each of hundreds of partitions."""
    world = ShareLeader(topic_image("t", 300))
    for partition in range(300):
        world.produce("t", partition)
    world.settle()
    world.result = lambda answer: world.share_tasks.run("a request", answer)  # type: ignore[method-assign]
    answer = world.parked("a", partitions=range(300), max_records=1_000, max_bytes=1 << 24)
    before = 0
    while not answer.done:
        held = sum(led.core.in_flight_records() for led in world.shares.cache.groups.get(GROUP, {}).values())
        assert held - before <= ACQUIRED_AT_ONCE // READ_WORK
        before = held
        assert world.time.step()
    assert len(taken(answer.result())) == 300


def test_damage_on_the_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    monkeypatch.setattr(
        "kafkacompat.share.delayed_share_fetch.read_batches",
        lambda *_, **__: (_ for _ in ()).throw(OSError(5)),
    )
    assert codes(world.fetched("a", partitions=[0])) == {0: ErrorCode.KAFKA_STORAGE_ERROR}


def test_share_groups_that_are_switched_off_are_forgotten() -> None:
    world = filled()
    world.publish(replace(world.image, features={**world.image.features, "share.version": 1}))
    world.fetched("a", partitions=[0])
    world.publish(
        replace(world.image, features={k: v for k, v in world.image.features.items() if k != "share.version"})
    )
    assert (world.shares.cache.count, len(world.shares.sessions)) == (0, 0)


def test_nothing_is_left_when_all_have_gone() -> None:
    world = filled(batches=10)
    for member in "abc":
        answer = world.request_fetch(member, partitions=[0, 1, 2], max_records=3)
        assert isinstance(answer, Deferred) or taken(answer)
    for member in "abc":
        world.disconnect(member)
    world.time.advance(60_000)
    cache = world.shares.cache
    assert (cache.groups, cache._by_name, cache._ended) == ({}, {}, set())
    assert world.shares.sessions._spoken == {}


class Throttled:
    """A quota that is exceeded by an answer of more than `bound` bytes."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.sizes: list[int] = []
        self.fetch_bytes_max = 1 << 30

    def fetched(self, context: object, size: int) -> int:
        self.sizes.append(size)
        return 70 if size > self.bound else 0


def test_a_throttled_fetch_tells_of_acknowledgements_only() -> None:
    world = filled(batches=2)
    world.fetched("a", partitions=[0], max_records=1)
    quota = Throttled(50)
    response = world.fetched("a", 1, partitions={0: [(0, 0, ACCEPT)]}, throttling=quota)
    assert response.throttle_time_ms == 70
    assert response.error_code == ErrorCode.NONE
    assert quota.sizes[0] > len(world.batches()[1])
    row = rows(response)[0]
    assert (row.acknowledge_error_code, len(row.records), row.acquired_records) == (0, 0, [])


def test_an_answer_within_the_quota_is_sent() -> None:
    world = filled()
    quota = Throttled(1000)
    assert taken(world.fetched("a", partitions=[0], throttling=quota)) == {0: [(0, 0, 1)]}
    world.fetched("a", 1, max_wait_ms=0, throttling=quota)
    assert quota.sizes[1] < quota.sizes[0]


def test_a_fetch_asks_for_no_more_than_its_quota_allows() -> None:
    world = filled(batches=100)
    quota = Throttled(1 << 20)
    quota.fetch_bytes_max = 3 * len(world.batches()[0])
    assert taken(world.fetched("a", partitions=[0], throttling=quota)) == {0: [(0, 2, 1)]}


def test_bytes_and_requests_are_counted() -> None:
    world = filled()
    traffic = world.manager.by_name["t", 0].traffic
    sent = len(rows(world.fetched("a", partitions=[0, 1]))[0].records)
    world.acknowledged("a", 1, {0: [(0, 0, REJECT)], 1: [(5, 5, ACCEPT)]})
    assert (traffic.bytes_out, traffic.share_fetches) == (sent, 1)
    assert (traffic.share_acknowledgements, traffic.failed_share_acknowledgements) == (1, 1)
    assert world.shares.acknowledged[REJECT] == 1


def test_much_to_acquire_takes_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may ask for all records of hundreds of partitions, in ranges of one record each."""
    monkeypatch.setattr("kafkacompat.share.delayed_share_fetch.ACQUIRED_AT_ONCE", 10)
    world = many_batches()
    answer = world.parked("a", partitions=[0, 1, 2], max_records=1_000, batch_size=1)
    other = world.parked("b", partitions=[0, 1, 2], max_wait_ms=500)
    acquired_at = [[world.core(each).in_flight_records() for each in range(3)]]
    while not answer.done:
        world.time.step()
        acquired_at.append([world.core(each).in_flight_records() for each in range(3)])
    assert acquired_at == [[8, 0, 0], [8, 8, 0], [8, 8, 8]]
    assert {index: len(ranges) for index, ranges in taken(answer.result()).items()} == {0: 8, 1: 8, 2: 8}
    world.produce("t", 2)
    assert taken(other.result()) == {2: [(8, 8, 1)]}


def test_the_cost_of_a_fetch_has_what_it_did_before_its_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wakes waiting fetches stops when their costs are those of a turn."""
    monkeypatch.setattr("kafkacompat.share.delayed_share_fetch.ACQUIRED_AT_ONCE", 10)
    costs: list[int] = []
    original = DelayedShareFetch._fetch

    def noted(fetch: DelayedShareFetch, held: Any) -> None:
        original(fetch, held)
        costs.append(fetch.cost_us)

    monkeypatch.setattr(DelayedShareFetch, "_fetch", noted)
    many_batches().parked("a", partitions=[0, 1, 2], max_records=1_000, batch_size=1)
    (cost_us,) = costs
    assert cost_us >= ANSWER_US + 3 * PARTITION_US + 10 * WORK_US


def test_a_member_that_goes_while_it_acquires_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.share.delayed_share_fetch.ACQUIRED_AT_ONCE", 10)
    world = many_batches()
    world.fetched("b", partitions=[0, 1, 2], max_wait_ms=0, max_records=0)
    answer = world.parked("a", partitions=[0, 1, 2], max_records=1_000, batch_size=1)
    answer.abandon()
    world.disconnect("a")
    world.settle()
    assert [world.core(each).held().records for each in range(3)] == [0, 0, 0]
    found = world.parked("b", 1, max_records=1_000)
    world.settle()
    assert sorted(taken(found.result())) == [0, 1, 2]


def test_an_answer_has_a_bounded_number_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.share.delayed_share_fetch.RANGES_MAX", 16)
    world = many_batches()
    first = taken(world.fetched("a", partitions=[0, 1, 2], max_records=1_000, batch_size=1))
    assert sorted(first) == [0, 1]
    assert sorted(taken(world.fetched("a", 1, max_records=1_000, batch_size=1))) == [2]


def many_batches() -> ShareLeader:
    world = ShareLeader()
    for partition in range(3):
        for _ in range(8):
            world.produce("t", partition)
    return world


def test_what_cannot_be_loaded_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A client may ask for hundreds of partitions in a request, of groups that do not exist and with names of 32 KiB."""
    caplog.set_level(logging.WARNING)
    world = ShareLeader()
    world.persister.read_error = ShareError(ErrorCode.INVALID_REQUEST, "not initialized")
    group = "g" * 30_000
    for epoch in range(10):
        world.fetched("a", epoch, group=group, partitions=[0, 1, 2], max_wait_ms=0)
    said = f"the state of t-0 for share group {'g' * 64!r} cannot be loaded: UNKNOWN_SERVER_ERROR: not initialized"
    assert caplog.messages == [said]
    world.time.advance(60_000)
    more = "the states of share groups could not be loaded 29 more times: UNKNOWN_SERVER_ERROR"
    assert caplog.messages == [said, more]
    world.time.advance(120_000)
    world.persister.read_error = ShareError(ErrorCode.FENCED_LEADER_EPOCH, "x" * 9_000)
    world.fetched("a", 10, group=group, max_wait_ms=0)
    assert len(caplog.messages) == 3
    assert len(caplog.messages[2]) < 600


def test_the_share_of_partitions_that_fetches_get_and_the_time_until_then_are_noted() -> None:
    world = filled()
    assert taken(world.fetched("a", partitions=[0, 1])) == {0: [(0, 0, 1)]}
    meter = world.shares.cache.fetch_meters[GROUP]
    assert list(meter.acquired_percent.recent) == [100]
    assert list(meter.acquire_times_ms.recent) == [0]
    many = ShareLeader()
    many.configure(share_partition_max_record_locks="100")
    for _ in range(2):
        many.produce("t", 0, *[b"v"] * 100)
    many.fetched("a", partitions=[0])
    meter = many.shares.cache.fetch_meters[GROUP]
    answer = many.parked("b", partitions=[0])
    many.time.advance(300)
    assert not answer.done
    many.time.advance(200)
    assert taken(answer.result()) == {}
    assert list(meter.acquired_percent.recent) == [100, 0]
    assert list(meter.acquire_times_ms.recent) == [0, 500]


def test_what_was_noted_of_a_group_goes_with_it() -> None:
    world = filled()
    world.fetched("a", partitions=[0])
    world.acknowledged("a", -1)
    world.disconnect("a")
    assert world.shares.cache.fetch_meters == {}


def test_a_fetch_of_many_new_partitions_opens_a_few_logs_in_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ShareLeader(topic_image("t", 200))
    monkeypatch.setattr(world, "result", lambda answer: world.share_tasks.run("a fetch", answer))

    def opened() -> int:
        return len(world.log_manager.logs)

    before = opened()
    world.request_fetch("a", partitions=range(200), max_wait_ms=0)
    while before < 200:
        world.time.fire_next()
        assert opened() - before <= 20
        before = opened()
