"""Members that repeat the same heartbeat all the time, while quotas and permissions change: each answer is one of now.

kafkacompat answers a repeated heartbeat without decoding it, unless a quota or an authorizer has a say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.raw.rights import ADMINISTRATOR, SECURED, SENDER, entry
from kafkacompat.security.acl import AclOperation, AclPermissionType, ResourceType

pytestmark = pytest.mark.needs_control
MEMBERS = 8
BEATEN_S = 0.5
"""For how long the members go on after each change."""
TOPIC, GROUP, CLIENT = "steady", "steady", "member"
HEARTBEAT = "ConsumerGroupHeartbeat"
GROUP_AUTHORIZATION_FAILED = 30
NEARLY_NOTHING = 0.01
"""Percent of the request handlers' time."""


class Member:
    def __init__(self, broker: BrokerProcess, number: int, sender: str | None) -> None:
        self.connection = Connection(broker.bootstrap, client_id=CLIENT, sender=sender, timeout_s=30.0)
        self.member_id = f"member-{number}"
        self.epoch = 0
        self.partitions: set[int] = set()
        self._topics: list[dict[str, Any]] = []
        self._is_told = False

    def send(self) -> int:
        """A heartbeat that tells nothing, unless the member joins or has got another assignment."""
        joins = not self.epoch
        return self.connection.send(
            HEARTBEAT,
            1,
            {
                "GroupId": GROUP,
                "MemberId": self.member_id,
                "MemberEpoch": self.epoch,
                "InstanceId": None,
                "RackId": None,
                "RebalanceTimeoutMs": 60_000 if joins else -1,
                "SubscribedTopicNames": [TOPIC] if joins else None,
                "SubscribedTopicRegex": None,
                "ServerAssignor": None,
                "TopicPartitions": [] if joins else self._owned(),
            },
        )

    def receive(self, correlation_id: int) -> dict[str, Any]:
        answer = self.connection.receive(HEARTBEAT, 1, correlation_id)
        if answer["ErrorCode"] == 0:
            self.epoch = answer["MemberEpoch"]
            if answer["Assignment"] is not None:
                self._topics = answer["Assignment"]["TopicPartitions"]
                self.partitions = {each for topic in self._topics for each in topic["Partitions"]}
                self._is_told = True
        return answer

    def _owned(self) -> list[dict[str, Any]] | None:
        told, self._is_told = self._is_told, False
        return self._topics if told else None


class Group:
    def __init__(self, broker: BrokerProcess, sender: str | None = None) -> None:
        self.broker = broker
        self.administrator = Connection(broker.bootstrap, client_id="administrator")
        # Who asks for the coordinator has its topic created.
        wanted = {"KeyType": 0, "CoordinatorKeys": [GROUP]}
        wait_until(
            lambda: not self.administrator.call("FindCoordinator", 4, wanted)["Coordinators"][0]["ErrorCode"],
            "the group has a coordinator",
        )
        self.members = [Member(broker, number, sender) for number in range(MEMBERS)]

    def beat(self) -> list[dict[str, Any]]:
        """Of all members at the same time: a broker that delays them delays them together."""
        sent = [member.send() for member in self.members]
        return [member.receive(number) for member, number in zip(self.members, sent, strict=True)]

    def settle(self, partitions: int) -> None:
        """Beat until all partitions are shared out and nobody hears of a change any more."""

        def is_settled() -> bool:
            answers = self.beat()
            owned = [number for member in self.members for number in sorted(member.partitions)]
            is_quiet = all(each["ErrorCode"] == 0 and each["Assignment"] is None for each in answers)
            return is_quiet and sorted(owned) == list(range(partitions)) and self._is_at_one_epoch()

        wait_until(is_settled, "all partitions are shared out", interval_s=0.05)

    def _is_at_one_epoch(self) -> bool:
        return len({member.epoch for member in self.members}) == 1

    def beat_for(self, seconds: float = BEATEN_S) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answers += self.beat()
        return answers

    def beat_until(self, wanted: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Beat until the answers of all members are as wanted."""
        wait_until(lambda: wanted(self.beat()), what, interval_s=0.02)

    def set_quota(self, value: float | None) -> None:
        operation = {"Key": "request_percentage", "Value": value or 0, "Remove": value is None}
        entity = [{"EntityType": "client-id", "EntityName": CLIENT}]
        body = {"Entries": [{"Entity": entity, "Ops": [operation]}], "ValidateOnly": False}
        (answer,) = self.administrator.call("AlterClientQuotas", 1, body)["Entries"]
        assert answer["ErrorCode"] == 0, answer

    def add_partitions(self, count: int) -> None:
        body = {
            "Topics": [{"Name": TOPIC, "Count": count, "Assignments": None}],
            "TimeoutMs": 10_000,
            "ValidateOnly": False,
        }
        (answer,) = self.administrator.call("CreatePartitions", 3, body)["Results"]
        assert answer["ErrorCode"] == 0, answer

    def deny(self) -> None:
        made = self.administrator.call("CreateAcls", 3, {"Creations": [_denial()]})
        assert [each["ErrorCode"] for each in made["Results"]] == [0]

    def allow(self) -> None:
        denial = _denial()
        found = {
            "ResourceTypeFilter": denial["ResourceType"],
            "ResourceNameFilter": GROUP,
            "PatternTypeFilter": denial["ResourcePatternType"],
            "PrincipalFilter": denial["Principal"],
            "HostFilter": SENDER,
            "Operation": denial["Operation"],
            "PermissionType": denial["PermissionType"],
        }
        reply = self.administrator.call("DeleteAcls", 3, {"Filters": [found]})
        assert [len(each["MatchingAcls"]) for each in reply["FilterResults"]] == [1]


def _denial() -> dict[str, Any]:
    return entry(ResourceType.GROUP, GROUP, SENDER, AclOperation.READ, AclPermissionType.DENY)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    brokers: list[BrokerProcess] = []

    def started(settings: dict[str, str]) -> BrokerProcess:
        own = {"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0"}
        brokers.append(BrokerProcess(chosen_kind(), tmp_path / f"broker-{len(brokers)}", own | settings))
        brokers[-1].start()
        create_topic(brokers[-1].bootstrap, TOPIC, MEMBERS)
        return brokers[-1]

    yield started
    for broker in brokers:
        broker.kill()


def is_well(answers: list[dict[str, Any]]) -> bool:
    return all(each["ErrorCode"] == 0 for each in answers)


def test_quotas_come_and_go_between_the_same_heartbeats(start: Callable[..., BrokerProcess]) -> None:
    """A quota delays the members as soon as it applies, and nobody is told of a delay without one. A change of the topic
    reaches the members in between."""
    group = Group(start({}))
    group.settle(MEMBERS)
    epoch = group.members[0].epoch
    assert not any(each["ThrottleTimeMs"] for each in group.beat_for())
    for partitions in (MEMBERS + 2, MEMBERS + 4):
        group.set_quota(NEARLY_NOTHING)
        group.beat_until(lambda answers: any(each["ThrottleTimeMs"] for each in answers), "the quota applies")
        group.set_quota(None)
        group.beat_until(
            lambda answers: not any(each["ThrottleTimeMs"] for each in answers), "the quota is gone"
        )
        answers = group.beat_for()
        assert is_well(answers)
        assert not any(each["ThrottleTimeMs"] for each in answers)
        assert {each["MemberEpoch"] for each in answers} == {epoch}
        group.add_partitions(partitions)
        group.settle(partitions)
        assert group.members[0].epoch > epoch
        epoch = group.members[0].epoch


def test_a_denied_group_is_refused_from_the_next_heartbeat_on(start: Callable[..., BrokerProcess]) -> None:
    own = [entry(kind, "*", ADMINISTRATOR) for kind in (ResourceType.GROUP, ResourceType.TOPIC)]
    own += [entry(kind, "*", SENDER) for kind in (ResourceType.GROUP, ResourceType.TOPIC)]
    own.append(entry(ResourceType.CLUSTER, "kafka-cluster", ADMINISTRATOR))
    broker = start(SECURED)
    with Connection(broker.bootstrap) as administrator:
        made = administrator.call("CreateAcls", 3, {"Creations": own})
        assert not any(each["ErrorCode"] for each in made["Results"])
    group = Group(broker, SENDER)
    group.settle(MEMBERS)
    for _ in range(3):
        group.deny()
        group.beat_until(
            lambda answers: all(each["ErrorCode"] == GROUP_AUTHORIZATION_FAILED for each in answers),
            "the denial applies",
        )
        answers = group.beat_for(0.2)
        assert {each["ErrorCode"] for each in answers} == {GROUP_AUTHORIZATION_FAILED}
        group.allow()
        group.beat_until(is_well, "the denial is gone")
        assert is_well(group.beat_for(0.2))
    group.settle(MEMBERS)
