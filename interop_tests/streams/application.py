"""The word count of WordCount.java as processes that may be killed with -9, with its input and the expected output.

Without a cache every word of the input causes one record of the output, so the check is strict: the counts of a word
are 1, 2, 3 and so on, each once and in order. A record that was lost, read twice or written by a zombie shows as a gap
or a repetition.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.kafka_jvm import QUICK_JVM
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.programs import build_once
from interop_tests.harness.waiting import wait_until

HERE = Path(__file__).resolve().parent
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
PARTITIONS = 2
WORDS_A_LINE = 5
SESSION_TIMEOUT_MS = 6000
STOP_TIMEOUT_S = 40.0
TIMEOUT_S = 60.0
# A killed instance stays a member until its session expires, and restores its stores.
PROGRESS_TIMEOUT_S = 90.0
CLASSIC_SETTINGS = {
    "num.standby.replicas": "1",
    "consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "consumer.heartbeat.interval.ms": "1000",
}
BROKER_SETTINGS = {
    "group.streams.num.standby.replicas": "1",
    "group.streams.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}
"""The same for groups of the streams protocol (KIP-1071)."""
# The number of a word determines its length, so there are several lengths.
WORDS = [f"word{number * number}" for number in range(40)]


def build() -> Path:
    """The folder with the jars of Streams in lib and the compiled program in classes. The jars include a compiler."""
    java, maven = require_program("java"), require_program("mvn")
    compiler = ["-cp", "lib/*", COMPILER, "--release", "17", "-nowarn", "-proc:none"]
    jars = ["slf4j-api-1.7.36", "kafka-streams-4.4.0", "kafka-clients-4.4.0"]
    classpath = ":".join(f"lib/{jar}.jar" for jar in jars)
    return build_once(
        "kafka_streams",
        [HERE / name for name in ("WordCount.java", "pom.xml", "log4j2.properties")],
        lambda folder: [
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"],
            [java, *compiler, "-classpath", classpath, "-d", "classes", "WordCount.java"],
        ],
    )


class WordCount:
    """One application: its topics, and its instances by number, each with its own folder for the stores."""

    def __init__(
        self, root: Path, bootstrap: str, name: str, replication_factor: int, protocol: str = "classic"
    ) -> None:
        """`protocol`: group.protocol. What "streams" leaves to the broker has to be set there (BROKER_SETTINGS)."""
        self.root = root
        self.bootstrap = bootstrap
        self.name = name
        self.lines, self.counts, self.totals = (f"{name}-{each}" for each in ("lines", "counts", "totals"))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folder = build()
        self._settings = {
            "application.id": name,
            "bootstrap.servers": bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "replication.factor": str(replication_factor),
            "statestore.cache.max.bytes": "0",
            "repartition.purge.interval.ms": "1000",
            "group.protocol": protocol,
            "main.consumer.auto.offset.reset": "earliest",
            **(CLASSIC_SETTINGS if protocol == "classic" else {}),
            "consumer.metadata.max.age.ms": "2000",
            "producer.metadata.max.age.ms": "2000",
            # Streams gives up when a transaction times out, for example while a busy machine restarts a broker.
            "producer.transaction.timeout.ms": "40000",
        }
        new = [
            NewTopic(each, PARTITIONS, replication_factor) for each in (self.lines, self.counts, self.totals)
        ]
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for done in self._admin.create_topics(new).values():
            done.result(TIMEOUT_S)

    # processes

    def start(self, number: int = 0, threads: int = 1) -> None:
        """Start an instance. It continues with its folder."""
        folder = self.root / f"{self.name}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = self._settings | {"state.dir": str(folder / "stores"), "num.stream.threads": str(threads)}
        path = folder / "streams.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [require_program("java"), "-Xmx256m", *QUICK_JVM]
        command += [f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties"]
        command += ["-cp", f"{self._folder}/classes:{self._folder}/lib/*", "WordCount"]
        with open(self.log_path(number), "ab") as log:
            self._processes[number] = subprocess.Popen(
                [*command, str(path), self.lines, self.counts, self.totals],
                stdout=log,
                stderr=log,
                cwd=folder,
            )

    def log_path(self, number: int) -> Path:
        return self.root / f"{self.name}-{number}" / "log"

    def assert_runs(self) -> None:
        """Check that no instance has given up."""
        for number, process in self._processes.items():
            log = self.log_path(number)
            assert process.poll() is None, (
                f"instance {number} ended:\n{log.read_text(errors='replace')[-6000:]}"
            )

    def kill(self, number: int = 0) -> None:
        """kill -9."""
        process = self._processes.pop(number)
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    def stop(self, number: int = 0) -> int:
        """Send SIGTERM. Returns the exit status."""
        process = self._processes.pop(number)
        process.terminate()
        return process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)

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


class Outputs:
    """Follows a topic with read_committed: the values that a consumer of the output has seen so far, by key and in
    order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.values: dict[bytes, list[int]] = {}
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
                (value,) = struct.unpack(">q", message.value())
                self.values.setdefault(message.key(), []).append(value)
            else:
                assert message.error().retriable() or message.error().code() < 0, message.error()
        return sum(map(len, self.values.values()))

    def last(self) -> dict[bytes, int]:
        return {key: values[-1] for key, values in self.values.items()}

    def close(self) -> None:
        self._consumer.close()


def read_once(bootstrap: str, topic: str, is_whole: Any) -> Outputs:
    """Read the topic from its start with a new consumer, until `is_whole` accepts the records."""
    outputs = Outputs(bootstrap, topic)
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
