"""Tiered storage: Kafka's clients write and read a topic whose older segments are in a remote storage only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import MakeCluster
from interop_tests.cluster.test_replicas import ELECT, is_led_by, isr_is
from interop_tests.harness.java_tools import KafkaTools

RECORDS, SIZE = 6000, 1000
SEGMENT = 1 << 20


def tiering_settings(store: Path) -> dict[str, str]:
    """Look often: Kafka's defaults are 30 s and 5 minutes."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(store),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
        "auto.leader.rebalance.enable": "false",
    }


def copied(store: Path) -> list[Path]:
    return sorted(store.rglob("*.log"))


def first_local_offset(cluster: Cluster, node_id: int, topic: str) -> int:
    folder = cluster.nodes[node_id].log_dirs[0] / f"{topic}-0"
    return min((int(path.stem) for path in folder.glob("*.log")), default=-1)


def read_all(tools: KafkaTools, cluster: Cluster, topic: str) -> None:
    """With Kafka's consumer, from the beginning."""
    read = tools.run(
        "consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--partition", "0",
        "--offset", "earliest", "--max-messages", str(RECORDS), "--timeout-ms", "30000",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false",
    )  # fmt: skip
    lines = read.out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("Offset:")] == [
        f"Offset:{offset}" for offset in range(RECORDS)
    ]


def test_a_topic_from_its_first_copy_to_its_deletion(
    make_cluster: MakeCluster, tools: KafkaTools, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Also: a replica that has lost its files begins after the remote segments, and leads then."""
    store, topic = tmp_path / "store", unique("tiered")
    cluster = make_cluster(settings=tiering_settings(store))
    where = ("--bootstrap-server", cluster.bootstrap)
    tools.run(
        "TopicCommand", *where, "--create", "--topic", topic, "--replica-assignment", "1:2:3",
        "--config", "remote.storage.enable=true", "--config", f"segment.bytes={SEGMENT}",
        "--config", "local.retention.bytes=1", "--config", "file.delete.delay.ms=0",
    )  # fmt: skip
    tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS), "--record-size", str(SIZE),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all",
    )  # fmt: skip
    last = RECORDS * SIZE // (SEGMENT + SEGMENT // 10)
    cluster.wait(lambda: len(copied(store)) >= last, "closed segments are in the remote storage")
    cluster.wait(
        lambda: all(first_local_offset(cluster, node_id, topic) > 0 for node_id in cluster.nodes),
        "every node has deleted its copies",
    )
    read_all(tools, cluster, topic)
    ends = {
        name: tools.run("GetOffsetShell", *where, "--topic", topic, "--time", name).lines[0].split(":")[2]
        for name in ("earliest", "earliest-local", "latest", "latest-tiered")
    }
    assert (ends["earliest"], ends["latest"]) == ("0", str(RECORDS))
    assert int(ends["earliest-local"]) > 0
    assert int(ends["latest-tiered"]) >= int(ends["earliest-local"]) - 1

    lost = cluster.nodes[1]
    lost.kill()
    shutil.rmtree(lost.log_dirs[0] / f"{topic}-0")
    lost.start()
    isr_is(cluster, topic, 1, 2, 3)
    assert first_local_offset(cluster, 1, topic) > 0
    plan = tmp_path / "elect.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    if cluster.leader(topic) != 1:
        tools.run(ELECT, *where, "--election-type", "preferred", "--path-to-json-file", str(plan))
    is_led_by(cluster, topic, 1)
    read_all(tools, cluster, topic)

    tools.run("TopicCommand", *where, "--delete", "--topic", topic)
    cluster.wait(lambda: not copied(store), "the copies of the deleted topic are deleted")
