"""Runs a release of confluent-kafka against a broker, and prints its observations as one JSON object.

python confluent.py BOOTSTRAP TOPIC GROUP, with the release on PYTHONPATH. It uses only functions that all releases
have.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

PARTITIONS = 3
PER_LABEL = 20
START_MS = 1_600_000_000_000
TIMEOUT_S = 20.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def send(bootstrap: str, topic: str, label: str, from_ms: int, settings: dict[str, Any]) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20} | settings)
    failed: list[str] = []
    for n in range(PER_LABEL):
        producer.produce(
            topic,
            f"{label} {n} " * 10,
            f"{label}-{n}",
            n % PARTITIONS,
            timestamp=from_ms + n,
            headers={"label": label},
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    left = producer.flush(TIMEOUT_S)
    assert (left, failed) == (0, []), (label, left, failed)
    return PER_LABEL


def consumer_of(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
        }
    )


def take(count: int, *consumers: Consumer) -> list[dict[str, Any]]:
    """Read exactly this number of records."""
    records: list[dict[str, Any]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for message in [each for consumer in consumers for each in consumer.consume(count, 0.1)]:
            if message.error():
                raise KafkaException(message.error())
            records.append(
                {
                    "key": message.key().decode(),
                    "value": message.value().decode(),
                    "headers": {each[0]: each[1].decode() for each in message.headers()},
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "timestamp": message.timestamp()[1],
                }
            )
    return records


def share(first: Consumer, second: Consumer) -> list[list[int]]:
    """Both consumers poll until each has some of the partitions. Returns their partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        assert time.monotonic() < deadline, "the two members do not share"
        for consumer in (first, second):
            assert consumer.poll(0.05) is None, "nothing is left to read"
        owned = [sorted(each.partition for each in consumer.assignment()) for consumer in (first, second)]
        if all(owned) and sum(map(len, owned)) == PARTITIONS:
            return owned


def main() -> None:
    bootstrap, topic, group = sys.argv[1:4]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 2, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    again = admin.create_topics([new])[topic].exception(TIMEOUT_S)
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) < PARTITIONS:
        assert time.monotonic() < deadline, "the new partition is not listed"
        time.sleep(0.05)

    written = 0
    for codec in CODECS:
        written += send(bootstrap, topic, codec, START_MS + written, {"compression.type": codec})
    written += send(bootstrap, topic, "idempotent", START_MS + written, {"enable.idempotence": True})

    first, second = consumer_of(bootstrap, group), consumer_of(bootstrap, group)
    first.subscribe([topic])
    records = take(written, first)
    ends = {record["partition"]: record["offset"] + 1 for record in records}
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    committed = [TopicPartition(topic, partition, ends[partition]) for partition in range(PARTITIONS)]
    for each in first.commit(offsets=committed, asynchronous=False):
        assert each.error is None, each
    marks = {str(each.partition): first.get_watermark_offsets(each, TIMEOUT_S) for each in places}
    second.subscribe([topic])
    shared = share(first, second)
    later = send(bootstrap, topic, "later", START_MS + written, {})
    resumed = take(later, first, second)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        (listed,) = admin.list_groups(group, TIMEOUT_S)
    middle = [TopicPartition(topic, partition, START_MS + written // 2) for partition in range(PARTITIONS)]
    by_time = first.offsets_for_times(middle, TIMEOUT_S)
    read_back = {str(each.partition): each.offset for each in first.committed(places, TIMEOUT_S)}
    second.close()
    first.close()
    (settings,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    retention = settings.result(TIMEOUT_S)["retention.ms"].value
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    seen = {
        "library": confluent_kafka.libversion()[0],
        "again": again.args[0].name(),
        "retention": retention,
        "written": written + later,
        "records": records + resumed,
        "shared": [len(owned) for owned in shared],
        "state": listed.state,
        "protocol_type": listed.protocol_type,
        "members": len(listed.members),
        "committed": read_back,
        "oldest": {each: low for each, (low, _) in marks.items()},
        "newest": {each: high for each, (_, high) in marks.items()},
        "by_time": {str(each.partition): each.offset for each in by_time},
    }
    print(json.dumps(seen))


main()
