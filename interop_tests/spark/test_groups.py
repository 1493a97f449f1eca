"""The program of docs/how-to/run-the-pipeline.md: its query commits to a group and writes in transactions, and its driver is
killed between write and commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop_tests.cli.pages import CHECKOUT, blocks, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.harness.spark_jvm import quick_jvm
from kafkacompat.pipeline.groups import starting_offsets
from kafkacompat.pipeline.packages import packages

TIME_LIMIT_S = 240.0
PARTITIONS = 2
RECORDS = 30
PER_BATCH = 10
KILLED_BY_ITSELF = -9

PAGE = text_of("docs/how-to/run-the-pipeline.md")
READS, WRITES = "## Show the lag of your own Spark queries", "## Write to a topic exactly once"

BEFORE = """
import os, signal, sys
from pyspark.sql import SparkSession

ivy, connector, jvm, killed_at = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", connector)
    .config("spark.jars.ivy", ivy)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", jvm)
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
jvm_id = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

def write(rows, batch):
    sink(rows, batch)
    if str(batch) == killed_at:
        os.kill(jvm_id, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
"""
AFTER = "spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()\nspark.stop()\n"


def program(bootstrap: str) -> str:
    """The program of the page, in batches of a few records."""
    (reads,), (writes,) = (blocks(section(PAGE, heading), "python") for heading in (READS, WRITES))
    reads = reads.replace("127.0.0.1:9092", bootstrap)
    bounded = reads.replace(".load()", f'.option("maxOffsetsPerTrigger", {PER_BATCH}).load()')
    killing = writes.replace("foreachBatch(sink)", "foreachBatch(write)")
    assert reads != bounded
    assert writes != killing
    return "\n".join([BEFORE, bounded, killing, AFTER])


def run(bootstrap: str, folder: Path, killed_at: int | None) -> None:
    """Run the program to its end."""
    words = [str(word) for word in (ivy_dir(), packages(), quick_jvm(), killed_at)]
    done = subprocess.run(
        [sys.executable, "-c", program(bootstrap), *words],
        env=spark_environment() | {"PYTHONPATH": str(CHECKOUT), "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == (0 if killed_at is None else KILLED_BY_ITSELF), done.stderr[-3000:]


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The offset and the batch that a group has, by topic and partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {
        (each.topic, each.partition): (each.offset, json.loads(each.metadata)["batch"])
        for each in asked.result().topic_partitions
    }


def visible(bootstrap: str, topic: str) -> list[str]:
    """The values that a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(TIME_LIMIT_S)
        assert message is not None
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            found.append(value.decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def test_a_driver_that_is_killed_between_write_and_commit(bootstrap: str, tmp_path: Path) -> None:
    require_program("java")
    source, target, group = "orders", "copies", "spark-orders"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, target)]).values():
        made.result()
    values = [f"v{number:02}" for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(source, value, value, partition=number % PARTITIONS)
    assert producer.flush(TIME_LIMIT_S) == 0

    # Batch 1 is written, and neither Spark nor the group has it.
    run(bootstrap, tmp_path, killed_at=1)
    assert sorted(each.name for each in (tmp_path / "checkpoint/commits").glob("[0-9]*")) == ["0"]
    assert len(visible(bootstrap, target)) == 2 * PER_BATCH
    found = committed(bootstrap, group)
    assert sum(offset for offset, _ in found.values()) == PER_BATCH
    assert {batch for _, batch in found.values()} == {0}

    run(bootstrap, tmp_path, killed_at=None)
    assert visible(bootstrap, target) == values
    found = committed(bootstrap, group)
    assert sum(offset for offset, _ in found.values()) == RECORDS
    planned = json.loads(starting_offsets({"kafka.bootstrap.servers": bootstrap}, group, [source]))
    assert planned == {source: {str(partition): offset for (_, partition), (offset, _) in found.items()}}
