"""Heartbeats and commits whose requests are encoded once: what a broker's group coordinator costs without a client's work.

The members join before the load, and their sessions last longer than it. Each request is sent once, and its response is
kept. Then `benchmarks.raw` repeats the requests in a separate process, and each must get the same response again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.consumer_groups import HEARTBEAT, Fleet
from benchmarks.consumer_groups import Member as ConsumerMember
from benchmarks.measure import Target
from interop_tests.harness.groups import Member as ClassicMember
from interop_tests.harness.groups import begin_together, coordinator, subscription
from interop_tests.harness.wire import Connection, decode_response, encode_request_header, frame

GROUPS, MEMBERS = 50, 10
"""Groups, and members of each."""
PARTITIONS = 2 * MEMBERS
SESSION_MS = 1_800_000
SETTINGS = {
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}
"""Of both brokers."""
CLASSIC_HEARTBEAT_VERSION, CONSUMER_HEARTBEAT_VERSION, COMMIT_VERSION = 4, 1, 9
CORRELATION_ID = 1
NO_MEMBER = {"GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None}
"""Of a commit by a client that assigns its partitions itself."""


def exchanges_file(target: Target, topic: str) -> Path:
    return target.root / f"exchanges-{topic}.json"


def keep(target: Target, topic: str, api: str, version: int, requests: Iterable[bytes]) -> None:
    """Send each request of this API, and write it to a file with its response, which has no error."""
    exchanges = []
    with Connection(target.bootstrap) as connection:
        for request in requests:
            connection.send_bytes(frame(request))
            reply = connection.receive_frame()
            said = decode_response(reply, api, version, CORRELATION_ID)
            errors = (
                [said]
                if "ErrorCode" in said
                else [each for one in said["Topics"] for each in one["Partitions"]]
            )
            assert errors, said
            assert not any(each["ErrorCode"] for each in errors), said
            exchanges.append((frame(request).hex(), reply.hex()))
    exchanges_file(target, topic).write_text(json.dumps(exchanges), encoding="utf-8")


def encoded(api: str, version: int, body: dict[str, object], connection: Connection) -> bytes:
    _, request = connection.encode(api, version, body, CORRELATION_ID)
    return request


def classic_heartbeats(target: Target, topic: str) -> None:
    """Members of classic groups, all in one generation of their group."""
    members = []
    for number in range(GROUPS):
        group = f"{topic}-{number:03d}"
        with Connection(target.bootstrap) as connection:
            coordinator(connection, group)
        members += [
            ClassicMember(
                target.bootstrap,
                group,
                protocols={"range": subscription(topic)},
                session_timeout_ms=SESSION_MS,
            )
            for _ in range(MEMBERS)
        ]
    try:
        joins = begin_together(members)
        for member, number in zip(members, joins, strict=True):
            reply = member.receive_join(number)
            assert reply["ErrorCode"] == 0, reply
        syncs = [member.send_sync({}) for member in members]
        for member, number in zip(members, syncs, strict=True):
            reply = member.receive_sync(number)
            assert reply["ErrorCode"] == 0, reply
        requests = [
            encoded(
                "Heartbeat",
                CLASSIC_HEARTBEAT_VERSION,
                {
                    "GroupId": member.group,
                    "GenerationId": member.generation,
                    "MemberId": member.member_id,
                    "GroupInstanceId": None,
                },
                member.connection,
            )
            for member in members
        ]
    finally:
        for member in members:
            member.close()
    keep(target, topic, "Heartbeat", CLASSIC_HEARTBEAT_VERSION, requests)


def consumer_heartbeats(target: Target, topic: str) -> None:
    """Members of consumer groups (KIP-848), each with the partitions that it shall have."""
    names = [f"{topic}-{number:03d}" for number in range(GROUPS)]
    with Connection(target.bootstrap) as connection:
        for name in names:
            coordinator(connection, name)
    fleet = Fleet(target.bootstrap, GROUPS * PARTITIONS)
    fleet.members = [
        ConsumerMember(f"member-{number:02d}", name, topic) for name in names for number in range(MEMBERS)
    ]
    fleet.settle()
    fleet.rest()
    header = encode_request_header(HEARTBEAT, CONSUMER_HEARTBEAT_VERSION, CORRELATION_ID, "bench", True)
    requests = [header + member.request() for member in fleet.members]
    fleet.close()
    keep(target, topic, "ConsumerGroupHeartbeat", CONSUMER_HEARTBEAT_VERSION, requests)


def commits(target: Target, topic: str, partitions: int) -> None:
    """A commit of some partitions."""
    group = f"{topic}-committed"
    parts = [
        {"PartitionIndex": each, "CommittedOffset": 0, "CommittedMetadata": ""} for each in range(partitions)
    ]
    body = {"GroupId": group, **NO_MEMBER, "Topics": [{"Name": topic, "Partitions": parts}]}
    with Connection(target.bootstrap) as connection:
        coordinator(connection, group)
        request = encoded("OffsetCommit", COMMIT_VERSION, body, connection)
    keep(target, topic, "OffsetCommit", COMMIT_VERSION, [request])
