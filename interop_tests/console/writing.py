"""Writes the data that the tests of the console read: results, a group with lag, and a topic with all kinds of
records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.console.samples import BASE_MS, RESULT_TOPICS, Result, all_results
from interop_tests.harness.waiting import wait_without_error

TIMEOUT_S = 60.0
GROUP = "billing"
MIXED_TOPIC = "orders.mixed"
MIXED_RECORDS = 60
DELETED = ("logs.rejected", "metrics.alerts")


class Writer:
    """A producer and an admin client of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.failed: list[object] = []
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
        self.admin = AdminClient(settings)
        self.producer = Producer(settings | {"linger.ms": 5})

    def create(self, *names: str, partitions: int = 3, replicas: int = 1, **configs: str) -> None:
        """Create topics that keep records of any age."""
        settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
        wanted = [NewTopic(name, partitions, replicas, config=settings) for name in names]
        for future in self.admin.create_topics(wanted).values():
            future.result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until its name is free."""
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)

    def send(self, results: Iterable[Result]) -> None:
        """Write results and wait until they are acknowledged."""
        for each in results:
            self.write(each.topic, each.value, each.key, each.timestamp_ms)
        self.written()

    def write(self, topic: str, value: bytes | None, key: str, timestamp_ms: int = 1, **more: Any) -> None:
        """Produce one record without waiting."""
        self.producer.produce(
            topic, value, key.encode(), timestamp=timestamp_ms, on_delivery=self._delivered, **more
        )

    def written(self) -> None:
        """Wait until all records are acknowledged."""
        assert self.producer.flush(TIMEOUT_S) == 0
        assert not self.failed, self.failed

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(error)

    def results(self) -> None:
        """The result topics with an hour of results. A third of the records is written twice."""
        self.create(*(name for name in RESULT_TOPICS if name not in DELETED), cleanup_policy="compact")
        self.create(*DELETED)
        made = all_results()
        self.send(made)
        self.send(made[::3])

    def lagging_group(self) -> None:
        """A group that has committed 20 and 30 records of two partitions of metrics.windows."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP, "log_level": 0})
        places = [TopicPartition("metrics.windows", 0, 20), TopicPartition("metrics.windows", 1, 30)]
        wait_without_error(
            lambda: consumer.commit(offsets=places, asynchronous=False), "the group's commit", (Exception,)
        )
        consumer.close()

    def mixed_topic(self) -> None:
        """One partition with JSON, text, bytes, a null, headers and markup: one record per minute from BASE_MS."""
        self.create(MIXED_TOPIC, partitions=1)
        for number in range(MIXED_RECORDS):
            value: bytes | None = f'{{"order": {number}, "items": ["tea", "caf\\u00e9"]}}'.encode()
            headers = None
            if number == 57:
                value, headers = b"\x00\x01\xfe\xff binary", [("trace", b"abc-57"), ("raw", b"\xff")]
            elif number == 58:
                value = None
            elif number == 59:
                value = b"<img src=x onerror=document.title='owned'>" + b"x" * 6_000
            at_ms = BASE_MS + number * 60_000
            self.write(MIXED_TOPIC, value, f"customer-{number % 7}", at_ms, headers=headers)
        self.written()
