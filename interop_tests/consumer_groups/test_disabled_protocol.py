"""A broker whose group.coordinator.rebalance.protocols lacks consumer refuses members of consumer groups (KIP-848), also
those without rights, with the same error as Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.wire import Connection
from interop_tests.raw.rights import ADMINISTRATOR, SECURED, SENDER, entry
from kafkacompat.security.acl import ResourceType

pytestmark = pytest.mark.needs_control
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("kind", [APACHE, KAFKACOMPAT])
def test_a_disabled_protocol_is_refused_with_and_without_rights(kind: str, tmp_path: Path) -> None:
    broker = BrokerProcess(
        kind, tmp_path / kind, SECURED | {"group.coordinator.rebalance.protocols": "classic"}
    )
    beat = {
        "GroupId": "g",
        "MemberId": "m",
        "MemberEpoch": 0,
        "InstanceId": None,
        "RackId": None,
        "RebalanceTimeoutMs": 1000,
        "SubscribedTopicNames": ["t"],
        "SubscribedTopicRegex": None,
        "ServerAssignor": None,
        "TopicPartitions": [],
    }
    describe = {"GroupIds": ["g", "h"], "IncludeAuthorizedOperations": False}
    broker.start()
    try:
        with Connection(broker.bootstrap) as administrator:
            entries = [entry(kind, "*", ADMINISTRATOR) for kind in (ResourceType.GROUP, ResourceType.TOPIC)]
            entries.append(entry(ResourceType.CLUSTER, "kafka-cluster", ADMINISTRATOR))
            made = administrator.call("CreateAcls", 3, {"Creations": entries})
            assert [each["ErrorCode"] for each in made["Results"]] == [0, 0, 0]
        for sender in (SENDER, ADMINISTRATOR):
            with Connection(broker.bootstrap, sender=sender) as connection:
                assert connection.call("ConsumerGroupHeartbeat", 1, beat)["ErrorCode"] == UNSUPPORTED
                found = connection.call("ConsumerGroupDescribe", 1, describe)["Groups"]
                assert [(each["GroupId"], each["ErrorCode"]) for each in found] == [
                    ("g", UNSUPPORTED),
                    ("h", UNSUPPORTED),
                ]
    finally:
        broker.kill()
