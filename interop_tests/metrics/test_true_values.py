"""The series say what has happened: known traffic, refusals, throttles, timeouts, changes of in-sync sets, and what was there and
is no more. Alike for kafkacompat and for Apache Kafka under the exporter.

Two nodes: LEADS is the controller too and keeps running, FOLLOWS is paused and restarted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interop_tests.cluster.clusters import BOTH, BROKER, Cluster
from interop_tests.cluster.moving import reassign
from interop_tests.cluster.quotas import FIRST_BYTES, set_rates, throttle_ms
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.exporting import scraped_text
from interop_tests.harness.jmx_exporter import exporting
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import ErrorCode, fetch, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

LEADS, FOLLOWS = 1, 2
BATCHES, RECORDS = 5, 10
BATCH = BatchPlan([b"x" * 100] * RECORDS)
SIZE = len(BATCH.encode())
NOWHERE = 9
"""A partition that no topic here has."""
REQUEST_TIMED_OUT = 7
LIMITED, RATE = "limited", 10_000.0
TRAFFIC = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
REQUESTS = "kafka_network_requestmetrics_"
SETTINGS = ONE_REPLICA | {
    # A paused broker is missed by the leaders that it follows, and not by the controller.
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "300000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
}
TIMEOUT_S = 60.0
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts a cluster of its own"),
]


class Watched:
    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.cluster = Cluster(kind, root, 2, (BOTH, BROKER), settings=SETTINGS)
        self.ports = {node_id: free_port() for node_id in self.cluster.nodes}
        for node_id, node in self.cluster.nodes.items():
            if kind == APACHE:
                node.jvm_options = [*node.jvm_options, *exporting(self.ports[node_id])]
            else:
                node.settings["metrics.listener.port"] = str(self.ports[node_id])

    def connect(self) -> Connection:
        return Connection(self.cluster.nodes[LEADS].bootstrap, TIMEOUT_S)

    def series(self, node_id: int, topic: str = "") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Of one topic, or all."""
        text = scraped_text(f"http://127.0.0.1:{self.ports[node_id]}/metrics")
        return {
            (each.name, frozenset(each.labels.items())): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if not topic or each.labels.get("topic") == topic
        }

    def value(self, node_id: int, name: str, **labels: str) -> float:
        """0 where there is no such series: those of topics and errors come with what they count."""
        return self.series(node_id).get((name, frozenset(labels.items())), 0.0)

    def has(self, wanted: float, node_id: int, name: str, **labels: str) -> None:
        """Wait for the value."""
        wait_until(
            lambda: self.value(node_id, name, **labels) == wanted,
            f"{name} {labels} of node {node_id} is {wanted}",
            TIMEOUT_S,
        )

    def make(self, topic: str) -> str:
        return self.cluster.create_topic(topic, assignment=[[LEADS, FOLLOWS]])

    def delete(self, topic: str) -> None:
        body = {"Topics": [{"Name": topic, "TopicId": None}], "TimeoutMs": 15000}
        with self.connect() as connection:
            body["Topics"] = [{"Name": None, "TopicId": topic_id(connection, topic)}]
            (answer,) = connection.call("DeleteTopics", 6, body)["Responses"]
        assert answer["ErrorCode"] == 0, answer


@pytest.fixture(scope="module", params=[KAFKACOMPAT, *([APACHE] if SOAK else [])])
def watched(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    try:
        made = Watched(request.param, tmp_path_factory.mktemp("true"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    try:
        made.cluster.start()
        yield made
    finally:
        made.cluster.close()


def test_traffic(watched: Watched) -> None:
    topic = watched.make("counted")
    names = ("replicationbytesout", "messagesin", "bytesin", "bytesout")
    before = {name: watched.value(LEADS, f"{TRAFFIC}{name}_total") for name in names}
    copied = watched.value(FOLLOWS, f"{TRAFFIC}replicationbytesin_total")
    with watched.connect() as connection:
        for _ in range(BATCHES):
            assert produce(connection, topic, BATCH)["ErrorCode"] == 0
        read = len(fetch(connection, topic, 0)["Records"])
    expected = {
        "messagesin": BATCHES * RECORDS,
        "bytesin": BATCHES * SIZE,
        "bytesout": BATCHES * SIZE,
        "totalproducerequests": BATCHES,
    }
    assert read == BATCHES * SIZE
    for name, value in expected.items():
        watched.has(value, LEADS, f"{TRAFFIC}{name}_total", topic=topic)
        if name in before:
            assert watched.value(LEADS, f"{TRAFFIC}{name}_total") == before[name] + value, name
    out = watched.value(LEADS, f"{TRAFFIC}replicationbytesout_total") - before["replicationbytesout"]
    assert out == BATCHES * SIZE
    watched.has(copied + out, FOLLOWS, f"{TRAFFIC}replicationbytesin_total")
    for node_id in (LEADS, FOLLOWS):
        watched.has(BATCHES * RECORDS, node_id, "kafka_log_log_logendoffset", topic=topic, partition="0")
        watched.has(BATCHES * SIZE, node_id, "kafka_log_log_size", topic=topic, partition="0")
    assert (f"{TRAFFIC}messagesin_total", frozenset({("topic", topic)})) not in watched.series(FOLLOWS)


def test_refusals(watched: Watched) -> None:
    topic = watched.make("refused")
    broken = bytearray(BATCH.encode())
    broken[-1] ^= 1

    def counts() -> dict[str, float]:
        errors = {
            name: watched.value(LEADS, f"{REQUESTS}errors_total", request="Produce", error=name)
            for name in ("UNKNOWN_TOPIC_OR_PARTITION", "CORRUPT_MESSAGE")
        }
        crcs = watched.value(LEADS, f"{TRAFFIC}invalidmessagecrcrecords_total")
        return errors | {"crc": crcs}

    before = counts()
    with watched.connect() as connection:
        for _ in range(3):
            code = produce(connection, topic, BATCH, NOWHERE)["ErrorCode"]
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for _ in range(2):
            assert produce(connection, topic, bytes(broken))["ErrorCode"] == ErrorCode.CORRUPT_MESSAGE
    wanted = {"UNKNOWN_TOPIC_OR_PARTITION": 3, "CORRUPT_MESSAGE": 2, "crc": 2}
    wait_until(
        lambda: {name: value - before[name] for name, value in counts().items()} == wanted,
        "the refusals are counted",
        TIMEOUT_S,
    )
    # In Kafka neither of them is a failure.
    assert watched.value(LEADS, f"{TRAFFIC}failedproducerequests_total", topic=topic) == 0
    assert watched.value(LEADS, f"{TRAFFIC}messagesin_total", topic=topic) == 0


FAR_TOO_LARGE = 2_000_000
LONG_AGO_MS = 1_000_000_000_000
REFUSALS: tuple[
    tuple[str, dict[str, str], BatchPlan | bytes, dict[str, int], ErrorCode, tuple[int, int]], ...
] = (
    ("no-key", {"cleanup.policy": "compact"}, BATCH, {}, ErrorCode.INVALID_RECORD, (1, 1)),
    (
        "old",
        {"message.timestamp.before.max.ms": "1000"},
        BatchPlan(base_timestamp_ms=LONG_AGO_MS),
        {},
        ErrorCode.INVALID_TIMESTAMP,
        (1, 1),
    ),
    ("large", {}, BatchPlan([bytes(FAR_TOO_LARGE)]), {}, ErrorCode.MESSAGE_TOO_LARGE, (1, 0)),
    ("two", {}, BATCH.encode() * 2, {}, ErrorCode.INVALID_RECORD, (0, 0)),
    ("zstd", {}, BatchPlan(codec="zstd"), {"version": 6}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, (0, 0)),
    ("acks", {}, BATCH, {"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS, (0, 0)),
)
"""Topic, its settings, a batch, options of `produce`, the error, and how many attempts and failures it counts as."""


def test_which_refusals_are_failures(watched: Watched) -> None:
    for name, configs, batch, options, code, counted in REFUSALS:
        topic = watched.cluster.create_topic(name, assignment=[[LEADS, FOLLOWS]], configs=configs)
        with watched.connect() as connection:
            assert produce(connection, topic, batch, **options)["ErrorCode"] == code
        for each, value in zip(("total", "failed"), counted, strict=True):
            assert watched.value(LEADS, f"{TRAFFIC}{each}producerequests_total", topic=topic) == value, name


def test_throttles(watched: Watched) -> None:
    topic = watched.make("throttled")
    node = watched.cluster.nodes[LEADS]
    set_rates(node, {LIMITED: RATE})
    wait_until(lambda: throttle_ms(node, LIMITED, topic, 0, FIRST_BYTES)[0], "the quota holds", TIMEOUT_S)
    (told,) = throttle_ms(node, LIMITED, topic, 0, FIRST_BYTES)
    labels = {"request": "Produce", "quantile": "0.999"}
    wait_until(
        lambda: watched.value(LEADS, f"{REQUESTS}throttletimems", **labels) >= told,
        "the throttle time is shown",
        TIMEOUT_S,
    )
    set_rates(node, {LIMITED: None})
    with watched.connect() as connection:
        assert produce(connection, topic, BATCH)["ErrorCode"] == 0
    if (
        watched.kind == KAFKACOMPAT
    ):  # under its rule file the exporter gives those of Apache Kafka other names
        shown = [name for name, of in watched.series(LEADS) if ("clientId", LIMITED) in of]
        assert "kafka_server_quota_throttle_time" in shown, "a quota is shown for an hour after its last use"


def test_a_follower_that_stops_and_comes_back(watched: Watched) -> None:
    least = {"min.insync.replicas": "2"}
    topic = watched.cluster.create_topic("missed", assignment=[[LEADS, FOLLOWS]], configs=least)
    expires = "kafka_server_delayedproducemetrics_expires_total"
    # A change of which the metadata tells before the controller's answer does not count in Apache Kafka. Here it does.
    of_isr = (f"{REPLICAS}isrshrinks_total", f"{REPLICAS}isrexpands_total")
    counted = (expires, *(of_isr if watched.kind == KAFKACOMPAT else ()))
    before = [watched.value(LEADS, name) for name in counted]
    follows = watched.cluster.nodes[FOLLOWS]
    of_topic = {"topic": topic, "partition": "0"}
    watched.has(2, LEADS, "kafka_cluster_partition_insyncreplicascount", **of_topic)
    follows.pause()
    try:
        with watched.connect() as connection:
            assert produce(connection, topic, BATCH, timeout_ms=300)["ErrorCode"] == REQUEST_TIMED_OUT
        watched.has(1, LEADS, "kafka_cluster_partition_insyncreplicascount", **of_topic)
        assert watched.value(LEADS, "kafka_cluster_partition_underreplicated", **of_topic) == 1
        assert watched.value(LEADS, f"{REPLICAS}underreplicatedpartitions") == 1
        for name, value, more in zip(counted, before, (1, 1, 0), strict=False):
            watched.has(value + more, LEADS, name)
        error = {"request": "Produce", "error": "REQUEST_TIMED_OUT"}
        assert watched.value(LEADS, f"{REQUESTS}errors_total", **error) == before[0] + 1
        with watched.connect() as connection:
            answer = produce(connection, topic, BATCH)
        assert (answer["ErrorCode"], answer["LogStartOffset"]) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
        assert watched.value(LEADS, f"{TRAFFIC}totalproducerequests_total", topic=topic) == 2
        assert watched.value(LEADS, f"{TRAFFIC}failedproducerequests_total", topic=topic) == 1
    finally:
        follows.resume()
    watched.has(2, LEADS, "kafka_cluster_partition_insyncreplicascount", **of_topic)
    watched.has(0, LEADS, f"{REPLICAS}underreplicatedpartitions")
    for name, value in zip(counted, before, strict=True):
        watched.has(value + 1, LEADS, name)
    lag = {"clientId": f"ReplicaFetcherThread-0-{LEADS}", **of_topic}
    watched.has(0, FOLLOWS, "kafka_server_fetcherlagmetrics_consumerlag", **lag)


def test_a_replica_that_moves_away(watched: Watched) -> None:
    topic = watched.make("moved")
    with watched.connect() as connection:
        assert produce(connection, topic, BATCH)["ErrorCode"] == 0
    count = watched.value(FOLLOWS, f"{REPLICAS}partitioncount")
    assert watched.series(FOLLOWS, topic)
    reassign(watched.cluster, topic, [LEADS])
    wait_until(lambda: not watched.series(FOLLOWS, topic), "the replica has no series", TIMEOUT_S)
    assert watched.value(FOLLOWS, f"{REPLICAS}partitioncount") == count - 1
    watched.has(1, LEADS, "kafka_cluster_partition_replicascount", topic=topic, partition="0")
    assert watched.value(LEADS, f"{REPLICAS}reassigningpartitions") == 0
    assert watched.value(LEADS, f"{TRAFFIC}messagesin_total", topic=topic) == RECORDS


def test_a_topic_that_is_deleted_and_made_again(watched: Watched) -> None:
    topic = watched.make("twice")
    with watched.connect() as connection:
        for _ in range(BATCHES):
            assert produce(connection, topic, BATCH)["ErrorCode"] == 0
    watched.has(BATCHES * RECORDS, LEADS, f"{TRAFFIC}messagesin_total", topic=topic)
    total = watched.value(LEADS, f"{TRAFFIC}messagesin_total")
    watched.delete(topic)
    for node_id in (LEADS, FOLLOWS):
        wait_until(lambda node_id=node_id: not watched.series(node_id, topic), "no series is left", TIMEOUT_S)
    assert watched.value(LEADS, f"{TRAFFIC}messagesin_total") == total
    watched.make(topic)
    with watched.connect() as connection:
        assert produce(connection, topic, BATCH)["ErrorCode"] == 0
    watched.has(RECORDS, LEADS, f"{TRAFFIC}messagesin_total", topic=topic)
    watched.has(RECORDS, LEADS, "kafka_log_log_logendoffset", topic=topic, partition="0")
    assert watched.value(LEADS, f"{TRAFFIC}messagesin_total") == total + RECORDS


def test_a_group_that_is_deleted(watched: Watched) -> None:
    topic, group = watched.make("committed"), "g"
    offsets = "kafka_coordinator_group_groupmetadatamanager_numoffsets"
    groups = "kafka_coordinator_group_groupmetadatamanager_numgroups"

    def coordinates() -> int:
        return next((each for each in (LEADS, FOLLOWS) if watched.series(each, "__consumer_offsets")), LEADS)

    partition = {"PartitionIndex": 0, "CommittedOffset": 3}
    body = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    asked = {"KeyType": 0, "CoordinatorKeys": [group]}

    def coordinator() -> str:
        with watched.connect() as connection:
            (found,) = connection.call("FindCoordinator", 4, asked)["Coordinators"]
        return f"{found['Host']}:{found['Port']}" if found["ErrorCode"] == 0 else ""

    address = wait_until(coordinator, "the group has a coordinator", TIMEOUT_S)

    def is_committed() -> bool:
        with Connection(address, TIMEOUT_S) as connection:
            answer = connection.call("OffsetCommit", 8, body)
        return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0)

    wait_until(is_committed, "an offset is committed", TIMEOUT_S)
    home = coordinates()
    watched.has(1, home, offsets)
    watched.has(1, home, groups)
    with Connection(address, TIMEOUT_S) as connection:
        (answer,) = connection.call("DeleteGroups", 2, {"GroupsNames": [group]})["Results"]
    assert answer["ErrorCode"] == 0
    watched.has(0, home, offsets)
    watched.has(0, home, groups)


def test_a_node_that_is_restarted(watched: Watched) -> None:
    if watched.kind == APACHE:
        pytest.skip("about what a process of kafkacompat shows after a start")
    topic = watched.make("kept")
    with watched.connect() as connection:
        assert produce(connection, topic, BATCH)["ErrorCode"] == 0
    follows = watched.cluster.nodes[FOLLOWS]
    gauges = (f"{REPLICAS}partitioncount", f"{REPLICAS}leadercount", f"{REPLICAS}offlinereplicacount")
    watched.has(RECORDS, FOLLOWS, "kafka_log_log_logendoffset", topic=topic, partition="0")
    before = [watched.value(FOLLOWS, name) for name in gauges]
    replicas = "kafka_cluster_partition_replicascount"
    both = sum(name == replicas and value == 2 for (name, _), value in watched.series(LEADS).items())
    assert follows.stop() == 0
    watched.has(both, LEADS, f"{REPLICAS}underreplicatedpartitions")
    follows.start()
    watched.cluster.wait_until_whole()
    watched.has(0, LEADS, f"{REPLICAS}underreplicatedpartitions")
    assert [watched.value(FOLLOWS, name) for name in gauges] == before
    watched.has(RECORDS, FOLLOWS, "kafka_log_log_logendoffset", topic=topic, partition="0")
    assert watched.value(FOLLOWS, f"{TRAFFIC}replicationbytesin_total") == 0
