"""Alerts fire in the faults that they are for, beside those of dead nodes and directories (test_prometheus)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess, chosen_bootstrap
from interop_tests.harness.ports import free_port
from interop_tests.harness.prometheus import Prometheus
from interop_tests.harness.raw_kafka import create_topic, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.security.sasl_talks import USER, settings_of
from interop_tests.share_groups.hand import BROKEN, REJECT, Hand, Leader, initialize, read_from_start

JOBS, LETTERS, KEYED, WATCHED = "jobs", "dlq.jobs", "keyed", "watched"
GROUP = "workers"
TOPIC_RESOURCE = 2
SEGMENT_BYTES = 1 << 20
HOG = "while True: pass"
STARVED_S = 2.0
PARTITIONS = 12
"""More than the shrinks of in-sync sets that the alert allows."""
TIMEOUT_S = 120.0

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts nodes of its own"),
]


class Faulty:
    """One node, and its Prometheus."""

    def __init__(self, root: Path) -> None:
        self.safe = free_port()
        port = free_port()
        settings = {
            "metrics.listener.port": str(port),
            "offsets.topic.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.assignment.interval.ms": "0",
            "log.cleaner.backoff.ms": "500",
        }
        root.mkdir()
        self.broker = BrokerProcess(KAFKACOMPAT, root / "node", settings)
        self.broker.settings |= settings_of(self.broker, self.safe)
        self.prometheus = Prometheus(root / "prometheus", [port])

    def fires(self, *alerts: str) -> None:
        wait_until(lambda: set(alerts) <= self.prometheus.firing(), f"{alerts} fire", TIMEOUT_S)

    def alter(self, kind: int, name: str, **settings: str) -> None:
        configs = [
            {"Name": key.replace("_", "."), "ConfigOperation": 0, "Value": value}
            for key, value in settings.items()
        ]
        resource_ = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
        with Connection(self.broker.bootstrap) as connection:
            answer = connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource_]})
        assert answer["Responses"][0]["ErrorCode"] == 0, answer

    def log_of(self, partition: str) -> Path:
        """The oldest file of records."""
        return min((self.broker.data_dir / partition).glob("*.log"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    made = Faulty(tmp_path_factory.mktemp("faulty") / "root")
    try:
        made.broker.start()
        made.prometheus.start()
        yield made
    finally:
        made.prometheus.kill()
        made.broker.kill()


def break_last_byte(path: Path) -> None:
    with open(path, "r+b") as file:
        end = path.stat().st_size
        file.seek(end - 1)
        byte = file.read(1)[0]
        file.seek(end - 1)
        file.write(bytes([byte ^ 0xFF]))


def test_letters_that_cannot_be_written(faulty: Faulty) -> None:
    """The topic of dead letters is not enabled for them."""
    bootstrap = faulty.broker.bootstrap
    create_topic(bootstrap, JOBS)
    create_topic(bootstrap, LETTERS)
    with Connection(bootstrap) as connection:
        read_from_start(connection, GROUP, errors_deadletterqueue_topic_name=LETTERS)
        id_ = topic_id(connection, JOBS)
        assert produce(connection, JOBS, BatchPlan([b"job"]))["ErrorCode"] == 0
    initialize(lambda: bootstrap, [GROUP], JOBS)
    assert "KafkaDeadLettersLost" not in faulty.prometheus.firing()
    hand = Hand(lambda: Leader(bootstrap), GROUP, "hand", id_)
    wait_until(
        lambda: [hand.acknowledge(first, last, REJECT) for first, last, _ in hand.fetch()],
        "a job is rejected",
        TIMEOUT_S,
    )
    hand.hang_up()
    faulty.fires("KafkaDeadLettersLost")


def test_wrong_passwords(faulty: Faulty) -> None:
    assert "KafkaAuthenticationsFail" not in faulty.prometheus.firing()
    ended = threading.Event()

    def guess() -> None:
        while not ended.is_set():
            with suppress(*BROKEN), Connection(f"127.0.0.1:{faulty.safe}", TIMEOUT_S) as connection:
                connection.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})
                connection.call("SaslAuthenticate", 2, {"AuthBytes": f"\0{USER}\0wrong".encode()})

    guessing = threading.Thread(target=guess, daemon=True)
    guessing.start()
    try:
        faulty.fires("KafkaAuthenticationsFail")
    finally:
        ended.set()
        guessing.join(TIMEOUT_S)


def test_a_log_that_the_cleaner_cannot_read(faulty: Faulty) -> None:
    create_topic(
        faulty.broker.bootstrap,
        KEYED,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.compaction.lag.ms": "86400000",
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    with Connection(faulty.broker.bootstrap) as connection:
        for number in range(2 * SEGMENT_BYTES // 100_000 + 1):
            batch = BatchPlan([b"x" * 100_000], keys=[b"%d" % number])
            assert produce(connection, KEYED, batch)["ErrorCode"] == 0
    assert "KafkaUncleanablePartitions" not in faulty.prometheus.firing()
    break_last_byte(faulty.log_of(f"{KEYED}-0"))
    faulty.alter(TOPIC_RESOURCE, KEYED, min_compaction_lag_ms="0")
    faulty.fires("KafkaUncleanablePartitions")


def test_few_descriptors(faulty: Faulty) -> None:
    pid = faulty.broker.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    assert "KafkaFileDescriptorsShort" not in faulty.prometheus.firing()
    # Some are left, with which the node answers the scrapes.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used * 10 // 9 + 1, before[1]))
    try:
        faulty.fires("KafkaFileDescriptorsShort")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_loop_that_gets_no_processor(faulty: Faulty) -> None:
    """Its thread runs only when nobody else wants the processor, and somebody does."""
    pid = faulty.broker.pid
    processor = min(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {processor})
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    hog = subprocess.Popen(
        [sys.executable, "-c", HOG], preexec_fn=lambda: os.sched_setaffinity(0, {processor})
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            hog.wait(STARVED_S)
    finally:
        hog.kill()
        hog.wait()
    faulty.fires("KafkaLoopStalled")


def test_states_of_coordinators_that_cannot_be_read(faulty: Faulty) -> None:
    """The node starts, and serves everything but the groups of these partitions."""
    group = {"GroupId": "committed", "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None}
    partition = {
        "PartitionIndex": 0,
        "CommittedOffset": 1,
        "CommittedLeaderEpoch": -1,
        "CommittedMetadata": "",
    }
    topics = [{"Name": JOBS, "Partitions": [partition]}]
    with Connection(faulty.broker.bootstrap) as connection:

        def is_committed() -> bool:
            answer = connection.call("OffsetCommit", 8, group | {"Topics": topics})
            return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0)

        wait_until(is_committed, "an offset is committed", TIMEOUT_S)
    alerts = ("KafkaGroupCoordinatorFailed", "KafkaShareCoordinatorFailed")
    assert not faulty.prometheus.firing() & set(alerts)
    assert faulty.broker.stop() == 0
    for topic in ("__consumer_offsets", "__share_group_state"):
        break_last_byte(faulty.log_of(f"{topic}-0"))
    faulty.broker.start()
    faulty.fires(*alerts)
    with Connection(faulty.broker.bootstrap) as connection:
        assert produce(connection, JOBS, BatchPlan([b"job"]))["ErrorCode"] == 0


def test_replicas_that_fall_behind_and_nodes_without_metadata(tmp_path: Path) -> None:
    """A paused follower leaves the in-sync sets. With a second paused node there is no active controller any more."""
    settings = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "60000"}
    cluster = Cluster(KAFKACOMPAT, tmp_path / "cluster", settings=settings)
    ports = {node_id: free_port() for node_id in cluster.nodes}
    for node_id, node in cluster.nodes.items():
        node.settings["metrics.listener.port"] = str(ports[node_id])
    leads, follows, other = cluster.nodes
    prometheus = Prometheus(tmp_path / "prometheus", [ports[leads]])
    try:
        cluster.start()
        cluster.create_topic(WATCHED, assignment=[[leads, follows]] * PARTITIONS)
        prometheus.start()
        wait_until(
            lambda: prometheus.query("kafka_server_replicamanager_isrshrinks_total"),
            "it is scraped",
            TIMEOUT_S,
        )
        assert not prometheus.firing() & {"KafkaIsrFlapping", "KafkaMetadataStale"}
        cluster.nodes[follows].pause()
        wait_until(
            lambda: "KafkaIsrFlapping" in prometheus.firing(), "the alert of replicas fires", TIMEOUT_S
        )
        cluster.nodes[other].pause()
        wait_until(lambda: "KafkaMetadataStale" in prometheus.firing(), "that of metadata fires", TIMEOUT_S)
    finally:
        prometheus.kill()
        cluster.close()
