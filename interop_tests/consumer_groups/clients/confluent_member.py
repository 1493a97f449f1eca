"""One member of a group of the consumer protocol on librdkafka, as members.py describes it."""

from __future__ import annotations

import json
import select
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

settings = json.loads(sys.argv[1])
read: dict[str, list[int]] = {}
error: str | None = None
committed: list[Any] = []
options = {
    "bootstrap.servers": settings["bootstrap"],
    "group.id": settings["group"],
    "group.protocol": "consumer",
    "client.id": settings["client"],
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "topic.metadata.refresh.interval.ms": 1000,
    "fetch.wait.max.ms": 50,
    "on_commit": lambda failure, partitions: committed.append(failure),
}
if settings.get("assignor"):
    options["group.remote.assignor"] = settings["assignor"]
if settings.get("instance"):
    options["group.instance.id"] = settings["instance"]
consumer = Consumer(options)
consumer.subscribe([settings.get("regex") or settings["topic"]])


def poll() -> None:
    global error
    message = consumer.poll(0.02)
    if message is None:
        return
    if message.error() is not None:
        error = str(message.error())
        return
    read.setdefault(f"{message.topic()}-{message.partition()}", []).append(message.offset())


def commit(how: str, offsets: dict[str, int]) -> None:
    places = [TopicPartition(settings["topic"], int(each), offset) for each, offset in offsets.items()]
    if how == "sync":
        results = consumer.commit(offsets=places, asynchronous=False)
        failures = [place.error for place in results if place.error is not None]
    else:
        committed.clear()
        consumer.commit(offsets=places, asynchronous=True)
        while not committed:
            poll()
        failures = [failure for failure in committed if failure is not None]
    if failures:
        raise KafkaException(failures[0])


while True:
    poll()
    if not select.select([sys.stdin], [], [], 0)[0]:
        continue
    command = json.loads(sys.stdin.readline())
    if command["do"] == "close":
        consumer.close()
        print(json.dumps({"owned": [], "read": read, "error": error}), flush=True)
        break
    if command["do"] == "forget":
        read.clear()
    if command["do"] == "commit":
        commit(command["how"], command["offsets"])
    owned = [f"{place.topic}-{place.partition}" for place in consumer.assignment()]
    print(json.dumps({"owned": owned, "read": read, "error": error}), flush=True)
