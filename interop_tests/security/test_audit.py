"""The lines of kafka.authorizer.logger, the same as Apache Kafka's for the same requests."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.schema import ZERO_UUID
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed
from interop_tests.raw.compare import all_sides
from interop_tests.raw.rights import ADMINISTRATOR, SECURED, SENDER, administer, entry, make
from interop_tests.raw.side_by_side import Connect, Side
from kafkacompat._tests.fuzz.values import WITNESSED_TOPIC
from kafkacompat.api.registry import ENTRIES as ALL_APIS
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

pytestmark = pytest.mark.needs_control
LOGGER = "kafka.authorizer.logger"
LAST = "the last topic"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ENTRIES = [
    entry(ResourceType.TOPIC, "t0", SENDER, READ),
    entry(ResourceType.TOPIC, "t", SENDER, WRITE, pattern=PatternType.PREFIXED),
    entry(ResourceType.TOPIC, "compacted", SENDER, WRITE, AclPermissionType.DENY),
    entry(ResourceType.TOPIC, "*", SENDER, DESCRIBE, principal="User:*"),
    entry(ResourceType.TOPIC, "secret", SENDER, DESCRIBE, AclPermissionType.DENY, PatternType.PREFIXED),
    entry(ResourceType.TOPIC, "t1", SENDER, AclOperation.DELETE),
    entry(ResourceType.GROUP, "readers", SENDER, AclOperation.ALL),
    entry(ResourceType.CLUSTER, CLUSTER_NAME, SENDER, AclOperation.DESCRIBE_CONFIGS),
]


def topics(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"Name": name} | fields for name in names]


NAMES = ("t0", "compacted", "missing")
ASKED_TO_DELETE = ("t0", "t1", WITNESSED_TOPIC)
REQUESTS: list[tuple[str, int, dict[str, Any]]] = [
    ("Metadata", 12, {"Topics": topics(*NAMES)}),
    ("Metadata", 12, {"Topics": None}),
    ("Metadata", 10, {"Topics": topics("t0"), "IncludeClusterAuthorizedOperations": True,
                      "IncludeTopicAuthorizedOperations": True}),
    ("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 0,
                        "Topics": topics(*NAMES, Partitions=[{"PartitionIndex": 0, "Timestamp": -1}])}),
    ("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["readers", "strangers"]}),
    ("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["tx"]}),
    ("DescribeGroups", 5, {"Groups": ["readers", "strangers"], "IncludeAuthorizedOperations": True}),
    ("OffsetFetch", 8, {"Groups": [{"GroupId": each, "Topics": topics("t0", "compacted", PartitionIndexes=[0])}
                                   for each in ("readers", "strangers")], "RequireStable": False}),
    ("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 1000}),
    ("InitProducerId", 4, {"TransactionalId": "tx", "TransactionTimeoutMs": 1000}),
    ("DescribeConfigs", 4, {"Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": []}
                                          for kind, name in ((2, "t0"), (2, "compacted"), (4, "1"))]}),
    ("DescribeAcls", 3, {"ResourceTypeFilter": 1, "ResourceNameFilter": None, "PatternTypeFilter": 1,
                         "PrincipalFilter": None, "HostFilter": None, "Operation": 1, "PermissionType": 1}),
    ("CreateTopics", 7, {"Topics": topics("new", NumPartitions=1, ReplicationFactor=1, Assignments=[], Configs=[]),
                         "timeoutMs": 5000}),
    ("DeleteGroups", 2, {"GroupsNames": ["strangers"]}),
    ("DescribeCluster", 1, {"IncludeClusterAuthorizedOperations": True, "EndpointType": 1}),
    ("ListTransactions", 0, {"StateFilters": [], "ProducerIdFilters": []}),
]  # fmt: skip


def deletions(ids: dict[str, uuid.UUID]) -> list[tuple[str, int, dict[str, Any]]]:
    """Of topics that exist or not, and may be seen, deleted, or neither. By name, by id, and by both."""
    by_name = [
        {"Name": each, "TopicId": ZERO_UUID} for each in ("t0", "secret", "missing", "compacted", "t0", "")
    ]
    by_id = [{"Name": None, "TopicId": each} for each in (*ids.values(), uuid.UUID(int=99), ZERO_UUID)]
    both = [{"Name": "compacted", "TopicId": ids["t0"]}]
    return [
        ("DeleteTopics", 5, {"TopicNames": ["t0", "missing", "secret"], "TimeoutMs": 5000}),
        ("DeleteTopics", 6, {"Topics": by_name + both, "TimeoutMs": 5000}),
        ("DeleteTopics", 6, {"Topics": by_id + both, "TimeoutMs": 5000}),
    ]


def audited(side: Side, broker: BrokerProcess) -> Counter[str]:
    """The lines about the sender, in the words of the logger."""
    administer(side)
    make(side, ENTRIES)
    level = {"Name": LOGGER, "ConfigOperation": 0, "Value": "DEBUG"}
    resource = {"ResourceType": 8, "ResourceName": "1", "Configs": [level]}
    reply = side.own.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
    assert not reply["Responses"][0]["ErrorCode"], reply
    found = side.own.call("Metadata", 12, {"Topics": topics(*ASKED_TO_DELETE)})["Topics"]
    ids = {each["Name"]: each["TopicId"] for each in found}
    last = ("Metadata", 12, {"Topics": topics(LAST)})
    with Connection(broker.bootstrap, sender=SENDER) as connection:
        for api, version, body in [*REQUESTS, *deletions(ids), last]:
            try:
                connection.call(api, version, body)
            except ConnectionClosed as closed:
                raise AssertionError(f"{side.kind} closes the connection at {api}") from closed

    def lines() -> list[str]:
        found = re.findall(r"Principal = .*? based on rule .*", broker.log_text())
        return [re.sub(r" \(kafka\.authorizer\.logger\)$", "", each) for each in found]

    wait_until(lambda: any(LAST in each for each in lines()), f"{side.kind} has written it all")
    return Counter(each for each in lines() if f"from host = {SENDER} " in each)


def test_decisions_are_told_in_the_words_of_apache_kafka(tmp_path: Path) -> None:
    brokers: list[BrokerProcess] = []

    def seen(broker: BrokerProcess) -> Connect:
        brokers.append(broker)
        return lambda number: Connection(broker.bootstrap, sender=SENDER)

    with all_sides(tmp_path, 1, ALL_APIS, SECURED, seen) as sides:
        by_kind = {broker.kind: broker for broker in brokers}
        theirs, ours = (audited(side, by_kind[side.kind]) for side in sides)
    assert sum(ours.values()) > 30
    assert any("is Allowed" in each for each in ours)
    assert any(f"from host = {ADMINISTRATOR} " not in each and "is Denied" in each for each in ours)
    told = [f"ours  {each}" for each in (ours - theirs).elements()]
    told += [f"theirs {each}" for each in (theirs - ours).elements()]
    assert not told, "\n".join(sorted(told, key=lambda each: each[7:]))
