"""Three nodes of one kind under load and with failures. Each scenario runs one cluster once and returns named figures.

It uses processes and clients, and nothing inside the brokers. Apache Kafka's nodes have heaps of 512 MB.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import run_client
from interop_tests.cluster.clusters import Cluster

Figures = dict[str, float]
NODES = 3
JVM_OPTIONS = ("-Xms512m", "-Xmx512m")
LIMIT_S = 120.0
SETTLE_S = 3.0
"""Seconds to wait after the start: elections and first fetches are complete, and memory of the start is released."""


@contextmanager
def running_cluster(kind: str) -> Iterator[Cluster]:
    """Three new combined nodes with replication factor 3 and min.insync.replicas 2."""
    root = Path(tempfile.mkdtemp(prefix=f"bench-cluster-{kind}-"))
    cluster = Cluster(kind, root, NODES)
    for node in cluster.nodes.values():
        node.jvm_options = JVM_OPTIONS
    try:
        cluster.start()
        time.sleep(SETTLE_S)
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(root, ignore_errors=True)


def memory_mb(cluster: Cluster) -> float:
    """The resident sets of all nodes together, in MB."""
    return sum(psutil.Process(node.pid).memory_info().rss for node in cluster.nodes.values()) / 1e6


def cpu_seconds(cluster: Cluster) -> float:
    times = [psutil.Process(node.pid).cpu_times() for node in cluster.nodes.values() if node.is_running]
    return float(sum(each.user + each.system for each in times))


def client(cluster: Cluster, *, expected_bytes: int = 0, **job: Any) -> Figures:
    """The same as measure.client, for all nodes together."""
    target = SimpleNamespace(kind="cluster", bootstrap=cluster.bootstrap, root=cluster.root)
    before = cpu_seconds(cluster)
    figures = run_client(target, expected_bytes=NODES * expected_bytes, **job)
    figures["broker_cpu_s"] = cpu_seconds(cluster) - before
    return figures


def replicated_produce(size: int, count: int, partitions: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running_cluster(kind) as cluster:
            idle = memory_mb(cluster)
            job = {"work": "produce", "size": size, "acks": "all", "compression": "none"}
            cluster.create_topic("warm", partitions)
            client(cluster, topic="warm", count=count // 4, **job)
            cluster.create_topic("bench", partitions)
            made = client(cluster, topic="bench", count=count, expected_bytes=size * count, **job)
            return {
                "produce MB/s": made["mb_per_s"],
                "produce brokers' CPU s/GB": made["broker_cpu_s"] / (size * count / 1e9),
                "idle memory of 3 nodes MB": idle,
                "loaded memory of 3 nodes MB": memory_mb(cluster),
            }

    return run


def failover(kind: str) -> Figures:
    """kill -9 of a leader that is not the active controller, then of one that is. Figures: seconds until produces are
    acknowledged."""
    with running_cluster(kind) as cluster:
        active = cluster.active_controller()
        other = next(node_id for node_id in cluster.nodes if node_id != active)
        seconds = {}
        for title, victim in (("other", other), ("active", None)):
            node_id = victim or cluster.active_controller()
            followers = [each for each in cluster.nodes if each != node_id]
            topic = cluster.create_topic(f"led-by-{title}", assignment=[[node_id, *followers]])
            seconds[title] = _until_produced(cluster, topic, node_id)
            cluster.mend()
        return {
            "kill -9 of a leader to produced s": seconds["other"],
            "kill -9 of leader and active controller to produced s": seconds["active"],
            "kill -9 of the active controller to a topic made s": _until_topic_made(cluster),
        }


def _until_produced(cluster: Cluster, topic: str, node_id: int) -> float:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, b"before")
    if producer.flush(30):
        raise TimeoutError("nothing could be produced before the kill")
    cluster.nodes[node_id].kill()
    started = time.perf_counter()
    producer.produce(topic, b"after")
    if producer.flush(LIMIT_S):
        raise TimeoutError(f"nothing was produced within {LIMIT_S} s of the kill")
    return time.perf_counter() - started


def _until_topic_made(cluster: Cluster) -> float:
    node_id = cluster.active_controller()
    survivors = [node.bootstrap for node in cluster.brokers if node.node_id != node_id]
    admin = AdminClient({"bootstrap.servers": ",".join(survivors), "socket.timeout.ms": 2000})
    admin.list_topics(timeout=10)
    cluster.nodes[node_id].kill()
    started = time.perf_counter()
    while time.perf_counter() - started < LIMIT_S:
        made = admin.create_topics([NewTopic("after", 1, 2)], request_timeout=2.0)
        try:
            made["after"].result(5)
            return time.perf_counter() - started
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                return time.perf_counter() - started
            time.sleep(0.02)
    raise TimeoutError(f"no topic was made within {LIMIT_S} s of the kill")


def many_replicated(partitions: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running_cluster(kind) as cluster:
            started = time.perf_counter()
            cluster.create_topic("many", partitions)
            cluster.wait_until_replicated(LIMIT_S)
            return {"create, led and replicated s": time.perf_counter() - started}

    return run


def catch_up(size: int, count: int) -> Callable[[str], Figures]:
    """A follower that was down while data was written. Figure: the rate at which it gets in sync again, including its
    start."""

    def run(kind: str) -> Figures:
        with running_cluster(kind) as cluster:
            cluster.create_topic("bench", 3)
            cluster.nodes[3].stop()
            job = {"work": "produce", "size": size, "acks": "all", "compression": "none"}
            client(cluster, topic="bench", count=count, expected_bytes=size * count, **job)
            started = time.perf_counter()
            cluster.nodes[3].start()
            cluster.wait_until_replicated(LIMIT_S)
            took = time.perf_counter() - started
            return {"catch-up MB/s, with the start": size * count / took / 1e6, "back in sync s": took}

    return run
