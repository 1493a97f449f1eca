"""Share groups (KIP-932) and streams groups (KIP-1071): asked for node by node, and shown with what is done and what is not."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from kafkacompat.console import share_groups
from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console.core.cluster_view import cluster_view
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.internal_records import MAX_ELEMENTS_SHOWN, internal_key, internal_value
from kafkacompat.console.core.prometheus import metrics_text
from kafkacompat.console.core.rates import Rates
from kafkacompat.console.core.share_groups import groups_in, has_share_groups
from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    GroupEpochs,
    GroupSeen,
    MemberEpoch,
    MemberSeen,
    NodeSeen,
    ShareGroupSeen,
    ShareStand,
    StreamsGroupSeen,
)
from kafkacompat.console.core.streams_groups import groups_in as streams_groups_in
from kafkacompat.console.core.streams_groups import has_streams_groups
from kafkacompat.console.share_groups import CoordinatedGroups, share_groups_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import NO_SECURITY
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.headers import parse_request_header
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kafkacompat.wire.messages.share_snapshot_key import ShareSnapshotKey
from kafkacompat.wire.messages.share_snapshot_value import ShareSnapshotValue, StateBatch
from kafkacompat.wire.messages.share_update_key import ShareUpdateKey
from kafkacompat.wire.messages.share_update_value import ShareUpdateValue
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_response import Assignment as StreamsAssignment
from kafkacompat.wire.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
from kafkacompat.wire.messages.streams_group_describe_response import Member as StreamsMember
from kafkacompat.wire.messages.streams_group_describe_response import (
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    Topology,
)

API_VERSIONS, LIST, DESCRIBE, OFFSETS, STREAMS_DESCRIBE = 18, 16, 77, 90, 89
SEEN = ShareGroupSeen(
    "g",
    "stable",
    1,
    7,
    GroupEpochs(5, 4, {"m": MemberEpoch(5, topics=("t", "u"))}),
    {("t", 0): ShareStand(3, 4), ("t", 1): ShareStand(None, None)},
    "simple",
    (MemberSeen("m", "c", "/h", assigned=(("t", 0), ("t", 1))),),
)


STREAMS_SEEN = StreamsGroupSeen(
    "s",
    "stable",
    1,
    7,
    GroupEpochs(4, 3, {"m": MemberEpoch(3)}),
    ("t", "u"),
    (MemberSeen("m", "c", "/h", assigned=(("0", 0), ("0", 1))),),
)


def versions(**served: tuple[int, int]) -> ApiVersionsResponse:
    known = {LIST: (0, 5), DESCRIBE: (1, 1), OFFSETS: (0, 1), STREAMS_DESCRIBE: (0, 1)}
    known |= {globals()[name.upper()]: bounds for name, bounds in served.items()}
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in known.items()]
    return ApiVersionsResponse(api_keys=keys)


def described(*names: str, members: int = 1) -> ShareGroupDescribeResponse:
    assigned = [TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=[1, 0])]
    made = [
        Member(
            member_id="m" if number == 0 else f"n{number:05}",
            member_epoch=5,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["u", "t"],
            assignment=Assignment(topic_partitions=assigned),
        )
        for number in range(members)
    ]
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(
                group_id=name,
                group_state="Stable",
                group_epoch=5,
                assignment_epoch=4,
                assignor_name="simple",
                members=made,
            )
            for name in names
        ]
    )


def described_streams(*names: str) -> StreamsGroupDescribeResponse:
    tasks = StreamsAssignment(active_tasks=[TaskIds(subtopology_id="0", partitions=[1, 0])])
    topology = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=["u", "t"])])
    member = StreamsMember(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        assignment=tasks,
        target_assignment=StreamsAssignment(),
    )
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedStreamsGroup(
                group_id=name,
                group_state="Stable",
                group_epoch=4,
                assignment_epoch=3,
                topology=topology,
                members=[member],
            )
            for name in names
        ]
    )


def test_streams_groups_are_read_from_the_answer() -> None:
    """A group that has gone meanwhile is left out, and a topology is not known before a member has told it."""
    answer = described_streams("s", "gone", "new")
    answer.groups[1].error_code = 69
    answer.groups[2].topology = None
    assert streams_groups_in(answer, 7) == [STREAMS_SEEN, replace(STREAMS_SEEN, group_id="new", sources=())]


def offsets(*names: str) -> DescribeShareGroupOffsetsResponse:
    places = [
        DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=3, lag=4),
        DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=-1, lag=-1),
    ]
    topics = [DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=places)]
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribeShareGroupOffsetsResponseGroup(group_id=name, topics=topics) for name in names]
    )


def answer_of(message: Message, version: int, correlation_id: int) -> bytes:
    """An answer without its length. ApiVersions has header version 0, the others have no tags in version 1."""
    tags = b"" if message.API_KEY == API_VERSIONS else b"\x00"
    return struct.pack(">i", correlation_id) + tags + encode(message, version)


@pytest.mark.parametrize(
    ("served", "is_asked"),
    [
        ({}, True),
        ({"offsets": (0, 0)}, True),
        ({"offsets": (0, 9)}, True),
        ({"offsets": (2, 3)}, False),
        ({"list": (0, 4)}, False),
        ({"describe": (2, 2)}, False),
    ],
)
def test_a_broker_is_asked_if_it_has_share_groups(served: dict[str, Any], is_asked: bool) -> None:
    assert has_share_groups(serving(served)) == is_asked


@pytest.mark.parametrize(
    ("served", "is_asked"),
    [({}, True), ({"streams_describe": (1, 1)}, False), ({"list": (0, 4)}, False)],
)
def test_a_broker_is_asked_if_it_has_streams_groups(served: dict[str, Any], is_asked: bool) -> None:
    assert has_streams_groups(serving(served)) == is_asked


def serving(served: dict[str, Any]) -> Callable[[int, int], bool]:
    known = {each.api_key: (each.min_version, each.max_version) for each in versions(**served).api_keys}
    return lambda key, version: known[key][0] <= version <= known[key][1]


def test_groups_are_read_from_both_answers() -> None:
    assert groups_in(described("g"), offsets("g"), 7) == [SEEN]
    oldest = decode(DescribeShareGroupOffsetsResponse, 0, encode(offsets("g"), 0))
    older = groups_in(described("g"), oldest, 7)
    assert older[0].stands == {("t", 0): ShareStand(3, None), ("t", 1): ShareStand(None, None)}
    refused, silent = described("g", "refused"), offsets("g")
    refused.groups[1].error_code = silent.groups[0].error_code = 30
    (group,) = groups_in(refused, silent, 7)
    assert group == replace(SEEN, stands=None)
    (group,) = groups_in(described("g", members=MAX_MEMBERS_SHOWN + 9), offsets(), 7)
    assert group.members == MAX_MEMBERS_SHOWN + 9
    assert len(group.member_list) == len(group.epochs.members) == MAX_MEMBERS_SHOWN


class Coordinator:
    """Answers over TCP as the coordinator of some share groups, and records what it was asked."""

    def __init__(self, *names: str, streams: tuple[str, ...] = ()) -> None:
        self.names = names
        self.streams = streams
        self.asked: list[tuple[int, list[str]]] = []

    async def serve(self, stream: trio.abc.Stream) -> None:
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
        version, at = header.api_version, header.body_offset
        if header.api_key == API_VERSIONS:
            return answer_of(versions(), version, header.correlation_id)
        if header.api_key == LIST:
            (kind,) = decode(ListGroupsRequest, version, request, at).types_filter
            names = self.names if kind == "share" else self.streams
            listed = [ListedGroup(group_id=name, group_type=kind.capitalize()) for name in names]
            return answer_of(ListGroupsResponse(groups=listed), version, header.correlation_id)
        if header.api_key == DESCRIBE:
            names = decode(ShareGroupDescribeRequest, version, request, at).group_ids
            self.asked.append((DESCRIBE, names))
            return answer_of(described(*names), version, header.correlation_id)
        if header.api_key == STREAMS_DESCRIBE:
            names = decode(StreamsGroupDescribeRequest, version, request, at).group_ids
            return answer_of(described_streams(*names), version, header.correlation_id)
        asked = decode(DescribeShareGroupOffsetsRequest, version, request, at).groups
        assert all(group.topics is None for group in asked)
        self.asked.append((OFFSETS, [group.group_id for group in asked]))
        return answer_of(offsets(*self.asked[-1][1]), version, header.correlation_id)


async def test_each_node_is_asked_and_the_groups_of_a_silent_one_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_groups, "GROUPS_A_REQUEST", 2)
    monkeypatch.setattr(share_groups, "MAX_GROUPS_A_NODE", 3)
    good = Coordinator("d", "b", "a", "c", "e", streams=("w", "v", "x", "y"))

    async def end(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        ports = [
            (await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1")))[
                0
            ].socket.getsockname()[1]
            for handler in (good.serve, end)
        ]
        nodes = [NodeSeen(number, "127.0.0.1", port) for number, port in enumerate(ports, 1)]
        before = {2: CoordinatedGroups((SEEN,)), 3: CoordinatedGroups((SEEN,))}
        found = await share_groups_of(nodes, NO_SECURITY, before)
        nursery.cancel_scope.cancel()
    assert found.keys() == {1, 2}
    assert [group.group_id for group in found[1].groups] == ["a", "b", "c"]
    assert found[1].streams_groups == tuple(
        replace(STREAMS_SEEN, group_id=name, coordinator=1) for name in "vwx"
    )
    assert found[1].hidden == 2 + 1
    assert found[2] == CoordinatedGroups((SEEN,), error=found[2].error)
    assert "closed the connection" in found[2].error
    assert good.asked == [(kind, names) for names in (["a", "b"], ["c"]) for kind in (DESCRIBE, OFFSETS)]


def shown(state: ConsoleState) -> dict[str, Any]:
    return dict(json.loads(json.dumps(state.cluster(0)(), allow_nan=False))["cluster"])


def test_the_view_has_groups_of_all_kinds_in_order() -> None:
    state = ConsoleState(ClusterAddress("h:1"), 0, "run")
    state.shared({1: CoordinatedGroups((SEEN,))})  # nothing is known yet
    others = tuple(GroupSeen(name, "classic", "empty", 0, 1) for name in ("a", "z"))
    state.looked(snapshot(topic("t", partition(0, latest=10), partition(1, latest=0)), groups=others))
    state.shared(
        {
            1: CoordinatedGroups((SEEN,)),
            2: CoordinatedGroups((replace(SEEN, group_id="b"),), hidden=3),
        }
    )
    view = shown(state)
    assert [group["group"] for group in view["groups"]] == ["a", "b", "g", "z"]
    assert view["groups_hidden"] == 3
    assert view["share_groups_error"] is None
    group = view["groups"][2]
    assert [group[name] for name in ("kind", "state", "members", "topics", "lag", "group_epoch")] == [
        "share",
        "stable",
        1,
        ["t"],
        4,
        5,
    ]
    untold = dict.fromkeys(("held", "oldest_lock_ms", "delivered", "archived"))
    assert group["partitions"] == [
        {"topic": "t", "partition": 0, "start": 3, "latest": 10, "lag": 4, "done": 3} | untold,
        {"topic": "t", "partition": 1, "start": None, "latest": 0, "lag": None, "done": None} | untold,
    ]
    (member,) = group["member_list"]
    assert [member[name] for name in ("member", "epoch", "subscribed", "kind", "target")] == [
        "m",
        5,
        ["t", "u"],
        None,
        None,
    ]
    state.shared({1: CoordinatedGroups((SEEN,)), 2: CoordinatedGroups(error="no answer in time")})
    assert shown(state)["share_groups_error"] == "node 2: no answer in time"
    # What an end offset read a moment earlier would make negative is none.
    state.looked(snapshot(topic("t", partition(0, latest=4)), groups=others))
    state.shared({1: CoordinatedGroups((SEEN,))})
    assert shown(state)["groups"][1]["partitions"][0]["done"] == 0


def test_the_view_has_streams_groups() -> None:
    state = ConsoleState(ClusterAddress("h:1"), 0, "run")
    state.looked(snapshot(groups=(GroupSeen("z", "classic", "empty", 0, 1),)))
    state.shared({1: CoordinatedGroups(streams_groups=(STREAMS_SEEN,))})
    group, other = shown(state)["groups"]
    assert other["group"] == "z"
    assert [
        group[name] for name in ("group", "kind", "state", "members", "topics", "lag", "group_epoch")
    ] == [
        "s",
        "streams",
        "stable",
        1,
        ["t", "u"],
        None,
        4,
    ]
    (member,) = group["member_list"]
    assert (member["epoch"], member["assigned"]["topics"]) == (3, [{"topic": "0", "partitions": [0, 1]}])


def test_the_lag_is_exported() -> None:
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    silent = replace(SEEN, group_id="silent", stands=None)
    view = cluster_view(connection, replace(snapshot(), share_groups=(SEEN, silent)), Rates())
    text = metrics_text(view, {"records": 0, "repeats": 0, "malformed": 0}).decode()
    assert 'kafka_group_lag_records{group="g"} 4.0' in text
    assert 'kafka_group_lag_records{group="silent"}' not in text
    assert 'kafka_group_members{group="silent"} 1.0' in text


@pytest.mark.parametrize(
    ("key", "value"),
    [(ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue)],
)
def test_the_state_of_a_partition_is_told_in_words(key: Any, value: Any) -> None:
    number = key.API_KEY
    data = struct.pack(">h", number) + encode(key(group_id="g", topic_id=b"t" * 16, partition=2), 0)
    assert json.loads(internal_key(SHARE_STATE_TOPIC, data) or "") == {
        "type": key.__name__,
        "version": 0,
        "data": {"groupId": "g", "topicId": "dHR0dHR0dHR0dHR0dHR0dA", "partition": 2},
    }
    batches = [
        StateBatch(first_offset=at, last_offset=at + 1, delivery_state=state, delivery_count=at)
        for at, state in enumerate((0, 2, 4, 9))
    ]
    written = value(
        snapshot_epoch=1, leader_epoch=2, start_offset=3, delivery_complete_count=4, state_batches=batches
    )
    said = json.loads(internal_value(SHARE_STATE_TOPIC, data, b"\0\0" + encode(written, 0)) or "")["data"]
    assert (said["snapshotEpoch"], said["leaderEpoch"]) == (1, 2)
    assert (said["startOffset"], said["deliveryCompleteCount"]) == (3, 4)
    assert said["stateBatches"][0] == {
        "firstOffset": 0,
        "lastOffset": 1,
        "deliveryState": "available",
        "deliveryCount": 0,
    }
    states = [each["deliveryState"] for each in said["stateBatches"]]
    assert states == ["available", "accepted", "archived", 9]
    written.state_batches = batches * MAX_ELEMENTS_SHOWN
    many = json.loads(internal_value(SHARE_STATE_TOPIC, data, b"\0\0" + encode(written, 0)) or "")["data"]
    assert len(many["stateBatches"]) == MAX_ELEMENTS_SHOWN
