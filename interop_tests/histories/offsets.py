"""Committed offsets: members of a group commit, each for what it owns, and others fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from interop_tests.histories.clients import (
    OPERATION_TIMEOUT_S,
    Client,
    StartAgain,
    Surroundings,
    closing,
    name_of,
)

TOPIC = "commits"
PARTITIONS = 4
GROUP = "committers"
POLL_S = 0.05


class Committer(Client):
    """A member. What it commits is a number that none commits twice; the topic itself is empty."""

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
    """Asks for what the group has committed, without being a member."""

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


def start(surroundings: Surroundings) -> list[Client]:
    return [
        Committer(surroundings, "committer-1"),
        Committer(surroundings, "committer-2"),
        Fetcher(surroundings, "fetcher-confluent"),
        KafkaPythonFetcher(surroundings, "fetcher-kafka-python"),
    ]
