"""Committed offsets. Members of a group commit offsets for the partitions that they own. Other clients fetch them,
from the coordinator and from each node, so that the answering node is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from interop_tests.harness.wire import Connection, ConnectionClosed, Silence
from interop_tests.histories.clients import (
    OF_A_GROUP,
    OPERATION_TIMEOUT_S,
    Client,
    StartAgain,
    Surroundings,
    closing,
    name_of,
)
from interop_tests.histories.history import FAIL

TOPIC = "commits"
PARTITIONS = 4
GROUP = "committers"
COORDINATED = ((OF_A_GROUP, GROUP),)
POLL_S = 0.05
ELSEWHERE_S = 0.2
"""Seconds until a node that is not the coordinator is asked again."""


class Committer(Client):
    """A member. It commits numbers that are never committed twice. The topic itself is empty."""

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = Consumer(
            self.librdkafka(group_id=GROUP, enable_auto_commit=False, session_timeout_ms=6000)
        )
        consumer.subscribe([TOPIC])

        def commit() -> None:
            consumer.poll(POLL_S)
            owned = sorted(consumer.assignment(), key=lambda each: each.partition)
            if not owned:
                return
            place = self.chance.choice(owned)
            offset = next(self._all.numbers)
            asked = [GROUP, name_of(TOPIC, place.partition), offset]
            with self.recorder.operation(process, "commit", asked) as done:
                (result,) = consumer.commit(
                    offsets=[TopicPartition(TOPIC, place.partition, offset)], asynchronous=False
                )
                if result.error is not None:
                    raise StartAgain
                done.ok(asked)

        with closing(consumer, consumer.close):
            yield commit


class Fetcher(Client):
    """Fetches the group's committed offsets without being a member."""

    def fetch(self, process: str, ask: Callable[[int], int]) -> None:
        partition = self.chance.randrange(PARTITIONS)
        asked = [GROUP, name_of(TOPIC, partition)]
        with self.recorder.operation(process, "fetch", asked) as done:
            done.ok([*asked, ask(partition)])

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = Consumer(self.librdkafka(group_id=GROUP))

        def ask(partition: int) -> int:
            (place,) = consumer.committed([TopicPartition(TOPIC, partition)], OPERATION_TIMEOUT_S)
            if place.error is not None:
                raise StartAgain
            return max(place.offset, -1)

        with closing(consumer, consumer.close):
            yield lambda: self.fetch(process, ask)


class KafkaPythonFetcher(Fetcher):
    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = KafkaConsumer(**self.kafka_python(group_id=GROUP, enable_auto_commit=False))

        def ask(partition: int) -> int:
            offset = consumer.committed(
                KafkaPythonPartition(TOPIC, partition), timeout_ms=int(OPERATION_TIMEOUT_S * 1000)
            )
            return -1 if offset is None else offset

        with closing(consumer, lambda: consumer.close(autocommit=False)):
            yield lambda: self.fetch(process, ask)


class NodeFetcher(Fetcher):
    """Asks one node, which answers while it believes that it is the coordinator."""

    def __init__(self, surroundings: Surroundings, node_id: int) -> None:
        self.node_id = node_id
        self.address = surroundings.bootstrap.split(",")[node_id - 1]
        super().__init__(surroundings, f"fetcher-of-node-{node_id}")

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        try:
            with Connection(self.address, timeout_s=OPERATION_TIMEOUT_S) as connection:
                yield lambda: self._ask(process, connection)
        except (OSError, ConnectionClosed, Silence) as error:
            raise StartAgain from error

    def _ask(self, process: str, connection: Connection) -> None:
        partition = self.chance.randrange(PARTITIONS)
        topic = {"Name": TOPIC, "PartitionIndexes": [partition]}
        asked = [GROUP, name_of(TOPIC, partition)]
        with self.recorder.operation(process, "fetch", asked) as done:
            done.outcome = FAIL
            body = {"GroupId": GROUP, "Topics": [topic], "RequireStable": False}
            reply = connection.call("OffsetFetch", 7, body)
            found = [each for told in reply["Topics"] for each in told["Partitions"]]
            if reply["ErrorCode"] == 0 and [each["ErrorCode"] for each in found] == [0]:
                done.ok([*asked, found[0]["CommittedOffset"], self.node_id])
                return
        self._all.ended.wait(ELSEWHERE_S)


def start(surroundings: Surroundings) -> list[Client]:
    return [
        Committer(surroundings, "committer-1"),
        Committer(surroundings, "committer-2"),
        Fetcher(surroundings, "fetcher-confluent"),
        KafkaPythonFetcher(surroundings, "fetcher-kafka-python"),
        *(NodeFetcher(surroundings, each + 1) for each in range(surroundings.bootstrap.count(",") + 1)),
    ]
