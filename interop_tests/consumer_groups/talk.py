"""One or two brokers that get the same requests of consumer groups, over raw sockets.

Requests are written with names: a topic's name where its id belongs, and the name of a member whose id a broker makes.
Each side replaces the names by its own ids, and the ids in its answers and records by the names.
"""

from __future__ import annotations

import uuid
from typing import Any

from interop_tests.consumer_groups.names import Names
from interop_tests.consumer_groups.records import WrittenRecords
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic, topic_id
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

Body = dict[str, Any]

GROUP_SIZE_MAX = 4
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # No member is fenced while a test runs.
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.max.size": str(GROUP_SIZE_MAX),
    "group.max.size": str(GROUP_SIZE_MAX),
    # Otherwise requests of several connections may overtake each other.
    "num.network.threads": "1",
    "num.io.threads": "1",
}
BARRIER, PROBE = "barrier", "probe"
UNKNOWN_ID = uuid.UUID(int=0xDEAD)
WAITS, CLOSED = "waits", "closed"
LATE_S = 8.0
"""How long an answer may take that the other broker has given."""
GRACE_S = 0.004


class Side:
    """One broker: its connections, the names of its ids, and the records that it has written."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.kind = broker.kind
        self._bootstrap = broker.bootstrap
        self.connection = Connection(broker.bootstrap, client_id="client")
        self.names = Names()
        self._barriers = 0
        self._made: dict[str, str] = {}
        self._topic_ids: dict[str, uuid.UUID] = {"": uuid.UUID(int=0)}
        self._incarnations: dict[str, int] = {}
        self._idle: list[Connection] = []
        self._waiting: dict[str, tuple[Connection, str, int, int, str | None]] = {}
        create_topic(broker.bootstrap, BARRIER)
        coordinator(self.connection, PROBE)
        self.records = WrittenRecords(self.connection, self.names)
        self.records.new()

    def close(self) -> None:
        for connection in (self.connection, *self._idle):
            connection.close()
        for name in list(self._waiting):
            self.give_up(name)

    # requests

    def resolved(self, value: Any, field: str = "") -> Any:
        """The value with this broker's ids in place of names."""
        if isinstance(value, dict):
            return {name: self.resolved(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.resolved(each, field) for each in value]
        if field == "TopicId" and isinstance(value, str):
            return self._topic_ids.get(value, UNKNOWN_ID)
        if field == "MemberId" and isinstance(value, str):
            return self._made.get(value, value)
        return value

    def ask(self, api: str, version: int, body: Body, client_id: str, made: str | None) -> Any:
        """The answer with names, or CLOSED. `made` is the name of the member id that the broker makes."""
        self.connection.client_id = client_id
        try:
            answer = self.connection.call(api, version, self.resolved(body))
        except ConnectionClosed:
            self.connection = Connection(self._bootstrap, client_id=client_id)
            return CLOSED
        return self._named(answer, made)

    def send(self, name: str, api: str, version: int, body: Body, client_id: str, made: str | None) -> None:
        """Send a request that may wait for other members, over a connection of its own."""
        connection = self._idle.pop() if self._idle else self._accepted()
        connection.client_id = client_id
        number = connection.send(api, version, self.resolved(body))
        self._waiting[name] = (connection, api, version, number, made)

    def _accepted(self) -> Connection:
        """A new connection that the broker reads: requests of others cannot overtake the first one of this."""
        connection = Connection(self._bootstrap)
        connection.call("ApiVersions", 0, {})
        return connection

    def is_answered(self, name: str) -> bool:
        return not self._waiting[name][0].is_silent(GRACE_S)

    def receive(self, name: str) -> Any:
        connection, api, version, number, made = self._waiting.pop(name)
        try:
            answer = connection.receive(api, version, number, LATE_S)
        except (ConnectionClosed, Silence) as error:
            connection.close()
            return CLOSED if isinstance(error, ConnectionClosed) else WAITS
        self._idle.append(connection)
        return self._named(answer, made)

    def give_up(self, name: str) -> None:
        self._waiting.pop(name)[0].close()

    def _named(self, answer: Body, made: str | None) -> Any:
        member_id = answer.get("MemberId")
        if made is not None and member_id and member_id != made:
            self.names.learn(member_id, made)
            # A record may have shown the id before, and given it a name.
            self._made[made] = self._made[self.names.text(member_id)] = member_id
        return self.names.canonical(answer)

    def pass_through(self) -> None:
        """Requests that other connections sent before have been carried out.

        The second question arrives when the first one is answered, so nothing that was sent before is behind it.
        """
        group = {"GroupId": PROBE, "MemberId": None, "MemberEpoch": -1, "Topics": None}
        for _ in range(2):
            self.connection.call("OffsetFetch", 9, {"Groups": [group], "RequireStable": True})

    def made_id(self, name: str) -> str:
        """The member id that the broker has made last under this name."""
        return self._made[name]

    # topics

    def create_topic(self, name: str, partitions: int) -> None:
        create_topic(self._bootstrap, name, partitions)
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        found = topic_id(self.connection, name)
        self._topic_ids[name] = self._topic_ids[f"{name}#{number}"] = found
        self.names.learn(found, f"{name}#{number}")
        self.pass_barrier()

    def delete_topic(self, name: str) -> None:
        reply = self.connection.call("DeleteTopics", 6, {"Topics": [{"Name": name}], "TimeoutMs": 15000})
        assert reply["Responses"][0]["ErrorCode"] == 0, reply
        self.pass_barrier()

    def grow_topic(self, name: str, count: int) -> None:
        topic = {"Name": name, "Count": count, "Assignments": None}
        reply = self.connection.call(
            "CreatePartitions", 3, {"Topics": [topic], "TimeoutMs": 15000, "ValidateOnly": False}
        )
        assert reply["Results"][0]["ErrorCode"] == 0, reply
        self.pass_barrier()

    def pass_barrier(self) -> None:
        """Wait until the coordinator knows of the metadata changes that were acknowledged.

        Changes reach the broker in order, but it may show one before its coordinator knows it. When it shows a second
        one, the first one has arrived everywhere.
        """
        for _ in range(2):
            self._barriers += 1
            wanted = str(10**9 + self._barriers)
            config = {"Name": "retention.ms", "ConfigOperation": 0, "Value": wanted}
            resource = {"ResourceType": 2, "ResourceName": BARRIER, "Configs": [config]}
            reply = self.connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
            assert reply["Responses"][0]["ErrorCode"] == 0, reply
            asked = {"ResourceType": 2, "ResourceName": BARRIER, "ConfigurationKeys": ["retention.ms"]}

            def is_known(asked: Body = asked, wanted: str = wanted) -> bool:
                (result,) = self.connection.call("DescribeConfigs", 4, {"Resources": [asked]})["Results"]
                return bool(result["Configs"][0]["Value"] == wanted)

            wait_until(is_known, f"{self.kind} knows of the change", 20, 0.002)
        self.pass_through()
