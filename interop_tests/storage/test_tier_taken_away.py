"""A broker that has tiered topics is started without its remote storage: it refuses, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.conftest import MakeBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.storage.local_tier import tier_settings

RECORDS, SIZE = 3000, 1000
TIMEOUT_S = 60.0


def test_a_start_without_the_remote_storage_is_refused_and_loses_nothing(
    make_broker: MakeBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("tiered")
    tier = tier_settings(tmp_path / "store")
    broker = make_broker(tier)
    where = {"bootstrap.servers": broker.bootstrap}
    settings = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
    admin = AdminClient(where)
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(TIMEOUT_S)
    producer = Producer(where)
    for _ in range(RECORDS):
        producer.produce(topic, b"x" * SIZE)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    first = broker.data_dir / f"{topic}-0" / f"{0:020d}.log"
    wait_until(lambda: not first.exists(), "the first segment is in the remote storage only")

    broker.stop()
    broker.settings = {name: value for name, value in broker.settings.items() if name not in tier}
    broker.launch()
    assert broker.process is not None
    assert broker.process.wait(TIMEOUT_S) != 0
    broker.process = None
    told = broker.log_text()
    assert "remote.log.storage.system.enable" in told
    assert "You have to delete all topics with the property remote.storage.enable=true" in told
    assert topic in told

    broker.settings |= tier
    broker.start()
    consumer = Consumer(where | {"group.id": unique("group"), "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int | None] = []
    while len(offsets) < RECORDS:
        found = consumer.consume(RECORDS, timeout=TIMEOUT_S)
        assert found, "the consumer waits for nothing"
        assert not [message.error() for message in found if message.error()]
        offsets += [message.offset() for message in found]
        if len(found) < RECORDS and offsets[-1] == RECORDS - 1:
            break
    consumer.close()
    assert offsets == list(range(RECORDS))
