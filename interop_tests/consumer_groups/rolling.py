"""Members whose group goes from one protocol to the other member by member, while its topic is written.

A member commits the positions of the partitions that it has at that moment, as its client knows them, so that no commit
can be of a partition that it has lost. Records may be read again after a rebalance. None may be missed, and no commit may go back:
both are judged when everything has come to rest, by what the members have received and by the records of the commits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from interop_tests.consumer_groups.members import JavaMembers
from interop_tests.consumer_groups.records import OFFSETS_TOPIC
from interop_tests.harness.raw_kafka import fetch
from interop_tests.harness.records import decode_batches
from interop_tests.harness.wire import Connection
from kafkacompat.wire.codec import decode
from kafkacompat.wire.messages.offset_commit_key import OffsetCommitKey
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue

CLASSIC, CONSUMER = "classic", "consumer"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
# Sessions are long: a member on a busy machine must not be taken for lost.
CLASSIC_SESSION_MS = 120_000
HEARTBEAT_MS = 300
PAUSE_S = 0.015
AT_A_TIME = 2
"""Records of each partition between two pauses of the writer."""
FLUSH_S = 60.0
STOP_S = 60.0
COMMIT_TYPES = (0, 1)

Place = tuple[int, int]
"""Partition and offset."""


class Writer:
    """Writes to all partitions in turn, slowly, and no more than it is allowed to."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged = dict.fromkeys(range(partitions), 0)
        """Records by partition. The writer is the only one, so this is the end of the partition."""
        self.failures: list[str] = []
        self._topic = topic
        self._allowed = 0
        self._sent = 0
        self._ended = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def allow(self, records: int) -> None:
        """Each partition may get so many more records."""
        self._allowed += records

    def stop(self) -> None:
        """Write no more. Everything that was written is acknowledged."""
        self.abandon()
        self._thread.join(FLUSH_S + STOP_S)
        assert not self._thread.is_alive(), "the writer hangs"
        assert not self.failures, self.failures[:3]

    def abandon(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set() and not self.failures:
            for _ in range(min(AT_A_TIME, self._allowed - self._sent)):
                self._sent += 1
                for partition in self.acknowledged:
                    self._producer.produce(
                        self._topic, b"%d" % self._sent, partition=partition, on_delivery=self._delivered
                    )
            self._producer.poll(PAUSE_S)
            self._ended.wait(PAUSE_S)
        if self._producer.flush(FLUSH_S):
            self.failures.append("the writer could not send everything")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition()] += 1
        else:
            self.failures.append(f"{message.partition()}: {error}")


class Received:
    """What the members together have received."""

    def __init__(self) -> None:
        self.places: set[Place] = set()
        self._lock = threading.Lock()

    def note(self, places: Iterable[Place]) -> None:
        with self._lock:
            self.places.update(places)


class RollingMember(Protocol):
    """It commits what it has read, batch by batch, and when it ends."""

    @property
    def name(self) -> str: ...

    @property
    def error(self) -> str | None:
        """What has ended it."""
        ...

    def stop(self) -> None:
        """Leave the group, or for a while if the member is static."""
        ...

    def abandon(self) -> None:
        """The test ends, maybe with a failure."""
        ...


@dataclass(frozen=True)
class Joining:
    """What a member is made with."""

    bootstrap: str
    group: str
    topic: str
    name: str
    protocol: str
    instance: str | None
    received: Received


class ConfluentMember:
    """A member of librdkafka, in a thread of its own. In the classic protocol it is eager: the leader's cooperative assignor
    adds user data to what it assigns in its second rebalance, and such a group cannot be converted."""

    def __init__(self, joining: Joining) -> None:
        self.name = joining.name
        self.error: str | None = None
        self._joining = joining
        self._settings: dict[str, object] = {
            "bootstrap.servers": joining.bootstrap,
            "group.id": joining.group,
            "group.protocol": joining.protocol,
            "client.id": joining.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
        if joining.protocol == CLASSIC:
            self._settings |= {
                "partition.assignment.strategy": "roundrobin",
                "session.timeout.ms": CLASSIC_SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        if joining.instance is not None:
            self._settings["group.instance.id"] = joining.instance
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def abandon(self) -> None:
        self._ended.set()

    def stop(self) -> None:
        self.abandon()
        self._thread.join(STOP_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        assert self.error is None, self.error

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._joining.topic])
        is_behind = False
        try:
            while not self._ended.is_set():
                places = _places(consumer.consume(200, 0.05))
                self._joining.received.note(places)
                if places or is_behind:
                    is_behind = not _commits(consumer)
            if is_behind:
                _commits(consumer)
        except Exception as error:
            self.error = f"{self.name}: {error!r}"
        finally:
            consumer.close()


def _places(messages: Sequence[Message]) -> list[Place]:
    """Raises KafkaException if the client has ended."""
    places = []
    for message in messages:
        error = message.error()
        if error is None:
            places.append((message.partition(), message.offset()))
        elif error.fatal():
            raise KafkaException(error)
    return places


def _commits(consumer: Consumer) -> bool:
    """Whether nothing is left to commit. A commit fails while the member has to join again, or has lost its partitions.
    It is tried again with what the member has then."""
    try:
        done = consumer.commit(asynchronous=False)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError._NO_OFFSET)
    return all(each.error is None for each in done)


class JavaMember:
    """A member of Kafka's own consumer. In the classic protocol it is cooperative."""

    def __init__(self, members: JavaMembers, joining: Joining) -> None:
        self.name = joining.name
        self._joining = joining
        self._members = members
        self._key = f"{joining.group} {joining.name}"
        classic = {"strategy": COOPERATIVE} if joining.protocol == CLASSIC else {}
        members.start(
            self._key,
            bootstrap=joining.bootstrap,
            group=joining.group,
            topic=joining.topic,
            client=joining.name,
            protocol=joining.protocol,
            instance=joining.instance,
            commits="all",
            **classic,
        )

    @property
    def error(self) -> str | None:
        return self._members.ask_member(self._key, "state").error

    def stop(self) -> None:
        state = self._members.ask_member(self._key, "close")
        assert state.error is None, state.error
        for place, offsets in state.read.items():
            partition = int(place.rpartition("-")[2])
            self._joining.received.note((partition, offset) for offset in offsets)

    def abandon(self) -> None:
        """A member that has not stopped ends with its JVM."""


def commits_in_order(bootstrap: str, group: str) -> dict[int, list[int]]:
    """Every offset that the coordinator has written for the group, by partition. The group has one topic."""
    commits: dict[int, list[int]] = {}
    position = 0
    with Connection(bootstrap) as connection:
        while True:
            result = fetch(connection, OFFSETS_TOPIC, position, MaxWaitMs=0)
            assert result["ErrorCode"] == 0, result
            batches = decode_batches(result["Records"])
            if not batches:
                return commits
            for batch in batches:
                position = batch.last_offset + 1
                for record in batch.records:
                    assert record.key is not None
                    if int.from_bytes(record.key[:2], "big") not in COMMIT_TYPES:
                        continue
                    key = decode(OffsetCommitKey, 0, record.key, 2)
                    if key.group != group:
                        continue
                    assert record.value is not None, f"the offset of {key} is removed"
                    value = decode(
                        OffsetCommitValue, int.from_bytes(record.value[:2], "big"), record.value, 2
                    )
                    commits.setdefault(key.partition, []).append(value.offset)


def backward_steps(commits: dict[int, list[int]]) -> list[str]:
    """The commits that are lower than the one before."""
    return [
        f"partition {partition} goes from {before} back to {after}"
        for partition, offsets in commits.items()
        for before, after in itertools.pairwise(offsets)
        if after < before
    ]
