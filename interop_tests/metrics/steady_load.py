"""A load whose state has a bound: a producer, a group and a share group that stay, and groups of each kind that come and
go."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, ShareConsumer

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
    "share.coordinator.state.topic.num.partitions": "5",
    "share.coordinator.state.topic.segment.bytes": str(1 << 20),
    "share.coordinator.state.topic.prune.interval.ms": "5000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "30000",
    # A member gets the partitions of a new share group with its second heartbeat.
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
TOPIC, PARTITIONS = "steady", 2
RECORD = b"x" * 500
TURNS_A_SECOND, RECORDS_A_TURN = 20, 20
VISITORS = 8
"""Client ids of members that come and go. They are used in turn."""
VISIT_S = 2.0
"""From the arrival of one member to that of the next one."""
VISIT_RECORDS = 100
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
KINDS = (CLASSIC, CONSUMER, SHARE)
"""Of groups that come and go. They take turns."""
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
        self.shared = 0
        """Records that the share group that stays was given."""
        self.groups = 0
        self.faults: list[str] = []
        self._node = node
        self._bootstrap = node.broker.bootstrap
        self._ended = threading.Event()
        works = (self._write, self._follow, self._share, self._visit)
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

    def counts(self) -> dict[str, int]:
        """What rises all the time."""
        return {"written": self.written, "read": self.read, "shared": self.shared, "groups": self.groups}

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

    def _member(self, kind: str, group: str, client_id: str) -> Consumer | ShareConsumer:
        options: dict[str, object] = {"group.id": group}
        if kind != SHARE:
            options |= {"auto.offset.reset": "latest", "group.protocol": kind}
        made = (ShareConsumer if kind == SHARE else Consumer)(self._client(client_id, **options))
        made.subscribe([TOPIC])
        return made

    def _follow(self) -> None:
        consumer = self._member(CLASSIC, "stays", "reader")
        while not self._ended.is_set():
            self.read += given(consumer)
        consumer.close()

    def _share(self) -> None:
        consumer = self._member(SHARE, "stays-sharing", "worker")
        while not self._ended.is_set():
            self.shared += given(consumer)
        consumer.close()

    def _visit(self) -> None:
        """Each member joins a new group, and reads and commits or accepts. The group is deleted when it has left."""
        for number in itertools.count():
            began = time.monotonic()
            kind = KINDS[number % len(KINDS)]
            group = f"visit-{number}"
            member = self._member(kind, group, f"visitor-{number % VISITORS}")
            read = 0
            while read < VISIT_RECORDS and not self._ended.is_set():
                read += given(member)
            if read and isinstance(member, Consumer):
                member.commit(asynchronous=False)
            member.close()
            if read:
                self._delete(group)
                self.groups += 1
            if self._ended.wait(max(0.0, began + VISIT_S - time.monotonic())):
                return

    def _delete(self, group: str) -> None:
        with Connection(self._bootstrap, END_TIMEOUT_S, "administrator") as connection:
            (result,) = connection.call("DeleteGroups", 2, {"GroupsNames": [group]})["Results"]
        assert result["ErrorCode"] == 0, (group, result)


def given(member: Consumer | ShareConsumer) -> int:
    """The number of records that a member gets now. The records of a share group before are accepted."""
    if isinstance(member, Consumer):
        return sum(not each.error() for each in member.consume(1000, 0.2))
    return sum(not each.error() for each in member.poll(0.2))
