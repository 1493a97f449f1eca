"""The same random heartbeats of streams groups (KIP-1071) to kafkacompat and to Apache Kafka: their answers, and how both
describe the groups.

Topologies that fit and that do not, internal topics that have to be created, standbys, static members, wrong epochs,
members that leave and that ask for a shutdown. Each member tells each broker the tasks that this broker has given it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.waiting import wait_until
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.find_coordinator_response import FindCoordinatorResponse
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_response import StreamsGroupDescribeResponse
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from kafkacompat.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

STEPS = 200
TIMEOUT_S = 60.0
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "offsets.topic.num.partitions": "1",
}
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
GONE = {25, 69, 82, 110}
"""Errors after which a member joins again."""
MISSING_INTERNAL_TOPICS = 3
CREATION_S = 1.5
"""How long a broker takes at most to create the internal topics."""
PROCESSES = {"a": "p1", "b": "p2", "c": "p1"}


def topology(epoch: int, *topics: str, changelog: bool = False, repartition: bool = False) -> Topology:
    changelogs = [
        TopicInfo(name="app-store-changelog", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
    ]
    first = Subtopology(
        subtopology_id="0",
        source_topics=list(topics),
        repartition_sink_topics=["app-rep-repartition"] if repartition else [],
        state_changelog_topics=changelogs if changelog else [],
    )
    second = Subtopology(
        subtopology_id="1", repartition_source_topics=[TopicInfo(name="app-rep-repartition")]
    )
    return Topology(epoch=epoch, subtopologies=[first, second] if repartition else [first])


GROUPS = {
    "stateful": topology(0, "t", changelog=True),
    "two": topology(1, "t", "u", repartition=True),
    "missing": topology(0, "nope", "t"),
    "plain": topology(0, "t"),
}
OTHERS = (topology(0, "u"), topology(5, "t"), topology(0, "a b"), topology(0, "__consumer_offsets"))


class Connection:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._number = 0

    def call(self, request: Any, response: Any, version: int) -> Any:
        self._number += 1
        head = struct.pack(">hhih", request.API_KEY, version, self._number, 1) + b"x\0"
        body = head + bytes(encode(request, version))
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._read(4))
        return decode(response, version, self._read(size)[5:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker has closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


class Member:
    """What one broker has told one member."""

    def __init__(self) -> None:
        self.epoch = 0
        self.tasks: dict[str, dict[str, list[int]]] = {role: {} for role in ROLES}

    def hear(self, answer: Any) -> None:
        if answer.error_code:
            return
        self.epoch = answer.member_epoch
        for role in ROLES:
            if getattr(answer, role) is not None:
                self.tasks[role] = {
                    each.subtopology_id: list(each.partitions) for each in getattr(answer, role)
                }

    def owned(self) -> dict[str, list[TaskIds]]:
        return {
            role: [TaskIds(subtopology_id=each, partitions=some) for each, some in tasks.items()]
            for role, tasks in self.tasks.items()
        }


def comparable(value: Any) -> Any:
    """Without the order of arrays, which is that of hash maps in Apache Kafka."""
    if isinstance(value, list):
        return sorted((comparable(each) for each in value), key=repr)
    if hasattr(value, "__slots__"):
        return {
            name: comparable(getattr(value, name)) for name in value.__slots__ if name != "throttle_time_ms"
        }
    return value


class Pair:
    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.connections = [Connection(broker.bootstrap) for broker in brokers]

    def ask(self, requests: list[Any], response: Any, version: int) -> list[Any]:
        answers = [
            each.call(request, response, version)
            for each, request in zip(self.connections, requests, strict=True)
        ]
        ours, kafkas = map(comparable, answers)
        assert ours == kafkas, comparable(requests[0])
        return answers

    def describe(self, version: int) -> None:
        request = StreamsGroupDescribeRequest(group_ids=[*GROUPS, "absent"])
        self.ask([request, request], StreamsGroupDescribeResponse, version)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    brokers = []
    made = None
    try:
        for kind in (KAFKACOMPAT, APACHE):
            (tmp_path / kind).mkdir()
            brokers.append(BrokerProcess(kind, tmp_path / kind, SETTINGS).start())
            admin = AdminClient({"bootstrap.servers": brokers[-1].bootstrap, "log_level": 0})
            for done in admin.create_topics([NewTopic("t", 4, 1), NewTopic("u", 2, 1)]).values():
                done.result(TIMEOUT_S)
        made = Pair(brokers)
        for connection in made.connections:
            wait_until(lambda each=connection: _coordinates(each), "the coordinator serves", TIMEOUT_S)
        yield made
    finally:
        for connection in () if made is None else made.connections:
            connection.close()
        for broker in brokers:
            broker.kill()


def _coordinates(connection: Connection) -> bool:
    find = FindCoordinatorRequest(coordinator_keys=["absent"])
    if connection.call(find, FindCoordinatorResponse, 6).coordinators[0].error_code:
        return False
    describe = StreamsGroupDescribeRequest(group_ids=["absent"])
    return bool(connection.call(describe, StreamsGroupDescribeResponse, 1).groups[0].error_code == 69)


def heartbeat(
    chance: Random, group: str, name: str, members: list[Member] | None
) -> tuple[list[int], dict[str, Any], bool]:
    """The member epoch for each broker, the other fields, and whether the member tells its tasks."""
    fields: dict[str, Any] = {"instance_id": "i" if name == "c" else None}
    what = chance.random()
    if members is None or what < 0.08:
        has_endpoint = group != "missing" and chance.random() < 0.3
        fields |= {
            "topology": GROUPS[group] if chance.random() < 0.9 else chance.choice(OTHERS),
            "rebalance_timeout_ms": chance.choice((10_000, 10_000, 10_000, -1)),
            "process_id": PROCESSES[name],
            "client_tags": [KeyValue(key="zone", value="1")],
            "endpoint_information_epoch": -1,
            "user_endpoint": Endpoint(host=f"h{name}", port=9) if has_endpoint else None,
            **{role: [] for role in ROLES},
        }
        return [0, 0], fields, False
    if what < 0.16:
        fields["shutdown_application"] = chance.random() < 0.2
        return [chance.choice((-1, -1, -2))] * 2, fields, False
    step = chance.choice((0, 0, 0, 0, 0, 0, -1, 1))
    fields["endpoint_information_epoch"] = chance.choice((-1, 0, 1, 2))
    if chance.random() < 0.1:
        told = TaskOffset(subtopology_id="0", partition=chance.randrange(4), offset=chance.randrange(9))
        fields["task_offsets"] = [told]
    return [each.epoch + step for each in members], fields, chance.random() < 0.85


@pytest.mark.needs_control
@pytest.mark.parametrize("seed", [1, 2])
def test_random_heartbeats_get_the_answers_of_apache_kafka(pair: Pair, seed: int) -> None:
    chance = Random(seed)
    known: dict[tuple[str, str], list[Member]] = {}
    for number in range(STEPS):
        group, name = chance.choice(list(GROUPS)), chance.choice("abc")
        members = known.get((group, name))
        epochs, fields, tells = heartbeat(chance, group, name, members)
        if epochs[0] == 0 or members is None:
            members = [Member(), Member()]
        requests = [
            StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=name,
                member_epoch=epoch,
                **(fields | (member.owned() if tells else {})),
            )
            for epoch, member in zip(epochs, members, strict=True)
        ]
        answers = pair.ask(requests, StreamsGroupHeartbeatResponse, chance.choice((0, 1)))
        for member, answer in zip(members, answers, strict=True):
            member.hear(answer)
        if epochs[0] < 0 or answers[0].error_code in GONE:
            known.pop((group, name), None)
        elif not answers[0].error_code or (group, name) in known:
            known[group, name] = members
        if number % 5 == 0:
            pair.describe(chance.choice((0, 1)))
        if any(status.status_code == MISSING_INTERNAL_TOPICS for status in answers[0].status or ()):
            time.sleep(CREATION_S)
