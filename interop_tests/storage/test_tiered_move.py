"""A node with a tiered topic moves from kafkacompat to Apache Kafka and back: each reads what the other has put into the remote
storage, for consumers and for share groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
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


def overwrite(broker: SwitchingBroker, topic: str) -> dict[bytes, bytes | None]:
    """Write a third of the keys again, and delete a third of those, until a consumer reads what is left from a remote part
    that was cleaned too. Returns the last values."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values: dict[bytes, bytes | None] = {}

    def write(numbers: range, value: str) -> None:
        for number in numbers:
            key = f"{number:06}".encode()
            values[key] = None if number % 9 == 0 else f"{number:06}{value}".encode().ljust(SIZE, b".")
            producer.produce(topic, values[key], key)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    copies = broker.data_dir.parent.parent / "store"
    write(range(COUNT), "first")
    is_only_remote(broker, topic, COUNT // 2)
    before = {path.name for path in copies.rglob("*.log") if topic in str(path)}
    write(range(0, COUNT, 3), "second")
    for turn in range(4):
        write(range(COUNT + turn * 1000, COUNT + turn * 1000 + 1000), "third")
    is_only_remote(broker, topic, COUNT + COUNT // 3)

    def remote() -> set[str]:
        return {path.name for path in copies.rglob("*.log") if topic in str(path)}

    wait_until(lambda: not before & remote(), "what was copied first was cleaned", TIMEOUT_S)
    end_offset = COUNT + len(range(0, COUNT, 3)) + 4000
    assert last_values(broker.bootstrap, topic, end_offset) == values
    return values


def last_values(bootstrap: str, topic: str, end_offset: int) -> dict[bytes, bytes | None]:
    """What a consumer has when it has read everything. It reads several values of a key in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: dict[bytes, bytes | None] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            (message,) = consumer.consume(1, timeout=TIMEOUT_S) or [None]
            assert message is not None, f"nothing follows {len(found)} records"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                assert message.offset() == end_offset
                return found
            found[message.key() or b""] = message.value()
    finally:
        consumer.close()


def is_local_only(broker: SwitchingBroker, topic: str, values: dict[bytes, bytes | None]) -> bool:
    """Apache Kafka takes no compacted topic for a tiered one: its log begins with the local files."""
    end_offset = COUNT + len(range(0, COUNT, 3)) + 4000
    found = last_values(broker.bootstrap, topic, end_offset)
    return 0 < len(found) < len(values) and found.items() <= values.items()


def test_a_tiered_topic_moves_to_apache_kafka_and_back(
    tools: KafkaTools, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("tiered")
    broker = SwitchingBroker(
        KAFKACOMPAT,
        tmp_path / "node",
        True,
        {
            **tier_settings(tmp_path / "store"),
            "log.cleaner.backoff.ms": "300",
            "remote.storage.compacted.topics.enable": "true",
        },
    )
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
        compacted = unique("compacted")
        settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics([NewTopic(compacted, 1, 1, config=settings)])[compacted].result(TIMEOUT_S)
        values = overwrite(broker, compacted)
        for turn, kind in enumerate((KAFKACOMPAT, APACHE, KAFKACOMPAT)):
            if turn:
                broker.become(kind)
            if kind == APACHE:
                assert is_local_only(broker, compacted, values)
            produce(broker.bootstrap, topic, turn * COUNT)
            count = (turn + 1) * COUNT
            is_only_remote(broker, topic, count - 2 * SEGMENT // SIZE)
            assert consumed(broker.bootstrap, topic, count) == list(range(count)), kind
            assert shared(tools, broker.bootstrap, topic, f"{topic}-{turn}", count) == list(range(count)), (
                kind
            )
    finally:
        broker.kill()
