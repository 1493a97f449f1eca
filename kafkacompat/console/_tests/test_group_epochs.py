"""Groups of the consumer protocol (KIP-848): members and assignments from the library, epochs from the coordinator."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from confluent_kafka import TopicPartition

from kafkacompat.console import admin, epochs
from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console._tests.test_admin import ScriptedAdmin
from kafkacompat.console._tests.test_looking import Followed, ScriptedClient
from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.core.cluster_view import MAX_MEMBER_PARTITIONS_SHOWN, cluster_view
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.group_epochs import epochs_in
from kafkacompat.console.core.rates import Rates
from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    GroupEpochs,
    GroupSeen,
    MemberEpoch,
    MemberSeen,
    NodeSeen,
    Snapshot,
)
from kafkacompat.console.epochs import epochs_of
from kafkacompat.console.looking import keep_looking
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import NO_SECURITY
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.headers import parse_request_header
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)

API_VERSIONS, DESCRIBE = 18, 69
EPOCHS = GroupEpochs(7, 6, {"m": MemberEpoch(5, "consumer", ("t", "u"), "t.*")})


def versions(lowest: int, highest: int) -> ApiVersionsResponse:
    other = ApiVersion(api_key=0, min_version=0, max_version=9)
    return ApiVersionsResponse(
        api_keys=[other, ApiVersion(api_key=DESCRIBE, min_version=lowest, max_version=highest)]
    )


def described(*names: str, members: int = 1) -> ConsumerGroupDescribeResponse:
    made = [
        Member(
            member_id="m" if number == 0 else f"n{number:05}",
            member_epoch=5,
            subscribed_topic_names=["u", "t"],
            subscribed_topic_regex="t.*",
            member_type=1,
        )
        for number in range(members)
    ]
    groups = [
        DescribedGroup(group_id=name, group_epoch=7, assignment_epoch=6, members=made) for name in names
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


def answer_of(message: Message, version: int, correlation_id: int) -> bytes:
    """An answer without its length. Header version 0 for ApiVersions, and version 1 with no tags for ConsumerGroupDescribe."""
    tags = b"" if message.API_KEY == API_VERSIONS else b"\x00"
    return struct.pack(">i", correlation_id) + tags + encode(message, version)


def test_epochs_and_subscriptions_are_read_from_the_answer() -> None:
    assert epochs_in(described("g")) == {"g": EPOCHS}
    untold = {"m": replace(EPOCHS.members["m"], kind="")}
    oldest = decode(ConsumerGroupDescribeResponse, 0, encode(described("g"), 0))
    assert epochs_in(oldest) == {"g": replace(EPOCHS, members=untold)}
    answer = described("g", "refused")
    answer.groups[1].error_code = 30
    assert epochs_in(answer).keys() == {"g"}


def test_members_beyond_the_bound_are_left_out() -> None:
    (group,) = epochs_in(described("g", members=MAX_MEMBERS_SHOWN + 9)).values()
    assert len(group.members) == MAX_MEMBERS_SHOWN


class Coordinator:
    """Answers over TCP, and records the groups of each request."""

    def __init__(self, *served: int) -> None:
        """`served`: the lowest and the highest version of ConsumerGroupDescribe."""
        self.served = served
        self.asked: list[list[str]] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        received = bytearray()
        while True:
            while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
                part = await stream.receive_some(1 << 16)
                if not part:
                    return
                received += part
            size = struct.unpack_from(">i", received)[0]
            answer = self.answer_to(bytes(received[4 : 4 + size]))
            del received[: 4 + size]
            await stream.send_all(struct.pack(">i", len(answer)) + answer)

    def answer_to(self, request: bytes) -> bytes:
        header = parse_request_header(request)
        if header.api_key == API_VERSIONS:
            return answer_of(versions(*self.served), header.api_version, header.correlation_id)
        assert header.api_version == min(self.served[1], ConsumerGroupDescribeRequest.MAX_VERSION)
        wanted = decode(ConsumerGroupDescribeRequest, header.api_version, request, header.body_offset)
        self.asked.append(wanted.group_ids)
        return answer_of(described(*wanted.group_ids), header.api_version, header.correlation_id)


async def test_each_coordinator_is_asked_for_its_groups_and_a_silent_one_leaves_its_own_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epochs, "GROUPS_A_REQUEST", 2)
    good, too_new = Coordinator(0, 9), Coordinator(2, 3)

    async def end(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        ports = [
            (await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1")))[
                0
            ].socket.getsockname()[1]
            for handler in (good.serve, end, too_new.serve)
        ]
        nodes = tuple(NodeSeen(number, "127.0.0.1", port) for number, port in enumerate(ports, 1))
        groups = (
            *(GroupSeen(name, "consumer", "stable", 1, 1) for name in "abc"),
            GroupSeen("classic", "classic", "stable", 1, 1),
            GroupSeen("silent", "consumer", "stable", 1, 2),
            GroupSeen("new", "consumer", "stable", 1, 3),
            GroupSeen("gone", "consumer", "stable", 1, 4),
            GroupSeen("nowhere", "consumer", "stable", 1, None),
        )
        seen = replace(snapshot(groups=groups), nodes=nodes)
        assert await epochs_of(seen, NO_SECURITY) == dict.fromkeys("abc", EPOCHS)
        assert good.asked == [["a", "b"], ["c"]]
        assert too_new.asked == []
        nursery.cancel_scope.cancel()


def test_members_are_seen_with_both_assignments(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*numbers: int) -> Any:
        return SimpleNamespace(topic_partitions=[TopicPartition("t", number) for number in numbers])

    def member(name: str, **fields: Any) -> Any:
        known = {"client_id": "c", "host": "/h", "group_instance_id": None, "target_assignment": None}
        return SimpleNamespace(member_id=name, **(known | {"assignment": held()} | fields))

    made = ScriptedAdmin(["g"])
    made.members = [
        member("b", assignment=held(1, 0), target_assignment=held(0), group_instance_id="i"),
        member("a", client_id=None, host=None),
        *(member(f"z{number:03}") for number in range(MAX_MEMBERS_SHOWN)),
    ]
    monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: made)
    (group,) = ClusterClient(ClusterAddress("h:1")).look(7).groups
    assert (group.assignor, group.members) == ("range", MAX_MEMBERS_SHOWN + 2)
    assert len(group.member_list) == MAX_MEMBERS_SHOWN
    assert group.member_list[:2] == (
        MemberSeen("a", "", ""),
        MemberSeen("b", "c", "/h", "i", (("t", 0), ("t", 1)), (("t", 0),)),
    )


def group_of(seen: Snapshot) -> dict[str, Any]:
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    view = json.loads(json.dumps(cluster_view(connection, seen, Rates()), allow_nan=False))
    (group,) = view["cluster"]["groups"]
    return dict(group)


def test_the_view_of_a_group_has_its_epochs_and_both_assignments_of_each_member() -> None:
    many = tuple(("t", number) for number in range(MAX_MEMBER_PARTITIONS_SHOWN + 5))
    members = (
        MemberSeen("m", "c", "/h", None, (("t", 0), ("t", 1), ("u", 0)), (("t", 0),)),
        MemberSeen("new", "d", "/h", "i", many),
    )
    group = GroupSeen("g", "consumer", "reconciling", 2, 1, {}, "uniform", members)
    seen = replace(snapshot(topic("t", partition(0)), groups=(group,)), epochs={"g": EPOCHS})
    view = group_of(seen)
    assert [view[name] for name in ("kind", "assignor", "group_epoch", "assignment_epoch", "members")] == [
        "consumer",
        "uniform",
        7,
        6,
        2,
    ]
    first, second = view["member_list"]
    assert first == {
        "member": "m",
        "client": "c",
        "host": "/h",
        "instance": None,
        "epoch": 5,
        "kind": "consumer",
        "subscribed": ["t", "u"],
        "regex": "t.*",
        "assigned": {
            "count": 3,
            "topics": [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}],
        },
        "target": {"count": 1, "topics": [{"topic": "t", "partitions": [0]}]},
    }
    assert (second["instance"], second["epoch"], second["subscribed"], second["target"]) == (
        "i",
        None,
        None,
        None,
    )
    assert second["assigned"]["count"] == len(many)
    assert len(second["assigned"]["topics"][0]["partitions"]) == MAX_MEMBER_PARTITIONS_SHOWN


def test_a_group_whose_epochs_nobody_told_has_none() -> None:
    view = group_of(
        snapshot(groups=(GroupSeen("g", "classic", "stable", 1, 1, {}, "", (MemberSeen("m", "c", "/h"),)),))
    )
    assert [view[name] for name in ("assignor", "group_epoch", "assignment_epoch")] == [None] * 3
    assert view["member_list"][0]["epoch"] is None


async def test_epochs_are_those_of_the_newest_look(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    told = [{"g": EPOCHS}, {}]

    async def listening(places: object) -> None:
        return

    async def no_sizes(nodes: object, security: object) -> tuple[None, str]:
        return None, ""

    async def scripted(seen: Snapshot, security: object) -> dict[str, GroupEpochs]:
        assert [group.group_id for group in seen.groups] == ["g"]
        return told.pop(0)

    monkeypatch.setattr("kafkacompat.console.looking.require_listener", listening)
    monkeypatch.setattr("kafkacompat.console.looking.sizes_of", no_sizes)
    monkeypatch.setattr("kafkacompat.console.looking.epochs_of", scripted)
    state = ConsoleState(ClusterAddress("h:1"), 0, "run")
    client = ScriptedClient(snapshot(groups=(GroupSeen("g", "consumer", "stable", 1, 1),)))
    found: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_looking, state, client, Followed(), lambda: 50, NO_SECURITY)
        while told or len(found) < 2:
            await trio.sleep(0.1)
            if state.snapshot is not None and state.snapshot.epochs not in found:
                found.append(state.snapshot.epochs)
        nursery.cancel_scope.cancel()
    assert found == [{"g": EPOCHS}, {}]
