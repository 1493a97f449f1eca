"""What Apache Kafka 4.4 added to APIs that were there before, and the API that it added, on both brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import ErrorCode, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.schema import ZERO_UUID
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed

SOFTWARE = {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1.0"}
REBOOTSTRAP_REQUIRED = 129
STALE_MEMBER_EPOCH = 113
CONTROLLER_ID_NOT_REGISTERED = 136
UNKNOWN_TOPIC_ID = 100
OTHER = 7
"""The id of no node."""


@pytest.mark.parametrize(
    ("cluster", "node", "code"),
    [
        (None, None, 0),
        ("own", "own", 0),
        ("own", OTHER, REBOOTSTRAP_REQUIRED),
        ("own", -5, REBOOTSTRAP_REQUIRED),
        ("another", "own", REBOOTSTRAP_REQUIRED),
        ("", "own", REBOOTSTRAP_REQUIRED),
        ("own", None, ErrorCode.INVALID_REQUEST),
        ("another", None, ErrorCode.INVALID_REQUEST),
        ("", None, ErrorCode.INVALID_REQUEST),
        (None, "own", ErrorCode.INVALID_REQUEST),
        (None, -2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_says_which_node_it_means(
    cluster: str | None, node: str | int | None, code: int, connection: Connection
) -> None:
    """KIP-1242. The connection stays open whatever the answer."""
    known = connection.call("DescribeCluster", 0, {"IncludeClusterAuthorizedOperations": False})
    (own,) = [each["BrokerId"] for each in known["Brokers"]]
    body = SOFTWARE | {
        "ClusterId": known["ClusterId"] if cluster == "own" else cluster,
        "NodeId": own if node == "own" else -1 if node is None else node,
    }
    reply = connection.call("ApiVersions", 5, body)
    assert reply["ErrorCode"] == code
    assert bool(reply["ApiKeys"]) is (code == 0)
    assert connection.call("ApiVersions", 4, SOFTWARE)["ErrorCode"] == 0


def find_coordinator(connection: Connection, key: str, kind: int = 0) -> None:
    """Wait until a group, or with kind 1 a transactional id, has its coordinator. The first question creates its topic."""

    def is_found() -> bool:
        (found,) = connection.call("FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [key]})[
            "Coordinators"
        ]
        return found["ErrorCode"] == 0

    wait_until(is_found, f"{key} has its coordinator")


def begun(connection: Connection, name: str) -> dict[str, Any]:
    """A producer with a transactional id, as the fields of a request."""
    find_coordinator(connection, name, 1)
    found: dict[str, Any] = {}

    def has_id() -> bool:
        reply = connection.call(
            "InitProducerId",
            5,
            {"TransactionalId": name, "TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1},
        )
        found.update(ProducerId=reply["ProducerId"], ProducerEpoch=reply["ProducerEpoch"])
        return reply["ErrorCode"] == 0

    wait_until(has_id, "the producer has its id")
    return {"TransactionalId": name} | found


def committed(
    connection: Connection,
    producer: dict[str, Any],
    group: str,
    *topics: tuple[str | uuid.UUID, list[int]],
    version: int = 6,
    **member: Any,
) -> list[tuple[str | uuid.UUID, list[tuple[int, int]]]]:
    """The codes of the partitions, by name or id."""
    field = "TopicId" if version >= 6 else "Name"
    body = {
        **producer,
        "GroupId": group,
        "GenerationId": -1,
        "MemberId": "",
        "GroupInstanceId": None,
        "Topics": [
            {
                field: topic,
                "Partitions": [
                    {
                        "PartitionIndex": each,
                        "CommittedOffset": 5,
                        "CommittedLeaderEpoch": -1,
                        "CommittedMetadata": "",
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in topics
        ],
    } | member
    reply = connection.call("TxnOffsetCommit", version, body)
    return [
        (each[field], [(of["PartitionIndex"], of["ErrorCode"]) for of in each["Partitions"]])
        for each in reply["Topics"]
    ]


def test_offsets_of_a_transaction_are_committed_by_topic_id(
    connection: Connection, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """KIP-1319."""
    name = make_topic(partitions=2)
    known, unknown = topic_id(connection, name), uuid.uuid4()
    producer, group = begun(connection, unique("producer")), unique("group")
    find_coordinator(connection, group)
    wait_until(
        lambda: committed(connection, producer, group, (known, [0])) == [(known, [(0, 0)])],
        "the group has its coordinator",
    )
    (told,) = committed(connection, producer, group, (known, [0, 1, 7]))
    assert (told[0], sorted(told[1])) == (known, [(0, 0), (1, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    for absent in (unknown, ZERO_UUID):
        assert committed(connection, producer, group, (absent, [0, 3])) == [
            (absent, [(0, UNKNOWN_TOPIC_ID), (3, UNKNOWN_TOPIC_ID)])
        ]
    assert sorted(committed(connection, producer, group, (unknown, [0]), (known, [1])), key=str) == sorted(
        [(unknown, [(0, UNKNOWN_TOPIC_ID)]), (known, [(1, 0)])], key=str
    )
    assert committed(connection, producer, group, (known, [])) == []
    assert committed(connection, producer, group) == []


def test_members_of_stale_epochs_are_told_so_from_version_6_on(
    connection: Connection, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    name, group, member = make_topic(), unique("group"), str(uuid.uuid4())
    known, producer = topic_id(connection, name), begun(connection, unique("producer"))
    find_coordinator(connection, group)
    joined: dict[str, Any] = {}

    def is_member() -> bool:
        joined.update(
            connection.call(
                "ConsumerGroupHeartbeat",
                1,
                {
                    "GroupId": group,
                    "MemberId": member,
                    "MemberEpoch": 0,
                    "InstanceId": None,
                    "RackId": None,
                    "RebalanceTimeoutMs": 30_000,
                    "SubscribedTopicNames": [name],
                    "SubscribedTopicRegex": None,
                    "ServerAssignor": None,
                    "TopicPartitions": [],
                },
            )
        )
        return joined["ErrorCode"] == 0

    wait_until(is_member, "the group has its member")
    epoch = joined["MemberEpoch"]

    def told(version: int, epoch: int, member_id: str = member, group: str = group) -> int:
        ((_, ((_, code),)),) = committed(
            connection,
            producer,
            group,
            (known if version >= 6 else name, [0]),
            version=version,
            MemberId=member_id,
            GenerationId=epoch,
        )
        return code

    def in_both(epoch: int, *more: str) -> tuple[int, int]:
        return told(5, epoch, *more), told(6, epoch, *more)

    assert in_both(epoch) == (0, 0)
    for stale in (epoch - 1, epoch + 1, -1):
        assert in_both(stale) == (ErrorCode.ILLEGAL_GENERATION, STALE_MEMBER_EPOCH)
    assert in_both(epoch, "nobody") == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2
    assert in_both(3, "nobody", unique("absent")) == (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


def test_a_deleted_group_has_a_message_of_its_own(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    """Only groups whose deletion a plug-in of streams groups refuses have one."""
    group = unique("group")
    reply = connection.call("DeleteGroups", 3, {"GroupsNames": [group]})
    (result,) = reply["Results"]
    assert (result["GroupId"], result["ErrorMessage"]) == (group, None)
    assert result["ErrorCode"] in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)


def test_the_unregistration_of_a_controller_is_refused(connection: Connection) -> None:
    """KIP-1312."""
    known = connection.call("DescribeCluster", 0, {"IncludeClusterAuthorizedOperations": False})
    own = known["ControllerId"]
    for absent in (99, -1):
        reply = connection.call("UnregisterController", 0, {"ControllerId": absent})
        assert reply["ErrorCode"] == CONTROLLER_ID_NOT_REGISTERED
        assert reply["ErrorMessage"] == f"Controller ID {absent} is not currently registered."
    reply = connection.call("UnregisterController", 0, {"ControllerId": own})
    assert reply["ErrorCode"] == ErrorCode.INVALID_REQUEST
    assert reply["ErrorMessage"] == "Controller cannot unregister itself while it is active."


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_a_record_of_a_compressed_batch_is_measured(
    codec: str, connection: Connection, make_topic: Callable[..., str]
) -> None:
    """max.decompressed.message.bytes counts one record without its length: 7 bytes here besides the value."""
    topic = make_topic(configs={"max.decompressed.message.bytes": "100"})

    def told(*sizes: int) -> int:
        batch = BatchPlan([bytes(size) for size in sizes], codec=codec)
        return int(produce(connection, topic, batch)["ErrorCode"])

    refused = 0 if codec == "none" else ErrorCode.INVALID_RECORD
    assert told(93) == told(*[40] * 10) == 0
    assert told(94) == told(40, 300, 40) == refused


def tags(count: int) -> bytes:
    return varint(count) + b"".join(varint(100 + number) + b"\0" for number in range(count))


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


@pytest.mark.parametrize("count", [10_000, 10_001])
@pytest.mark.parametrize("of_header", [True, False])
def test_a_section_has_ten_thousand_tagged_fields_at_most(
    count: int, of_header: bool, connection: Connection
) -> None:
    body = varint(1) + b"\0\0"  # no topics
    header = (3).to_bytes(2, "big") + (12).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\xff\xff"
    sections = (tags(count), b"\0") if of_header else (b"\0", tags(count))
    payload = header + sections[0] + body + sections[1]
    connection.send_bytes(len(payload).to_bytes(4, "big") + payload)
    if count > 10_000:
        with pytest.raises(ConnectionClosed):
            connection.receive_frame()
    else:
        assert connection.receive_frame()


def test_an_array_has_a_million_elements_at_most(connection: Connection) -> None:
    """kafkacompat also bounds the elements of a request together (request.max.elements)."""
    count = 1_000_001
    payload = (
        (3).to_bytes(2, "big")
        + (1).to_bytes(2, "big")
        + (1).to_bytes(4, "big")
        + b"\xff\xff"
        + count.to_bytes(4, "big")
        + b"\0\0" * count
    )
    connection.send_bytes(len(payload).to_bytes(4, "big") + payload)
    assert connection.is_closed_by_peer()
