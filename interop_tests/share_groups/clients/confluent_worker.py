"""One member of a share group on librdkafka, as workers.py describes it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

settings = json.loads(sys.argv[1])
outcome: dict[str, str | None] = {}
outcomes = 0
options: dict[str, Any] = {
    "bootstrap.servers": settings["bootstrap"],
    "group.id": settings["group"],
    "client.id": settings["client"],
    "share.acknowledgement.mode": settings["mode"],
    "fetch.wait.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 1000,
}
if settings.get("records"):
    options["max.poll.records"] = int(settings["records"])


def name(failure: KafkaException | None) -> str | None:
    return None if failure is None else failure.args[0].name()


def on_commit(offsets: dict[Any, set[int]], failure: KafkaException | None) -> None:
    global outcomes
    outcomes += 1
    for place in offsets:
        outcome[f"{place.topic}-{place.partition}"] = name(failure)


consumer = ShareConsumer(options)
consumer.set_acknowledgement_commit_callback(on_commit)
consumer.subscribe([settings["topic"]])


def poll(milliseconds: float) -> list[list[Any]]:
    deadline = time.monotonic() + milliseconds / 1000
    read: list[list[Any]] = []
    while not read:
        for message in consumer.poll(max(0.0, min(0.1, deadline - time.monotonic()))):
            if message.error() is not None:
                raise KafkaException(message.error())
            value = message.value()
            text = None if value is None else value.decode()
            read.append([message.partition(), message.offset(), message.delivery_count(), text])
        if time.monotonic() >= deadline:
            break
    return read


def answer(command: dict[str, Any]) -> list[list[Any]]:
    if command["do"] == "poll":
        return poll(command["ms"])
    if command["do"] == "acknowledge":
        kind = AcknowledgeType[command["type"].upper()]
        for partition, offset in command["records"]:
            consumer.acknowledge_offset(settings["topic"], partition, offset, kind)
    if command["do"] == "commit" and command["how"] == "sync":
        for place, failure in consumer.commit_sync().items():
            outcome[f"{place.topic}-{place.partition}"] = name(failure)
    elif command["do"] == "commit":
        before = outcomes
        consumer.commit_async()
        read: list[list[Any]] = []
        while outcomes == before:
            read += poll(20)
        return read
    if command["do"] == "close":
        consumer.close()
    return []


for line in sys.stdin:
    asked = json.loads(line)
    outcome.clear()
    error, records = None, []
    try:
        records = answer(asked)
    except Exception as failure:
        error = repr(failure)
    print(json.dumps({"records": records, "outcome": outcome, "error": error}), flush=True)
    if asked["do"] == "close":
        break
