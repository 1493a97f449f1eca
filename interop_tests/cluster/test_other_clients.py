"""The Java client and Spark at work while leaders are killed and nodes restarted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.workload import ConfluentWork, parse, read_back
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until
from interop_tests.spark.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unique = Callable[[str], str]
START_TIMEOUT_S = 60.0
"""For two JVMs at once."""
__all__ = ["spark"]


def events(log: Path, name: str) -> list[dict[str, Any]]:
    """The events with this name that a verifiable client has printed so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [event for event in found if event["name"] == name]


def disturb(cluster: Cluster, topic: str) -> None:
    """Kill a leader, start it again, and restart another node."""
    first = cluster.leader(topic)
    cluster.nodes[first].kill()
    cluster.wait_until_gone(first)
    cluster.mend()
    second = next(node for node in cluster.nodes.values() if node.node_id != first)
    assert second.stop() in (0, 143)
    cluster.mend()


def test_the_java_clients(cluster: Cluster, tools: KafkaTools, unique: Unique, tmp_path: Path) -> None:
    """VerifiableProducer and VerifiableConsumer: the consumer reads every acknowledged record once and in order."""
    topic, group = cluster.create_topic(unique("java"), 3), unique("group")
    produced, consumed = tmp_path / "producer.log", tmp_path / "consumer.log"
    produce = [
        "VerifiableProducer",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        topic,
        "--acks",
        "-1",
    ]
    # It does not retry by itself, and then it is not idempotent.
    retrying = tmp_path / "producer.properties"
    retrying.write_text("retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms=60000\n")
    produce += ["--command-config", str(retrying)]
    consume = ["VerifiableConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--verbose"]
    consume += ["--group-id", group, "--reset-policy", "earliest"]
    with (
        tools.spawn(*consume, log=consumed),
        tools.spawn(*produce, "--throughput", "200", log=produced) as producer,
    ):

        def acknowledged() -> int:
            return len(events(produced, "producer_send_success"))

        wait_until(lambda: acknowledged() > 200, "the producer works", START_TIMEOUT_S)
        disturb(cluster, topic)
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 200, "the producer goes on", 60)
        producer.terminate()
        producer.wait(30)
        sent = events(produced, "producer_send_success")

        def read() -> list[tuple[int, int, str]]:
            found = events(consumed, "record_data")
            return [(each["partition"], each["offset"], each["value"]) for each in found]

        values = {each["value"] for each in sent}
        wait_until(
            lambda: values <= {value for _, _, value in read()}, "the consumer has read everything", 60
        )
    assert not events(produced, "producer_send_error")
    by_partition: dict[int, list[int]] = {}
    for partition, offset, _ in read():
        by_partition.setdefault(partition, []).append(offset)
    stored = read_back(cluster.bootstrap, topic, 3)
    counted = Counter(value.decode() for partition in stored.values() for value in partition)
    assert max(counted.values()) == 1, "the idempotent producer's records came twice"
    for each in sent:
        assert stored[each["partition"]][each["offset"]].decode() == each["value"]
    for partition, of_partition in stored.items():
        numbers = [int(value) for value in of_partition]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
        # If the coordinator dies, a consumer may read uncommitted records again, but it never skips records.
        assert set(by_partition.get(partition, ())) >= set(
            range(len([v for v in of_partition if v.decode() in values]))
        )


def test_a_spark_query(cluster: Cluster, spark: SparkSession, unique: Unique, tmp_path: Path) -> None:
    """A streaming query copies from a topic to files with its exactly-once sink, while a leader is killed."""
    topic = cluster.create_topic(unique("spark"), 3)
    sink = tmp_path / "sink"
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = source.options(subscribe=topic, startingOffsets="earliest").load()
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("json").option("path", str(sink))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    work = ConfluentWork(cluster.bootstrap, topic, 3, "for-spark")
    try:
        work.start()
        wait_until(lambda: (sink / "_spark_metadata" / "0").exists(), "the query works", 2 * START_TIMEOUT_S)
        disturb(cluster, topic)
        work.wait_for_progress()
        work.stop()

        def copied() -> list[tuple[int, int, str]]:
            found = spark.read.schema("partition int, offset long, value string").json(str(sink)).collect()
            return sorted((row["partition"], row["offset"], row["value"]) for row in found)

        count = sum(work.sent.values())
        wait_until(lambda: len(copied()) >= count, "everything is copied", 120, 0.5)
        assert query.isActive, query.exception()
    finally:
        work._ended.set()
        query.stop()
    for partition in range(3):
        mine = [(offset, value) for where, offset, value in copied() if where == partition]
        assert [offset for offset, _ in mine] == list(range(len(mine)))
        assert [parse(value.encode())[2] for _, value in mine] == list(range(1, work.sent[partition] + 1))
