"""A controller and two brokers whose Prometheus has the alert rules, and the faults that alerts are for."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.harness.ports import free_port
from interop_tests.harness.prometheus import Prometheus
from interop_tests.harness.raw_kafka import produce, produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.stalls import STALL
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, frame
from interop_tests.security.sasl_talks import MODULES, PASSWORD, USER
from interop_tests.share_groups.hand import BROKEN

CONTROLS, WORKS, FOLLOWS = 1, 2, 3
"""Nodes: the controller, the broker that most faults are on, and the one that follows it."""
JOBS, LETTERS, KEYED, WATCHED, TORN, LOAD = "jobs", "dlq.jobs", "keyed", "watched", "torn", "load"
SLOW, HUNG = "slow", "hung"
OFFSETS, SHARE_STATE = "__consumer_offsets", "__share_group_state"
PARTITIONS = 12
"""Of WATCHED: more than the shrinks of in-sync sets that the alert allows."""
SEGMENT_BYTES = 1 << 20
PIECE = b"x" * 100_000
MAGIC_AT = 16
"""The place of the format's number in a batch."""
BROKER_CONFIG, SET, DELETE = 4, 0, 1
CLEANER_RATE = "log.cleaner.io.max.bytes.per.second"
GUESS_S = 0.05
"""Between two passwords."""
FLOOD_REQUESTS = 1000
HOG = "while True: pass"
TIMEOUT_S = 120.0


class FaultyCluster:
    def __init__(self, root: Path) -> None:
        settings = {
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            # A paused broker is missed by the leaders that it follows, and not by the controller.
            "replica.lag.time.max.ms": "2000",
            "broker.session.timeout.ms": "300000",
            "group.share.assignment.interval.ms": "0",
            "log.cleaner.backoff.ms": "500",
            "auto.leader.rebalance.enable": "false",
            # As with clients from before KIP-890, which may leave transactions open that nobody knows.
            "transaction.partition.verification.enable": "false",
        }
        self.cluster = Cluster(
            KAFKACOMPAT, root / "cluster", roles=(CONTROLLER, BROKER, BROKER), settings=settings
        )
        self.ports = {node_id: free_port() for node_id in self.cluster.nodes}
        for node_id, node in self.cluster.nodes.items():
            node.settings["metrics.listener.port"] = str(self.ports[node_id])
        self.works = self.cluster.nodes[WORKS]
        self.safe = free_port()
        """The port of a listener that asks for passwords."""
        of = "listener.name.safe."
        self.works.settings |= {
            "listeners": f"{self.works.settings['listeners']},SAFE://127.0.0.1:{self.safe}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_PLAINTEXT",
            f"{of}sasl.enabled.mechanisms": "PLAIN",
            f"{of}plain.sasl.jaas.config": f'{MODULES}plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
            "connection.failed.authentication.delay.ms": "5",
        }
        self.prometheus = Prometheus(root / "prometheus", list(self.ports.values()))
        self._is_watched = False

    def start(self) -> None:
        cluster = self.cluster.start()
        # Each batch has its entry in the index. A start checks a log from the last entry on, and believes the rest.
        internal = {"cleanup.policy": "compact", "index.interval.bytes": "0"}
        for name in (OFFSETS, SHARE_STATE):
            cluster.create_topic(name, assignment=[[WORKS]], configs=internal)
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.01",
        }
        for name in (KEYED, SLOW):
            cluster.create_topic(name, assignment=[[WORKS]], configs=compacted)
        for name in (JOBS, LETTERS, HUNG):
            cluster.create_topic(name, assignment=[[WORKS]])
        cluster.create_topic(LOAD, assignment=[[FOLLOWS]])
        cluster.create_topic(WATCHED, assignment=[[WORKS, FOLLOWS]] * PARTITIONS)
        cluster.create_topic(
            TORN, assignment=[[WORKS, FOLLOWS]], configs={"unclean.leader.election.enable": "true"}
        )

    def close(self) -> None:
        self.prometheus.kill()
        self.cluster.close()

    def watch(self) -> None:
        """Start Prometheus, unless it runs, and wait for the first scrapes."""
        if not self._is_watched:
            self._is_watched = True
            self.prometheus.start()
            self.prometheus.wait_until_scraped()

    def firing(self, node_id: int = WORKS) -> set[str]:
        return self.prometheus.firing(self.ports[node_id])

    def fires(self, *alerts: str, node_id: int = WORKS) -> None:
        """Wait until these alerts of the node fire."""
        self.prometheus.wait_until_firing(*alerts, port=self.ports[node_id], timeout_s=TIMEOUT_S)

    def resolves(self, *alerts: str, node_id: int = WORKS) -> None:
        self.prometheus.wait_until_resolved(*alerts, port=self.ports[node_id], timeout_s=TIMEOUT_S)

    def value(self, series: str, node_id: int = WORKS) -> float:
        """The newest value of the node's only series with this name."""
        query = f'{series}{{instance="127.0.0.1:{self.ports[node_id]}"}}'
        (value,) = wait_until(lambda: self.prometheus.query(query), f"{query} is there", TIMEOUT_S).values()
        return value

    def produce(self, topic: str, *values: bytes, keys: list[bytes | None] | None = None) -> None:
        """One batch each, through WORKS."""
        with Connection(self.works.bootstrap, TIMEOUT_S) as connection:
            for number, value in enumerate(values):
                batch = BatchPlan([value], keys=None if keys is None else [keys[number]])
                answer = produce(connection, topic, batch, timeout_ms=int(TIMEOUT_S * 1000))
                assert answer["ErrorCode"] == 0, answer

    def ask(self, api: str, version: int, body: dict[str, Any]) -> Any:
        """The answer of WORKS."""
        with Connection(self.works.bootstrap, TIMEOUT_S) as connection:
            return connection.call(api, version, body)

    # Faults.

    @contextmanager
    def slow_cleaner(self) -> Iterator[None]:
        """The cleaner may move a byte a second. Somebody has mistaken the unit."""
        self._configure(CLEANER_RATE, SET, "1")
        try:
            yield
        finally:
            self._configure(CLEANER_RATE, DELETE, None)

    def _configure(self, name: str, operation: int, value: str | None) -> None:
        config = {"Name": name, "ConfigOperation": operation, "Value": value}
        resource = {"ResourceType": BROKER_CONFIG, "ResourceName": str(WORKS), "Configs": [config]}
        answer = self.ask("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
        assert [each["ErrorCode"] for each in answer["Responses"]] == [0], answer

    def limit(self, client_id: str, bytes_per_second: float) -> None:
        """What a client may produce."""
        entity = [{"EntityType": "client-id", "EntityName": client_id}]
        ops = [{"Key": "producer_byte_rate", "Value": bytes_per_second, "Remove": False}]
        body = {"Entries": [{"Entity": entity, "Ops": ops}], "ValidateOnly": False}
        answer = self.ask("AlterClientQuotas", 1, body)
        assert [each["ErrorCode"] for each in answer["Entries"]] == [0], answer

    @contextmanager
    def wrong_passwords(self) -> Iterator[None]:
        """Somebody guesses passwords."""
        ended = threading.Event()

        def guess() -> None:
            address = f"127.0.0.1:{self.safe}"
            while not ended.is_set():
                with suppress(*BROKEN), Connection(address, TIMEOUT_S) as connection:
                    connection.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})
                    connection.call("SaslAuthenticate", 2, {"AuthBytes": f"\0{USER}\0wrong".encode()})
                ended.wait(GUESS_S)

        with in_background(guess, ended):
            yield

    @contextmanager
    def few_descriptors(self) -> Iterator[None]:
        """Of ten that the node may have, it uses nine. With the others it answers scrapes."""
        pid = self.works.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used * 10 // 9 + 1, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    def starve(self) -> None:
        """The loop's thread gets a processor only when nobody else wants it, and somebody does until it stalls."""
        node, pid = self.works, self.works.pid
        before = os.sched_getaffinity(pid)
        processor = {min(before)}
        stalls = node.log_text().count(STALL)
        os.sched_setaffinity(pid, processor)
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        hog = subprocess.Popen([sys.executable, "-c", HOG])
        try:
            os.sched_setaffinity(hog.pid, processor)
            wait_until(lambda: node.log_text().count(STALL) > stalls, "the loop stalls", TIMEOUT_S)
        finally:
            hog.kill()
            hog.wait()
            os.sched_setaffinity(pid, before)
            with suppress(PermissionError):  # it only stays slower
                os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))

    @contextmanager
    def too_many_requests(self, node_id: int) -> Iterator[None]:
        """More than the node can handle. They have no answers, so that they cost their sender nothing."""
        ended = threading.Event()

        def flood() -> None:
            with (
                suppress(*BROKEN),
                Connection(self.cluster.nodes[node_id].bootstrap, TIMEOUT_S) as connection,
            ):
                _, request = connection.encode("Produce", 9, produce_body(LOAD, BatchPlan(), acks=0))
                requests = frame(request) * FLOOD_REQUESTS
                while not ended.is_set():
                    connection.send_bytes(requests)

        with in_background(flood, ended):
            yield


@contextmanager
def in_background(work: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    """`ended`: tells the work to end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(TIMEOUT_S)


def oldest_file(node: ClusterNode, topic: str) -> Path:
    """Of the records of partition 0."""
    return min((node.log_dirs[0] / f"{topic}-0").glob("*.log"))


def batch_sizes(path: Path) -> list[int]:
    data, sizes, position = path.read_bytes(), [], 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        sizes.append(12 + length)
        position += sizes[-1]
    return sizes
