"""With share.version 0 a broker refuses all requests of share groups (KIP-932), also of senders without rights, with the
same errors as Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.raw.rights import ADMINISTRATOR, SECURED, SENDER, entry
from kafkacompat.security.acl import CLUSTER_NAME, ResourceType

pytestmark = pytest.mark.needs_control
UNSUPPORTED, NOT_ALLOWED = ErrorCode.UNSUPPORTED_VERSION, 30
UNSAFE_DOWNGRADE = 3
MEMBER = {"GroupId": "g", "MemberId": "m"}
TOPICS = [{"TopicId": uuid.UUID(int=1), "Partitions": [{"PartitionIndex": 0, "AcknowledgementBatches": []}]}]
WANTED = {"MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": 1, "BatchSize": 1}
REQUESTS: dict[str, dict[str, Any]] = {
    "ShareGroupHeartbeat": MEMBER | {"MemberEpoch": 0, "RackId": None, "SubscribedTopicNames": ["t"]},
    "ShareGroupDescribe": {"GroupIds": ["g"], "IncludeAuthorizedOperations": False},
    "ShareFetch": MEMBER | WANTED | {"ShareSessionEpoch": 0, "Topics": TOPICS},
    "ShareAcknowledge": MEMBER | {"ShareSessionEpoch": 1, "Topics": TOPICS},
    "DescribeShareGroupOffsets": {"Groups": [{"GroupId": "g", "Topics": None}]},
    "AlterShareGroupOffsets": {
        "GroupId": "g",
        "Topics": [{"TopicName": "t", "Partitions": [{"PartitionIndex": 0, "StartOffset": 0}]}],
    },
    "DeleteShareGroupOffsets": {"GroupId": "g", "Topics": [{"TopicName": "t"}]},
}
VERSIONS = {"ShareFetch": 2, "ShareAcknowledge": 2, "DescribeShareGroupOffsets": 1, "ShareGroupHeartbeat": 1}
VERSIONS["ShareGroupDescribe"] = 1


def code_of(answer: dict[str, Any]) -> int:
    """The code of the whole answer, or of its only group."""
    return int(answer["ErrorCode"] if "ErrorCode" in answer else answer["Groups"][0]["ErrorCode"])


@pytest.fixture(scope="module", params=[APACHE, KAFKACOMPAT])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker that lets ADMINISTRATOR do everything, and SENDER nothing."""
    broker = BrokerProcess(request.param, tmp_path_factory.mktemp(request.param), SECURED)
    broker.start()
    try:
        with Connection(broker.bootstrap) as administrator:
            entries = [entry(kind, "*", ADMINISTRATOR) for kind in (ResourceType.GROUP, ResourceType.TOPIC)]
            entries.append(entry(ResourceType.CLUSTER, CLUSTER_NAME, ADMINISTRATOR))
            made = administrator.call("CreateAcls", 3, {"Creations": entries})
            assert [each["ErrorCode"] for each in made["Results"]] == [0, 0, 0]
        yield broker.bootstrap
    finally:
        broker.kill()


def asked(bootstrap: str, sender: str) -> dict[str, int]:
    """The code of each answer."""
    with Connection(bootstrap, sender=sender) as connection:
        return {
            api: code_of(connection.call(api, VERSIONS.get(api, 0), body)) for api, body in REQUESTS.items()
        }


def test_share_groups_are_refused_with_and_without_rights(served: str) -> None:
    wait_until(
        lambda: {*asked(served, SENDER).values()} == {NOT_ALLOWED},
        "entries are known while share groups are served",
    )
    update = {"Feature": "share.version", "MaxVersionLevel": 0, "UpgradeType": UNSAFE_DOWNGRADE}
    with Connection(served) as administrator:
        body = {"timeoutMs": 15000, "FeatureUpdates": [update], "ValidateOnly": False}
        assert administrator.call("UpdateFeatures", 2, body)["ErrorCode"] == 0
    # The broker learns of it a moment later.
    wait_until(
        lambda: asked(served, ADMINISTRATOR)["ShareGroupHeartbeat"] == UNSUPPORTED, "the level is known"
    )
    for sender in (SENDER, ADMINISTRATOR):
        assert asked(served, sender) == dict.fromkeys(REQUESTS, UNSUPPORTED), sender
