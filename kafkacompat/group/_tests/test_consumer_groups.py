"""Consumer groups of KIP-848 through the coordinator: members that join, share partitions, leave and are lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api.join_group import HANDLER as JOIN
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.coordinator._tests.clients import beat as classic_beat
from kafkacompat.coordinator._tests.clients import commit, fetch, join, leave, subscription, sync
from kafkacompat.coordinator._tests.kit import AT_ONCE, LeadingCoordinator, image_of, topic_image
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.deferred import Deferred
from kafkacompat.group import group_coordinator, image_topics, modern_group
from kafkacompat.group._tests.members import Member, described, heartbeat, member_of, topic_partitions
from kafkacompat.group.consumer import target_assignment_builder
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.describe import describe_consumer_group
from kafkacompat.group.environment import ConsumerGroupSettings, GroupSettings
from kafkacompat.group.group_metadata_manager import machine_of as group_machine
from kafkacompat.group.image_topics import ImageTopics
from kafkacompat.group.offset_metadata_manager import commit_transactional_offsets
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, at_once
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.consumer_group_heartbeat_request import TopicPartitions
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

WEEK_MS = 7 * 24 * 3_600_000
T0, T1, T2 = (("t", index) for index in range(3))


def world_with(assignment_interval_ms: int = 0, **consumer: Any) -> LeadingCoordinator:
    return LeadingCoordinator(
        GroupSettings(initial_rebalance_delay_ms=0, consumer=ConsumerGroupSettings(**consumer)),
        node={"group.consumer.assignment.interval.ms": assignment_interval_ms},
    )


@pytest.fixture
def world() -> LeadingCoordinator:
    return LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)


def test_a_member_alone_has_everything(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", "u")
    answer = one.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "one", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert one.partitions == {T0, T1, T2, ("u", 0)}
    assert one.beat().assignment is None
    (group,) = described(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert (group.assignor_name, len(group.members)) == ("uniform", 1)


def test_partitions_are_revoked_before_they_are_given_away(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    one.keeps = True
    joined = two.join()
    assert (joined.member_epoch, two.partitions) == (3, set())
    told = one.beat()
    assert (told.member_epoch, len(told.assignment.topic_partitions[0].partitions)) == (2, 2)
    assert two.beat().assignment is None
    assert described(world)[0].group_state == "Reconciling"
    one.keeps = False
    one.owned = {each.topic_id: set(each.partitions) for each in told.assignment.topic_partitions}
    assert one.beat().member_epoch == 3
    two.beat()
    assert (len(one.partitions), len(two.partitions), one.partitions & two.partitions) == (2, 1, set())
    assert described(world)[0].group_state == "Stable"


def test_a_heartbeat_without_partitions_gives_nothing_up(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    one.keeps = True
    two.join()
    one.beat()
    assert one.beat(topic_partitions=None).member_epoch == 2
    two.beat()
    assert two.partitions == set()


def test_a_member_that_leaves_hands_its_partitions_on(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    two.join()
    one.beat()
    one.beat()
    two.beat()
    left = one.leave()
    assert (left.error_code, left.member_id, left.member_epoch) == (E.NONE, "one", -1)
    two.beat()
    assert two.partitions == {T0, T1, T2}
    two.leave()
    (group,) = described(world)
    assert (group.group_state, group.members) == ("Empty", [])


def test_a_session_that_ends_fences_the_member(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
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
        "Member one is not a member of group g.",
    )


def test_a_member_that_does_not_revoke_in_time_is_fenced(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", rebalance_ms=20_000)
    two = Member(world, "two", "t")
    one.join()
    one.keeps = True
    two.join()
    for _ in range(5):
        world.time.advance(5_000)
        one.beat()
        two.beat()
    assert [each.member_id for each in described(world)[0].members] == ["two"]
    two.beat()
    assert two.partitions == {T0, T1, T2}


def test_the_answer_that_was_lost_is_given_again(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    two.join()
    one.beat()
    before = one.epoch
    one.beat()
    assert one.epoch > before
    assert heartbeat(
        world,
        member_id="one",
        member_epoch=before,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    ).assignment.topic_partitions
    assert heartbeat(world, member_id="one", member_epoch=before).error_code == E.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(("epoch", "word"), [(1, "smaller"), (7, "greater")])
def test_another_epoch_is_fenced(world: LeadingCoordinator, epoch: int, word: str) -> None:
    Member(world, "one", "t").join()
    refused = heartbeat(world, member_id="one", member_epoch=epoch)
    assert refused.error_code == E.FENCED_MEMBER_EPOCH
    assert (
        f"a {word} member epoch ({epoch}) than the one known by the group coordinator (2)"
        in refused.error_message
    )


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, E.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": "  "}, E.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": ""}, E.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, E.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"rebalance_timeout_ms": -1},
            E.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        ({"topic_partitions": None}, E.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            E.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, E.INVALID_REQUEST, "InstanceId can't be null."),
        ({"member_epoch": -3}, E.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            {"server_assignor": "sticky"},
            E.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        ({"member_epoch": 1}, E.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ({"member_epoch": -1}, E.GROUP_ID_NOT_FOUND, "Group g not found."),
        (
            {"subscribed_topic_regex": "[a"},
            E.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `[a` is not a valid regular expression: missing ].",
        ),
    ],
)
def test_bad_requests_are_refused_with_a_reason(
    world: LeadingCoordinator, fields: dict[str, Any], code: E, message: str
) -> None:
    good = {
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    refused = heartbeat(world, **{**good, **fields})
    assert (refused.error_code, refused.error_message) == (code, message)
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


def test_an_error_of_the_coordinator_itself_has_no_message(world: LeadingCoordinator) -> None:
    def told(member: Member) -> tuple[int, str | None]:
        answer = member.join()
        return answer.error_code, answer.error_message

    one = Member(world, "one", "t")
    for refusal, code in (
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ):
        world.partitions.refusal = refusal
        assert told(one) == (code, None)
    world.partitions.refusal = None
    (shard,) = world.coordinator._shards
    shard.state = ShardState.LOADING
    assert told(one) == (E.COORDINATOR_LOAD_IN_PROGRESS, None)
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=2)])
    assert told(one) == (E.NOT_COORDINATOR, None)
    world.coordinator.stop()
    assert told(one) == (E.COORDINATOR_NOT_AVAILABLE, None)
    assert heartbeat(world, member_id="").error_code == E.COORDINATOR_NOT_AVAILABLE


def test_before_version_one_the_coordinator_makes_the_member_id(world: LeadingCoordinator) -> None:
    answer = heartbeat(
        world,
        version=0,
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (answer.error_code, len(answer.member_id)) == (E.NONE, 22)


def test_a_group_has_room_for_so_many() -> None:
    world = world_with(max_size=1)
    one = Member(world, "one", "t")
    one.join()
    assert Member(world, "two", "t").join().error_code == E.GROUP_MAX_SIZE_REACHED
    assert one.join().error_code == E.NONE


def test_the_next_assignment_waits_for_its_interval() -> None:
    world = world_with(assignment_interval_ms=1_000)
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    assert two.join().member_epoch == 2
    (group,) = described(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 3, 2)
    world.time.advance(1_000)
    assert two.beat().member_epoch == 3


def test_a_clock_that_is_set_back_does_not_hold_assignments_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with(assignment_interval_ms=1_000)
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    hour_ago_ms = world.time.now_ms() - 3_600_000
    monkeypatch.setattr(world.time, "now_ms", lambda: hour_ago_ms)
    assert two.join().member_epoch == 3


def test_a_group_has_settings_of_its_own(world: LeadingCoordinator) -> None:
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    configured = replace(world.image, configs={(ConfigResourceType.GROUP, "g"): own})
    world.coordinator.on_image(world.image, configured)
    one = Member(world, "one", "t")
    assert one.join().heartbeat_interval_ms == 7_000
    world.time.advance(49_000)
    assert described(world)[0].members
    world.time.advance(1_001)
    assert not described(world)[0].members


@pytest.mark.parametrize(("own", "interval_ms"), [("1000", 6_000), ("90000", 12_000), ("many", 5_000)])
def test_a_groups_own_setting_stays_within_the_brokers_bounds(own: str, interval_ms: int) -> None:
    """The bounds may have changed since it was set, and another version may have taken another value."""
    world = LeadingCoordinator(
        node={
            "group.consumer.min.heartbeat.interval.ms": 6_000,
            "group.consumer.max.heartbeat.interval.ms": 12_000,
        }
    )
    configs = {(ConfigResourceType.GROUP, "g"): {"consumer.heartbeat.interval.ms": own}}
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 1)])
    world.coordinator.on_image(world.image, replace(world.image, configs=configs))
    assert Member(world, "one", "t").join().heartbeat_interval_ms == interval_ms


# --- topics


def test_a_topic_that_grows_or_goes_is_assigned_anew(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", "u")
    one.join()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 5), topic_image("u", 1)])
    one.beat()
    assert len(one.partitions) == 6
    epoch = one.epoch
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 5)])
    one.beat()
    one.beat()
    assert (one.epoch, len(one.partitions)) == (epoch + 1, 5)
    assert one.beat().member_epoch == epoch + 1


def racked(world: LeadingCoordinator, racks: list[str], topic: TopicImage) -> MetadataImage:
    """An image whose brokers have these racks, and lead and replicate the topic together."""
    image = image_of([topic_image(OFFSETS_TOPIC, 1), topic], world.image.offset + 1)
    (broker,) = image.brokers.values()
    brokers = {index: replace(broker, id=index, rack=rack) for index, rack in enumerate(racks, 1)}
    return replace(image, brokers=brokers)


def replicated(name: str, replicas: tuple[int, ...]) -> TopicImage:
    topic = topic_image(name, 1)
    return replace(topic, partitions={0: replace(topic.partitions[0], replicas=replicas)})


def test_a_rack_counts_in_the_metadata_hash_as_often_as_it_has_replicas(world: LeadingCoordinator) -> None:
    image = racked(world, ["a", "a", "b"], replicated("v", (1, 2, 3)))
    topics = ImageTopics(image)
    assert sorted(topics.racks(image.topics["v"])[0]) == ["a", "a", "b"]


def test_topics_are_looked_at_again_when_a_broker_has_another_rack(world: LeadingCoordinator) -> None:
    def epoch_with(image: MetadataImage) -> int:
        old, world.image = world.image, image
        world.coordinator.on_image(old, image)
        one.settle(2)
        return int(described(world)[0].group_epoch)

    one = Member(world, "one", "v")
    one.join()
    image = racked(world, ["a", "b", "c"], replicated("v", (1, 2)))
    epoch = epoch_with(image)
    for racks, bumps in ((["a", "b", "d"], 0), (["a", "c", "d"], 1), (["a", "c", "d"], 1)):
        brokers = racked(world, racks, image.topics["v"]).brokers
        image = replace(image, offset=image.offset + 1, brokers=brokers)
        assert epoch_with(image) == epoch + bumps


def test_topics_with_other_racks_are_found_in_steps(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_topics, "TOPICS_TOGETHER", 5)
    monkeypatch.setattr(image_topics, "TOPICS_TOGETHER_COST", TURN_COST)
    names = [f"v{number}" for number in range(12)]
    one = Member(world, "one", *names)
    one.join()
    image = racked(world, ["a", "b"], replicated("v0", (1, 2)))
    topics = [*image.topics.values(), *(replicated(name, (1, 2)) for name in names[1:])]
    image = replace(
        image, topics={each.name: each for each in topics}, topics_by_id={each.id: each for each in topics}
    )
    old, world.image = world.image, image
    world.coordinator.on_image(old, image)
    world.time.advance(0)
    one.settle(3)
    (shard,) = world.coordinator._shards
    hashes = group_machine(shard).env.topic_hashes
    assert len(hashes) == 12
    brokers = {**image.brokers, 2: replace(image.brokers[2], rack="c")}
    world.image = replace(image, offset=image.offset + 1, brokers=brokers)
    left = [len(hashes)]
    world.coordinator.on_image(image, world.image)
    left.append(len(hashes))
    while world.time.step():
        left.append(len(hashes))
    assert sorted(set(left), reverse=True) == [12, 7, 2, 0]
    epoch = one.epoch
    one.settle(2)
    assert one.epoch == epoch + 1


def test_regular_expressions_are_resolved_by_the_coordinator(world: LeadingCoordinator) -> None:
    one = Member(world, "one", regex="[tv].*")
    one.join()
    assert (one.partitions, described(world)[0].group_epoch) == (set(), 1)
    world.time.advance(0)
    one.beat()
    assert one.partitions == {T0, T1, T2}
    world.time.advance(10_001)
    topics = [topic_image(OFFSETS_TOPIC, 1), topic_image("t", 3), topic_image("u", 1), topic_image("v", 2)]
    world.publish(topics)
    one.beat()
    world.time.advance(0)
    one.beat()
    assert {name for name, _ in one.partitions} == {"t", "v"}
    world.restart()
    one.beat()
    assert {name for name, _ in one.partitions} == {"t", "v"}
    one.leave()
    assert described(world)[0].group_state == "Empty"


def test_expressions_are_resolved_although_the_clock_was_set_back(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Member(world, "one", regex=".")
    one.join()
    world.time.advance(0)
    one.beat()
    monkeypatch.setattr(world.time, "now_ms", lambda: world.time.ms)
    world.publish(
        [topic_image(OFFSETS_TOPIC, 1), topic_image("t", 3), topic_image("u", 1), topic_image("v", 2)]
    )
    one.beat()
    world.time.advance(0)
    one.beat()
    assert {name for name, _ in one.partitions} == {"t", "u", "v"}


def test_a_regular_expression_matches_the_whole_name_and_what_the_member_may_see(
    world: LeadingCoordinator,
) -> None:
    from kafkacompat.coordinator._tests.kit import context as plain_context
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

    asked: list[str] = []

    def may_describe(names: list[str]) -> set[str]:
        asked.extend(names)
        return {"t"}

    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        rebalance_timeout_ms=1_000,
        subscribed_topic_regex="[tu]|consumer",
        topic_partitions=[],
    )
    world.coordinator.consumer_group_heartbeat(request, plain_context(68, 1), may_describe)
    world.time.advance(0)
    assert sorted(asked) == ["t", "u"]
    answer = heartbeat(world, member_id="one", member_epoch=1)
    assert len(answer.assignment.topic_partitions) == 1


def test_a_classic_member_has_expressions_matched_with_its_own_rights(world: LeadingCoordinator) -> None:
    Member(world, "one", regex="[tu]").join()
    world.time.advance(0)
    world.publish([topic_image(OFFSETS_TOPIC, 1), *(topic_image(name, 1) for name in "tuv")])
    world.time.advance(10_001)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("v"))],
    )
    node = world.node
    node.authorizer = authorizer(allow(ResourceType.TOPIC, AclOperation.DESCRIBE, "t"))
    joined = JOIN.function(node, context(11, 9), request).result()  # type: ignore[union-attr]
    assert joined.error_code == E.NONE
    world.time.advance(0)
    group = group_machine(world.coordinator._shards.shard_for("g")).groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.resolved["[tu]"].topics == {"t"}


def test_a_member_that_subscribes_to_nothing_is_not_heard_with_its_previous_epoch(
    world: LeadingCoordinator,
) -> None:
    one = Member(world, "one", "t")
    one.join()
    one.beat(subscribed_topic_names=[])
    epoch = one.beat().member_epoch
    assert heartbeat(world, member_id="one", member_epoch=epoch - 1, topic_partitions=[]).error_code == E.NONE
    one.beat(subscribed_topic_regex="nothing")
    one.beat()
    refused = heartbeat(world, member_id="one", member_epoch=epoch - 1, topic_partitions=[])
    assert refused.error_code == E.FENCED_MEMBER_EPOCH


# --- static members


def test_a_static_member_comes_back_to_its_partitions(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t", instance="i"), Member(world, "two", "t")
    one.join()
    two.join()
    one.settle()
    two.settle()
    had, epoch = one.partitions, described(world)[0].group_epoch
    refused = Member(world, "later", "t", instance="i").join()
    assert refused.error_code == E.UNRELEASED_INSTANCE_ID
    assert (one.leave(-2).member_epoch, member_of(world, "one").epoch) == (-2, -2)
    later = Member(world, "later", "t", instance="i")
    later.join()
    assert (later.partitions, described(world)[0].group_epoch) == (had, epoch)
    assert one.beat().error_code == E.FENCED_INSTANCE_ID
    assert heartbeat(world, member_id="x", member_epoch=3, instance_id="j").error_code == E.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_fenced(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", instance="i")
    one.join()
    one.leave(-2)
    world.time.advance(45_001)
    assert described(world)[0].group_state == "Empty"


def test_a_member_that_takes_another_instance_gives_up_its_former_one(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", instance="i")
    one.join()
    one.instance = "j"
    assert one.join().error_code == E.NONE
    group = group_machine(world.coordinator._shards.shard_for("g")).groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.static_members == {"j": "one"}
    two = Member(world, "two", "t", instance="i")
    assert two.join().error_code == E.NONE
    assert group.static_members == {"i": "two", "j": "one"}


# --- offsets


def test_a_commit_counts_for_what_the_member_has(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    assert commit(world, 5, member_id="one", generation=2, version=9) == E.NONE
    assert commit(world, 5, member_id="one", generation=3, version=9) == E.STALE_MEMBER_EPOCH
    assert commit(world, 5, member_id="one", generation=1, version=9) == E.STALE_MEMBER_EPOCH
    assert commit(world, 5, member_id="one", generation=2, version=8) == E.UNSUPPORTED_VERSION
    assert commit(world, 5, member_id="two", generation=2, version=9) == E.UNKNOWN_MEMBER_ID
    assert commit(world, 5, version=9) == E.UNKNOWN_MEMBER_ID
    two = Member(world, "two", "u")
    two.join()
    one.beat()
    assert one.epoch == 3
    assert commit(world, 6, member_id="one", generation=2, version=9) == E.NONE
    assert fetch(world).committed_offset == 6
    one.leave()
    two.leave()
    assert commit(world, 9, version=9) == E.NONE


def test_a_member_of_an_earlier_epoch_commits_in_a_transaction_what_it_still_has(
    world: LeadingCoordinator,
) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "u")
    one.join()
    two.join()
    one.beat()
    machine = group_machine(world.coordinator._shards.shard_for("g"))

    def told(topic: str = "t", metadata: str = "", version: int = 5, **fields: Any) -> int:
        part = TxnOffsetCommitRequestPartition(committed_offset=5, committed_metadata=metadata)
        fields = {"group_id": "g", "member_id": "one", "generation_id_or_member_epoch": 2, **fields}
        topic_id = world.image.topics[topic].id if topic in world.image.topics else b"?" * 16
        of_topic = TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[part])
        request = TxnOffsetCommitRequest(topics=[of_topic], **fields)
        try:
            result = commit_transactional_offsets(machine.offsets, request, version, world.time.now_ms())
        except OperationRefused as refusal:
            return refusal.code
        return int(result.response.topics[0].partitions[0].error_code)

    assert (one.epoch, told(), told(metadata="x" * 4_097)) == (3, E.NONE, E.OFFSET_METADATA_TOO_LARGE)
    assert (
        told("u")
        == told(generation_id_or_member_epoch=4)
        == told(generation_id_or_member_epoch=1)
        == E.ILLEGAL_GENERATION
    )
    assert told("gone") == E.ILLEGAL_GENERATION
    assert told("gone", "x" * 4_097) == E.OFFSET_METADATA_TOO_LARGE
    # From version 6 on the client is told what is wrong with its epoch (KIP-1319).
    assert told("u", version=6) == told(generation_id_or_member_epoch=4, version=6) == E.STALE_MEMBER_EPOCH
    assert told(member_id="three", version=6) == E.UNKNOWN_MEMBER_ID
    assert told(group_id="absent", version=6) == E.GROUP_ID_NOT_FOUND
    assert told(group_id="absent") == E.ILLEGAL_GENERATION
    assert (
        told("gone", generation_id_or_member_epoch=3)
        == told(member_id="", generation_id_or_member_epoch=-1)
        == E.NONE
    )
    assert told(member_id="three") == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("has_topics", [False, True])
def test_offsets_are_told_to_members_at_their_epoch(
    world: LeadingCoordinator, stable: bool, has_topics: bool
) -> None:
    from kafkacompat.api.offset_fetch import HANDLER as FETCH
    from kafkacompat.wire.messages.offset_fetch_request import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )

    one = Member(world, "one", "t")
    one.join()
    commit(world, 5, member_id="one", generation=2, version=9)

    def told(member_id: str | None, epoch: int) -> tuple[int, int]:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])] if has_topics else None
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
        (answer,) = world.call(FETCH, OffsetFetchRequest(groups=[group], require_stable=stable), 9).groups
        return answer.error_code, sum(len(topic.partitions) for topic in answer.topics)

    assert told(None, -1) == (E.NONE, 1)
    assert told("one", 2) == (E.NONE, 1)
    assert told("one", 1) == told("one", 3) == told("one", -1) == (E.STALE_MEMBER_EPOCH, 0)
    assert told("two", 2) == told("", -1) == (E.UNKNOWN_MEMBER_ID, 0)
    world = LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)
    member_id = classic_group(world)
    Member(world, "new", "t").join()
    assert told(member_id, 1)[0] == E.NONE
    assert told(member_id, 2)[0] == E.ILLEGAL_GENERATION


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_expired(world: LeadingCoordinator) -> None:
    from kafkacompat.coordinator._tests.kit import context as plain_context
    from kafkacompat.wire.messages.offset_delete_request import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    def delete(topic: str) -> int:
        parts = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        )
        answer = world.coordinator.offset_delete(request, plain_context(47, 0)).result()
        return int(answer.topics[0].partitions[0].error_code)

    def offsets() -> list[int]:
        return [fetch(world, topic=topic).committed_offset for topic in "tu"]

    for topic in "tu":
        commit(world, 5, topic=topic)
    one = Member(world, "one", regex="t|v")
    one.join()
    world.time.advance(0)
    one.beat()
    assert (delete("t"), delete("u"), offsets()) == (E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, [5, -1])
    commit(world, 6, topic="u", member_id="one", generation=one.epoch, version=9)
    one.leave()
    two = Member(world, "two", "t")
    two.join()
    for _ in range(WEEK_MS // 40_000 + 16):
        world.time.advance(40_000)
        two.beat()
    assert offsets() == [5, -1]
    two.leave()
    world.time.advance(600_001)
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    world.restart()
    assert (offsets(), described(world)[0].error_code) == ([-1, -1], E.GROUP_ID_NOT_FOUND)


def test_a_member_that_has_to_revoke_gets_its_time_again_from_the_next_coordinator(
    world: LeadingCoordinator,
) -> None:
    one, two = Member(world, "one", "t", rebalance_ms=20_000), Member(world, "two", "t")
    one.join()
    one.keeps = True
    two.join()
    one.beat()
    world.time.advance(15_000)
    world.restart()
    for seconds, members in ((15, {"one", "two"}), (10, {"two"})):
        for _ in range(seconds // 5):
            world.time.advance(5_000)
            one.beat()
            two.beat()
        assert {each.member_id for each in described(world)[0].members} == members


def test_a_topic_made_again_with_the_same_name_is_assigned_anew(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 3, bytes(15) + b"2")])
    epoch = one.epoch
    one.settle(3)
    assert (one.epoch, one.partitions) == (epoch + 1, {T0, T1, T2})
    assert set(one.owned) == {bytes(15) + b"2"}
    world.restart()
    one.beat()
    assert one.epoch == epoch + 1


def test_of_two_assignors_named_as_often_uniform_is_taken(world: LeadingCoordinator) -> None:
    for member_id, assignor in (("one", "range"), ("two", "uniform")):
        Member(world, member_id, "t", assignor=assignor).join()
    assert described(world)[0].assignor_name == "uniform"
    Member(world, "three", "t", assignor="range").join()
    assert described(world)[0].assignor_name == "range"


def test_a_member_of_many_topics_is_described_in_steps(world: LeadingCoordinator) -> None:
    Member(world, "one", "t").join()
    machine = group_machine(world.coordinator._shard("g"))
    topics = [topic_image(f"n{number}", 1, number.to_bytes(16, "big")) for number in range(1, 2_001)]
    world.publish([*world.image.topics.values(), *topics])
    group = machine.groups["g"]
    assert isinstance(group, ConsumerGroup)
    group.update_member(
        replace(
            group.members["one"],
            assigned={topic.id: {0: 2} for topic in topics[:-1]},
            pending_revocation={topic.id: {0: 2} for topic in topics[-1:]},
        )
    )
    group.targets["one"] = {topic.id: frozenset({0}) for topic in topics}
    spent = list(describe_consumer_group(machine, "g"))
    assert sum(spent) >= 4_000
    assert max(spent) <= 1_000
    (told,) = at_once(describe_consumer_group(machine, "g")).members
    for assignment in (told.assignment, told.target_assignment):
        assert [each.topic_name for each in assignment.topic_partitions] == [topic.name for topic in topics]


def test_a_group_without_a_name_is_not_described(world: LeadingCoordinator) -> None:
    (answer,) = described(world, "")
    assert (answer.error_code, answer.error_message) == (E.INVALID_GROUP_ID, None)


# --- restarts


def state(world: LeadingCoordinator, *groups: str) -> list[Any]:
    def plain(message: Any) -> Any:
        if isinstance(message, list):
            return [plain(each) for each in message]
        names = getattr(message, "__slots__", None)
        return message if not names else {name: plain(getattr(message, name)) for name in names}

    return [plain(each) for each in described(world, *groups)]


def busy(world: LeadingCoordinator) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", "t", "u", assignor="range")
    one.join()
    one.keeps = True
    two.join()
    one.beat()
    Member(world, "three", "t", instance="i").join()
    Member(world, "four", regex="u.*").join()
    world.time.advance(0)


def test_everything_is_there_after_a_restart(world: LeadingCoordinator) -> None:
    busy(world)
    before = state(world)
    world.restart()
    assert state(world) == before
    assert len(before[0]["members"]) == 4
    world.time.advance(45_001)
    assert state(world)[0]["members"] == []


def test_an_empty_group_is_deleted_with_its_offsets(world: LeadingCoordinator) -> None:
    from kafkacompat.api.delete_groups import HANDLER as DELETE
    from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest

    def delete() -> int:
        answer = world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 2)
        return int(answer.results[0].error_code)

    one = Member(world, "one", "t", regex="u")
    one.join()
    world.time.advance(0)
    commit(world, 5, member_id="one", generation=one.beat().member_epoch, version=9)
    assert delete() == E.NON_EMPTY_GROUP
    one.leave()
    assert delete() == E.NONE
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    world.restart()
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    assert delete() == E.GROUP_ID_NOT_FOUND


def test_what_the_log_refuses_does_not_happen(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert Member(world, "two", "t").join().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert [each.member_id for each in described(world)[0].members] == ["one"]
    assert one.beat().member_epoch == 2


# --- classic members


def classic(
    world: LeadingCoordinator, instance: str | None = None, topics: tuple[str, ...] = ("t",)
) -> tuple[str, int]:
    """A member of the classic protocol: its id and generation."""
    protocols = (("range", subscription(*topics)),)
    joined = join(world, protocols=protocols, instance=instance)
    if not hasattr(joined, "error_code"):
        world.time.advance(0)
        joined = joined.result()
    if joined.error_code == E.MEMBER_ID_REQUIRED:
        joined = join(world, joined.member_id, protocols, instance=instance)
        if not hasattr(joined, "error_code"):
            world.time.advance(0)
            joined = joined.result()
    assert joined.error_code == E.NONE
    return joined.member_id, joined.generation_id


def assignment(topic: str, *partitions: int) -> bytes:
    body = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode()
    body += len(partitions).to_bytes(4, "big") + b"".join(each.to_bytes(4, "big") for each in partitions)
    return body + b"\xff\xff\xff\xff"


def classic_group(world: LeadingCoordinator) -> str:
    """A stable classic group of one member, which has all of `t`."""
    member_id, generation = classic(world)
    told = sync(world, member_id, generation, {member_id: assignment("t", 0, 1, 2)})
    assert told.error_code == E.NONE
    return member_id


def test_a_classic_group_becomes_a_consumer_group_member_by_member(world: LeadingCoordinator) -> None:
    old = classic_group(world)
    commit(world, 7, member_id=old, generation=1)
    new = Member(world, "new", "t")
    assert (new.join().error_code, new.epoch, new.partitions) == (E.NONE, 2, set())
    assert (member_of(world, old).type, member_of(world, "new").type) == (0, 1)
    assert member_of(world, old).current == {T0, T1, T2}
    assert classic_beat(world, old, 1) == E.REBALANCE_IN_PROGRESS
    owns = (
        b"\0\1"
        + subscription("t")[2:]
        + b"\0\0\0\1\0\1t\0\0\0\3"
        + b"".join(i.to_bytes(4, "big") for i in range(3))
    )
    joined = join(world, old, (("range", owns),))
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (E.NONE, 1, "", [])
    kept = sync(world, old, 1)
    assert kept.error_code == E.NONE
    assert classic_beat(world, old, 1) == E.REBALANCE_IN_PROGRESS
    joined = join(world, old, (("range", subscription("t")),))
    assert joined.generation_id == 2
    assert sync(world, old, 2).error_code == E.NONE
    new.beat()
    assert len(new.partitions) == len(member_of(world, old).target) - 1 or len(new.partitions) in (1, 2)
    assert new.partitions | member_of(world, old).current == {T0, T1, T2}
    assert classic_beat(world, old, 2) == E.NONE
    assert fetch(world).committed_offset == 7
    world.restart()
    assert classic_beat(world, old, 2) == E.NONE
    leave(world, (old, None))
    new.beat()
    assert new.partitions == {T0, T1, T2}


def test_a_consumer_group_becomes_classic_when_its_last_new_member_goes(world: LeadingCoordinator) -> None:
    old = classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    epoch = described(world)[0].group_epoch
    new.leave()
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    assert classic_beat(world, old, epoch) == E.REBALANCE_IN_PROGRESS
    joined = join(world, old)
    joined = joined if hasattr(joined, "error_code") else joined.result()
    assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, epoch + 1, old)
    world.restart()
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


def test_a_downgrade_that_the_log_refuses_leaves_the_group(world: LeadingCoordinator) -> None:
    old = classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert new.leave().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert {each.member_id for each in described(world)[0].members} == {old, "new"}
    new.beat()  # from now on it looks at its topics only when it hears of a change
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 4), topic_image("u", 1)])
    epoch = described(world)[0].group_epoch
    new.beat()
    assert described(world)[0].group_epoch == epoch + 1


def test_a_member_whose_fencing_the_log_refuses_is_fenced_later(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    world.time.advance(45_001)
    world.partitions.refusal = None
    assert [each.member_id for each in described(world)[0].members] == ["one"]
    world.time.advance(500)
    assert described(world)[0].members == []


def test_a_member_whose_leaving_the_log_refuses_still_expires(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert one.leave().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    world.time.advance(45_001)
    assert described(world)[0].members == []


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_migration_policy_allows_conversions(policy: str, upgrades: bool, downgrades: bool) -> None:
    world = world_with(migration_policy=policy)
    classic_group(world)
    new = Member(world, "new", "t")
    answer = new.join()
    assert (answer.error_code == E.NONE) is upgrades
    if not upgrades:
        assert answer.error_message == (
            "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
        )
        return
    new.leave()
    assert (described(world)[0].error_code == E.GROUP_ID_NOT_FOUND) is downgrades


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_member_joins_a_consumer_group_only_where_groups_may_change(policy: str) -> None:
    world = world_with(migration_policy=policy)
    one = Member(world, "one", "t")
    one.join()
    joined = join(world, protocols=(("range", subscription("t")),))
    refused = policy == "disabled"
    assert joined.error_code == (E.INCONSISTENT_GROUP_PROTOCOL if refused else E.MEMBER_ID_REQUIRED)
    assert (joined.member_id == "") is refused
    one.leave()
    assert classic(world)[1] == 1


def test_an_empty_group_changes_its_kind_freely(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    one.leave()
    member_id, generation = classic(world)
    assert generation == 1
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    leave(world, (member_id, None))
    assert one.join().error_code == E.NONE
    world.restart()
    assert described(world)[0].group_state == "Stable"


def test_a_custom_assignment_is_not_converted(world: LeadingCoordinator) -> None:
    member_id, generation = classic(world)
    custom = assignment("t", 0)[:-4] + b"\0\0\0\1x"
    sync(world, member_id, generation, {member_id: custom})
    refused = Member(world, "new", "t").join()
    assert refused.error_code == E.GROUP_ID_NOT_FOUND
    assert "custom assignor" in refused.error_message
    assert classic_beat(world, member_id, generation) == E.NONE


def test_a_classic_join_is_refused_for_its_member_before_its_subscription_is_read(
    world: LeadingCoordinator,
) -> None:
    Member(world, "one", "t", instance="i").join()
    broken = (("range", b"\0"),)
    assert join(world, "other", broken, instance="i").error_code == E.FENCED_INSTANCE_ID
    assert join(world, "other", broken, instance="j").error_code == E.UNKNOWN_MEMBER_ID
    assert join(world, "", broken, instance="i").error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_must_join_and_sync_in_time(world: LeadingCoordinator) -> None:
    old = classic_group(world)
    new = Member(world, "new", "t")
    new.join()

    def pass_time(seconds: int, generation: int) -> list[int]:
        told = []
        for _ in range(seconds // 5):
            world.time.advance(5_000)
            told.append(classic_beat(world, old, generation))
            new.beat()
        return told

    assert set(pass_time(25, 1)) == {E.REBALANCE_IN_PROGRESS}
    assert classic_beat(world, old, 1) == E.REBALANCE_IN_PROGRESS
    assert pass_time(10, 1)[-1] == E.UNKNOWN_MEMBER_ID
    new.beat()
    assert new.partitions == {T0, T1, T2}
    old, generation = classic(world)
    assert set(pass_time(25, generation)) <= {E.NONE, E.REBALANCE_IN_PROGRESS}
    assert pass_time(10, generation)[-1] == E.UNKNOWN_MEMBER_ID


def test_a_commit_does_not_keep_a_classic_member_of_a_consumer_group(world: LeadingCoordinator) -> None:
    old = classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    world.time.advance(9_000)
    assert commit(world, 5, member_id=old, generation=1) == E.NONE
    world.time.advance(1_001)
    assert [each.member_id for each in described(world)[0].members] == ["new"]


def test_a_classic_member_takes_over_a_static_one(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", instance="i")
    one.join()
    joined = join(world, instance="i")
    joined = joined if hasattr(joined, "error_code") else joined.result()
    assert (joined.error_code, joined.generation_id) == (E.NONE, 2)
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND
    assert sync(world, joined.member_id, 2, instance="i").error_code == E.NONE
    assert classic_beat(world, joined.member_id, 2, instance="i") == E.NONE


def test_large_groups_are_assigned_beside_the_requests(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = target_assignment_builder._spec

    def counted(*given: Any) -> Any:
        asked.append(1)
        return original(*given)

    monkeypatch.setattr(target_assignment_builder, "_spec", counted)
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 3_000), topic_image("u", 1)])
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    assert len(one.partitions) == 3_000
    joined = two.join()
    assert joined.member_epoch == 2
    assert described(world)[0].group_state == "Assigning"
    one.beat()
    two.beat()
    assert len(asked) == 2  # once for each of the two group epochs
    world.time.advance(0)
    one.settle(3)
    two.settle(3)
    assert (len(one.partitions), len(two.partitions)) == (1_500, 1_500)
    assert described(world)[0].group_state == "Stable"


def subscribing_to_many(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """Topics of which few are hashed at once, and the list that gets the name of each that is hashed."""
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 10)
    monkeypatch.setattr(modern_group, "HASH_COST", TURN_COST // 10)
    names = [f"many-{number:02}" for number in range(45)]
    world.publish([*world.image.topics.values(), *(topic_image(name, 2) for name in names)])
    hashed: list[str] = []
    original = modern_group.topic_hash

    def counted(topic_id: bytes, name: str, count: int, racks: Any = None) -> int:
        hashed.append(name)
        return original(topic_id, name, count, racks)

    monkeypatch.setattr(modern_group, "topic_hash", counted)
    return names, hashed


def test_the_topics_of_a_group_are_hashed_a_few_at_a_time_after_a_load(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, hashed = subscribing_to_many(world, monkeypatch)
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1000)
    member = Member(world, "m", *names)
    member.join()
    member.settle(3)
    world.restart()
    assert described(world)[0].group_state == "Stable"
    hashed.clear()
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 10)
    answer = heartbeat(world, member_id="m", member_epoch=member.epoch)
    counts = [len(hashed)]
    while not answer.done:
        assert world.time.step()
        counts.append(len(hashed))
    assert max(late - early for early, late in pairwise([0, *counts])) <= 10
    assert (len(hashed), answer.result().member_epoch) == (45, member.epoch)


def test_the_topics_of_a_member_are_hashed_a_few_at_a_time(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = world_with()
    names, hashed = subscribing_to_many(world, monkeypatch)
    request = {
        "member_id": "m",
        "subscribed_topic_names": names,
        "rebalance_timeout_ms": 1,
        "topic_partitions": [],
    }
    answer = heartbeat(world, **request)
    counts = [len(hashed)]
    while not answer.done:
        assert world.time.step()
        counts.append(len(hashed))
    assert max(late - early for early, late in pairwise([0, *counts])) <= 10
    assert len(answer.result().assignment.topic_partitions) == len(hashed) == 45
    # The hash of the group is the same as without steps.
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1000)
    expected.publish(world.image.topics.values())
    assert heartbeat(expected, **request).error_code == E.NONE
    groups = [group_machine(each.coordinator._shard("g")).groups["g"] for each in (world, expected)]
    assert len({each.metadata_hash for each in groups if isinstance(each, ConsumerGroup)}) == 1


def test_the_topics_that_an_expression_matches_are_hashed_a_few_at_a_time(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, hashed = subscribing_to_many(world, monkeypatch)
    member = Member(world, "m", regex="many-.*")
    member.join()
    counts = [len(hashed)]
    while described(world)[0].group_epoch < 2:
        if not world.time.step():
            world.time.advance(0)
        counts.append(len(hashed))
    assert max(late - early for early, late in pairwise([0, *counts])) <= 10
    assert len(hashed) == 45
    member.beat()
    assert len(member.partitions) == 90


def test_a_topic_that_changes_while_topics_are_hashed_counts_as_it_is_then(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, hashed = subscribing_to_many(world, monkeypatch)
    answer = heartbeat(
        world, member_id="m", subscribed_topic_names=names, rebalance_timeout_ms=1, topic_partitions=[]
    )
    assert names[0] in hashed
    grown = [topic_image(names[0], 3), *(topic_image(name, 2) for name in names[2:])]
    others = [topic for name, topic in world.image.topics.items() if name not in names]
    world.publish([*others, *grown])
    while not answer.done:
        assert world.time.step()
    given = {each.topic_id: each.partitions for each in answer.result().assignment.topic_partitions}
    assert given[world.image.topics[names[0]].id] == [0, 1, 2]
    assert len(given) == 44
    assert hashed.count(names[0]) == 2


def test_a_member_whose_coordinator_goes_while_its_topics_are_hashed_looks_for_another(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, _ = subscribing_to_many(world, monkeypatch)
    answer = heartbeat(
        world, member_id="m", subscribed_topic_names=names, rebalance_timeout_ms=1, topic_partitions=[]
    )
    world.coordinator._shard("g").close()
    while not answer.done:
        assert world.time.step()
    assert answer.result().error_code == E.NOT_COORDINATOR


def joining_in_parts(world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """A lone member's join that is written in parts: the answer to come, and its topics. The first part is written."""
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1)
    monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", 2)
    names = [f"many-{number:02}" for number in range(5)]
    world.publish([*world.image.topics.values(), *(topic_image(name, 2) for name in names)])
    answer = heartbeat(
        world, member_id="m", subscribed_topic_names=names, rebalance_timeout_ms=1, topic_partitions=[]
    )
    assert not answer.done
    return answer, names


def states_until(world: LeadingCoordinator, answer: Any) -> list[tuple[str, int]]:
    """The group's state and the number of targets after each step until the answer comes."""
    seen = []
    while not answer.done:
        assert world.time.step()
        group = group_machine(world.coordinator._shard("g")).groups.get("g")
        seen.append(
            ("", 0) if not isinstance(group, ConsumerGroup) else (group.state_name, len(group.targets))
        )
    return seen


def test_a_lone_member_of_many_topics_joins_in_parts(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, names = joining_in_parts(world, monkeypatch)
    assert described(world)[0].group_state == "Assigning"
    assert states_until(world, answer) == [("Reconciling", 1), ("Stable", 1)]
    told = answer.result()
    assert (told.error_code, told.member_id, told.member_epoch) == (E.NONE, "m", 2)
    assert sorted(each.topic_id for each in told.assignment.topic_partitions) == sorted(
        world.image.topics[name].id for name in names
    )
    (group,) = described(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    world.restart()
    assert described(world)[0].group_state == "Stable"


def beat_in_parts(world: LeadingCoordinator, member: Member) -> list[tuple[str, int]]:
    """The states of the group while the member's heartbeat is carried out. The member gets the answer."""
    answer = heartbeat(
        world,
        member_id=member.member_id,
        member_epoch=member.epoch,
        topic_partitions=topic_partitions(member.owned),
    )
    assert not answer.done
    seen = states_until(world, answer)
    told = answer.result()
    assert told.error_code == E.NONE
    member.epoch = told.member_epoch
    member.owned = {each.topic_id: set(each.partitions) for each in told.assignment.topic_partitions}
    return seen


def test_what_an_expression_matches_is_given_to_a_lone_member_in_parts(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", 2)
    names = [f"many-{number:02}" for number in range(5)]
    world.publish([*world.image.topics.values(), *(topic_image(name, 2) for name in names)])
    member = Member(world, "m", regex="many-.*")
    member.join()
    world.time.advance(0)
    assert described(world)[0].group_state == "Assigning"
    assert beat_in_parts(world, member) == [("Reconciling", 1), ("Stable", 1)]
    assert member.partitions == {(name, index) for name in names for index in range(2)}
    assert member.beat().assignment is None
    others = [topic for name, topic in world.image.topics.items() if name != names[0]]
    world.publish([*others, topic_image(names[0], 3)])
    assert beat_in_parts(world, member) == [("Reconciling", 1), ("Stable", 1)]
    assert (names[0], 2) in member.partitions
    assert member.beat().assignment is None


def test_a_member_that_leaves_while_it_joins_in_parts_does_not_come_back(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, _ = joining_in_parts(world, monkeypatch)
    assert heartbeat(world, member_id="m", member_epoch=-1).error_code == E.NONE
    states_until(world, answer)
    assert answer.result().error_code == E.UNKNOWN_MEMBER_ID
    assert described(world)[0].members == []


def test_a_group_that_is_deleted_while_its_member_joins_in_parts_does_not_come_back(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, _ = joining_in_parts(world, monkeypatch)
    assert heartbeat(world, member_id="m", member_epoch=-1).error_code == E.NONE
    shard = world.coordinator._shard("g")
    tombstones = group_machine(shard).groups["g"].tombstones()
    shard.write(lambda _: CoordinatorResult(tuple(tombstones), None))
    states_until(world, answer)
    assert answer.result().error_code == E.GROUP_ID_NOT_FOUND
    assert "g" not in group_machine(shard).groups


def test_a_member_joins_while_another_one_joins_in_parts(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, names = joining_in_parts(world, monkeypatch)
    other = Member(world, "other", names[0])
    assert other.join().error_code == E.NONE
    states_until(world, answer)
    assert answer.result().error_code == E.NONE
    world.time.advance(0)
    epoch = answer.result().member_epoch
    owned = {each.topic_id: each.partitions for each in answer.result().assignment.topic_partitions}
    for _ in range(6):
        told = heartbeat(
            world,
            member_id="m",
            member_epoch=epoch,
            topic_partitions=[TopicPartitions(topic_id=each, partitions=owned[each]) for each in owned],
        )
        epoch = told.member_epoch
        if told.assignment is not None:
            owned = {each.topic_id: each.partitions for each in told.assignment.topic_partitions}
        other.beat()
        world.time.advance(0)
    (group,) = described(world)
    assert group.group_state == "Stable"
    own = {(topic_id, index) for topic_id, indexes in owned.items() for index in indexes}
    others = {(topic_id, index) for topic_id, indexes in other.owned.items() for index in indexes}
    assert other.partitions <= {(names[0], 0), (names[0], 1)}
    assert len(other.partitions) > 0
    assert not own & others
    assert len(own | others) == 10


@pytest.mark.parametrize("after", [0, 1])
def test_a_join_in_parts_ends_with_its_coordinator(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    answer, _ = joining_in_parts(world, monkeypatch)
    for _ in range(after):
        assert world.time.step()
    world.coordinator._shard("g").close()
    states_until(world, answer)
    assert answer.result().error_code == E.NOT_COORDINATOR


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("then", ["it joins again", "another joins", "nobody comes"])
def test_a_join_in_parts_whose_node_is_killed_is_gone_on_with_or_forgotten(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch, after: int, then: str
) -> None:
    """Each part is a state of the group that stands by itself."""
    _, names = joining_in_parts(world, monkeypatch)
    for _ in range(after):
        assert world.time.step()
    batches = len(world.log().batches)
    world.restart()
    loaded = group_machine(world.coordinator._shard("g")).groups["g"]
    assert isinstance(loaded, ConsumerGroup)
    assert (loaded.state_name, list(loaded.members)) == (["Assigning", "Reconciling", "Stable"][after], ["m"])
    assert len(world.log().batches) == batches, "a load writes nothing"
    topics = sorted(world.image.topics[name].id for name in names)
    if then == "it joins again":
        answer = heartbeat(
            world, member_id="m", subscribed_topic_names=names, rebalance_timeout_ms=1, topic_partitions=[]
        )
        if isinstance(answer, Deferred):
            states_until(world, answer)
            answer = answer.result()
        assert (answer.error_code, answer.member_id) == (E.NONE, "m")
        assert sorted(each.topic_id for each in answer.assignment.topic_partitions) == topics
        (group,) = described(world)
        assert (group.group_state, group.assignment_epoch) == ("Stable", group.group_epoch)
        assert answer.member_epoch == group.group_epoch
    else:
        world.time.advance(45_000 - 1)
        assert len(described(world)[0].members) == 1
        if then == "another joins":
            monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", len(names))
            other = Member(world, "other", *names)
            other.join()
        world.time.advance(1)
        members = [each.member_id for each in described(world)[0].members]
        assert members == (["other"] if then == "another joins" else [])
        if then == "another joins":
            for _ in range(5):
                other.beat()
                world.time.advance(0)
            assert len(other.partitions) == 2 * len(names)
    before = described(world)
    world.restart()
    assert described(world) == before


def test_a_join_in_parts_that_the_log_refuses_is_refused(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.partitions.refusal = E.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1)
    monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", 1)
    told = heartbeat(
        world, member_id="m", subscribed_topic_names=["t", "u"], rebalance_timeout_ms=1, topic_partitions=[]
    )
    assert told.error_code == E.NOT_COORDINATOR


def test_a_static_member_of_many_topics_joins_at_once(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "HASHED_AT_ONCE", 1)
    monkeypatch.setattr(group_coordinator, "JOINS_AT_ONCE", 1)
    one = Member(world, "one", "t", "u", instance="i")
    assert one.join().error_code == E.NONE
    assert one.partitions == {T0, T1, T2, ("u", 0)}
