"""The application of Application.java: a word count and joins, with its input and the expected output.

Without a cache every word of the input causes one record of the output, so the check is strict: the counts of a word
are 1, 2, 3 and so on, each once and in order. A record that was lost, read twice or written by a zombie shows as a gap
or a repetition.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from interop_tests.harness.kafka_jars import KAFKA_VERSION
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.waiting import wait_until
from interop_tests.streams.instances import CLASSIC_SETTINGS, Instances, Run, java_command

PARTITIONS = 2
WORDS_A_LINE = 5
TIMEOUT_S = 60.0
# A killed instance stays a member until its session expires, and restores its stores.
PROGRESS_TIMEOUT_S = 90.0
# The number of a word determines its length, so there are several lengths.
WORDS = [f"word{number * number}" for number in range(40)]
KEYS = [f"key{number}" for number in range(8)]


def application_command(version: str) -> list[str]:
    """Of Application.java."""
    return [*java_command(version), "Application"]


class WordCount(Instances):
    """One application with its topics and instances."""

    def __init__(
        self,
        root: Path,
        bootstrap: str,
        name: str,
        replication_factor: int,
        protocol: str = "classic",
        version: str = KAFKA_VERSION,
        guarantee: str = "exactly_once_v2",
        joins: bool = False,
    ) -> None:
        """`protocol`: group.protocol. What "streams" leaves to the broker has to be set there (BROKER_SETTINGS).
        `version`: of Kafka Streams. `joins`: besides the word count."""
        self.bootstrap = bootstrap
        self.guarantee = guarantee
        self.lines, self.counts, self.totals = counting = [
            f"{name}-{each}" for each in ("lines", "counts", "totals")
        ]
        self.left, self.right, self.table, self.pairs, self.looked = joining = [
            f"{name}-{each}" for each in ("left", "right", "table", "pairs", "looked")
        ]
        topics = counting + (joining if joins else [])
        settings = {
            "application.id": name,
            "bootstrap.servers": bootstrap,
            "processing.guarantee": guarantee,
            "replication.factor": str(replication_factor),
            "statestore.cache.max.bytes": "0",
            "commit.interval.ms": "100",
            "repartition.purge.interval.ms": "1000",
            "group.protocol": protocol,
            "main.consumer.auto.offset.reset": "earliest",
            **(CLASSIC_SETTINGS if protocol == "classic" else {}),
            "consumer.metadata.max.age.ms": "2000",
            "producer.metadata.max.age.ms": "2000",
            # Streams gives up when a transaction times out, for example while a busy machine restarts a broker.
            "producer.transaction.timeout.ms": "40000",
        }
        self.run = Run(settings, topics)
        super().__init__(root, name, application_command(version), self.run)
        new = [NewTopic(each, PARTITIONS, replication_factor) for each in topics]
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for done in self._admin.create_topics(new).values():
            done.result(TIMEOUT_S)

    # observations

    def topic_configs(self, topic: str) -> dict[str, str]:
        (done,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in done.result(TIMEOUT_S).items()}

    def purged(self, topic: str) -> int:
        """The number of deleted records of a repartition topic, over all its partitions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 0})
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S)
                for each in range(PARTITIONS)
            ]
            return sum(first for first, _ in ends)
        finally:
            consumer.close()


class Lines:
    """Writes lines of words to the application's input and counts the words."""

    def __init__(self, application: WordCount, chance: random.Random) -> None:
        self._application = application
        self._chance = chance
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": application.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self.counts: Counter[str] = Counter()

    def write(self, lines: int) -> None:
        """Give the lines to the producer. `flush` waits for them."""
        for _ in range(lines):
            words = self._chance.choices(WORDS, k=WORDS_A_LINE)
            self.counts.update(words)
            self._producer.produce(self._application.lines, " ".join(words), on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self._failed == []

    def totals(self) -> dict[int, int]:
        """For each length of word, how often its words were written."""
        found: Counter[int] = Counter()
        for word, count in self.counts.items():
            found[len(word)] += count
        return dict(found)


class Sides:
    """Writes records to both sides of the joins, which meet others with the same key.

    Each has a timestamp of its own. Streams numbers records of one key and timestamp anew when a task moves, so that with
    the same timestamp one would replace another in the store of a join.
    """

    def __init__(self, application: WordCount, chance: random.Random) -> None:
        self._application = application
        self._chance = chance
        self._producer = Producer(
            {"bootstrap.servers": application.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._timestamp_ms = int(time.time() * 1000)
        self._table = {key: f"value of {key}" for key in KEYS}
        self._written: dict[str, dict[str, list[str]]] = {
            topic: {key: [] for key in KEYS} for topic in (application.left, application.right)
        }

    def fill_table(self) -> None:
        """Before the application starts, so that each record of the stream finds its value."""
        for key, value in self._table.items():
            self._send(self._application.table, value, key)
        assert self._producer.flush(TIMEOUT_S) == 0

    def write(self, records: int) -> None:
        """This number of records to each side."""
        for topic, by_key in self._written.items():
            for _ in range(records):
                key = self._chance.choice(KEYS)
                value = f"{topic}-{sum(map(len, by_key.values()))}"
                by_key[key].append(value)
                self._send(topic, value, key)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _send(self, topic: str, value: str, key: str) -> None:
        self._timestamp_ms += 1
        self._producer.produce(topic, value, key, timestamp=self._timestamp_ms)

    @property
    def pairs(self) -> list[str]:
        """What the join of both streams gives."""
        left, right = self._written.values()
        return sorted(f"{one}/{other}" for key in KEYS for one in left[key] for other in right[key])

    @property
    def looked(self) -> list[str]:
        """What the join of the stream with the table gives."""
        left, _ = self._written.values()
        return sorted(f"{one}/{self._table[key]}" for key in KEYS for one in left[key])


def number(value: bytes) -> int:
    found: int = struct.unpack(">q", value)[0]
    return found


class Outputs:
    """Follows a topic with read_committed: the values that a consumer of the output has seen so far, by key and in
    order."""

    def __init__(self, bootstrap: str, topic: str, decode: Callable[[bytes], Any] = number) -> None:
        self.topic = topic
        self.values: dict[bytes, list[Any]] = {}
        self._decode = decode
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **CONNECTED_TO_ALL,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    def poll(self, timeout_s: float = 0.5) -> int:
        """Read the available records. Returns the number of all values seen."""
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is None:
                self.values.setdefault(message.key(), []).append(self._decode(message.value()))
            else:
                assert message.error().retriable() or message.error().code() < 0, message.error()
        return sum(map(len, self.values.values()))

    def last(self) -> dict[bytes, Any]:
        return {key: values[-1] for key, values in self.values.items()}

    def all(self) -> list[Any]:
        """Sorted."""
        return sorted(value for values in self.values.values() for value in values)

    def close(self) -> None:
        self._consumer.close()


def read_once(
    bootstrap: str, topic: str, is_whole: Callable[[Outputs], bool], decode: Callable[[bytes], Any] = number
) -> Outputs:
    """Read the topic from its start with a new consumer, until `is_whole` accepts the records."""
    outputs = Outputs(bootstrap, topic, decode)
    try:
        wait_until(lambda: outputs.poll() >= 0 and is_whole(outputs), f"{topic} is read", TIMEOUT_S)
        # Surplus records would arrive now.
        outputs.poll(1.0)
    finally:
        outputs.close()
    return outputs


def wait_for_counts(application: WordCount, outputs: Outputs, count: int) -> None:
    """Wait until this many records are in the output, while no instance gives up."""

    def probe() -> bool:
        application.assert_runs()
        return outputs.poll() >= count

    wait_until(probe, f"{count} counts are committed", PROGRESS_TIMEOUT_S)


def assert_exact(application: WordCount, lines: Lines) -> None:
    """Check that every word is counted once: in the output, in the totals of the second store, and in the changelogs
    of both stores."""
    bootstrap, name = application.bootstrap, application.name
    expected = {word.encode(): count for word, count in lines.counts.items()}
    totals = {struct.pack(">i", length): count for length, count in lines.totals().items()}
    counted = read_once(bootstrap, application.counts, lambda each: each.last() == expected)
    for word, values in counted.values.items():
        assert values == list(range(1, expected[word] + 1)), (word, values)
    for topic, last in (
        (application.totals, totals),
        (f"{name}-counts-changelog", expected),
        (f"{name}-totals-changelog", totals),
    ):
        assert read_once(bootstrap, topic, lambda each, last=last: each.last() == last).last() == last


def wait_for_words(instances: Instances, outputs: Outputs, lines: Lines) -> None:
    """Wait until every word that was written is in the counts, or more, while no instance gives up."""

    def probe() -> bool:
        instances.assert_runs()
        outputs.poll()
        last = outputs.last()
        return all(last.get(word.encode(), 0) >= count for word, count in lines.counts.items())

    wait_until(probe, "all words are counted", PROGRESS_TIMEOUT_S)


def assert_joined(application: WordCount, sides: Sides) -> None:
    """Check both joins: each pair is there, and with exactly_once_v2 once."""
    for topic, expected in ((application.pairs, sides.pairs), (application.looked, sides.looked)):

        def found(outputs: Outputs) -> list[str]:
            each: list[str] = outputs.all()
            return each if application.guarantee == "exactly_once_v2" else sorted(set(each))

        def is_whole(outputs: Outputs, topic: str = topic, expected: list[str] = expected) -> bool:
            missing = sorted(set(expected) - set(found(outputs)))
            if missing:
                print(f"{topic} still lacks {len(missing)} of {len(expected)}: {missing[:3]}")
            return not missing

        outputs = read_once(application.bootstrap, topic, is_whole, bytes.decode)
        assert found(outputs) == expected


def assert_internal_topics(application: WordCount) -> None:
    """Check that topics are as Streams requested: compacted changelogs, and repartition topics that Streams empties
    itself."""
    for stem in ("counts-changelog", "totals-changelog"):
        assert application.topic_configs(f"{application.name}-{stem}")["cleanup.policy"] == "compact"
    for stem in ("words-repartition", "lengths-repartition"):
        topic = f"{application.name}-{stem}"
        configs = application.topic_configs(topic)
        assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")
        wait_until(lambda topic=topic: application.purged(topic) > 0, f"{topic} is purged", TIMEOUT_S, 0.5)
