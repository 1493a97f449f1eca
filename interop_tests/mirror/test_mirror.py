"""A mirror of Apache Kafka's topics, by the commands of the page: the same bytes, also over a kill, and then the fail-over.

It starts both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from interop_tests.cli.command import output_of
from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.waiting import wait_until

pytestmark = pytest.mark.needs_control

PAGE = text_of("docs/how-to/mirror-a-cluster.md")
TOPIC, PARTITIONS = "orders", 2
GROUP = "shop"
TIMEOUT_S = 60.0


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the target, a node each."""
    made = [Cluster(kind, tmp_path / kind, 1, settings=ONE_REPLICA) for kind in (APACHE, KAFKACOMPAT)]
    try:
        for cluster in made:
            cluster.start()
        yield made[0], made[1]
    finally:
        for cluster in made:
            cluster.close()


def send(producer: Producer, prefix: str, count: int) -> list[KafkaError]:
    """The refusals, when all are answered."""
    refused: list[KafkaError] = []
    for number in range(count):
        producer.produce(
            TOPIC,
            f"{prefix}{number}".encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: None if error is None else refused.append(error),
        )
    assert producer.flush(TIMEOUT_S) == 0
    return refused


def idempotent(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})


def logs_of(cluster: Cluster, partition: int) -> bytes:
    folder = Path(cluster.nodes[1].settings["log.dirs"]) / f"{TOPIC}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def read(cluster: Cluster, count: int) -> list[bytes]:
    """The committed records, when there are so many, and any more that come right after."""
    found: list[bytes] = []
    with closing_consumer(cluster.bootstrap, **{"isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

        def are_there() -> bool:
            messages = [each for each in consumer.consume(1000, 0.5) if each.error() is None]
            found.extend(each.value() for each in messages)
            return len(found) >= count and not messages

        wait_until(are_there, f"{count} records", TIMEOUT_S)
    return found


def commit(cluster: Cluster, offset: int) -> None:
    with closing_consumer(cluster.bootstrap, **{"group.id": GROUP}) as consumer:

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            except KafkaException:  # the coordinator is being made
                return False
            return True

        wait_until(is_committed, "the offset is committed", TIMEOUT_S)


def committed(cluster: Cluster) -> int:
    with closing_consumer(cluster.bootstrap, **{"group.id": GROUP}) as consumer:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        return int(found.offset)


def page_commands(title: str, here: Callable[[str], str]) -> None:
    """Run the commands of a section. Each says what the page shows."""
    for block in blocks(section(PAGE, title)):
        for line, shown in commands(block):
            said = output_of(*here(line).split()[1:])
            assert said.splitlines()[: len(shown)] == shown, said


def test_a_mirror_has_the_bytes_of_its_source_and_takes_over(clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters

    def here(text: str) -> str:
        return text.replace("127.0.0.1:9092", source.bootstrap).replace("127.0.0.1:9192", target.bootstrap)

    def is_equal() -> bool:
        return all(logs_of(source, each) == logs_of(target, each) != b"" for each in range(PARTITIONS))

    source.create_topic(TOPIC, PARTITIONS, replication_factor=1)
    assert not send(idempotent(source), "first", 400)
    commit(source, 100)
    page_commands("## Start it", here)
    wait_until(is_equal, "the mirror has what was there", TIMEOUT_S)
    transactional = Producer(
        {"bootstrap.servers": source.bootstrap, "transactional.id": "shop", "log_level": 0}
    )
    transactional.init_transactions(TIMEOUT_S)
    for prefix, ends in (("kept", True), ("given up", False)):
        transactional.begin_transaction()
        assert not send(transactional, prefix, 100)
        (transactional.commit_transaction if ends else transactional.abort_transaction)(TIMEOUT_S)
    wait_until(is_equal, "the mirror has the transactions", TIMEOUT_S)
    target.nodes[1].kill()
    assert not send(idempotent(source), "second", 400)
    target.nodes[1].start()
    target.wait_until_whole()
    wait_until(is_equal, "the mirror goes on after a kill", TIMEOUT_S)
    refused = send(idempotent(target), "refused", 2)
    assert [error.code() for error in refused] == [KafkaError.POLICY_VIOLATION] * 2
    transactional.begin_transaction()
    assert not send(transactional, "open", 10)
    wait_until(is_equal, "the mirror has the open transaction", TIMEOUT_S)

    page_commands("## Look at it", here)
    wait_until(lambda: committed(target) == 100, "the offset of the group is here", TIMEOUT_S)
    page_commands("## Take over", here)
    values = [
        f"{prefix}{number}"
        for prefix, count in (("first", 400), ("kept", 100), ("second", 400))
        for number in range(count)
    ]
    producer = idempotent(target)
    wait_until(lambda: not send(producer, "own", 1), "the topic takes records", TIMEOUT_S)
    found = read(target, len(values) + 1)
    assert sorted(found) == sorted(each.encode() for each in [*values, "own0"])
