"""Runs a release of kafka-python against a broker, and prints its observations as one JSON object.

python pure.py BOOTSTRAP TOPIC GROUP, with the release on PYTHONPATH. It uses only functions that all releases have.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import TopicAlreadyExistsError

PARTITIONS = 3
PER_LABEL = 20
START_MS = 1_600_000_000_000
TIMEOUT_S = 20.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def send(bootstrap: str, topic: str, label: str, from_ms: int, settings: dict[str, Any]) -> int:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, **settings)
    futures = [
        producer.send(
            topic,
            key=f"{label}-{n}".encode(),
            value=(f"{label} {n} " * 10).encode(),
            headers=[("label", label.encode())],
            partition=n % PARTITIONS,
            timestamp_ms=from_ms + n,
        )
        for n in range(PER_LABEL)
    ]
    for future in futures:
        future.get(TIMEOUT_S)
    producer.close()
    return PER_LABEL


def consumer_of(bootstrap: str, topic: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )


def take(count: int, consumer: KafkaConsumer) -> list[dict[str, Any]]:
    """Read exactly this number of records."""
    records: list[dict[str, Any]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for message in [each for got in consumer.poll(100).values() for each in got]:
            records.append(
                {
                    "key": message.key.decode(),
                    "value": message.value.decode(),
                    "headers": {name: value.decode() for name, value in message.headers},
                    "partition": message.partition,
                    "offset": message.offset,
                    "timestamp": message.timestamp,
                }
            )
    return records


def main() -> None:
    bootstrap, topic, group = sys.argv[1:4]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "-1"})
    admin.create_topics([new])
    try:
        admin.create_topics([new])
        again = "created"
    except TopicAlreadyExistsError:
        again = "TOPIC_ALREADY_EXISTS"
    admin.create_partitions({topic: NewPartitions(PARTITIONS)})
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.describe_topics([topic])[0]["partitions"]) < PARTITIONS:
        assert time.monotonic() < deadline, "the new partition is not listed"
        time.sleep(0.05)

    written = 0
    for codec in CODECS:
        written += send(
            bootstrap,
            topic,
            codec,
            START_MS + written,
            {"compression_type": None if codec == "none" else codec},
        )

    first = consumer_of(bootstrap, topic, group)
    records = take(written, first)
    first.commit()
    committed = admin.list_consumer_group_offsets(group)
    (described,) = admin.describe_consumer_groups([group])
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    by_time = first.offsets_for_times(dict.fromkeys(places, START_MS + written // 2))
    ends, beginnings = first.end_offsets(places), first.beginning_offsets(places)
    first.close()
    later = send(bootstrap, topic, "later", START_MS + written, {})
    second = consumer_of(bootstrap, topic, group)
    resumed = take(later, second)
    second.close()
    seen = {
        "library": kafka.__version__,
        "again": again,
        "written": written + later,
        "records": records + resumed,
        "state": described.state,
        "members": len(described.members),
        "committed": {str(each.partition): offset.offset for each, offset in committed.items()},
        "oldest": {str(each.partition): offset for each, offset in beginnings.items()},
        "newest": {str(each.partition): offset for each, offset in ends.items()},
        "by_time": {str(each.partition): found.offset for each, found in by_time.items()},
    }
    print(json.dumps(seen))


main()
