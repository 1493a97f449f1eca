"""A group member that will be killed: `doomed_member.py CLIENT BOOTSTRAP GROUP TOPIC`. CLIENT is kafka-python or
confluent.

Prints `assigned N` whenever its number of partitions changes. It never commits.
"""

from __future__ import annotations

import sys

SESSION_TIMEOUT_MS = 6000


def run_kafka_python(bootstrap: str, group: str, topic: str) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
    )
    held = -1
    while True:
        consumer.poll(timeout_ms=200)
        if len(consumer.assignment()) != held:
            held = len(consumer.assignment())
            print(f"assigned {held}", flush=True)


def run_confluent(bootstrap: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic])
    held = -1
    while True:
        consumer.poll(0.2)
        if len(consumer.assignment()) != held:
            held = len(consumer.assignment())
            print(f"assigned {held}", flush=True)


if __name__ == "__main__":
    client, *rest = sys.argv[1:]
    {"kafka-python": run_kafka_python, "confluent": run_confluent}[client](*rest)
