"""A load whose state has a bound: a producer, a group that stays, and groups that come and go."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from interop_tests.harness.exporting import Exporting
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.wire import Connection

SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.retention.bytes": str(4 << 20),
    "log.retention.check.interval.ms": "5000",
    "log.initial.task.delay.ms": "5000",
    "log.segment.delete.delay.ms": "5000",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "5000",
}
TOPIC, PARTITIONS = "steady", 2
RECORD = b"x" * 500
TURNS_A_SECOND, RECORDS_A_TURN = 20, 20
VISITORS = 8
"""Client ids of members that come and go. They are used in turn."""
VISIT_S = 2.0
"""From the arrival of one member to that of the next one."""
VISIT_RECORDS = 100
PUSH_INTERVAL_MS = 1000
QUOTA = 1e9
"""Nobody reaches it. The series of each client are there nevertheless."""
QUOTAS = ("producer_byte_rate", "consumer_byte_rate")
WARNINGS = 4
"""Less urgent lines are not logged."""
END_TIMEOUT_S = 60.0


class SteadyLoad:
    """Threads that work from entry to exit. Any failure of a client is a fault."""

    def __init__(self, node: Exporting) -> None:
        self.written = 0
        self.read = 0
        self.groups = 0
        self.faults: list[str] = []
        self._node = node
        self._bootstrap = node.broker.bootstrap
        self._ended = threading.Event()
        works = (self._write, self._follow, self._visit)
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> SteadyLoad:
        create_topic(self._bootstrap, TOPIC, PARTITIONS)
        self._node.subscribe("everything", "*", PUSH_INTERVAL_MS)
        entity = [{"EntityType": "client-id", "EntityName": None}]
        operations = [{"Key": key, "Value": QUOTA, "Remove": False} for key in QUOTAS]
        body = {"Entries": [{"Entity": entity, "Ops": operations}], "ValidateOnly": False}
        with Connection(self._bootstrap) as connection:
            (entry,) = connection.call("AlterClientQuotas", 1, body)["Entries"]
        assert entry["ErrorCode"] == 0, entry
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.faults.append(f"{work.__name__}: {error!r}")

    def _client(self, client_id: str, **options: object) -> dict[str, object]:
        own = {"bootstrap.servers": self._bootstrap, "client.id": client_id, "enable.metrics.push": True}
        return own | {"log_level": WARNINGS} | options

    def _write(self) -> None:
        producer = Producer(self._client("writer"))

        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.written += 1
            else:
                self.faults.append(f"a record was not written: {error}")

        numbers = itertools.count()
        while not self._ended.wait(1 / TURNS_A_SECOND):
            for _ in range(RECORDS_A_TURN):
                producer.produce(TOPIC, RECORD, partition=next(numbers) % PARTITIONS, on_delivery=told)
            producer.poll(0)
        left = producer.flush(END_TIMEOUT_S)
        assert left == 0, f"{left} records were not written"

    def _member(self, group: str, client_id: str) -> Consumer:
        consumer = Consumer(self._client(client_id, **{"group.id": group, "auto.offset.reset": "latest"}))
        consumer.subscribe([TOPIC])
        return consumer

    def _follow(self) -> None:
        consumer = self._member("stays", "reader")
        while not self._ended.is_set():
            self.read += sum(not each.error() for each in consumer.consume(1000, 0.2))
        consumer.close()

    def _visit(self) -> None:
        """Each member joins a new group, reads and commits. The group is deleted when it has left."""
        admin = AdminClient(self._client("administrator"))
        for number in itertools.count():
            began = time.monotonic()
            group = f"visit-{number}"
            consumer = self._member(group, f"visitor-{number % VISITORS}")
            read = 0
            while read < VISIT_RECORDS and not self._ended.is_set():
                read += sum(not each.error() for each in consumer.consume(VISIT_RECORDS, 0.2))
            if read:
                consumer.commit(asynchronous=False)
            consumer.close()
            if read:
                for deleted in admin.delete_consumer_groups([group]).values():
                    deleted.result(END_TIMEOUT_S)
                self.groups += 1
            if self._ended.wait(max(0.0, began + VISIT_S - time.monotonic())):
                return
