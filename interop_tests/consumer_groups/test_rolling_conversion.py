"""A group of stock clients is converted member by member to the consumer protocol (KIP-848) and back under load, on Apache
Kafka and on kafkacompat."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from interop_tests.consumer_groups.rolling import (
    CLASSIC,
    CONSUMER,
    ConfluentMember,
    JavaMember,
    Joining,
    Received,
    RollingMember,
    Writer,
    backward_steps,
    commits_in_order,
)
from interop_tests.consumer_groups.test_stock_clients import described
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

# Sessions are long: a member of a busy machine must not be taken for lost.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": "120000",
    "group.consumer.max.session.timeout.ms": "120000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
MEMBERS = 3
PARTITIONS = 6
RECORDS_A_STEP = 200
"""Of each partition, for the start and for each member that is replaced: at most 18,720 records with the progress after it."""
WAIT_S = 180.0
"""A step waits for all members, on a busy machine."""
PROGRESS = 40
"""Records of each partition that the group consumes before the next member is replaced."""
Make = Callable[[Joining], RollingMember]
MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


@pytest.fixture(scope="module", params=[APACHE, KAFKACOMPAT])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker of each kind."""
    broker = BrokerProcess(request.param, tmp_path_factory.mktemp(request.param), SETTINGS)
    broker.start()
    try:
        with Connection(broker.bootstrap) as connection:
            coordinator(connection, "any")
        yield broker.bootstrap
    finally:
        broker.kill()


class Rolling:
    """The group, its writer, and its present members by their places."""

    def __init__(self, bootstrap: str, group: str, make: Make, is_static: bool) -> None:
        self._received = Received()
        self._bootstrap = bootstrap
        self._group = group
        self._topic = f"{group}-topic"
        self._make = make
        self._is_static = is_static
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        create_topic(bootstrap, self._topic, PARTITIONS, None)
        self._writer = Writer(bootstrap, self._topic, PARTITIONS)
        self._members: dict[int, tuple[str, RollingMember]] = {}
        self._replaced = 0

    def start(self) -> None:
        self._writer.allow(RECORDS_A_STEP)
        for place in range(MEMBERS):
            self._join(place, CLASSIC)
        self._goes_on()

    def replace(self, place: int, protocol: str) -> None:
        """Stop the member, and start one of this protocol in its place. The records of this step are written meanwhile."""
        self._writer.allow(RECORDS_A_STEP)
        _, former = self._members[place]
        former.stop()
        self._replaced += 1
        self._join(place, protocol)
        self._goes_on()

    def _join(self, place: int, protocol: str) -> None:
        name = f"{protocol}-{place}-{self._replaced}"
        member = self._make(
            Joining(
                self._bootstrap,
                self._group,
                self._topic,
                name,
                protocol,
                f"instance-{place}" if self._is_static else None,
                self._received,
            )
        )
        self._members[place] = (protocol, member)

    def _goes_on(self) -> None:
        """The group has its members and rests, and consumes in every partition what is written after that."""
        self._wait_until(self._is_settled, "the group has come to rest")
        wanted = {each: count + PROGRESS for each, count in self._writer.acknowledged.items()}
        self._writer.allow(PROGRESS)
        self._wait_until(lambda: self._has_committed(wanted), "the members commit what is written")

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        def errors() -> list[str]:
            found = (member.error for _, member in self._members.values())
            return self._writer.failures + [each for each in found if each is not None]

        wait_until(lambda: errors() or holds(), what, WAIT_S)
        assert not errors()

    def _is_settled(self) -> bool:
        """Whether the group has the type that its members require, and all of them have what they should have."""
        protocols = {member.name: protocol for protocol, member in self._members.values()}
        if CONSUMER not in protocols.values():
            found = self._admin.describe_consumer_groups([self._group])[self._group].result(30)
            clients = {each.client_id for each in found.members}
            return (
                found.type.name == "CLASSIC"
                and found.state.name == "STABLE"
                and clients == protocols.keys()
                and len(found.members) == MEMBERS
            )
        group = described(self._bootstrap, self._group)
        types = {member.client_id: MEMBER_TYPES.get(member.member_type) for member in group.members}
        return group.group_state == "Stable" and types == protocols and len(group.members) == MEMBERS

    def _committed(self) -> dict[int, int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self._group)])
        return {place.partition: place.offset for place in asked[self._group].result(30).topic_partitions}

    def _has_committed(self, wanted: dict[int, int]) -> bool:
        committed = self._committed()
        return all(committed.get(partition, -1) >= offset for partition, offset in wanted.items())

    def finish(self) -> None:
        """The writer ends, and everything is judged."""
        self._writer.stop()
        ends = self._writer.acknowledged
        self._wait_until(lambda: self._committed() == ends, "everything is committed")
        for _, member in self._members.values():
            member.stop()
        written = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        assert self._received.places == written, sorted(written ^ self._received.places)[:20]
        commits = commits_in_order(self._bootstrap, self._group)
        assert backward_steps(commits) == []
        assert {partition: offsets[-1] for partition, offsets in commits.items()} == ends
        assert self._committed() == ends

    def abandon(self) -> None:
        """The test ends, maybe with a failure."""
        self._writer.abandon()
        for _, member in self._members.values():
            member.abandon()


@pytest.mark.parametrize(
    ("client", "is_static", "rounds"),
    [("librdkafka", False, 2), ("librdkafka", True, 2 if SOAK else 1), ("java", False, 1), ("java", True, 1)],
    ids=["librdkafka", "librdkafka-static", "java", "java-static"],
)
def test_a_group_is_converted_member_by_member_and_back(
    served: str,
    unique: Callable[[str], str],
    request: pytest.FixtureRequest,
    client: str,
    is_static: bool,
    rounds: int,
) -> None:
    make: Make = ConfluentMember
    if client == "java":
        make = partial(JavaMember, request.getfixturevalue("java_members"))
    rolling = Rolling(served, unique("rolling"), make, is_static)
    try:
        rolling.start()
        for protocol in (CONSUMER, CLASSIC) * rounds:
            for place in range(MEMBERS):
                rolling.replace(place, protocol)
        rolling.finish()
    finally:
        rolling.abandon()
