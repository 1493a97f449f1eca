"""Each field of a heartbeat reaches the member, and each text of a member is counted in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from kafkacompat.group.consumer.consumer_group_member import ClassicMemberMetadata, ConsumerGroupMember
from kafkacompat.group.consumer.heartbeat import HeartbeatCaller, told_of
from kafkacompat.group.share.heartbeat import _told_of as share_told_of
from kafkacompat.group.share.share_group_member import ShareGroupMember
from kafkacompat.group.streams.heartbeat import HeartbeatCaller as StreamsCaller
from kafkacompat.group.streams.heartbeat import _told_of as streams_told_of
from kafkacompat.group.streams.streams_group_member import Endpoint, StreamsGroupMember
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
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
