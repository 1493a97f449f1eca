"""Members of one consumer group (KIP-848): how soon all consume after a change, and what heartbeats cost the broker.

Most members are of one raw-protocol generator. Each sends a heartbeat in each round, at equal intervals for both brokers.
A few are real clients."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.measure import cpu_seconds, create_topic, memory_mb, running
from interop_tests.consumer_groups.members import CONFLUENT
from interop_tests.consumer_groups.members import Member as ClientProcess
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.wire import Connection, encode_request_header, frame
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

Figures = dict[str, float]
HEARTBEAT = 68
GROUP, TOPIC = "bench-group", "bench"
INTERVAL_S = 0.5
SESSION_MS = 3_000
SETTLED_WITHIN_S = 90.0
AT_ONCE = 50
"""Requests of one connection in flight."""
CONNECTIONS = 4
PACED_AT_ONCE = 4
INTERVALS = 20
IDLE_CPU_S = 0.05
LOADING = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(int(INTERVAL_S * 1000)),
}


class AnyMember(Protocol):
    """A member of a group of any protocol whose members only send heartbeats."""

    @property
    def load(self) -> int:
        """How many partitions or tasks it has."""

    def request(self) -> bytes: ...

    def answered(self, answer: Any) -> None: ...


class Member:
    __slots__ = ("epoch", "group_id", "member_id", "owned", "told", "topic")

    def __init__(self, member_id: str, group_id: str = GROUP, topic: str = TOPIC) -> None:
        self.member_id = member_id
        self.group_id = group_id
        self.topic = topic
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.told = False
        """Whether the broker knows what it owns."""

    @property
    def load(self) -> int:
        return sum(map(len, self.owned.values()))

    def request(self) -> bytes:
        joins = self.epoch == 0
        owned = [TopicPartitions(topic_id=each, partitions=indexes) for each, indexes in self.owned.items()]
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None,
            topic_partitions=[] if joins else None if self.told else owned,
        )
        self.told = True
        return encode(message, 1)

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
            self.told = False


class Fleet:
    """Members over a few connections."""

    def __init__(
        self,
        bootstrap: str,
        partitions: int,
        member: Callable[[str], AnyMember] = Member,
        heartbeat: int = HEARTBEAT,
        response: type[Any] = ConsumerGroupHeartbeatResponse,
    ) -> None:
        """`partitions`: or tasks, which the members share. `heartbeat`: the API, in version 1, with its `response`."""
        self.connections = [Connection(bootstrap) for _ in range(CONNECTIONS)]
        self.partitions = partitions
        self.members: list[Any] = []
        self._member, self._heartbeat, self._response = member, heartbeat, response

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def add(self, count: int) -> None:
        first = len(self.members)
        self.members += [self._member(f"member-{first + each:05d}") for each in range(count)]

    def round(self) -> None:
        self.ask(self.members)

    def ask(self, members: list[Any]) -> None:
        shares = [members[index :: len(self.connections)] for index in range(len(self.connections))]
        for start in range(0, max(map(len, shares)), AT_ONCE):
            asked = [share[start : start + AT_ONCE] for share in shares]
            for connection, some in zip(self.connections, asked, strict=True):
                header = encode_request_header(self._heartbeat, 1, 1, "bench", True)
                connection.send_bytes(b"".join([frame(header + member.request()) for member in some]))
            for connection, some in zip(self.connections, asked, strict=True):
                for member in some:
                    answer = connection.receive_frame()
                    member.answered(decode(self._response, 1, answer, 5))

    def is_settled(self) -> bool:
        owned = [member.load for member in self.members]
        return all(owned) and sum(owned) == self.partitions

    def settle(self) -> float:
        """Seconds until every member has partitions, and every partition a member."""
        started = time.perf_counter()
        while True:
            began = time.perf_counter()
            self.round()
            if self.is_settled():
                return time.perf_counter() - started
            assert began - started < SETTLED_WITHIN_S, "the group does not settle"
            time.sleep(max(0.0, INTERVAL_S - (time.perf_counter() - began)))

    def paced_round(self) -> None:
        """A heartbeat of each member, evenly over one interval, as of clients that joined at any time."""
        started = time.perf_counter()
        slices = max(1, len(self.members) // PACED_AT_ONCE)
        for number in range(slices):
            time.sleep(max(0.0, started + INTERVAL_S * number / slices - time.perf_counter()))
            self.ask(self.members[number::slices])
        time.sleep(max(0.0, started + INTERVAL_S - time.perf_counter()))

    def rest(self) -> None:
        """Until the group may be assigned anew at once (group.consumer.assignment.interval.ms)."""
        for _ in range(4):
            self.round()
            time.sleep(INTERVAL_S)


def membership(count: int, heartbeats: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        partitions = 2 * count
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, partitions)
            find_coordinator(broker.bootstrap)
            wait_until_idle(broker)
            fleet = Fleet(broker.bootstrap, partitions)
            fleet.add(count)
            before = cpu_seconds(broker)
            figures = {"all join, s": fleet.settle()}
            fleet.rest()
            fleet.add(1)
            figures["one joins, s"] = fleet.settle()
            fleet.rest()
            fleet.members.pop()
            figures["one is lost, s"] = fleet.settle()
            figures["broker CPU s of these"] = cpu_seconds(broker) - before
            figures |= steady(broker, fleet, heartbeats)
            figures["memory MB"] = memory_mb(broker)
        return figures

    return run


def steady(broker: BrokerProcess, fleet: Fleet, heartbeats: int) -> Figures:
    """What heartbeats take when nothing changes: as fast as the broker answers, after half as many to warm up, and at equal
    intervals."""
    count = len(fleet.members)
    rounds = max(1, heartbeats // count)
    for _ in range(rounds // 2):
        fleet.round()
    before, started = cpu_seconds(broker), time.perf_counter()
    for _ in range(rounds):
        fleet.round()
    took, sent = time.perf_counter() - started, rounds * count
    figures = {
        "heartbeats/s": sent / took,
        "broker CPU us/heartbeat at that rate": (cpu_seconds(broker) - before) / sent * 1e6,
    }
    before = cpu_seconds(broker)
    for _ in range(INTERVALS):
        fleet.paced_round()
    used = cpu_seconds(broker) - before
    return figures | {"broker CPU us/heartbeat at equal intervals": used / (INTERVALS * count) * 1e6}


def real_clients(count: int) -> Callable[[str], Figures]:
    """Members of librdkafka, each in a process of its own, so that a lost one says nothing. The times of members that come
    include the start of their processes."""

    def run(kind: str) -> Figures:
        partitions = 2 * count
        with running(kind, SETTINGS) as broker, contextlib.ExitStack() as made:
            create_topic(broker, TOPIC, partitions)
            find_coordinator(broker.bootstrap)
            wait_until_idle(broker)

            def start(number: int) -> ClientProcess:
                name = f"client-{number}"
                own = {"bootstrap": broker.bootstrap, "group": GROUP, "client": name, "topic": TOPIC}
                member = ClientProcess(CONFLUENT, broker.root / f"{name}.log", **own)
                made.callback(member.kill)
                return member

            started, before = time.perf_counter(), cpu_seconds(broker)
            members = [start(number) for number in range(count)]
            figures = {"all join, s": _until_shared(members, partitions, started)}
            _rest()
            started = time.perf_counter()
            members.append(start(count))
            figures["one joins, s"] = _until_shared(members, partitions, started)
            _rest()
            started = time.perf_counter()
            members.pop(0).kill()
            figures["one is lost, s"] = _until_shared(members, partitions, started)
            figures["broker CPU s of these"] = cpu_seconds(broker) - before
        return figures

    return run


def _until_shared(members: list[ClientProcess], partitions: int, started: float) -> float:
    """Seconds until every member has partitions, and every partition one member."""
    while True:
        owned = [member.state.owned for member in members]
        if all(owned) and sum(map(len, owned)) == len(frozenset().union(*owned)) == partitions:
            return time.perf_counter() - started
        assert time.perf_counter() - started < SETTLED_WITHIN_S, "the group does not settle"
        time.sleep(0.02)


def _rest() -> None:
    """Like `Fleet.rest`. The clients send the heartbeats themselves."""
    time.sleep(4 * INTERVAL_S)


def many_groups(count: int) -> Callable[[str], Figures]:
    """Groups of one member each: what they take, and how soon they are there again after a restart."""

    def run(kind: str) -> Figures:
        with running(kind, SETTINGS | {"group.consumer.session.timeout.ms": "60000"}) as broker:
            create_topic(broker, TOPIC, 2)
            find_coordinator(broker.bootstrap)
            wait_until_idle(broker)
            before = memory_mb(broker)
            members = [Member(f"member-{each:05d}", f"group-{each:05d}") for each in range(count)]
            fleet = Fleet(broker.bootstrap, 2 * count)
            fleet.members = members
            fleet.round()
            assert fleet.is_settled()
            figures = {"memory of the groups, MB": memory_mb(broker) - before}
            broker.stop()
            started = time.perf_counter()
            broker.start()
            _await_epoch(broker.bootstrap, members[-1])
            figures["restarted with all groups, s"] = time.perf_counter() - started
        return figures

    return run


def _await_epoch(bootstrap: str, member: Member) -> None:
    """Until the member is known at its epoch."""
    header = encode_request_header(HEARTBEAT, 1, 1, "bench", True)
    deadline = time.monotonic() + SETTLED_WITHIN_S
    with Connection(bootstrap) as connection:
        while time.monotonic() < deadline:
            connection.send_bytes(frame(header + member.request()))
            answer = decode(ConsumerGroupHeartbeatResponse, 1, connection.receive_frame(), 5)
            if answer.error_code == 0:
                assert answer.member_epoch == member.epoch
                return
            assert answer.error_code in LOADING, answer.error_message
            time.sleep(0.02)
    raise AssertionError("the groups are not loaded")


def wait_until_idle(broker: BrokerProcess) -> None:
    """The new partitions' logs are made and synced by now."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while time.monotonic() < deadline:
        before = cpu_seconds(broker)
        time.sleep(1)
        if cpu_seconds(broker) - before < IDLE_CPU_S:
            return
    raise AssertionError("the broker does not come to rest")


def find_coordinator(bootstrap: str) -> None:
    deadline = time.monotonic() + SETTLED_WITHIN_S
    with Connection(bootstrap) as connection:
        while True:
            answer = connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]})
            if not answer["Coordinators"][0]["ErrorCode"]:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
    header = encode_request_header(HEARTBEAT, 1, 1, "bench", True)
    probe = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="probe", member_epoch=1)
    with Connection(bootstrap) as connection:
        while True:
            connection.send_bytes(frame(header + encode(probe, 1)))
            (error,) = struct.unpack_from(">h", connection.receive_frame(), 4 + 1 + 4)
            if error == 69:  # GROUP_ID_NOT_FOUND: the coordinator has loaded its partition
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)
