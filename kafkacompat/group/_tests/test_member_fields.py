"""Each field of a heartbeat or a join reaches the member, each text of a member or an offset is counted in memory, and a load
finds a classic group as it was."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, replace
from inspect import signature
from typing import Any

import pytest

from kafkacompat.api.join_group import HANDLER as JOIN
from kafkacompat.coordinator._tests.clients import RANGE, TYPE, form_group, join, subscription
from kafkacompat.coordinator._tests.kit import LeadingCoordinator, machine_of
from kafkacompat.group._tests.test_static_members import static_group
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupMember
from kafkacompat.group.consumer.consumer_group_member import ClassicMemberMetadata, ConsumerGroupMember
from kafkacompat.group.consumer.conversion import PreparedUpgrade, _seen
from kafkacompat.group.consumer.heartbeat import HeartbeatCaller, told_of
from kafkacompat.group.offset_metadata_manager import size_of_offset
from kafkacompat.group.records import OffsetAndMetadata
from kafkacompat.group.share.heartbeat import _told_of as share_told_of
from kafkacompat.group.share.share_group_member import ShareGroupMember
from kafkacompat.group.streams.heartbeat import HeartbeatCaller as StreamsCaller
from kafkacompat.group.streams.heartbeat import _told_of as streams_told_of
from kafkacompat.group.streams.streams_group_member import Endpoint, StreamsGroupMember
from kafkacompat.wire.codec import specification
from kafkacompat.wire.definition import FIXED_TYPES
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkacompat.wire.messages.streams_group_heartbeat_request import Endpoint as ToldEndpoint
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Topology,
)

CLIENT, HOST = "client", "/127.0.0.1"
LONG = "x" * 1_000


def consumer_told(request: Any) -> tuple[Any, Any]:
    member = ConsumerGroupMember("m", 5, client_id=CLIENT, client_host=HOST)
    return member, told_of(request, HeartbeatCaller(CLIENT, HOST), member)


def share_told(request: Any) -> tuple[Any, Any]:
    member = ShareGroupMember("m", 5, client_id=CLIENT, client_host=HOST)
    return member, share_told_of(request, CLIENT, HOST, member)


def streams_told(request: Any) -> tuple[Any, Any]:
    member = StreamsGroupMember("m", 5, client_id=CLIENT, client_host=HOST)
    return member, streams_told_of(request, StreamsCaller(CLIENT, HOST, 1), member)


OF_THE_REQUEST = {"group_id", "member_id", "member_epoch"}
NOT_OF_THE_MEMBER: dict[type[Any], set[str]] = {
    ConsumerGroupHeartbeatRequest: {"topic_partitions"},
    ShareGroupHeartbeatRequest: set(),
    StreamsGroupHeartbeatRequest: {
        *("active_tasks", "standby_tasks", "warmup_tasks", "task_offsets", "task_end_offsets"),
        *("shutdown_application", "endpoint_information_epoch", "topology_description_epoch"),
    },
}
"""Fields that tell of what it has, or say what it wants."""
VALUES: dict[str, Any] = {
    "rebalance_timeout_ms": 7,
    "subscribed_topic_names": ["t"],
    "topology": Topology(epoch=3),
    "user_endpoint": ToldEndpoint(host="h", port=1),
    "client_tags": [KeyValue(key="k", value="v")],
}
TOLD: dict[type[Any], Callable[[Any], tuple[Any, Any]]] = {
    ConsumerGroupHeartbeatRequest: consumer_told,
    ShareGroupHeartbeatRequest: share_told,
    StreamsGroupHeartbeatRequest: streams_told,
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, others in NOT_OF_THE_MEMBER.items()
        for name in kind.field_names()
        if name not in OF_THE_REQUEST | others
    ],
)
def test_each_field_of_a_heartbeat_changes_the_member(kind: type[Any], name: str) -> None:
    """Also alone: a heartbeat that tells nothing is answered without a look at the member."""
    same, told = TOLD[kind](kind(group_id="g", member_id="m", member_epoch=5))
    assert told is same
    before, after = TOLD[kind](
        kind(group_id="g", member_id="m", member_epoch=5, **{name: VALUES.get(name, "told")})
    )
    assert after != before


DECIDED_BY_THE_BROKERS = {
    *("member_id", "member_epoch", "previous_member_epoch", "state", "assigned", "pending_revocation"),
    *("rebalance_timeout_ms", "topology_epoch"),
}
"""Assignments, numbers, and the id, which never changes."""
SHORT = {"client_host", "server_assignor"}
"""An address, and one of a few names."""
LONG_VALUES: dict[str, Any] = {
    "subscribed_topic_names": frozenset({LONG}),
    "classic": ClassicMemberMetadata(1, ((LONG, b""),)),
    "user_endpoint": Endpoint(LONG, 1),
    "client_tags": {LONG: LONG},
}


@pytest.mark.parametrize("kind", [ConsumerGroupMember, ShareGroupMember, StreamsGroupMember])
def test_each_field_that_a_client_chooses_is_counted(kind: type[Any]) -> None:
    """Otherwise it takes memory of which the bound of the groups knows nothing."""
    member = kind("m")
    for each in fields(kind):
        if each.name not in DECIDED_BY_THE_BROKERS:
            longer = replace(member, **{each.name: LONG_VALUES.get(each.name, LONG)})
            assert longer.size() >= member.size() + len(LONG), each.name
            assert each.name in SHORT or not longer.takes_as_much_as(member), each.name


OF_A_LENGTH = [
    each.name
    for struct in specification(OffsetCommitValue).structs
    for each in struct.fields
    if each.is_array or each.kind not in FIXED_TYPES
]


@pytest.mark.parametrize("name", OF_A_LENGTH)
def test_each_field_of_an_offset_that_has_a_length_is_counted(name: str) -> None:
    usual, longer = (OffsetAndMetadata(**{name: value}) for value in ("", LONG))
    assert size_of_offset(longer) >= size_of_offset(usual) + len(LONG)


JOINED: dict[str, Any] = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 30_000,
    "protocol_type": TYPE,
    "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in RANGE],
}
OTHERWISE: dict[str, Any] = {
    "session_timeout_ms": 7_000,
    "rebalance_timeout_ms": 20_000,
    "group_instance_id": "two",
    "protocol_type": "connect",
    "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("other"))],
}
NOT_OF_A_CLASSIC_MEMBER = {"group_id", "member_id", "reason"}
"""The reason is only for a log."""
OF_ITS_FIRST_JOIN = {"group_instance_id", "protocol_type"}
"""A join with another instance or type is not one of this member."""
OF_THE_MOMENT = {"awaiting_join", "awaiting_sync", "held", "is_new"}
AT_ONCE = 3
"""A version of JoinGroup whose members join without an id."""


def classic_member(world: LeadingCoordinator, instance: str | None = None) -> dict[str, Any]:
    (shard,) = world.coordinator._shards
    group: Any = machine_of(shard).groups["g"]
    (member,) = (
        each for each in group.members.values() if instance is None or each.group_instance_id == instance
    )
    return {name: getattr(member, name) for name in member.__slots__ if name not in OF_THE_MOMENT}


def sent(world: LeadingCoordinator, **fields: Any) -> None:
    world.call(JOIN, JoinGroupRequest(**{**JOINED, **fields}), AT_ONCE)


def first_join(**fields: Any) -> dict[str, Any]:
    world = LeadingCoordinator()
    sent(world, **fields)
    return classic_member(world)


def rejoin(**fields: Any) -> dict[str, Any]:
    world = LeadingCoordinator()
    sent(world)
    sent(world, member_id=classic_member(world)["member_id"], **fields)
    return classic_member(world)


def return_of_a_static_member(**fields: Any) -> dict[str, Any]:
    world = LeadingCoordinator()
    sent(world, group_instance_id="one")
    sent(world, group_instance_id="one", **fields)
    return classic_member(world)


JOINS = (first_join, rejoin, return_of_a_static_member)


@pytest.mark.parametrize(
    ("join", "name"),
    [
        (join, name)
        for join in JOINS
        for name in JoinGroupRequest.field_names()
        if name not in NOT_OF_A_CLASSIC_MEMBER and (join is first_join or name not in OF_ITS_FIRST_JOIN)
    ],
)
def test_each_field_of_a_join_changes_the_classic_member(
    join: Callable[..., dict[str, Any]], name: str
) -> None:
    assert join(**{name: OTHERWISE[name]}) != join()


TOLD_TO_THE_LEADER = {*JoinGroupResponseMember.field_names()} - {"member_id", *OF_ITS_FIRST_JOIN}


@pytest.mark.parametrize("name", sorted(TOLD_TO_THE_LEADER))
def test_the_leader_is_told_of_each_field_that_a_member_changes(name: str) -> None:
    """`unchanged` of a join decides: a member that rejoins as it was is answered at once, and nobody learns of it."""
    world = LeadingCoordinator()
    leader, other = form_group(world, 2)
    field = "protocols" if name == "metadata" else name
    sent(world, member_id=other, **{field: OTHERWISE[field]})
    answer = join(world, leader)
    assert isinstance(answer, JoinGroupResponse), "the other member does not wait for a new generation"
    told = {each.member_id: getattr(each, name) for each in answer.members}
    assert told[other] != told[leader]


def test_a_replacement_that_the_log_refuses_leaves_each_field_as_it_was() -> None:
    world = LeadingCoordinator()
    static_group(world, "one", "two")
    before = classic_member(world, "two")
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    world.connection_id += 1
    sent(world, **{**OTHERWISE, "protocol_type": TYPE})
    assert classic_member(world, "two") == before


NEVER_CHANGED = {"member_id", "group_instance_id", "client_id", "client_host", "protocol_type"}
"""Who has others is another member."""
OF_MEMORY = {"connection_id"}


@pytest.mark.parametrize(
    "name",
    [each for each in ClassicGroupMember.__slots__ if each not in OF_THE_MOMENT | NEVER_CHANGED | OF_MEMORY],
)
def test_a_prepared_upgrade_fits_no_member_that_has_changed(name: str) -> None:
    group = ClassicGroup("g")
    member = ClassicGroupMember("m", None, CLIENT, HOST, 1, 1, TYPE, RANGE)
    group.add(member)
    prepared = PreparedUpgrade(_seen(group), None, None, None)
    assert prepared.fits(group)
    setattr(member, name, "changed")
    assert not prepared.fits(group)


NUMBERS = {"rebalance_timeout_ms", "session_timeout_ms", "connection_id"}
LONG_OF_CLASSIC: dict[str, Any] = {"protocols": ((LONG, b""),), "assignment": LONG.encode()}
CHOSEN = [name for name in signature(ClassicGroupMember).parameters if name not in NUMBERS]


def size_of_classic(**values: Any) -> int:
    numbers = dict.fromkeys(NUMBERS, 1)
    return ClassicGroupMember(**{**dict.fromkeys(CHOSEN, ""), **numbers, "assignment": b"", **values}).size()


@pytest.mark.parametrize("name", CHOSEN)
def test_each_field_of_a_classic_member_that_a_client_chooses_is_counted(name: str) -> None:
    value = LONG_OF_CLASSIC.get(name, LONG)
    assert size_of_classic(**{name: value}) >= size_of_classic() + len(LONG)


ROOM_BYTES = 10_000
TOO_LONG = "x" * ROOM_BYTES
TOO_LONG_VALUES = {"protocols": [JoinGroupRequestProtocol(name="range", metadata=TOO_LONG.encode())]}


@pytest.mark.parametrize("name", ["client_id", *sorted(OTHERWISE.keys() - NUMBERS)])
def test_a_join_for_whose_texts_there_is_no_room_is_refused(name: str) -> None:
    world = LeadingCoordinator()
    world.coordinator._memory.most = ROOM_BYTES
    fields = {} if name == "client_id" else {name: TOO_LONG_VALUES.get(name, TOO_LONG)}
    request = JoinGroupRequest(**{**JOINED, **fields})
    refused = world.call(JOIN, request, AT_ONCE, TOO_LONG if name == "client_id" else CLIENT)
    assert refused.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    sent(world)
    assert classic_member(world)


def test_a_rejoin_for_whose_protocols_there_is_no_room_is_refused() -> None:
    world = LeadingCoordinator()
    sent(world)
    before = classic_member(world)
    world.coordinator._memory.most = ROOM_BYTES
    sent(world, member_id=before["member_id"], **TOO_LONG_VALUES)
    assert classic_member(world) == before


NOT_OF_THE_RECORD = {"__weakref__", "held", "held_topics", "memory", "members", "previous_state"}
"""Memory of this node, and what is told of a member apart. Nobody asks a stable group for the state before."""


def stable_group(world: LeadingCoordinator) -> dict[str, Any]:
    (shard,) = world.coordinator._shards
    group: Any = machine_of(shard).groups["g"]
    names = [name for name in ClassicGroup.__slots__ if name not in NOT_OF_THE_RECORD]
    of_members = {f"{name} of a member": value for name, value in classic_member(world).items()}
    return {name: copy(getattr(group, name)) for name in names} | of_members


def test_a_load_finds_a_stable_classic_group_as_it_was() -> None:
    """Its record is made by the leader's SyncGroup, before the group is stable: what it gets only then is not in it."""
    world = LeadingCoordinator()
    form_group(world)
    before = stable_group(world)
    world.restart()
    after = stable_group(world)
    assert {name for name in before if before[name] != after[name]} == {"connection_id of a member"}
