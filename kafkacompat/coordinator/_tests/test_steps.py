"""Long work of coordinators runs in steps: the work of each is counted, and changes between two steps are respected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.delete_groups import HANDLER as DELETE
from kafkacompat.api.describe_groups import HANDLER as DESCRIBE
from kafkacompat.api.list_groups import HANDLER as LIST
from kafkacompat.api.txn_offset_commit import HANDLER as TXN_OFFSET_COMMIT
from kafkacompat.coordinator._tests.clients import (
    HEARTBEAT,
    beat,
    commit,
    fetch,
    form_group,
    join,
    leave,
    member_id_of,
    subscription,
    sync,
)
from kafkacompat.coordinator._tests.kit import KeptLog, LeadingCoordinator, Partitions, topic_image
from kafkacompat.coordinator._tests.test_runtime import NAME, batch, pair, world_of
from kafkacompat.coordinator.loading import RECORD_COST
from kafkacompat.coordinator.shard import REPLIES_AT_ONCE, REPLY_COST, ShardState
from kafkacompat.coordinator.shards import STRETCH
from kafkacompat.group import consumer_protocol as subscriptions
from kafkacompat.group import group_coordinator, group_metadata_manager, image_topics
from kafkacompat.group._tests.members import heartbeat as consumer_heartbeat
from kafkacompat.group._tests.test_offsets import OFFSET_DELETE, describe
from kafkacompat.group._tests.test_transactional_offsets import EPOCH, PRODUCER_ID, Verifier
from kafkacompat.group.classic.classic_group import ClassicGroupMember, ClassicGroupState
from kafkacompat.group.consumer_protocol import DISTINCT_TOPICS_MAX, MalformedSubscription, topics_of_all
from kafkacompat.group.describe import LOWERED_A_STEP, TOLD_COST
from kafkacompat.group.group_metadata_manager import GroupMetadataManager, machine_of
from kafkacompat.group.image_topics import GROUPS_A_MICROSECOND, TOPICS_TOGETHER_COST, look_at_topics
from kafkacompat.group.offset_metadata_manager import MOVE_COST, OffsetMetadataManager
from kafkacompat.group.records import OffsetRecord
from kafkacompat.group.sweeps import BATCH_BYTES_MAX, GroupSweeps, batches
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.records.batch import iterate_batches
from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

WEEK_MS = 604_800_000
ONE_STEP = TURN_COST + STRETCH * 20
"""The highest cost of one step: the piece that ends it may exceed the limit."""


# Passes over offsets.


def stored(count: int, groups: int = 1) -> LeadingCoordinator:
    """`count` loaded offsets in each group, all with the value 1."""
    each = [
        batch(
            *[pair(1, partition=index, group=f"g{group}") for index in range(start, min(start + 500, count))]
        )
        for group in range(groups)
        for start in range(0, count, 500)
    ]
    world = world_of(*each)
    world.time.advance(0)
    return world


def machine(world: LeadingCoordinator) -> GroupMetadataManager:
    (shard,) = world.coordinator._shards
    assert isinstance(shard.machine, GroupMetadataManager)
    return shard.machine


def tombstones(log: KeptLog, start: int) -> int:
    """Number of records in the batches from `start` on."""
    return sum(header.record_count for data in log.batches[start:] for header in iterate_batches(data))


def sweeps_of(world: LeadingCoordinator) -> list[str]:
    """The tasks that remove something now."""
    running = [task.what for task in world.coordinator._tasks if task.waits_for is None]
    return [what for what in running if "offsets" in what]


def steps_of(world: LeadingCoordinator) -> Iterator[int]:
    """The number of records that each due step writes."""
    log = world.log()
    before = len(log.batches)
    while world.time.step():
        yield tombstones(log, before)
        before = len(log.batches)


def begin_expiry(world: LeadingCoordinator) -> int:
    """The number of records that the first step writes."""
    before = len(world.log().batches)
    (time,) = [
        task.waits_for
        for task in world.coordinator._tasks
        if task.what == "the expiry of offsets" and task.waits_for is not None
    ]
    while not time.done:
        world.time.fire_next()
    return tombstones(world.log(), before)


@pytest.mark.parametrize(("count", "groups"), [(3_000, 1), (1, 3_000), (30, 100)])
def test_expired_offsets_go_in_steps(count: int, groups: int) -> None:
    world = stored(count, groups)
    world.time.ms += 2 * WEEK_MS
    written = [begin_expiry(world), *steps_of(world)]
    assert max(written) <= 2 * STRETCH
    assert sum(written) == count * groups + groups
    assert not machine(world).offsets.count
    assert not machine(world).groups
    world.restart()
    assert not machine(world).groups


def test_what_changes_between_two_steps_of_an_expiry_holds() -> None:
    world = stored(2_000)
    world.time.ms += 2 * WEEK_MS
    begin_expiry(world)
    assert commit(world, 9, partition=1, group="g0") == E.NONE  # whose offset is already removed
    kept = machine(world).offsets.get("g0", "t", 1_999)  # whose turn is still to come
    assert kept is not None
    kept.commit_timestamp = world.time.now_ms()
    assert commit(world, 5, group="new") == E.NONE
    list(steps_of(world))
    offsets = machine(world).offsets
    assert list(offsets.places("g0")) == [("t", 1_999), ("t", 1)]
    assert sorted(machine(world).groups) == ["g0", "new"]


def test_a_group_that_goes_between_two_steps_ends_nothing() -> None:
    world = stored(600, 3)
    world.time.ms += 2 * WEEK_MS
    begin_expiry(world)
    world.call(DELETE, DeleteGroupsRequest(groups_names=["g1"]), 2)
    list(steps_of(world))
    assert not machine(world).groups
    assert not machine(world).offsets.count


def test_one_group_that_cannot_be_judged_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    world = stored(1, 5)
    world.time.ms += 2 * WEEK_MS
    judged = group_metadata_manager._has_expired

    def broken(machine: Any, group: Any, *rest: Any) -> bool:
        if group.group_id == "g1":
            raise KeyError(group.group_id)
        return judged(machine, group, *rest)

    monkeypatch.setattr(group_metadata_manager, "_has_expired", broken)
    begin_expiry(world)
    list(steps_of(world))
    assert sorted(machine(world).groups) == ["g1"]
    assert {type(error) for error in faults.take()} == {KeyError}


def test_a_second_sweep_waits_for_the_first() -> None:
    world = stored(3_000)
    world.time.ms += 2 * WEEK_MS
    begin_expiry(world)
    assert len(sweeps_of(world)) == 1
    world.time.ms += world.settings.retention_check_interval_ms
    begin_expiry(world)
    assert len(sweeps_of(world)) == 1


def test_a_batch_of_tombstones_is_small_whatever_the_names() -> None:
    records = [OffsetRecord("g" * size, "t" * 249, 0, None) for size in (1, 30_000, 5, 9_000, 9_000)]
    cut = list(batches(records))
    assert [record for each in cut for record in each] == records
    for each in cut:
        size = sum(len(record.group_id) + len(record.topic) for record in each if hasattr(record, "topic"))
        assert len(each) == 1 or size <= BATCH_BYTES_MAX


# Deleted topics


def test_offsets_of_deleted_topics_go_in_steps_and_are_not_shown_meanwhile() -> None:
    world = stored(3_000)
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    before = len(world.log().batches)
    world.publish(keep)
    first = tombstones(world.log(), before)
    assert 0 < first < 3_000
    # The topic is recreated while the old topic's offsets are still there.
    world.publish([*keep, topic_image("t", 3_000, b"n" * 16)])
    assert machine(world).offsets.get("g0", "t", 2_998) is not None
    assert fetch(world, group="g0", partition=2_998).committed_offset == -1
    assert commit(world, 7, group="g0", partition=2_999) == E.NONE
    assert fetch(world, group="g0", partition=2_999).committed_offset == 7
    written = list(steps_of(world))
    assert max(written) <= 2 * STRETCH
    assert machine(world).offsets.count == 1
    assert fetch(world, group="g0", partition=2_999).committed_offset == 7
    assert not machine(world).offsets.deleting


@pytest.mark.parametrize("partition", [2_999, 3_500], ids=["an old one stands there", "nothing stands there"])
def test_an_offset_in_a_transaction_for_a_topic_made_anew_outlives_its_predecessors(partition: int) -> None:
    world = stored(3_000)
    world.verifier = Verifier()
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    world.publish(keep)
    world.publish([*keep, topic_image("t", 4_000, b"n" * 16)])
    asked = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g0",
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=7, committed_metadata=""
                    )
                ],
            )
        ],
    )
    assert world.call(TXN_OFFSET_COMMIT, asked, 5).topics[0].partitions[0].error_code == E.NONE
    list(steps_of(world))
    assert not machine(world).offsets.deleting
    ended = world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2)
    assert ended.result() is E.NONE
    assert fetch(world, group="g0", partition=partition).committed_offset == 7


@pytest.mark.parametrize("together", [True, False], ids=["in the image that brings them", "in the next"])
def test_offsets_of_a_topic_deleted_before_the_turn_of_their_partitions_go(together: bool) -> None:
    world = LeadingCoordinator(count=50)
    for number in range(100):
        assert commit(world, 1, group=f"g{number}") == E.NONE
    led, topic, other = world.image.topics[OFFSETS_TOPIC], world.image.topics["t"], world.image.topics["u"]
    world.publish([topic_image(OFFSETS_TOPIC, 50, leader=2), topic, other])
    list(steps_of(world))
    if not together:
        world.publish([led, topic, other])
    world.publish([led, other])
    list(steps_of(world))
    assert [state for state in world.coordinator.shard_states() if state != "active"] == []
    assert world.coordinator.offset_count() == 0


def test_an_offset_of_a_deleted_topic_goes_although_its_transaction_ends_meanwhile() -> None:
    world = stored(3_000)
    world.verifier = Verifier()
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    world.publish([*keep, topic_image("t", 4_000)])
    one = TxnOffsetCommitRequestPartition(partition_index=3_500, committed_offset=7, committed_metadata="")
    asked = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g0",
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
    )
    assert world.call(TXN_OFFSET_COMMIT, asked, 5).topics[0].partitions[0].error_code == E.NONE
    world.publish(keep)
    world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2)
    list(steps_of(world))
    assert not machine(world).offsets.deleting
    world.publish([*keep, topic_image("t", 4_000, b"n" * 16)])
    assert fetch(world, group="g0", partition=3_500).committed_offset == -1
    assert machine(world).offsets.count == 0


LARGE = 2_500
"""Partitions of each of three groups in one transaction."""


def in_large_transaction() -> LeadingCoordinator:
    world = LeadingCoordinator()
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", LARGE)])
    for group in ("g0", "g1", "g2"):
        commit_in_transaction(world, group, "t", LARGE)
    return world


def commit_in_transaction(world: LeadingCoordinator, group: str, topic: str, count: int) -> None:
    world.verifier = Verifier()
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=at, committed_offset=7, committed_metadata="")
        for at in range(count)
    ]
    asked = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group,
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    waiting = world.call(TXN_OFFSET_COMMIT, asked, 5)
    list(steps_of(world))
    assert {each.error_code for each in waiting.result().topics[0].partitions} == {E.NONE}


def end_transaction(world: LeadingCoordinator) -> None:
    """Requests for the partition wait from now on until a later turn of the loop."""
    assert world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2).result() is E.NONE


def pending_of(world: LeadingCoordinator) -> int:
    offsets = machine(world).offsets
    return sum(1 for group in ("g0", "g1", "g2") for _ in offsets.pending_places(group))


@pytest.mark.parametrize("committed", [True, False])
def test_a_large_transaction_ends_in_steps_and_nobody_sees_a_part_of_it(committed: bool) -> None:
    world = in_large_transaction()
    assert pending_of(world) == 3 * LARGE
    ended = world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, committed, 0, 2)
    assert ended.result() is E.NONE
    left = [3 * LARGE, pending_of(world)]
    seen, later = fetch(world, group="g2", stable=True), commit(world, 8, group="g0")
    assert not seen.done
    while world.time.step():
        left.append(pending_of(world))
    assert len(left) > 4
    assert max(before - after for before, after in pairwise(left)) <= ONE_STEP / MOVE_COST
    (told,) = seen.result().groups[0].topics[0].partitions
    assert (told.error_code, told.committed_offset) == (E.NONE, 7 if committed else -1)
    assert later.result().topics[0].partitions[0].error_code == E.NONE
    assert fetch(world, group="g0").committed_offset == 8
    assert machine(world).offsets.count == (3 * LARGE if committed else 1)
    assert machine(world).offsets.has_open_transaction("g1") is False


def test_the_end_of_a_large_transaction_is_loaded_in_steps() -> None:
    world = in_large_transaction()
    world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2)
    list(steps_of(world))
    counts = [0]
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5), world.image.topics["t"]])
    list(steps_of(world))
    world.publish([topic_image(OFFSETS_TOPIC, 1), world.image.topics["t"]])
    while world.time.step():
        counts.append(machine(world).offsets.count)
    assert counts[-1] == 3 * LARGE
    assert max(after - before for before, after in pairwise(counts)) <= ONE_STEP / MOVE_COST


def test_a_coordinator_that_goes_while_a_large_transaction_ends_refuses_who_waits() -> None:
    world = in_large_transaction()
    world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2)
    seen = fetch(world, group="g2")
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5), world.image.topics["t"]])
    list(steps_of(world))
    assert seen.result().groups[0].error_code == E.NOT_COORDINATOR


def test_a_commit_that_waits_for_the_end_of_a_large_transaction_outlives_an_expiry_meanwhile() -> None:
    world = in_large_transaction()
    assert commit(world, 1, group="old") == E.NONE
    world.time.ms += 2 * WEEK_MS
    end_transaction(world)
    later = commit(world, 8, group="old")
    assert not later.done
    begin_expiry(world)
    list(steps_of(world))
    assert later.result().topics[0].partitions[0].error_code == E.NONE
    assert fetch(world, group="old").committed_offset == 8
    world.restart()
    assert fetch(world, group="old").committed_offset == 8


def test_a_member_that_joins_while_a_large_transaction_ends_and_empty_groups_expire_is_answered() -> None:
    world = in_large_transaction()
    (member_id,) = form_group(world, group="old")
    leave(world, (member_id, None), group="old")
    world.time.ms += world.settings.retention_check_interval_ms
    end_transaction(world)
    joins = join(world, group="old", instance="i")
    assert not joins.done
    begin_expiry(world)
    list(steps_of(world))
    world.time.advance(6_000)
    assert joins.result().error_code == E.NONE


def test_a_commit_that_waits_for_the_end_of_a_large_transaction_outlives_the_topic_before() -> None:
    """The walk over the offsets of the deleted topic comes to the partition while the commit waits."""
    world = stored(3_000)
    keep = [world.image.topics[OFFSETS_TOPIC], topic_image("u", 300)]
    world.publish([*keep, world.image.topics["t"]])
    commit_in_transaction(world, "g1", "u", 300)
    world.publish(keep)
    world.publish([*keep, topic_image("t", 3_000, b"n" * 16)])
    end_transaction(world)
    later = commit(world, 7, group="g0", partition=600)
    assert not later.done
    list(steps_of(world))
    assert later.result().topics[0].partitions[0].error_code == E.NONE
    assert fetch(world, group="g0", partition=600).committed_offset == 7
    assert list(machine(world).offsets.places("g0")) == [("t", 600)]


def test_a_join_before_the_end_of_its_time_counts_although_a_large_transaction_ends() -> None:
    """Both wait, the join first. It completes the rebalance, and the timer has nothing to complete any more."""
    world = in_large_transaction()
    first, second = form_group(world, 2, group="old", session=60_000)
    waits = join(world, first, group="old", session=60_000)
    world.time.ms += 30_000
    end_transaction(world)
    joins = join(world, second, group="old", session=60_000)
    world.time.advance(0)
    answers = [waits.result(), joins.result()]
    assert [(each.error_code, each.generation_id) for each in answers] == [(E.NONE, 2)] * 2
    parked = sync(world, second, 2, group="old")
    assert sync(world, first, 2, {second: b"a"}, group="old").error_code == E.NONE
    assert parked.result().assignment == b"a"


def test_a_heartbeat_before_the_end_of_the_session_counts_although_a_large_transaction_ends() -> None:
    world = in_large_transaction()
    (member_id,) = form_group(world, group="old")
    world.time.ms += 10_000
    end_transaction(world)
    request = HeartbeatRequest(group_id="old", generation_id=1, member_id=member_id)
    beats = world.call(HEARTBEAT, request, 4)
    world.time.advance(0)
    assert beats.result().error_code == E.NONE
    assert beat(world, member_id, 1, group="old") == E.NONE
    world.time.advance(10_000)
    assert beat(world, member_id, 1, group="old") == E.UNKNOWN_MEMBER_ID


def test_a_lone_member_of_many_topics_joins_in_parts_while_a_large_transaction_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part waits for its turn, and the next one looks for what it has written."""
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1)
    monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", 2)
    world = in_large_transaction()
    names = [f"many-{number}" for number in range(5)]
    world.publish([*world.image.topics.values(), *[topic_image(name, 2) for name in names]])
    end_transaction(world)
    member = {"group_id": "many", "member_id": "m", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    joins = consumer_heartbeat(world, subscribed_topic_names=names, **member)
    list(steps_of(world))
    answer = joins.result()
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    assert len(answer.assignment.topic_partitions) == len(names)


def lacks_memory(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The offset of this number cannot be kept, once."""
    kept = OffsetMetadataManager._commit
    left = [at]

    def keep(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise MemoryError
        kept(*arguments)

    monkeypatch.setattr(OffsetMetadataManager, "_commit", keep)


@pytest.mark.parametrize("at", [1, 1_000], ids=["in its turn", "in a later turn"])
def test_a_transaction_whose_end_lacks_memory_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Its partition is loaded anew, where the marker is."""
    world = in_large_transaction()
    lacks_memory(monkeypatch, at)
    end_transaction(world)
    waits = commit(world, 8, group="g0")
    list(steps_of(world))
    code = waits.result().topics[0].partitions[0].error_code if at > 1 else waits
    assert code in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS)  # clients come back
    assert pending_of(world) == 0
    assert machine(world).offsets.count == 3 * LARGE
    assert fetch(world, group="g2", stable=True).committed_offset == 7
    assert commit(world, 8, group="g0") == E.NONE


def test_a_commit_that_is_written_and_cannot_be_kept_for_want_of_memory_is_told_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = in_large_transaction()
    lacks_memory(monkeypatch, 1)
    assert commit(world, 1, group="other") == E.NOT_COORDINATOR
    list(steps_of(world))
    assert fetch(world, group="other").committed_offset == 1


@pytest.mark.parametrize("refused_at", [0, 2], ids=["from the beginning", "half way"])
def test_offsets_of_deleted_topics_that_the_log_did_not_let_go_go_later(refused_at: int) -> None:
    world = stored(3_000)
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    if refused_at:
        world.publish(keep)
        for _ in range(refused_at):
            world.time.step()
    world.partitions.refusal = E.KAFKA_STORAGE_ERROR
    world.publish(keep)
    world.publish([*keep, topic_image("t", 3_000, b"n" * 16)])
    list(steps_of(world))
    left = machine(world).offsets.count
    assert left == 3_000 if refused_at == 0 else 0 < left < 3_000
    assert fetch(world, group="g0", partition=2_998).committed_offset == -1
    begin_expiry(world)
    list(steps_of(world))
    assert machine(world).offsets.count == left
    world.partitions.refusal = None
    assert commit(world, 7, group="g0", partition=2_999) == E.NONE
    begin_expiry(world)
    list(steps_of(world))
    assert machine(world).offsets.count == 1
    assert fetch(world, group="g0", partition=2_999).committed_offset == 7
    assert not machine(world).offsets.deleting
    assert not sweeps_of(world)


def test_one_image_begins_with_few_shards_at_once() -> None:
    world = LeadingCoordinator(count=10)
    for group in range(300):
        commit(world, 5, group=f"g{group}")
    world.publish([world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]])
    groups = [machine_of(shard).offsets.deleting for shard in world.coordinator._shards]
    assert 0 < sum(not deleting for deleting in groups) < 10
    while world.time.step():
        pass
    assert fetch(world, group="g299").committed_offset == -1
    assert sum(machine_of(each).offsets.count for each in world.coordinator._shards) == 0


def test_very_many_deleted_topics_are_told_to_a_few_shards_at_once() -> None:
    world = LeadingCoordinator(count=10)
    keep = [world.image.topics[name] for name in (OFFSETS_TOPIC, "u")]
    count = TURN_COST * group_coordinator.DELETED_A_MICROSECOND // 3
    world.publish([*keep, *(topic_image(f"x{index}", 1) for index in range(count))])
    for group in range(20):
        commit(world, 5, group=f"g{group}", topic="x0", partition=0)
    while world.time.step():
        pass
    told: list[int] = []
    notes = GroupSweeps.drop_topics

    def noted(sweeps: GroupSweeps, shard: Any, *arguments: Any, **options: Any) -> None:
        told[-1] += 1
        notes(sweeps, shard, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupSweeps, "drop_topics", noted)
        told.append(0)
        world.publish(keep)
        while told.append(0) or world.time.step():
            pass
    assert sum(told) == 10
    assert max(told) <= 4
    assert sum(machine_of(each).offsets.count for each in world.coordinator._shards) == 0


def test_very_many_changed_topics_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_topics, "TOPICS_TOGETHER", 5)
    monkeypatch.setattr(image_topics, "TOPICS_TOGETHER_COST", TURN_COST // 2)
    world = LeadingCoordinator(count=4)
    seen: list[int] = []
    look = GroupMetadataManager.on_topics

    def looked(machine: GroupMetadataManager, topics: Any, changed: set[str], has_new: bool) -> int:
        seen[-1] += len(changed)
        assert topics is world.coordinator._topics
        return look(machine, topics, changed, has_new)

    monkeypatch.setattr(GroupMetadataManager, "on_topics", looked)
    seen.append(0)
    world.publish([*world.image.topics.values(), *(topic_image(f"x{index}", 1) for index in range(50))])
    while seen.append(0) or world.time.step():
        pass
    assert sum(seen) == 4 * 50
    assert max(seen) <= 2 * 5


def test_what_it_costs_to_tell_groups_of_topics_counts_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LeadingCoordinator()
    for index in range(50):
        told = {"subscribed_topic_names": ["t", "u"], "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        consumer_heartbeat(world, group_id=f"g{index}", member_id="m", member_epoch=0, **told)
    costs = look_at_topics(["t", "u"], world.coordinator._shards, lambda: world.coordinator._topics)
    assert list(costs) == [TOPICS_TOGETHER_COST + 2 * 50 // GROUPS_A_MICROSECOND]


# Answers of many groups and members


@pytest.mark.parametrize("version", [3, 5])
def test_many_groups_are_listed_in_steps(version: int) -> None:
    world = stored(1, 5_000)
    commit(world, 5, group="other", topic="u")
    listed = world.call(LIST, ListGroupsRequest(), version)
    assert not listed.done
    turns = 1
    while world.time.step():
        turns += 1
    names = [group.group_id for group in listed.result().groups]
    assert len(names) == 5_001
    assert turns >= 5_001 * TOLD_COST // TURN_COST


@pytest.mark.parametrize("field", ["states_filter", "types_filter"])
def test_a_filter_of_many_names_is_read_in_steps(field: str) -> None:
    world = stored(1, 10)
    names = [f"x{index}" for index in range(20 * LOWERED_A_STEP)]
    listed = world.call(LIST, ListGroupsRequest(**{field: [*names, "EMPTY", "Classic"]}), 5)
    turns = 0
    while world.time.step():
        turns += 1
    assert turns >= 20 * LOWERED_A_STEP // 4 // TURN_COST
    assert len(listed.result().groups) == 10


def test_groups_listed_while_their_partition_goes_are_left_out() -> None:
    world = stored(1, 5_000)
    listed = world.call(LIST, ListGroupsRequest(), 3)
    (shard,) = world.coordinator._shards
    shard.close()
    while world.time.step():
        pass
    assert (listed.result().error_code, listed.result().groups) == (E.NONE, [])


def test_a_group_of_many_members_is_described_in_steps_as_it_was_at_one_moment() -> None:
    world = stored(1, 1)
    group: Any = machine(world).groups["g0"]
    for index in range(4_000):
        group.add(
            ClassicGroupMember(
                f"m{index}", None, "c", "/h", 1000, 1000, "consumer", (("range", b"x"),), b"a%d" % index
            )
        )
    group.protocol_type, group.protocol_name, group.state = "consumer", "range", ClassicGroupState.STABLE
    asked = DescribeGroupsRequest(groups=["g0", "nobody"])
    answer = world.call(DESCRIBE, asked, 5)
    assert not answer.done
    for member in group.members.values():
        member.assignment = b"later"
    turns = 1
    while world.time.step():
        turns += 1
    assert turns >= 4_000 * TOLD_COST // TURN_COST
    described, nobody = answer.result().groups
    assert [one.member_assignment for one in described.members] == [b"a%d" % index for index in range(4_000)]
    assert nobody.group_state == "Dead"


def test_topics_deleted_while_another_walk_goes_on_are_not_forgotten() -> None:
    world = stored(2_000)
    commit(world, 5, topic="u")
    world.publish([world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]])
    world.publish([world.image.topics[OFFSETS_TOPIC]])
    list(steps_of(world))
    assert not machine(world).offsets.count
    assert not machine(world).offsets.deleting


# Deleted groups


def test_a_large_group_is_deleted_in_steps_and_nobody_uses_it_meanwhile() -> None:
    world = stored(3_000)
    waiting = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    assert not waiting.done
    assert join(world, group="g0").error_code == E.COORDINATOR_NOT_AVAILABLE
    assert commit(world, 5, group="g0") == E.COORDINATOR_NOT_AVAILABLE
    again = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    assert again.results[0].error_code == E.GROUP_ID_NOT_FOUND
    written = list(steps_of(world))
    assert max(written) <= 2 * STRETCH
    assert [each.error_code for each in waiting.result().results] == [E.NONE]
    assert not machine(world).groups
    world.restart()
    assert not machine(world).groups


def test_offsets_whose_transaction_ends_while_a_large_group_is_deleted_go_too() -> None:
    world = stored(3_000)
    world.verifier = Verifier()
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    asked = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g0",
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name="u", partitions=[one])],
    )
    assert world.call(TXN_OFFSET_COMMIT, asked, 5).topics[0].partitions[0].error_code == E.NONE
    waiting = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    assert not waiting.done
    world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2)
    list(steps_of(world))
    assert [each.error_code for each in waiting.result().results] == [E.NONE]
    for _ in range(2):
        assert (machine(world).groups, machine(world).offsets.count) == ({}, 0)
        world.restart()


def test_a_deletion_that_the_log_refuses_half_way_leaves_the_group() -> None:
    world = stored(3_000)
    waiting = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    list(steps_of(world))
    assert [each.error_code for each in waiting.result().results] == [E.COORDINATOR_NOT_AVAILABLE]
    world.partitions.refusal = None
    assert [each.group_state for each in describe(world, "g0")] == ["Empty"]
    assert commit(world, 5, group="g0") == E.NONE


def test_offsets_of_a_deleted_topic_go_although_their_partition_is_loaded_anew_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic that has its name by then does not get them."""
    world = stored(3_000)
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    world.publish(keep)
    world.publish([*keep, topic_image("t", 3_000, b"n" * 16)])
    assert machine(world).offsets.get("g0", "t", 2_998) is not None
    lacks_memory(monkeypatch, 1)
    assert commit(world, 7, topic="u", group="other") == E.NOT_COORDINATOR
    list(steps_of(world))
    assert fetch(world, group="g0", partition=2_998).committed_offset == -1
    assert fetch(world, topic="u", group="other").committed_offset == 7
    assert machine(world).offsets.count == 1
    assert not machine(world).offsets.deleting


def test_a_deletion_whose_part_the_log_refuses_after_a_large_transaction_leaves_the_group() -> None:
    """The part has waited for the end of the transaction, and the log takes the other parts."""
    world = stored(3_000)
    world.publish([*world.image.topics.values(), topic_image("v", 300)])
    commit_in_transaction(world, "g1", "v", 300)
    waiting = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    end_transaction(world)
    world.time.step()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    world.time.step()
    world.partitions.refusal = None
    list(steps_of(world))
    assert [each.error_code for each in waiting.result().results] == [E.COORDINATOR_NOT_AVAILABLE]
    assert [each.group_state for each in describe(world, "g0")] == ["Empty"]


def test_a_deletion_ends_with_its_coordinator() -> None:
    world = stored(3_000)
    waiting = world.call(DELETE, DeleteGroupsRequest(groups_names=["g0"]), 2)
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5)])
    list(steps_of(world))
    assert [each.error_code for each in waiting.result().results] == [E.NOT_COORDINATOR]


def test_many_offsets_are_deleted_in_steps_and_answered_together() -> None:
    world = LeadingCoordinator()
    size = 3_000
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", size)])
    for index in range(0, size, 10):
        commit(world, 1, partition=index)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name="t",
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in range(size)],
            )
        ],
    )
    waiting = world.call(OFFSET_DELETE, request, 0)
    assert not waiting.done
    assert max(steps_of(world)) <= STRETCH
    (topic,) = waiting.result().topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (index, E.NONE) for index in range(size)
    ]
    assert not machine(world).offsets.count
    refused = world.call(OFFSET_DELETE, replace_group(request, "absent"), 0)
    assert refused.error_code == E.GROUP_ID_NOT_FOUND


def replace_group(request: OffsetDeleteRequest, group_id: str) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group_id=group_id, topics=request.topics)


# Loading and unloading


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("per_batch", [10, 3_000])
def test_a_load_replays_a_bounded_number_of_records_a_step(
    monkeypatch: pytest.MonkeyPatch, compression: int, per_batch: int
) -> None:
    partitions = Partitions()
    log = partitions.log_of(NAME)
    for start in range(0, 3_000, per_batch):
        pairs = [pair(1, partition=index) for index in range(start, start + per_batch)]
        log.append(batch(*pairs, compression=compression))
    log.set_high_watermark(log.log_end_offset)
    replayed = 0
    replay = GroupMetadataManager.replay

    def counted(self: GroupMetadataManager, *rest: Any) -> None:
        nonlocal replayed
        replayed += 1
        replay(self, *rest)

    monkeypatch.setattr(GroupMetadataManager, "replay", counted)
    monkeypatch.setattr(HandTime, "advance", lambda *_: None)
    world = LeadingCoordinator(partitions=partitions)
    (shard,) = world.coordinator._shards
    counts = []
    while world.time.step():
        counts.append(replayed)
        replayed = 0
    assert sum(counts) == 3_000
    assert max(counts) <= TURN_COST // RECORD_COST + 1
    assert shard.state is ShardState.ACTIVE
    assert machine(world).offsets.count == 3_000


def test_a_shard_is_closed_at_once_and_taken_apart_in_steps() -> None:
    world = stored(20, 2_000)
    members = form_group(world, 2, group="m")
    parked = join(world, members[0], group="m")
    shard, old = next(iter(world.coordinator._shards)), machine(world)
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5), world.image.topics["t"]])
    assert shard.state is ShardState.CLOSED
    assert commit(world, 5) == E.NOT_COORDINATOR
    left = [old.offsets.count]
    while world.time.step():
        left.append(old.offsets.count)
    assert max(before - after for before, after in pairwise(left)) <= TURN_COST
    assert left[-1] == 0
    assert parked.result().error_code == E.NOT_COORDINATOR


# Large groups


def test_the_members_of_a_large_group_are_told_in_steps() -> None:
    size = 400
    world = LeadingCoordinator()
    ids = [member_id_of(world, session=60_000) for _ in range(size)]
    waiting = [join(world, each, session=60_000) for each in ids]
    told = [0]
    while told[-1] < size and world.time.ms < 30_000:
        world.time.ms += 1_000
        while world.time.step():
            told.append(sum(each.done for each in waiting))
    assert told[-1] == size
    assert max(after - before for before, after in pairwise(told)) <= REPLIES_AT_ONCE + 1
    generation = waiting[0].result().generation_id
    parked = [sync(world, each, generation) for each in ids[1:]]
    sync(world, ids[0], generation, dict.fromkeys(ids, b"a"))
    assert sum(each.done for each in parked) < size - 1
    while world.time.step():
        pass
    assert all(each.result().assignment == b"a" for each in parked)


def test_of_thousands_of_subscriptions_those_that_say_the_same_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    original = subscriptions.subscribed_topics

    def counted(metadata: bytes, most: int) -> list[str]:
        read.append(metadata)
        return original(metadata, most)

    monkeypatch.setattr(subscriptions, "subscribed_topics", counted)
    named = [subscription("t", "u"), subscription("t")]
    owned = [each + b"%d" % index for index in range(500) for each in named]
    assert topics_of_all(owned) == {"t", "u"}
    assert len(read) == 2
    with pytest.raises(MalformedSubscription):
        topics_of_all([b"\x80" + named[0][1:], *owned])
    huge = subscription(*[f"{index:06d}" for index in range(100_000)])
    with pytest.raises(MalformedSubscription):
        topics_of_all([named[0], huge])
    assert len(read) == 4
    many = [f"{index:06d}" for index in range(DISTINCT_TOPICS_MAX + 1)]
    assert topics_of_all([subscription(*many[1:])]) == set(many[1:])
    with pytest.raises(MalformedSubscription):
        topics_of_all([named[0], subscription(*many[1:])])


def test_the_bounds_leave_room() -> None:
    """By the estimates the longest piece takes half of what a step of the loop may take."""
    assert ONE_STEP <= 10_000
    assert REPLY_COST * REPLIES_AT_ONCE <= TURN_COST
