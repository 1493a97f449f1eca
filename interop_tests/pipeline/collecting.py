"""Collectors and generators as processes that may be killed, and the records that arrived in `logs.raw`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from interop_tests.harness.waiting import wait_until

TOPIC = "logs.raw"
END_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0


class CollectorRun:
    """`kafkacompat pipeline collect` with one state directory. It can be started any number of times."""

    def __init__(self, bootstrap: str, root: Path, *files: str) -> None:
        self.state = root / "state"
        self.log = root / "collector.log"
        self._command = [
            *(sys.executable, "-m", "kafkacompat", "pipeline", "collect", *files),
            *("--bootstrap", bootstrap, "--state", str(self.state), "--host", "web", "--interval", "0.5"),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, *options: str) -> CollectorRun:
        """Start the collector. Its output goes to collector.log."""
        assert self.process is None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self._command, *options], stdout=log, stderr=log)
        return self

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(END_TIMEOUT_S)
            self.process = None

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        """Wait for its end. Returns the exit status."""
        assert self.process is not None
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the collector did not end:\n{self.said()}") from None
        finally:
            self.process = None

    def ship_the_rest(self) -> None:
        """A run that ends when everything is sent."""
        assert self.begin("--until-end").end() == 0, self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""


class Arrived(NamedTuple):
    """One record of logs.raw."""

    value: bytes
    headers: dict[str, bytes]
    timestamp_ms: int

    @property
    def event_id(self) -> str:
        return f"{self.headers['file'].decode()}@{self.headers['position'].decode()}"


def read_lines(bootstrap: str, topic: str = TOPIC) -> list[Arrived]:
    """Every record of the topic."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "lines",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found = []
    try:
        partitions = reader.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        while left:
            messages = wait_until(lambda: reader.consume(10_000, 0.5), f"{topic} is read to its end")
            for message in messages:
                if message.error() is None:
                    found.append(
                        Arrived(message.value(), dict(message.headers() or []), message.timestamp()[1])
                    )
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
    finally:
        reader.close()
    return found


ASKS_AGAIN = (KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
"""Retriable for Kafka. librdkafka raises both without marking them so."""


def count_arrived(bootstrap: str) -> int:
    """The number of records in logs.raw. 0 while the topic does not exist. Waits while a broker that has just started
    asks for another try."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "lines", "log_level": 0})
    try:
        topic = reader.list_topics(timeout=READ_TIMEOUT_S).topics.get(TOPIC)
        ends: list[int] = []
        for number in topic.partitions if topic is not None else ():
            partition = TopicPartition(TOPIC, number)
            ends += wait_until(partial(end_of, reader, partition), f"{TOPIC}-{number} tells its end")
        return sum(ends)
    finally:
        reader.close()


def end_of(reader: Consumer, partition: TopicPartition) -> list[int]:
    """Empty if the broker asks for another try."""
    try:
        return [reader.get_watermark_offsets(partition, 10)[1]]
    except KafkaException as problem:
        if problem.args[0].code() in ASKS_AGAIN:
            return []
        raise


def by_event_id(lines: list[Arrived]) -> dict[str, bytes]:
    """Each line once. AssertionError if one event id has two lines."""
    values: dict[str, set[bytes]] = defaultdict(set)
    for line in lines:
        values[line.event_id].add(line.value)
    assert {each: found for each, found in values.items() if len(found) > 1} == {}
    return {each: found.pop() for each, found in values.items()}
