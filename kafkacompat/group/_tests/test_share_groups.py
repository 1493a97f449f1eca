"""Share groups of KIP-932 through the coordinator: members that join, share partitions, leave and are lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api.consumer_group_describe import HANDLER as DESCRIBE_CONSUMERS
from kafkacompat.api.consumer_group_heartbeat import HANDLER as CONSUMER_HEARTBEAT
from kafkacompat.api.describe_groups import HANDLER as DESCRIBE_CLASSIC
from kafkacompat.api.list_groups import HANDLER as LIST
from kafkacompat.api.offset_delete import HANDLER as OFFSET_DELETE
from kafkacompat.api.share_group_heartbeat import HANDLER as HEARTBEAT
from kafkacompat.coordinator._tests.clients import commit, fetch, join
from kafkacompat.coordinator._tests.kit import topic_image
from kafkacompat.group import image_topics, share_groups
from kafkacompat.group._tests.members import Member
from kafkacompat.group._tests.sharers import GROUP, Sharer, SharingCoordinator, described, heartbeat
from kafkacompat.group._tests.test_consumer_groups import subscribing_to_many
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.records import ShareGroupRecord
from kafkacompat.group.share import heartbeat as share_heartbeat
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share_groups import ASKED_AT_ONCE
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.records.batch import HEADER_SIZE, iterate_batches
from kafkacompat.records.scan import walk_records
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.share.service import ShareError, TopicIdPartition
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

T0, T1, T2 = (("t", index) for index in range(3))


@pytest.fixture
def world() -> SharingCoordinator:
    return SharingCoordinator()


def group_of(world: SharingCoordinator, group_id: str = GROUP) -> ShareGroup:
    group = machine_of(world.coordinator._shards.shard_for(group_id)).groups[group_id]
    assert isinstance(group, ShareGroup)
    return group


def states(world: SharingCoordinator) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
    """Initializing and initialized by topic name, and how many topics are being deleted."""
    found = group_of(world).states
    if found is None:
        return {}, {}, 0
    by_name = [
        {each.name: sorted(each.partitions) for each in named.values()}
        for named in (found.initializing, found.initialized)
    ]
    return by_name[0], by_name[1], len(found.deleting)


def state(world: SharingCoordinator, group_id: str = GROUP) -> Any:
    """Everything of a group that its records keep."""
    group = group_of(world, group_id)
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.metadata_hash,
        dict(group.members),
        dict(group.targets),
        dict(group.topic_names),
        group.states,
        {topic_id: dict(counts) for topic_id, counts in group._assigned.items()},
    )


def kinds_written(world: SharingCoordinator, since: int) -> list[int]:
    """The types of the records of share groups in the log."""
    machine = machine_of(world.coordinator._shards.shard_for(GROUP))
    found = []
    for record in list_records(world)[since:]:
        decoded = machine.decode(*record)
        assert isinstance(decoded, ShareGroupRecord)
        found.append(decoded.key.API_KEY)
    return found


def list_records(world: SharingCoordinator) -> list[tuple[bytes, bytes | None]]:
    return [
        (record.key or b"", record.value)
        for batch in world.log().batches
        for header in iterate_batches(batch)
        for record in walk_records(batch[HEADER_SIZE:], header.record_count, header.base_timestamp_ms, 0)
    ]


# --- assignment


def test_a_member_gets_what_has_a_state(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t", "u")
    joined = one.join()
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (E.NONE, "one", 2)
    assert (joined.heartbeat_interval_ms, joined.assignment.topic_partitions) == (5_000, [])
    assert states(world) == ({}, {"t": [0, 1, 2], "u": [0]}, 0)
    one.beat()
    assert (one.epoch, one.partitions) == (3, {T0, T1, T2, ("u", 0)})
    assert one.beat().assignment is None
    (group,) = described(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, len(group.members)) == ("simple", 1)


def test_more_members_than_partitions_share_them(world: SharingCoordinator) -> None:
    members = [Sharer(world, f"m{index}", "u") for index in range(3)]
    for member in members:
        member.join()
    for member in members:
        member.settle()
    assert [member.partitions for member in members] == [{("u", 0)}] * 3


def test_members_that_leave_hand_on(world: SharingCoordinator) -> None:
    one, two = Sharer(world, "one", "t"), Sharer(world, "two", "t")
    one.join()
    two.join()
    one.settle()
    two.settle()
    assert (len(one.partitions), len(two.partitions), one.partitions & two.partitions) == (2, 1, set())
    left = one.leave()
    assert (left.error_code, left.member_id, left.member_epoch) == (E.NONE, "one", -1)
    two.settle()
    assert two.partitions == {T0, T1, T2}
    two.leave()
    (group,) = described(world)
    assert (group.group_state, group.members) == ("Empty", [])
    assert states(world)[1] == {"t": [0, 1, 2]}


def test_a_session_that_ends_fences_the_member(world: SharingCoordinator) -> None:
    one, two = Sharer(world, "one", "t"), Sharer(world, "two", "t")
    one.join()
    two.join()
    for _ in range(9):
        world.time.advance(5_000)
        two.beat()
    assert [each.member_id for each in described(world)[0].members] == ["two"]
    assert two.partitions == {T0, T1, T2}
    refused = one.beat()
    assert (refused.error_code, refused.error_message) == (
        E.UNKNOWN_MEMBER_ID,
        "Member one is not a member of group s.",
    )


def test_a_session_that_cannot_be_ended_in_the_log_is_ended_later(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    world.time.advance(45_000)
    assert described(world)[0].members
    world.partitions.refusal = None
    world.time.advance(500)
    assert not described(world)[0].members


def test_a_member_that_cannot_leave_in_the_log_keeps_its_session(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert one.leave().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert described(world)[0].members
    world.time.advance(45_000)
    assert not described(world)[0].members


def test_other_topics_are_other_partitions(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    answer = one.beat(subscribed_topic_names=["u"])
    assert answer.assignment.topic_partitions == []
    one.settle()
    assert one.partitions == {("u", 0)}
    assert states(world)[1] == {"t": [0, 1, 2], "u": [0]}


def test_new_partitions_get_a_state_and_are_assigned(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 5)])
    one.beat()
    asked = world.persister.asked[-1]
    assert {each.partition for each in asked[3]} == {3, 4}
    one.settle()
    assert one.partitions == {("t", index) for index in range(5)}


def test_a_topic_that_comes_later(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "later")
    one.join()
    one.settle()
    assert (one.partitions, world.persister.asked) == (set(), [])
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("later", 2)])
    one.settle()
    assert one.partitions == {("later", 0), ("later", 1)}


def test_a_deleted_topic_is_forgotten(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t", "u")
    one.join()
    one.settle()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("u", 1)])
    world.time.advance(0)
    assert states(world) == ({}, {"u": [0]}, 0)
    one.settle()
    assert one.partitions == {("u", 0)}
    world.publish(
        [topic_image(OFFSETS_TOPIC, 1), topic_image("u", 1), topic_image("t", 1, bytes(15) + b"\7")]
    )
    one.settle()
    assert one.partitions == {("u", 0), T0}


def test_a_topic_that_is_deleted_while_nobody_coordinates_is_forgotten(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t", "u")
    one.join()
    one.settle()
    world.coordinator.stop()
    world.image = replace(
        world.image,
        topics={name: topic for name, topic in world.image.topics.items() if name != "t"},
        topics_by_id={key: topic for key, topic in world.image.topics_by_id.items() if topic.name != "t"},
    )
    world.restart()
    assert states(world) == ({}, {"u": [0]}, 0)


@pytest.mark.parametrize("at_load", [False, True], ids=["while it leads", "when it loads"])
def test_a_deleted_topic_that_the_log_did_not_let_go_is_forgotten_later(
    world: SharingCoordinator, at_load: bool
) -> None:
    one = Sharer(world, "one", "t", "u")
    one.join()
    one.settle()
    world.partitions.refusal = E.KAFKA_STORAGE_ERROR
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("u", 1)])
    world.time.advance(0)
    if at_load:
        world.restart()
    assert states(world) == ({}, {"t": [0, 1, 2], "u": [0]}, 0)
    world.time.advance(world.settings.retention_check_interval_ms)
    assert states(world)[1].keys() == {"t", "u"}
    world.partitions.refusal = None
    world.time.advance(world.settings.retention_check_interval_ms)
    assert states(world) == ({}, {"u": [0]}, 0)


# --- intervals and limits


def test_an_assignment_waits_for_its_interval() -> None:
    world = SharingCoordinator(assignment_interval_ms=1_000)
    one = Sharer(world, "one", "t")
    one.join()
    assert (one.beat().member_epoch, one.partitions) == (2, set())
    assert described(world)[0].group_epoch == 3
    world.time.advance(1_000)
    assert (one.beat().member_epoch, one.partitions) == (3, {T0, T1, T2})


def test_the_settings_of_a_group_count(world: SharingCoordinator) -> None:
    world.image = replace(
        world.image,
        configs={
            (ConfigResourceType.GROUP, GROUP): {
                "share.session.timeout.ms": "50000",
                "share.heartbeat.interval.ms": "7000",
                "share.assignment.interval.ms": "2000",
            }
        },
    )
    world.coordinator.on_image(world.image, world.image)
    one = Sharer(world, "one", "t")
    assert one.join().heartbeat_interval_ms == 7_000
    world.time.advance(1_999)
    assert one.beat().member_epoch == 2
    world.time.advance(1)
    assert one.beat().member_epoch == 3
    world.time.advance(49_999)
    assert described(world)[0].members
    world.time.advance(1)
    assert not described(world)[0].members


def test_a_group_is_full() -> None:
    world = SharingCoordinator(max_size=1)
    one = Sharer(world, "one", "t")
    one.join()
    refused = Sharer(world, "two", "t").join()
    assert (refused.error_code, refused.error_message) == (
        E.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    assert one.join().error_code == E.NONE


def test_a_large_group_is_assigned_in_steps(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_heartbeat, "AT_ONCE_UNITS", 2)
    one, two = Sharer(world, "one", "t"), Sharer(world, "two", "t")
    one.join()
    one.settle()
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="two", member_epoch=0, subscribed_topic_names=["t"]
    )
    joined = world.call(HEARTBEAT, request, 1)
    assert (joined.member_epoch, joined.assignment.topic_partitions) == (3, [])
    world.time.advance(0)
    two.epoch = joined.member_epoch
    two.settle()
    one.settle()
    assert (one.epoch, two.epoch, len(one.partitions | two.partitions)) == (4, 4, 3)


def test_the_first_assignment_of_many_partitions_is_made_in_steps(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states are there already, from an earlier member."""
    monkeypatch.setattr(share_heartbeat, "FIRST_AT_ONCE_UNITS", 2)
    one, two = Sharer(world, "one", "t"), Sharer(world, "two", "t")
    one.join()
    one.settle()
    one.leave()
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="two", member_epoch=0, subscribed_topic_names=["t"]
    )
    joined = world.call(HEARTBEAT, request, 1)
    assert joined.assignment.topic_partitions == []
    world.time.advance(0)
    two.epoch = joined.member_epoch
    two.settle()
    assert len(two.partitions) == 3


def test_the_states_of_many_partitions_are_asked_for_some_in_each_turn(world: SharingCoordinator) -> None:
    count = 2 * ASKED_AT_ONCE + 3
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("many", count), topic_image("few", 5)])
    world.time.advance(0)
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="one", member_epoch=0, subscribed_topic_names=["many", "few"]
    )
    world.call(HEARTBEAT, request, 1)
    in_turns = []
    while len(world.persister.states) < count + 5:
        before = len(world.persister.states)
        assert world.time.step()
        in_turns.append(len(world.persister.states) - before)
    assert [each for each in in_turns if each] == [ASKED_AT_ONCE, ASKED_AT_ONCE, 8]
    world.time.advance(0)
    initializing, initialized, _ = states(world)
    assert (initializing, {name: len(each) for name, each in initialized.items()}) == (
        {},
        {"few": 5, "many": count},
    )


# --- refusals


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": "  "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ({"member_id": ""}, None),
        ({"member_id": "m" * 37}, None),
        ({"member_id": "\U0001f600" * 19}, None),
    ],
)
def test_a_bad_request_is_refused(
    world: SharingCoordinator, fields: dict[str, Any], message: str | None
) -> None:
    answer = heartbeat(world, **{"member_id": "m", "subscribed_topic_names": ["t"], **fields})
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)


def test_a_member_id_may_have_36_characters(world: SharingCoordinator) -> None:
    assert Sharer(world, "m" * 36, "t").join().error_code == E.NONE


def test_only_a_member_that_joins_creates_a_group(world: SharingCoordinator) -> None:
    answer = heartbeat(world, member_id="m", member_epoch=3)
    assert (answer.error_code, answer.error_message) == (E.GROUP_ID_NOT_FOUND, "Share group s not found.")
    answer = heartbeat(world, member_id="m", member_epoch=-1)
    assert (answer.error_code, answer.error_message) == (E.GROUP_ID_NOT_FOUND, "Group s not found.")


def test_an_unknown_member_is_refused(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    for epoch in (1, 5, -1):
        answer = heartbeat(world, member_id="two", member_epoch=epoch)
        assert (answer.error_code, answer.error_message) == (
            E.UNKNOWN_MEMBER_ID,
            "Member two is not a member of group s.",
        )


def test_epochs_fence(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    Sharer(world, "two", "t", "u").join()
    group_of(world).set_group_epoch(4, group_of(world).metadata_hash)
    one.settle()
    assert (one.epoch, group_of(world).members["one"].previous_member_epoch) == (4, 2)
    assert heartbeat(world, member_id="one", member_epoch=2).error_code == E.NONE
    answer = heartbeat(world, member_id="one", member_epoch=5)
    assert (answer.error_code, answer.error_message) == (
        E.FENCED_MEMBER_EPOCH,
        "The share group member has a greater member epoch (5) than the one known by the group coordinator (4). The "
        "member must abandon all its partitions and rejoin.",
    )
    answer = heartbeat(world, member_id="one", member_epoch=3)
    assert (answer.error_code, answer.error_message) == (
        E.FENCED_MEMBER_EPOCH,
        "The share group member has a smaller member epoch (3) than the one known by the group coordinator (4), and it "
        "does not match the previous member epoch (2). The member must abandon all its partitions and rejoin.",
    )
    assert one.join().error_code == E.NONE
    assert one.partitions == group_of_names(world, "one")


def group_of_names(world: SharingCoordinator, member_id: str) -> set[tuple[str, int]]:
    (group,) = described(world)
    (member,) = [each for each in group.members if each.member_id == member_id]
    return {
        (each.topic_name, index) for each in member.assignment.topic_partitions for index in each.partitions
    }


def test_nobody_is_served_before_the_start_and_without_the_feature(world: SharingCoordinator) -> None:
    world.coordinator.stop()
    assert Sharer(world, "one", "t").join().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.image = replace(world.image, features={"group.version": 1, "share.version": 0})
    assert Sharer(world, "one", "t").join().error_code == E.UNSUPPORTED_VERSION
    assert described(world)[0].error_code == E.UNSUPPORTED_VERSION


def test_topics_that_may_not_be_seen(world: SharingCoordinator) -> None:
    rights = authorizer(allow(ResourceType.GROUP, AclOperation.READ, GROUP))
    node = world.node
    node.authorizer = rights
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", subscribed_topic_names=["t"])
    answer: Any = HEARTBEAT.function(node, context(request.API_KEY, 1), request)
    assert answer.error_code == E.TOPIC_AUTHORIZATION_FAILED


# --- other kinds of groups


def test_a_group_of_another_kind_is_no_share_group(world: SharingCoordinator) -> None:
    Member(world, "c", "t").join()
    answer = heartbeat(world, group_id="g", member_id="m", subscribed_topic_names=["t"])
    assert (answer.error_code, answer.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    answer = heartbeat(world, group_id="g", member_id="c", member_epoch=-1)
    assert (answer.error_code, answer.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    (group,) = described(world, "g")
    assert (group.error_code, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a share group.")
    (group,) = described(world, "")
    assert (group.error_code, group.error_message) == (E.INVALID_GROUP_ID, None)
    (group,) = described(world, "nobody")
    assert (group.error_code, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group nobody not found.")


def test_the_other_kinds_do_not_take_a_share_group(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t", group="g").join()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = world.call(CONSUMER_HEARTBEAT, request, 1)
    assert (answer.error_code, answer.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    assert join(world, "", (("range", b""),)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    (group,) = world.call(DESCRIBE_CONSUMERS, ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.error_code, group.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    (group,) = world.call(DESCRIBE_CLASSIC, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.error_code, group.group_state, group.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Dead",
        "Group g is not a classic group.",
    )


def test_a_share_group_has_no_offsets(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t", group="g").join()
    assert commit(world, 5) == E.GROUP_ID_NOT_FOUND
    assert (fetch(world).committed_offset, fetch(world).error_code) == (-1, E.NONE)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        ],
    )
    assert world.call(OFFSET_DELETE, request, 0).error_code == E.GROUP_ID_NOT_FOUND


def test_share_groups_are_listed(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    Member(world, "c", "t").join()

    def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
        answer = world.call(LIST, ListGroupsRequest(**filters), 5)
        return [
            (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups
        ]

    assert listed(types_filter=["Share"]) == [(GROUP, "share", "Stable", "share")]
    assert len(listed()) == 2
    one.leave()
    assert listed(states_filter=["empty"]) == [(GROUP, "share", "Empty", "share")]


# --- states


def test_states_that_cannot_be_made_are_asked_for_again(world: SharingCoordinator) -> None:
    world.persister.refusal = E.COORDINATOR_NOT_AVAILABLE
    one = Sharer(world, "one", "t")
    one.join()
    assert states(world) == ({}, {}, 0)
    one.beat()
    assert len(world.persister.asked) == 2
    world.persister.refusal = E.NONE
    one.settle()
    assert one.partitions == {T0, T1, T2}


def test_one_failure_counts_for_all_that_were_asked_for(world: SharingCoordinator) -> None:
    world.persister.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
    world.persister.refused = {TopicIdPartition(world.image.topics["t"].id, 1)}
    Sharer(world, "one", "t").join()
    assert states(world) == ({}, {}, 0)


def test_states_that_nobody_answers_for_are_asked_for_after_a_while(world: SharingCoordinator) -> None:
    world.persister.held = True
    one = Sharer(world, "one", "t")
    one.join()
    assert states(world) == ({"t": [0, 1, 2]}, {}, 0)
    world.time.advance(29_999)
    one.beat()
    assert len(world.persister.asked) == 1
    world.time.advance(1)
    one.beat()
    assert len(world.persister.asked) == 2
    one.beat()
    assert len(world.persister.asked) == 2
    world.persister.release()
    one.settle()
    assert (one.partitions, states(world)) == ({T0, T1, T2}, ({}, {"t": [0, 1, 2]}, 0))


def test_states_are_asked_for_again_although_the_clock_was_set_back(world: SharingCoordinator) -> None:
    """The group need not wait until the clock has caught up."""
    world.persister.held = True
    one = Sharer(world, "one", "t")
    one.join()
    world.time.wall_shift_ms = -900_000
    one.beat()
    assert len(world.persister.asked) == 2
    one.beat()
    assert len(world.persister.asked) == 2


def test_a_new_coordinator_asks_again_after_a_while(world: SharingCoordinator) -> None:
    world.persister.held = True
    one = Sharer(world, "one", "t")
    one.join()
    world.restart()
    one.beat()
    world.time.advance(29_999)
    one.beat()
    assert len(world.persister.asked) == 1
    world.time.advance(1)
    one.beat()
    assert len(world.persister.asked) == 2


def test_a_topic_that_is_deleted_while_its_states_are_made(world: SharingCoordinator) -> None:
    world.persister.held = True
    Sharer(world, "one", "t", "u").join()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("u", 1)])
    world.time.advance(0)
    world.persister.release()
    world.time.advance(0)
    assert states(world) == ({}, {"u": [0]}, 0)


def test_an_answer_for_a_coordinator_that_has_stopped(world: SharingCoordinator) -> None:
    world.persister.held = True
    Sharer(world, "one", "t").join()
    world.coordinator.stop()
    world.persister.release()
    world.restart()
    assert states(world) == ({"t": [0, 1, 2]}, {}, 0)


# --- records


def test_the_records_of_a_join(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    assert kinds_written(world, 0) == [10, 11, 13, 12, 14, 15, 15]


def test_the_records_of_a_member_that_leaves(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    before = len(list_records(world))
    one.leave()
    assert kinds_written(world, before) == [14, 13, 10, 11, 12]
    assert [value is None for _, value in list_records(world)[before:]] == [True, True, True, False, False]


def test_a_heartbeat_without_news_writes_nothing(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    before = len(list_records(world))
    one.settle(10)
    assert kinds_written(world, before) == []


def test_a_restart_changes_nothing(world: SharingCoordinator) -> None:
    one, two = Sharer(world, "one", "t", "u"), Sharer(world, "two", "t")
    one.join()
    two.join()
    one.settle()
    two.settle()
    one.leave()
    before = state(world)
    world.restart()
    assert state(world) == before
    two.settle()
    assert two.partitions == {T0, T1, T2}


def test_a_loaded_member_has_a_full_session(world: SharingCoordinator) -> None:
    Sharer(world, "one", "t").join()
    world.time.advance(44_999)
    world.restart()
    world.time.advance(44_999)
    assert described(world)[0].members
    world.time.advance(1)
    assert not described(world)[0].members


def test_rebalances_are_counted(world: SharingCoordinator) -> None:
    one = Sharer(world, "one", "t")
    one.join()
    one.settle()
    assert world.coordinator.meters.share_rebalances.count == 2
    one.leave()
    assert world.coordinator.meters.share_rebalances.count == 2


# --- steps


def test_the_topics_of_a_group_are_hashed_a_few_at_a_time_after_a_load(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, hashed = subscribing_to_many(world, monkeypatch)
    member = Sharer(world, "m", *names)
    member.join()
    world.time.advance(0)
    member.settle(3)
    world.restart()
    described(world)
    hashed.clear()
    monkeypatch.setattr(image_topics, "HASHED_AT_ONCE", 10)
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=member.epoch)
    answer = world.call(HEARTBEAT, request, 1)
    counts = [len(hashed)]
    while not answer.done:
        assert world.time.step()
        counts.append(len(hashed))
    assert max(late - early for early, late in pairwise([0, *counts])) <= 10
    assert (len(hashed), answer.result().member_epoch) == (45, member.epoch)


def test_the_topics_of_a_member_are_hashed_a_few_at_a_time(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, hashed = subscribing_to_many(world, monkeypatch)
    monkeypatch.setattr(image_topics, "HASHED_AT_ONCE", 10)
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", subscribed_topic_names=names)
    answer = world.call(HEARTBEAT, request, 1)
    counts = [len(hashed)]
    while not answer.done:
        assert world.time.step()
        counts.append(len(hashed))
    assert max(late - early for early, late in pairwise([0, *counts])) <= 10
    assert len(hashed) == 45
    world.time.advance(0)
    monkeypatch.setattr(image_topics, "HASHED_AT_ONCE", 1000)
    expected = SharingCoordinator()
    expected.publish(world.image.topics.values())
    assert heartbeat(expected, member_id="m", subscribed_topic_names=names).error_code == E.NONE
    assert group_of(world).metadata_hash == group_of(expected).metadata_hash


def test_a_member_whose_coordinator_goes_while_topics_are_hashed_is_told_so(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, _ = subscribing_to_many(world, monkeypatch)
    monkeypatch.setattr(image_topics, "HASHED_AT_ONCE", 10)
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", subscribed_topic_names=names)
    answer = world.call(HEARTBEAT, request, 1)
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5)])
    world.time.advance(0)
    assert answer.result().error_code == E.NOT_COORDINATOR


def test_what_became_of_many_states_is_put_together_in_steps(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_groups, "ASKED_AT_ONCE", 2)
    monkeypatch.setattr(share_groups, "TAKEN_A_MICROSECOND", 1)
    pieces = [{TopicIdPartition(bytes(16), index): ShareError()} for index in range(6)]
    together = share_groups._together(pieces)  # type: ignore[arg-type]  # a list of mappings
    assert list(together) == [1] * 6
    Sharer(world, "one", "t", "u").join()
    assert states(world) == ({}, {"t": [0, 1, 2], "u": [0]}, 0)
    asked = [(call, len(offsets)) for call, _, _, offsets in world.persister.asked]
    assert asked == [("initialize", 2)] * 2


@pytest.mark.parametrize("refused", [0, 3])
def test_one_state_that_cannot_be_made_has_all_made_again(
    world: SharingCoordinator, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Whichever of the requests it was in."""
    monkeypatch.setattr(share_groups, "ASKED_AT_ONCE", 1)
    topic_id = world.image.topics["t"].id
    other = world.image.topics["u"].id
    world.persister.refusal = E.COORDINATOR_NOT_AVAILABLE
    keys = sorted([TopicIdPartition(topic_id, index) for index in range(3)] + [TopicIdPartition(other, 0)])
    world.persister.refused = {keys[refused]}
    one = Sharer(world, "one", "t", "u")
    one.join()
    assert states(world)[:2] == ({}, {})
    world.persister.refusal = E.NONE
    one.beat()
    assert states(world) == ({}, {"t": [0, 1, 2], "u": [0]}, 0)
