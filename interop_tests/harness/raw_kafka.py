"""Common operations over a raw connection: create a topic, produce, fetch, offsets, the group handshake."""

from __future__ import annotations

import uuid
from typing import Any

from interop_tests.harness.records import Batch, BatchPlan, Record, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from kafkacompat.wire.errors import ErrorCode as ErrorCode


def metadata(connection: Connection, name: str, version: int = 12) -> dict[str, Any]:
    """The metadata of one topic, without creating it."""
    reply = connection.call(
        "Metadata", version, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False}
    )
    (found,) = reply["Topics"]
    return found


def topic_id(connection: Connection, name: str) -> uuid.UUID:
    """The id of an existing topic."""
    found = metadata(connection, name)
    assert found["ErrorCode"] == 0, found
    return found["TopicId"]


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Create a topic with one replica and wait until each partition has its leader."""
    with Connection(bootstrap) as connection:
        configs_field = [{"Name": key, "Value": value} for key, value in (configs or {}).items()]
        reply = connection.call(
            "CreateTopics",
            7,
            {
                "Topics": [
                    {
                        "Name": name,
                        "NumPartitions": partitions,
                        "ReplicationFactor": 1,
                        "Assignments": [],
                        "Configs": configs_field,
                    }
                ],
                "timeoutMs": 15000,
            },
        )
        (result,) = reply["Topics"]
        assert result["ErrorCode"] == 0, result

        def is_led() -> bool:
            found = metadata(connection, name)
            leaders = [partition["LeaderId"] for partition in found["Partitions"]]
            return found["ErrorCode"] == 0 and len(leaders) == partitions and min(leaders) >= 0

        wait_until(is_led, f"{name} has leaders")
        # Metadata may list a topic a moment before its logs exist.
        wait_until(
            lambda: all(list_offset(connection, name, each, -1)[0] == 0 for each in range(partitions)),
            f"{name} has its logs",
        )


def produce(
    connection: Connection,
    topic: str,
    batch: BatchPlan | bytes | None,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
    timeout_ms: int = 10000,
) -> dict[str, Any]:
    """Produce one batch. Returns the partition's part of the response."""
    reply = connection.call("Produce", version, produce_body(topic, batch, partition, acks, timeout_ms))
    (of_topic,) = reply["Responses"]
    assert of_topic["Name"] == topic
    (result,) = of_topic["PartitionResponses"]
    assert result["Index"] == partition
    return result


def produce_body(
    topic: str,
    batch: BatchPlan | bytes | None,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 10000,
) -> dict[str, Any]:
    """A Produce request with one batch (version 12 at most)."""
    data = batch.encode() if isinstance(batch, BatchPlan) else batch
    return {
        "TransactionalId": None,
        "Acks": acks,
        "TimeoutMs": timeout_ms,
        "TopicData": [{"Name": topic, "PartitionData": [{"Index": partition, "Records": data}]}],
    }


def fetch_body(topic: str, offset: int, partition: int = 0, **options: Any) -> dict[str, Any]:
    """A Fetch request for one partition without a session (version 12 at most). options override top-level fields.
    partition_max_bytes, current_leader_epoch and last_fetched_epoch override fields of the partition."""
    of_partition = {
        "Partition": partition,
        "CurrentLeaderEpoch": options.pop("current_leader_epoch", -1),
        "FetchOffset": offset,
        "LastFetchedEpoch": options.pop("last_fetched_epoch", -1),
        "LogStartOffset": -1,
        "PartitionMaxBytes": options.pop("partition_max_bytes", 1 << 20),
    }
    body = {
        "ReplicaId": -1,
        "MaxWaitMs": 500,
        "MinBytes": 1,
        "MaxBytes": 50 << 20,
        "IsolationLevel": 0,
        "SessionId": 0,
        "SessionEpoch": -1,
        "Topics": [{"Topic": topic, "Partitions": [of_partition]}],
        "ForgottenTopicsData": [],
        "RackId": "",
    }
    return body | options


def fetch(
    connection: Connection, topic: str, offset: int, partition: int = 0, version: int = 12, **options: Any
) -> dict[str, Any]:
    """Fetch one partition. Returns its part of the response."""
    reply = connection.call("Fetch", version, fetch_body(topic, offset, partition, **options))
    assert reply.get("ErrorCode", 0) == 0, reply
    (of_topic,) = reply["Responses"]
    (result,) = of_topic["Partitions"]
    return result


def fetch_batches(connection: Connection, topic: str, offset: int = 0, partition: int = 0) -> list[Batch]:
    """The batches from an offset that one Fetch returns."""
    result = fetch(connection, topic, offset, partition)
    assert result["ErrorCode"] == 0, result
    return decode_batches(result["Records"])


def fetch_records(connection: Connection, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
    """The records from an offset that one Fetch returns."""
    batches = fetch_batches(connection, topic, offset, partition)
    return [record for batch in batches for record in batch.records if record.offset >= offset]


def list_offset(
    connection: Connection,
    topic: str,
    partition: int,
    timestamp: int,
    version: int = 7,
    isolation: int = 0,
    current_leader_epoch: int = -1,
) -> tuple[int, int, int]:
    """(error code, offset, timestamp) of one ListOffsets lookup."""
    result = list_offset_result(
        connection, topic, partition, timestamp, version, isolation, current_leader_epoch
    )
    return result["ErrorCode"], result["Offset"], result["Timestamp"]


def list_offset_result(
    connection: Connection,
    topic: str,
    partition: int,
    timestamp: int,
    version: int = 7,
    isolation: int = 0,
    current_leader_epoch: int = -1,
) -> dict[str, Any]:
    """One ListOffsets lookup. Returns the partition's part of the response."""
    reply = connection.call(
        "ListOffsets",
        version,
        {
            "ReplicaId": -1,
            "IsolationLevel": isolation,
            "Topics": [
                {
                    "Name": topic,
                    "Partitions": [
                        {
                            "PartitionIndex": partition,
                            "CurrentLeaderEpoch": current_leader_epoch,
                            "Timestamp": timestamp,
                        }
                    ],
                }
            ],
        },
    )
    (of_topic,) = reply["Topics"]
    (result,) = of_topic["Partitions"]
    return result
