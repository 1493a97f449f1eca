"""JBOD: a broker with several log directories. Replicas move between them, new replicas avoid cordoned ones, and one
fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import MakeCluster, Measure
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.wire import Connection

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
ALONE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    **SMALL_INDEXES,
}
LOG_DIR_NOT_FOUND, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_PARTITION = 57, 39, 3
STORAGE_ERROR = 56
FILLING_RECORDS, FILLING_BYTES = 20_000, 1_000
SLOW_BYTES_PER_S = 300_000
QUICK_BYTES_PER_S = 50_000_000
JOINED = 4


class Directories:
    """A broker's description of its log directories."""

    def __init__(self, bootstrap: str) -> None:
        with Connection(bootstrap) as connection:
            reply = connection.call("DescribeLogDirs", 5, {"Topics": None})
        self.errors = {Path(each["LogDir"]): each["ErrorCode"] for each in reply["Results"]}
        self.cordoned = {Path(each["LogDir"]) for each in reply["Results"] if each["IsCordoned"]}
        self.current: dict[tuple[str, int], Path] = {}
        self.future: dict[tuple[str, int], Path] = {}
        for directory in reply["Results"]:
            for topic in directory["Topics"]:
                for partition in topic["Partitions"]:
                    found = self.future if partition["IsFutureKey"] else self.current
                    found[topic["Name"], partition["PartitionIndex"]] = Path(directory["LogDir"])


def alter(bootstrap: str, path: Path | str, topic: str, partition: int) -> int:
    """AlterReplicaLogDirs for one replica. Returns its error code."""
    wanted = {"Path": str(path), "Topics": [{"Name": topic, "Partitions": [partition]}]}
    with Connection(bootstrap) as connection:
        reply = connection.call("AlterReplicaLogDirs", 2, {"Dirs": [wanted]})
    code: int = reply["Results"][0]["Partitions"][0]["ErrorCode"]
    return code


def set_of_broker(bootstrap: str, name: str, value: str) -> None:
    """Change a setting of node 1 while it runs."""
    wanted: dict[str, Any] = {
        "ResourceType": 4,
        "ResourceName": "1",
        "Configs": [{"Name": name, "ConfigOperation": 0, "Value": value}],
    }
    with Connection(bootstrap) as connection:
        reply = connection.call("IncrementalAlterConfigs", 1, {"Resources": [wanted], "ValidateOnly": False})
    assert reply["Responses"][0]["ErrorCode"] == 0, reply


def one_node(make_cluster: MakeCluster, folder: Path) -> tuple[Cluster, list[Path]]:
    paths = [folder / name for name in ("first", "second", "third")]
    log_dirs = ",".join(str(path) for path in paths)
    return make_cluster(nodes=1, settings={**ALONE, "log.dirs": log_dirs}), paths


def fill(bootstrap: str, topic: str) -> None:
    """A lot of data to copy, numbered like the records of the workloads."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(1, FILLING_RECORDS + 1):
        producer.produce(topic, b"." * FILLING_BYTES + b":0:%d" % number, partition=0)
        producer.poll(0)
        if number % 2000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def test_a_partition_moves_between_three_directories_under_load(
    make_cluster: MakeCluster,
    tools: KafkaTools,
    at_work: AtWork,
    unique: Unique,
    tmp_path: Path,
    measure: Measure,
) -> None:
    """A move with Kafka's tool and a throttle, while clients produce and consume. The node is killed meanwhile, and
    continues the move by itself."""
    cluster, _ = one_node(make_cluster, tmp_path)
    topic = cluster.create_topic(unique("disks"), assignment=[[1]] * 3)
    cluster.wait(lambda: len(Directories(cluster.bootstrap).current) >= 3, "3 replicas")
    places = Directories(cluster.bootstrap).current
    assert len({places[topic, number] for number in range(3)}) == 3, "new partitions spread"
    fill(cluster.bootstrap, topic)
    works, follower = at_work(cluster, topic, 3)
    origin, target, last = (places[topic, number] for number in range(3))
    plan = tmp_path / "plan.json"

    def reassign(*options: str) -> str:
        arguments = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan)]
        return tools.run("reassign.ReassignPartitionsCommand", *arguments, *options, status=None).out

    def move(path: Path, *options: str) -> None:
        entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(path)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        told = f"Successfully started moving log directory to {path} for replica {topic}-0 with broker 1"
        # After the previous move the replica may be in its new place, but not durable yet.
        cluster.wait(lambda: told in reassign("--execute", *options), "the move begins")

    def wait_until_there(path: Path) -> None:
        def is_there() -> bool:
            found = Directories(cluster.bootstrap)
            return found.current[topic, 0] == path and (topic, 0) not in found.future

        cluster.wait(is_there, f"the replica lies in {path}", 60)

    # At this rate the move takes a minute, so all of the following checks see it in progress.
    move(target, "--replica-alter-log-dirs-throttle", str(SLOW_BYTES_PER_S))
    found = Directories(cluster.bootstrap)
    assert (found.current[topic, 0], found.future[topic, 0]) == (origin, target)
    assert f"Reassignment of replica {topic}-0-1 is still in progress." in reassign("--verify")
    described = tools.run("LogDirsCommand", "--bootstrap-server", cluster.bootstrap, "--describe").out
    (told,) = json.loads(described.splitlines()[-1])["brokers"]
    futures = [
        (each["logDir"], one["partition"], one["isFuture"])
        for each in told["logDirs"]
        for one in each["partitions"]
        if one["partition"] == f"{topic}-0"
    ]
    assert sorted(futures) == sorted([(str(origin), f"{topic}-0", False), (str(target), f"{topic}-0", True)])
    assert [each.name.endswith("-future") for each in target.iterdir() if f"{topic}-0." in each.name] == [
        True
    ]
    node = cluster.nodes[1]
    node.kill()
    node.start()
    for work in works:
        work.wait_for_progress()
    set_of_broker(cluster.bootstrap, "replica.alter.log.dirs.io.max.bytes.per.second", str(QUICK_BYTES_PER_S))
    wait_until_there(target)
    assert f"Reassignment of replica {topic}-0-1 completed successfully." in reassign("--verify")
    for work in works:
        work.progress.reset()
    move(last)
    wait_until_there(last)
    # Move it to another directory when that move has hardly begun.
    move(origin)
    for path in (target, origin):
        cluster.wait(lambda path=path: alter(cluster.bootstrap, path, topic, 0) == 0, "the move begins")
    wait_until_there(origin)
    for work in works:
        work.wait_for_progress()
        measure(f"moves between directories, {work.name}", work.stop())
        follower.wait_for(work)
    node.stop()
    node.start()
    assert_exact(cluster.bootstrap, topic, *works)
    assert Directories(cluster.bootstrap).current[topic, 0] == origin


def cordon(bootstrap: str, value: str) -> None:
    """Kafka 4.3.0 uses the value in its file only from the next such change."""
    set_of_broker(bootstrap, "cordoned.log.dirs", value)


def test_refusals_and_cordoned_directories(make_cluster: MakeCluster, unique: Unique, tmp_path: Path) -> None:
    """KIP-1066: a cordoned directory gets no new replica, by creation or by a move, until it is no longer cordoned."""
    cluster, paths = one_node(make_cluster, tmp_path)
    bootstrap = cluster.bootstrap
    cordon(bootstrap, str(paths[2]))
    cluster.wait(lambda: Directories(bootstrap).cordoned == {paths[2]}, "the broker says what is cordoned")
    topic = cluster.create_topic(unique("cordoned"), assignment=[[1]] * 4)
    cluster.wait(lambda: len(Directories(bootstrap).current) >= 4, "4 replicas")
    places = [Directories(bootstrap).current[topic, number] for number in range(4)]
    assert sorted(places) == sorted(paths[:2] * 2)
    assert alter(bootstrap, paths[2], topic, 0) == INVALID_REPLICA_ASSIGNMENT
    assert alter(bootstrap, tmp_path / "nowhere", topic, 0) == LOG_DIR_NOT_FOUND
    assert alter(bootstrap, paths[0], unique("nothing"), 0) == UNKNOWN_PARTITION
    assert alter(bootstrap, places[0], topic, 0) == 0
    cordon(bootstrap, "")
    cluster.wait(lambda: not Directories(bootstrap).cordoned, "nothing is cordoned any more")
    assert alter(bootstrap, paths[2], topic, 0) == 0
    cluster.wait(
        lambda: Directories(bootstrap).current.get((topic, 0)) == paths[2], "the replica lies in the third"
    )


def test_a_directory_fails_while_clients_work(
    cluster: Cluster, kind: str, at_work: AtWork, unique: Unique, tmp_path: Path, measure: Measure
) -> None:
    """A file replaces the second directory. The broker stays and leads the partitions in the first one. Other brokers
    lead the partitions of the second one. They are replicated here again when the directory is back and the broker was
    restarted."""
    whole, failing = tmp_path / "whole", tmp_path / "failing"
    settings = {**SMALL_INDEXES, "log.dirs": f"{whole},{failing}"}
    node = cluster.add_node(kind, JOINED, settings=settings)
    try:
        topic = cluster.create_topic(unique("fails"), assignment=[[JOINED, 1, 2]] * 4)
        cluster.wait(lambda: len(Directories(node.bootstrap).current) >= 4, "4 replicas")
        places = Directories(node.bootstrap).current
        there = {number for number in range(4) if places[topic, number] == failing}
        assert len(there) == 2
        works, follower = at_work(cluster, topic, 4)
        failing.rename(tmp_path / "aside")
        failing.write_text("a file")
        cluster.wait(
            lambda: all(cluster.leader(topic, number) != JOINED for number in there), "others lead", 60
        )
        for work in works:
            work.wait_for_progress(60, records=100)
            measure(f"a directory failed, {work.name}", work.progress.longest_gap_s())
        assert node.is_running
        found = Directories(node.bootstrap)
        assert found.errors == {whole: 0, failing: STORAGE_ERROR}
        assert {cluster.leader(topic, number) for number in set(range(4)) - there} == {JOINED}
        for number in there:
            partition = cluster.partition(topic, number)
            assert partition is not None
            assert JOINED not in partition.isr
            assert alter(node.bootstrap, whole, topic, number) == STORAGE_ERROR
        # After a restart without the directory the broker continues as before.
        node.stop()
        node.start()
        cluster.wait_for_brokers(JOINED)
        for work in works:
            work.wait_for_progress(60)
        assert Directories(node.bootstrap).errors == {whole: 0, failing: STORAGE_ERROR}
        node.stop()
        failing.unlink()
        (tmp_path / "aside").rename(failing)
        node.start()
        cluster.wait_until_whole()
        for work in works:
            work.wait_for_progress()
            work.stop()
            follower.wait_for(work)
        assert_exact(cluster.bootstrap, topic, *works)
        assert {
            number: path
            for (name, number), path in Directories(node.bootstrap).current.items()
            if name == topic
        } == {number: places[topic, number] for number in range(4)}
    finally:
        cluster.forget(node)
