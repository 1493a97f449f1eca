"""The start offsets of share groups: described with their lag, altered, deleted, and deleted with their groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from conftest import Faults
from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api.alter_share_group_offsets import HANDLER as ALTER
from kafkacompat.api.delete_groups import HANDLER as DELETE_GROUPS
from kafkacompat.api.delete_share_group_offsets import HANDLER as DELETE
from kafkacompat.api.describe_share_group_offsets import HANDLER as DESCRIBE
from kafkacompat.api.long_requests import is_cut
from kafkacompat.api.pieces import cut
from kafkacompat.coordinator._tests.kit import NODE_ID, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.group._tests.members import Member
from kafkacompat.group._tests.sharers import GROUP, Sharer, SharingCoordinator, described
from kafkacompat.group._tests.test_share_groups import states
from kafkacompat.group.network_partition_metadata_client import EndOffset, NetworkPartitionMetadataClient
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.net.failures import ConnectionLost, RequestTimedOut, UnsupportedByPeer
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.share.service import ShareError, StateSummary, TopicIdPartition
from kafkacompat.tasks import Tasks
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.errors import error_text
from kafkacompat.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NOT_HERE = error_text(E.UNKNOWN_TOPIC_OR_PARTITION)


class Ends:
    """EndOffsetReader."""

    def __init__(self) -> None:
        self.of: dict[TopicPartition, EndOffset] = {}

    def latest(self, partitions: Any) -> Deferred[Any]:
        return Deferred.of({each: self.of[each] for each in partitions})


@pytest.fixture
def world() -> SharingCoordinator:
    return SharingCoordinator()


def key(world: SharingCoordinator, topic: str, partition: int) -> TopicIdPartition:
    return TopicIdPartition(world.image.topics[topic].id, partition)


def alter(world: SharingCoordinator, *topics: tuple[str, dict[int, int]], group: str = GROUP) -> Any:
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics
        ],
    )
    return world.call(ALTER, request, 0)


def told(answer: Any) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (topic.topic_name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }


def delete(world: SharingCoordinator, *topics: str, group: str = GROUP) -> Any:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )
    return world.call(DELETE, request, 0)


def offsets(world: SharingCoordinator, *topics: tuple[str, list[int]], group: str = GROUP) -> Any:
    asked = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics]
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked if topics else None)]
    )
    (answer,) = world.call_to_the_end(DESCRIBE, request, 1).groups
    return answer


def left_empty(world: SharingCoordinator, *topics: str) -> None:
    """A group with states and without members."""
    one = Sharer(world, "one", *topics)
    one.join()
    one.settle()
    one.leave()


# --- alter


def test_start_offsets_of_a_group_that_does_not_exist_create_it(world: SharingCoordinator) -> None:
    answer = alter(world, ("t", {0: 5, 1: 7}))
    assert (answer.error_code, told(answer)) == (E.NONE, {("t", 0): (0, None), ("t", 1): (0, None)})
    assert world.persister.states == {
        (GROUP, key(world, "t", 0)): (1, 5),
        (GROUP, key(world, "t", 1)): (1, 7),
    }
    assert states(world) == ({}, {"t": [0, 1]}, 0)
    assert described(world)[0].group_state == "Empty"
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    assert one.partitions == {("t", 0), ("t", 1), ("t", 2)}
    assert world.persister.states[GROUP, key(world, "t", 0)] == (1, 5)


def test_start_offsets_are_made_anew(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    assert told(alter(world, ("t", {2: 9})))[("t", 2)][0] == E.NONE
    assert world.persister.states[GROUP, key(world, "t", 2)] == (4, 9)
    assert states(world) == ({}, {"t": [0, 1, 2]}, 0)


def test_partitions_that_do_not_exist_have_no_start_offset(world: SharingCoordinator) -> None:
    answer = alter(world, ("t", {0: 5, 3: 7, -1: 8}), ("nowhere", {0: 1}))
    refused = (E.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE)
    assert told(answer) == {
        ("t", 0): (0, None),
        ("t", 3): refused,
        ("t", -1): refused,
        ("nowhere", 0): refused,
    }
    assert states(world) == ({}, {"t": [0]}, 0)


def test_a_group_with_members_keeps_its_offsets(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    answer = alter(world, ("t", {0: 5}))
    assert (answer.error_code, answer.error_message) == (E.NON_EMPTY_GROUP, "The group is not empty.")
    answer = delete(world, "t")
    assert (answer.error_code, answer.error_message) == (E.NON_EMPTY_GROUP, "The group is not empty.")


def test_a_group_of_another_kind_has_no_start_offsets(world: SharingCoordinator) -> None:
    Member(world, "c", "t").join()
    answer = alter(world, ("t", {0: 5}), group="g")
    assert (answer.error_code, answer.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    answer = delete(world, "t", group="g")
    assert (answer.error_code, answer.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    answer = delete(world, "t", group="nobody")
    assert (answer.error_code, answer.error_message) == (E.GROUP_ID_NOT_FOUND, "Group nobody not found.")


def test_what_the_share_coordinator_refuses_is_told(world: SharingCoordinator) -> None:
    world.persister.refusal = E.NOT_COORDINATOR
    world.persister.refused = {key(world, "t", 1)}
    answer = alter(world, ("t", {0: 5, 1: 6}))
    assert (answer.error_code, {name: code for name, (code, _) in told(answer).items()}) == (
        E.NONE,
        {("t", 0): E.NONE, ("t", 1): E.NOT_COORDINATOR},
    )
    assert states(world) == ({"t": [1]}, {"t": [0]}, 0)


def test_a_start_offset_that_is_told_stays_although_others_are_refused(world: SharingCoordinator) -> None:
    """The next member has the others made. The group knows the topic, so these begin at 0."""
    world.persister.refusal = E.NOT_COORDINATOR
    world.persister.refused = {key(world, "t", 1)}
    alter(world, ("t", {0: 5, 1: 6}))
    world.persister.refusal = E.NONE
    one = Sharer(world, "one", "t")
    one.join()
    world.time.advance(30_000)
    one.settle()
    assert len(one.partitions) == 3
    starts = [world.persister.states[GROUP, key(world, "t", index)][1] for index in range(3)]
    assert starts == [5, 0, 0]


def test_a_member_does_not_undo_an_alteration_that_is_on_its_way(world: SharingCoordinator) -> None:
    """The share coordinator may be looked for longer than until states are made again."""
    world.persister.held = True
    waiting = alter(world, ("t", {0: 5}))
    one = Sharer(world, "one", "t")
    one.join()
    world.time.advance(30_000)
    one.settle()
    assert not waiting.done
    world.persister.release()
    world.time.advance(0)
    assert told(waiting.result()) == {("t", 0): (E.NONE, None)}
    one.settle()
    assert len(one.partitions) == 3
    starts = [world.persister.states[GROUP, key(world, "t", index)][1] for index in range(3)]
    assert starts == [5, 0, 0]


def test_an_alteration_that_fails_leaves_the_states_to_the_members(world: SharingCoordinator) -> None:
    world.persister.held = True
    world.persister.refusal = E.COORDINATOR_NOT_AVAILABLE
    waiting = alter(world, ("t", {0: 5}))
    one = Sharer(world, "one", "t")
    one.join()
    world.persister.refusal = E.NONE
    world.persister.release()
    world.time.advance(30_000)
    assert told(waiting.result())["t", 0][0] == E.COORDINATOR_NOT_AVAILABLE
    one.settle()
    assert len(one.partitions) == 3
    assert world.persister.states[GROUP, key(world, "t", 0)][1] == 0


def test_start_offsets_are_told_when_the_group_has_noted_them(world: SharingCoordinator) -> None:
    world.persister.held = True
    waiting = alter(world, ("t", {0: 5}))
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    world.persister.release()
    world.time.advance(0)
    assert waiting.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert told(alter(world, ("t", {0: 5}))) == {("t", 0): (E.NONE, None)}
    assert states(world) == ({}, {"t": [0]}, 0)


def test_many_start_offsets_are_set_together(world: SharingCoordinator) -> None:
    """In steps, but as one change of the group: the record of all states is written when it begins and when it ends."""
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("many", 2_100)])
    waiting = alter(world, ("many", dict.fromkeys(range(2_101), 3)))
    world.time.advance(0)
    answer = driven_answer(waiting)
    (topic,) = answer.responses
    assert [each.error_code for each in topic.partitions] == [E.NONE] * 2_100 + [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(world.persister.states) == 2_100
    assert [len(offsets) for _, _, _, offsets in world.persister.asked] == [500, 500, 500, 500, 100]
    assert len(world.log().batches) == 2


def test_a_member_that_joins_while_many_start_offsets_are_sorted_keeps_all(world: SharingCoordinator) -> None:
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("many", 2_100), topic_image("t", 3)])
    waiting = alter(world, ("many", dict.fromkeys(range(2_100), 3)))
    assert not waiting.done
    Sharer(world, "one", "t").join()
    assert waiting.result().error_code == E.NON_EMPTY_GROUP
    assert {each.topic_id for _, each in world.persister.states} == {world.image.topics["t"].id}


def test_a_topic_that_is_deleted_while_start_offsets_are_sorted_gets_none(world: SharingCoordinator) -> None:
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("many", 2_100), topic_image("t", 3)])
    waiting = alter(world, ("t", {0: 4}), ("many", dict.fromkeys(range(2_100), 3)))
    assert not waiting.done
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 3)])
    world.time.advance(0)
    answer = told(waiting.result())
    assert answer["t", 0] == (E.NONE, None)
    assert answer["many", 0] == (E.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE)
    assert states(world) == ({}, {"t": [0]}, 0)


def test_a_topic_without_partitions_is_told_if_it_exists(world: SharingCoordinator) -> None:
    answer = alter(world, ("t", {}), ("nowhere", {}))
    assert (answer.error_code, [topic.topic_name for topic in answer.responses]) == (E.NONE, ["t"])
    assert alter(world).responses == []


def test_start_offsets_of_a_topic_that_is_named_twice_are_put_together(world: SharingCoordinator) -> None:
    answer = alter(world, ("t", {0: 5, 1: 6}), ("t", {1: 7, 2: 8}))
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == [0, 1, 1, 2]
    offsets = {each.partition: offset for (_, each), (_, offset) in world.persister.states.items()}
    assert offsets == {0: 5, 1: 7, 2: 8}
    assert states(world) == ({}, {"t": [0, 1, 2]}, 0)


def driven_answer(answer: Any) -> Any:
    return answer.result() if isinstance(answer, Deferred) else answer


# --- delete


def test_a_topics_states_are_deleted(world: SharingCoordinator) -> None:
    left_empty(world, "t", "u")
    answer = delete(world, "t", "nowhere")
    assert [
        (each.topic_name, each.topic_id, each.error_code, each.error_message) for each in answer.responses
    ] == [
        ("t", world.image.topics["t"].id, E.NONE, None),
        ("nowhere", bytes(16), E.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE),
    ]
    assert set(world.persister.states) == {(GROUP, key(world, "u", 0))}
    assert states(world) == ({}, {"u": [0]}, 0)


def test_a_topic_without_states_has_none_to_delete(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    (answer,) = delete(world, "u").responses
    assert (answer.error_code, answer.error_message) == (
        E.UNKNOWN_TOPIC_OR_PARTITION,
        "There is no offset information to delete.",
    )


def test_a_deletion_that_failed_may_be_repeated(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.persister.refusal = E.COORDINATOR_NOT_AVAILABLE
    (answer,) = delete(world, "t").responses
    assert (answer.topic_name, answer.error_code, answer.error_message) == (
        "t",
        E.COORDINATOR_NOT_AVAILABLE,
        "The coordinator is not available.",
    )
    assert states(world) == ({}, {}, 1)
    world.restart()
    assert states(world) == ({}, {}, 1)
    world.persister.refusal = E.NONE
    (answer,) = delete(world, "t").responses
    assert (answer.error_code, states(world)) == (E.NONE, ({}, {}, 0))


def test_a_topic_that_is_used_again_is_not_deleted(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.persister.refusal = E.COORDINATOR_NOT_AVAILABLE
    delete(world, "t")
    world.persister.refusal = E.NONE
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    assert (one.partitions, states(world)[1:]) == ({("t", 0), ("t", 1), ("t", 2)}, ({"t": [0, 1, 2]}, 0))


# --- deletion of groups


def deleted(world: SharingCoordinator, *groups: str) -> dict[str, int]:
    answer = world.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=list(groups)), 2)
    return {each.group_id: each.error_code for each in answer.results}


def test_a_group_is_deleted_with_its_states(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    assert deleted(world, GROUP, "nobody") == {GROUP: E.NONE, "nobody": E.GROUP_ID_NOT_FOUND}
    assert world.persister.states == {}
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    world.restart()
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    assert deleted(world, GROUP) == {GROUP: E.NON_EMPTY_GROUP}
    assert [call for call, *_ in world.persister.asked] == ["initialize"]


def test_a_group_whose_states_cannot_be_deleted_stays(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.persister.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
    assert deleted(world, GROUP) == {GROUP: E.COORDINATOR_LOAD_IN_PROGRESS}
    assert states(world) == ({}, {}, 1)
    world.persister.refusal = E.NONE
    assert deleted(world, GROUP) == {GROUP: E.NONE}


def test_a_group_that_gets_a_member_while_its_states_are_deleted_stays(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.persister.held = True
    answer = world.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert not answer.done
    Sharer(world, "one", "t").join()
    world.persister.release()
    assert answer.result().results[0].error_code == E.NON_EMPTY_GROUP


def test_states_that_are_made_before_they_are_deleted_are_made_again_for_the_next_member(
    world: SharingCoordinator,
) -> None:
    world.persister.held = True
    one = Sharer(world, "one", "t")
    one.join()
    one.leave()
    answer = world.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[GROUP]), 2)
    made, outcome = world.persister._waiting.pop(0)
    made.resolve(outcome)
    world.time.advance(0)
    two = Sharer(world, "two", "t")
    two.join()
    world.persister.release()
    assert answer.result().results[0].error_code == E.NON_EMPTY_GROUP
    two.settle()
    assert two.partitions == {("t", 0), ("t", 1), ("t", 2)}
    assert {each for _, each in world.persister.states} == {key(world, "t", index) for index in range(3)}


def test_a_group_whose_member_is_being_written_is_not_deleted(world: SharingCoordinator) -> None:
    """The append of the member's records answers whoever waits, so that the deletion goes on before they are replayed."""
    left_empty(world, "t")
    world.persister.held = True
    answer = world.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[GROUP]), 2)
    append = world.partitions.append_built

    def answering(*given: Any, **options: Any) -> Any:
        result = append(*given, **options)
        world.partitions.append_built = append  # type: ignore[method-assign]
        world.persister.release()
        return result

    world.partitions.append_built = answering  # type: ignore[method-assign]
    assert Sharer(world, "one", "t").join().error_code == E.NONE
    assert answer.result().results[0].error_code == E.NON_EMPTY_GROUP
    world.restart()
    assert [each.member_id for each in described(world)[0].members] == ["one"]


def test_an_empty_group_does_not_expire(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.time.advance(30 * 24 * 3_600_000)
    assert described(world)[0].group_state == "Empty"


# --- describe


def with_offsets(world: SharingCoordinator) -> None:
    left_empty(world, "t")
    world.coordinator.share_offsets._ends = Ends()  # type: ignore[assignment]  # as much of it as is used
    world.coordinator.share_offsets._ends.of = {  # type: ignore[attr-defined]
        TopicPartition("t", 0): EndOffset(E.NONE, 100),
        TopicPartition("t", 2): EndOffset(E.LEADER_NOT_AVAILABLE),
    }
    world.persister.summaries = {
        (GROUP, key(world, "t", 0)): StateSummary(start_offset=10, leader_epoch=3, delivery_complete_count=7),
        (GROUP, key(world, "t", 1)): StateSummary(start_offset=20, leader_epoch=4),
        (GROUP, key(world, "t", 2)): StateSummary(start_offset=30, leader_epoch=5, delivery_complete_count=0),
    }


def rows(answer: Any) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    return {
        (topic.topic_name, each.partition_index): (
            each.start_offset,
            each.leader_epoch,
            each.lag,
            each.error_code,
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def test_offsets_are_told_with_their_lag(world: SharingCoordinator) -> None:
    with_offsets(world)
    expected = {
        ("t", 0): (10, 3, 83, E.NONE),
        ("t", 1): (20, 4, -1, E.NONE),
        ("t", 2): (0, 0, -1, E.LEADER_NOT_AVAILABLE),
    }
    assert rows(offsets(world)) == expected
    assert rows(offsets(world, ("t", [0, 1, 2]))) == expected
    assert rows(offsets(world, ("t", [1]))) == {("t", 1): (20, 4, -1, E.NONE)}


def test_a_topic_that_is_made_anew_while_its_state_is_read_lends_no_lag_to_the_former_one(
    world: SharingCoordinator,
) -> None:
    with_offsets(world)
    summaries = world.persister.summaries
    reading: Deferred[Any] = Deferred()
    world.persister.read_summary = lambda group_id, partitions: reading  # type: ignore[method-assign]
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
    former = key(world, "t", 0)
    answer = world.call_to_the_end(DESCRIBE, DescribeShareGroupOffsetsRequest(groups=[group]), 1)
    others = [each for each in world.image.topics.values() if each.name != "t"]
    world.publish([*others, topic_image("t", 3, b"n" * 16)])
    reading.resolve({former: summaries[GROUP, former]})
    (told,) = answer.result().groups
    assert told.topics[0].topic_id == former.topic_id
    assert rows(told) == {("t", 0): (-1, 0, -1, E.NONE)}


def test_offsets_that_do_not_exist_are_absent(world: SharingCoordinator) -> None:
    with_offsets(world)
    answer = offsets(world, ("u", [0]), ("nowhere", [0]))
    assert rows(answer) == {("u", 0): (-1, -1, -1, E.NONE), ("nowhere", 0): (-1, 0, -1, E.NONE)}
    assert [topic.topic_id for topic in answer.topics] == [world.image.topics["u"].id, bytes(16)]
    assert (offsets(world, group="nobody").error_code, offsets(world, group="nobody").topics) == (E.NONE, [])


def test_partitions_that_cannot_be_fail_the_group(world: SharingCoordinator) -> None:
    """Kafka's persister refuses them. Of a topic that does not exist, whatever is asked is absent."""
    with_offsets(world)
    for asked in ([-1], [0, -1], []):
        answer = offsets(world, ("t", [0]), ("t", asked), ("nowhere", [0]))
        assert (answer.error_code, answer.error_message, answer.topics) == (
            E.UNKNOWN_SERVER_ERROR,
            error_text(E.UNKNOWN_SERVER_ERROR),
            [],
        )
    assert rows(offsets(world, ("nowhere", [-1]))) == {("nowhere", -1): (-1, 0, -1, E.NONE)}


def test_a_partition_that_a_topic_does_not_have_is_absent(world: SharingCoordinator) -> None:
    """The share coordinator is not asked: it would have to be asked again for half a minute."""
    with_offsets(world)
    asked: list[TopicIdPartition] = []
    read = world.persister.read_summary

    def noted(group_id: str, partitions: Any) -> Any:
        asked.extend(partitions)
        return read(group_id, partitions)

    world.persister.read_summary = noted  # type: ignore[method-assign]
    assert rows(offsets(world, ("t", [1, 3, 2**31 - 1]))) == {
        ("t", 1): (20, 4, -1, E.NONE),
        ("t", 3): (-1, 0, -1, E.NONE),
        ("t", 2**31 - 1): (-1, 0, -1, E.NONE),
    }
    assert asked == [key(world, "t", 1)]


def test_a_partition_that_is_named_twice_is_told_once(world: SharingCoordinator) -> None:
    with_offsets(world)
    (topic,) = offsets(world, ("t", [1, 1]), ("t", [1])).topics
    assert [each.partition_index for each in topic.partitions] == [1]


def test_a_state_that_cannot_be_read_is_absent(world: SharingCoordinator) -> None:
    with_offsets(world)
    world.persister.summaries[GROUP, key(world, "t", 0)] = StateSummary(
        ShareError(E.NOT_COORDINATOR), start_offset=5, leader_epoch=9, delivery_complete_count=1
    )
    assert rows(offsets(world, ("t", [0]))) == {("t", 0): (-1, 0, -1, E.NONE)}


def test_nobody_describes_before_the_start(world: SharingCoordinator) -> None:
    world.coordinator.stop()
    answer = offsets(world)
    assert (answer.error_code, answer.error_message) == (
        E.COORDINATOR_NOT_AVAILABLE,
        "The coordinator is not available.",
    )
    assert alter(world, ("t", {0: 1})).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert delete(world, "t").error_code == E.COORDINATOR_NOT_AVAILABLE


def test_a_group_id_is_needed(world: SharingCoordinator) -> None:
    """Only a question for all partitions is answered without one, as Kafka answers it."""
    assert alter(world, ("t", {0: 1}), group="").error_code == E.INVALID_GROUP_ID
    assert (offsets(world, group="").error_code, offsets(world, group="").topics) == (E.NONE, [])
    answer = delete(world, "t", group="")
    assert (answer.error_code, answer.error_message) == (E.INVALID_GROUP_ID, "The group id is invalid.")


def test_without_the_feature_nothing_is_served(world: SharingCoordinator) -> None:
    world.image.features["share.version"] = 0  # type: ignore[index]  # a dict here
    assert offsets(world).error_code == E.UNSUPPORTED_VERSION
    answer = alter(world, ("t", {0: 1}))
    assert (answer.error_code, answer.error_message) == (
        E.UNSUPPORTED_VERSION,
        "The version of API is not supported.",
    )
    assert delete(world, "t").error_code == E.UNSUPPORTED_VERSION


def test_topics_without_rights_are_refused(world: SharingCoordinator) -> None:
    with_offsets(world)
    node = world.node
    node.authorizer = authorizer(allow(ResourceType.GROUP, AclOperation.READ, GROUP))

    def ask(handler: Any, request: Any) -> Any:
        answer = handler.function(node, context(request.API_KEY, 0), request)
        if not isinstance(answer, Deferred) and not hasattr(answer, "API_KEY"):
            answer = world.tasks.run("a request", answer)
        return answer.result() if isinstance(answer, Deferred) else answer

    every = [DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
    for asked, expected in ((every, {("t", 0): (-1, 0, -1, E.TOPIC_AUTHORIZATION_FAILED)}), (None, {})):
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=asked)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        assert rows(ask(DESCRIBE, request).groups[0]) == expected
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    altered = ask(ALTER, AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]))
    refused = (E.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    assert told(altered) == {("t", 0): refused}
    names = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    (gone,) = ask(DELETE, DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=names)).responses
    assert (gone.error_code, gone.error_message) == refused


# --- end offsets of other nodes


class Channel:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Deferred[Any]] = []

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        self.asked.append(message)
        self.answers.append(Deferred())
        return self.answers[-1]


def reader(world: SharingCoordinator, channel: Channel | None) -> NetworkPartitionMetadataClient:
    world.publish(
        [
            topic_image(OFFSETS_TOPIC, 1),
            topic_image("here", 1),
            topic_image("there", 2, leader=NODE_ID + 1),
            topic_image("nobody", 1, leader=-1),
        ]
    )

    class Own:
        def list_offset(self, partition: TopicPartition, *rest: Any) -> OffsetLookup:
            return OffsetLookup(E.NONE, offset=42)

    return NetworkPartitionMetadataClient(
        NODE_ID,
        Own(),  # type: ignore[arg-type]  # as much of it as is used
        lambda: world.image,
        lambda node_id: channel,
        Tasks(world.time),
    )


def test_each_leader_is_asked_for_its_end_offsets(world: SharingCoordinator) -> None:
    channel = Channel()
    names = [TopicPartition(name, index) for name, index in (("here", 0), ("there", 0), ("there", 1))]
    answer = reader(world, channel).latest([*names, TopicPartition("nobody", 0), TopicPartition("absent", 0)])
    (request,) = channel.asked
    assert [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics
    ] == [("there", [0, 1])]
    channel.answers[0].resolve(
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="there", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=7)]
                )
            ]
        )
    )
    assert answer.result() == {
        TopicPartition("here", 0): EndOffset(E.NONE, 42),
        TopicPartition("there", 0): EndOffset(E.NONE, 7),
        TopicPartition("there", 1): EndOffset(E.UNKNOWN_TOPIC_OR_PARTITION),
        TopicPartition("nobody", 0): EndOffset(E.LEADER_NOT_AVAILABLE),
        TopicPartition("absent", 0): EndOffset(E.LEADER_NOT_AVAILABLE),
    }


@pytest.mark.parametrize(
    ("failure", "attempts", "code"),
    [
        (ConnectionLost("x"), 6, E.NETWORK_EXCEPTION),
        (RequestTimedOut("x"), 6, E.REQUEST_TIMED_OUT),
        (UnsupportedByPeer("x"), 1, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_leader_that_does_not_answer_is_asked_again(
    world: SharingCoordinator, failure: Exception, attempts: int, code: E
) -> None:
    channel = Channel()
    answer = reader(world, channel).latest([TopicPartition("there", 0)])
    for attempt in range(attempts):
        assert not answer.done
        channel.answers[attempt].fail(failure)
        world.time.advance(1_000 << attempt)
    assert answer.result() == {TopicPartition("there", 0): EndOffset(code)}
    assert len(channel.asked) == attempts


def test_a_bug_behind_the_question_is_reported(world: SharingCoordinator, faults: Faults) -> None:
    channel = Channel()
    answer = reader(world, channel).latest([TopicPartition("there", 0)])
    bug = KeyError("a bug")
    channel.answers[0].fail(bug)
    assert answer.result() == {TopicPartition("there", 0): EndOffset(E.UNKNOWN_SERVER_ERROR)}
    assert faults.take() == [bug]


def test_a_node_without_an_address_is_lost(world: SharingCoordinator) -> None:
    ends = reader(world, None)
    answer = ends.latest([TopicPartition("there", 0)])
    world.time.advance(100_000)
    assert answer.result() == {TopicPartition("there", 0): EndOffset(E.NETWORK_EXCEPTION)}


def test_nothing_is_asked_again_after_the_end(world: SharingCoordinator) -> None:
    channel = Channel()
    ends = reader(world, channel)
    answer = ends.latest([TopicPartition("there", 0)])
    ends.close()
    assert answer.result() == {TopicPartition("there", 0): EndOffset(E.NETWORK_EXCEPTION)}


def test_many_offsets_are_told_in_pieces(world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One group may be asked for half a million topics that need not exist."""
    left_empty(world, "t", "u")
    world.coordinator.share_offsets._ends = Ends()  # type: ignore[assignment]  # as much of it as is used
    asked = [("t", [0, 1, 2]), ("gone", [7]), ("u", [0]), ("never", [0, 1, 2, 3, 4]), ("t", [5])]
    at_once = offsets(world, *asked)
    for most in (1, 2, 3, 4):
        monkeypatch.setattr("kafkacompat.api.describe_share_group_offsets.PIECE", most)
        monkeypatch.setattr("kafkacompat.api.describe_share_group_offsets.cut", partial(cut, most=most))
        assert offsets(world, *asked) == at_once
    sizes: list[int] = []
    describe = world.coordinator.share_offsets.describe

    def counted(request: Any, context: Any) -> Any:
        sizes.append(sum(len(topic.partitions) for group in request.groups for topic in group.topics))
        return describe(request, context)

    world.coordinator.share_offsets.describe = counted  # type: ignore[method-assign]
    offsets(world, *asked)
    assert max(sizes) <= 4


def test_no_piece_waits_for_another(world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a share coordinator is looked for, each may take half a minute."""
    with_offsets(world)
    monkeypatch.setattr("kafkacompat.api.describe_share_group_offsets.PIECE", 1)
    monkeypatch.setattr("kafkacompat.api.describe_share_group_offsets.cut", partial(cut, most=1))
    waiting: list[tuple[Any, Deferred[Any]]] = []

    def held(group_id: str, partitions: Any) -> Deferred[Any]:
        waiting.append((partitions, Deferred()))
        return waiting[-1][1]

    world.persister.read_summary = held  # type: ignore[method-assign]
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0, 1, 2])
    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
    answer = world.call_to_the_end(DESCRIBE, DescribeShareGroupOffsetsRequest(groups=[group]), 1)
    assert [[each.partition for each in partitions] for partitions, _ in waiting] == [[0], [1], [2]]
    for partitions, one in waiting:
        one.resolve(dict.fromkeys(partitions, StateSummary(start_offset=8)))
    assert {index: row[0] for (_, index), row in rows(answer.result().groups[0]).items()} == {
        0: 8,
        1: 8,
        2: 8,
    }


def test_no_group_waits_for_another(world: SharingCoordinator) -> None:
    """As with pieces of a group. An administrator asks for all groups of a coordinator at once."""
    with_offsets(world)
    waiting: list[tuple[str, Deferred[Any]]] = []

    def held(group_id: str, partitions: Any) -> Deferred[Any]:
        waiting.append((group_id, Deferred()))
        return waiting[-1][1]

    world.persister.read_summary = held  # type: ignore[method-assign]
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    names = [f"g{number}" for number in range(100)]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=[topic]) for name in names]
    assert DESCRIBE.slices is not None
    assert not is_cut(groups, DESCRIBE.slices.step)
    request = DescribeShareGroupOffsetsRequest(groups=groups)
    answer = world.call_to_the_end(DESCRIBE, request, 1)
    assert [group_id for group_id, _ in waiting] == names
    for number, (_, one) in enumerate(waiting):
        one.resolve({key(world, "t", 0): StateSummary(start_offset=number)})
    told = [(group.group_id, group.topics[0].partitions[0].start_offset) for group in answer.result().groups]
    assert told == [(name, number) for number, name in enumerate(names)]


def test_a_lag_that_is_too_large_wraps(world: SharingCoordinator) -> None:
    """An administrator of one group may set any start offset. Nobody else's description may fail over it."""
    with_offsets(world)
    least = -(2**63)
    world.persister.summaries[GROUP, key(world, "t", 0)] = StateSummary(
        start_offset=least, leader_epoch=3, delivery_complete_count=7
    )
    answer = offsets(world, ("t", [0]))
    assert rows(answer) == {("t", 0): (least, 3, least + 93, E.NONE)}
    response = DescribeShareGroupOffsetsResponse(groups=[answer])
    assert encode(response, 1)
