"""MirrorMaker 2 copies topics both ways between Apache Kafka and kafkacompat, exactly once, and translates the offsets of
groups. Its settings and the commands are those of the page.

These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from interop_tests.cli.command import output_of
from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.mirror_maker.mirror_maker import MirrorMaker

pytestmark = pytest.mark.needs_control

PAGE = text_of("docs/how-to/mirror-with-mirrormaker.md")
TOPIC = "orders"
GROUP = "shop"
TIMEOUT_S = 90.0
RECORDS = 400
READ_BEFORE = 150


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, Cluster]]:
    """One node each, by the names of the page."""
    made = {
        name: Cluster(kind, tmp_path / name, 1, settings=ONE_REPLICA)
        for name, kind in (("kafka", APACHE), ("ours", KAFKACOMPAT))
    }
    try:
        for cluster in made.values():
            cluster.start()
        yield made
    finally:
        for cluster in made.values():
            cluster.close()


def produce(cluster: Cluster, begin: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(begin, end):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def read_and_commit(cluster: Cluster, topic: str, count: int) -> list[int]:
    """A group without members reads on where it has committed, and commits after so many records."""
    settings = {"group.id": GROUP, "isolation.level": "read_committed"}
    with closing_consumer(cluster.bootstrap, **settings) as consumer:
        (at,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, max(at.offset, 0))])
        found: list[int] = []

        def is_read() -> bool:
            messages = [each for each in consumer.consume(count - len(found), 0.5) if each.error() is None]
            found.extend(int(each.value()) for each in messages)
            if messages:
                consumer.commit(
                    offsets=[TopicPartition(topic, 0, messages[-1].offset() + 1)], asynchronous=False
                )
            return len(found) >= count

        wait_until(is_read, f"{count} records of {topic}", TIMEOUT_S)
        return found


def mirrored(cluster: Cluster, topic: str, mirror: MirrorMaker, count: int) -> list[int]:
    """The committed records of the mirror, when there are so many, and any more that come right after."""
    found: list[int] = []
    settings = {"isolation.level": "read_committed", "enable.partition.eof": False}
    with closing_consumer(cluster.bootstrap, **settings) as consumer:
        cluster.wait(lambda: cluster.partition(topic), f"{topic} is there", TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, 0)])

        def is_there() -> bool:
            mirror.assert_runs()
            messages = [each for each in consumer.consume(1000, 0.5) if each.error() is None]
            found.extend(int(each.value()) for each in messages)
            return len(found) >= count and not messages

        wait_until(is_there, f"{topic} has {count} records", TIMEOUT_S)
    return found


def translated(cluster: Cluster, topic: str) -> int:
    """The offset that the group has at the target."""
    with closing_consumer(cluster.bootstrap, **{"group.id": GROUP}) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return int(found.offset)


def test_topics_and_groups_are_mirrored_both_ways(clusters: dict[str, Cluster], tmp_path: Path) -> None:
    kafka, ours = clusters["kafka"], clusters["ours"]
    addresses = {
        "127.0.0.1:9092": kafka.bootstrap,
        "127.0.0.1:9192": ours.bootstrap,
        "127.0.0.1:8083": f"127.0.0.1:{free_port()}",
        ".seconds=5": ".seconds=1",
    }

    def here(text: str) -> str:
        for shown, actual in addresses.items():
            assert shown in PAGE
            text = text.replace(shown, actual)
        return text

    for cluster in clusters.values():
        cluster.create_topic(TOPIC, 1, replication_factor=1)
        produce(cluster, 0, RECORDS // 2)
        assert read_and_commit(cluster, TOPIC, READ_BEFORE) == list(range(READ_BEFORE))
    (settings,) = blocks(section(PAGE, "## Start it"), "properties")
    mirror = MirrorMaker(tmp_path, here(settings)).start()
    try:
        for source, target in (("kafka", "ours"), ("ours", "kafka")):
            found = mirrored(clusters[target], f"{source}.{TOPIC}", mirror, RECORDS // 2)
            assert found == list(range(RECORDS // 2))
        for cluster in clusters.values():
            produce(cluster, RECORDS // 2, RECORDS * 3 // 4)
        mirror.kill()
        for cluster in clusters.values():
            produce(cluster, RECORDS * 3 // 4, RECORDS)
        mirror.start()
        for source, target in (("kafka", "ours"), ("ours", "kafka")):
            topic = f"{source}.{TOPIC}"
            assert mirrored(clusters[target], topic, mirror, RECORDS) == list(range(RECORDS))
            wait_until(
                lambda target=target, topic=topic: translated(clusters[target], topic) > 0,
                f"the offset of {topic} is translated",
                TIMEOUT_S,
            )
            # The records of a mirror and the markers of its transactions share the offsets.
            left = read_and_commit(clusters[target], topic, RECORDS - READ_BEFORE)
            assert left[0] <= READ_BEFORE, "nothing is left out"
        for title in ("## Start it", "## Move a group"):
            for block in blocks(section(PAGE, title)):
                for line, _ in commands(block):
                    if line.startswith("kafkacompat "):
                        said = output_of(*here(line).split()[1:])
                        assert f"kafka.{TOPIC}" in said, said
    finally:
        mirror.kill()
