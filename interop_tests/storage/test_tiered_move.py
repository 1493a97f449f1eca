"""A node with a tiered topic moves from kafkacompat to Apache Kafka and back: each reads what the other has put into the remote
storage, for consumers and for share groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.storage.local_tier import tier_plugins, tier_settings

COUNT, SIZE = 2500, 1000
TIMEOUT_S = 60.0
SEGMENT = 1 << 20


def produce(bootstrap: str, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + COUNT):
        producer.produce(topic, f"{number:06}".encode().ljust(SIZE, b"."))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def consumed(bootstrap: str, topic: str, count: int) -> list[int]:
    """The numbers that a consumer reads from the beginning on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        numbers: list[int] = []
        while len(numbers) < count:
            found = consumer.consume(count - len(numbers), timeout=TIMEOUT_S)
            assert found, f"nothing follows {len(numbers)} records"
            for message in found:
                assert message.error() is None, message.error()
                numbers.append(int((message.value() or b"")[:6]))
        return numbers
    finally:
        consumer.close()


def shared(tools: KafkaTools, bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    """The numbers that a member of a new share group gets."""
    server = ("--bootstrap-server", bootstrap)
    tools.run(
        "ConfigCommand", *server, "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    output = tools.run(
        "consumer.ConsoleShareConsumer", *server, "--topic", topic, "--group", group,
        "--max-messages", str(count), "--timeout-ms", "30000",
    )  # fmt: skip
    assert len(output.lines) == count, output.err
    return sorted(int(line[:6]) for line in output.lines)


def is_only_remote(broker: SwitchingBroker, topic: str, offset: int) -> None:
    """Wait until no local file has the offset."""

    def local_start() -> int:
        return min(int(path.stem) for path in (broker.data_dir / f"{topic}-0").glob("*.log"))

    wait_until(lambda: local_start() > offset, f"offset {offset} is in the remote storage only", TIMEOUT_S)


def test_a_tiered_topic_moves_to_apache_kafka_and_back(
    tools: KafkaTools, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("tiered")
    broker = SwitchingBroker(KAFKACOMPAT, tmp_path / "node", True, tier_settings(tmp_path / "store"))
    broker.plugins = tier_plugins()
    try:
        broker.start()
        settings = {
            "remote.storage.enable": "true",
            "segment.bytes": str(SEGMENT),
            "local.retention.bytes": "1",
            "file.delete.delay.ms": "0",
        }
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(TIMEOUT_S)
        for turn, kind in enumerate((KAFKACOMPAT, APACHE, KAFKACOMPAT)):
            if turn:
                broker.become(kind)
            produce(broker.bootstrap, topic, turn * COUNT)
            count = (turn + 1) * COUNT
            is_only_remote(broker, topic, count - 2 * SEGMENT // SIZE)
            assert consumed(broker.bootstrap, topic, count) == list(range(count)), kind
            assert shared(tools, broker.bootstrap, topic, f"{topic}-{turn}", count) == list(range(count)), (
                kind
            )
    finally:
        broker.kill()
