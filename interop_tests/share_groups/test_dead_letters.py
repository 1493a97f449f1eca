"""Dead letters of a share group (KIP-1191) in a cluster of which the leader of the dead-letter topic is killed."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from interop_tests.cli.command import output_of
from interop_tests.cluster.clusters import BOTH, Cluster
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.harness.raw_kafka import produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import BROKEN, REJECT, Hand, Leader, initialize, lag, read_from_start

pytestmark = pytest.mark.needs_control

GROUP, TOPIC, QUEUE = "workers", "jobs", "dlq.jobs"
WORKS, LEADS_QUEUE, SUCCEEDS = 1, 2, 3
"""Nodes: the leader of the jobs, that of their dead letters, and the one that leads them afterwards."""
GIVEN_UP = re.compile(
    r"no dead letters of jobs-0, offsets (\d+) to (\d+)|jobs-0: \d+ between (\d+) and (\d+)"
)


def test_the_leader_of_the_dead_letters_is_killed(tmp_path: Path) -> None:
    """Each rejected record has its letter, or the log says that it has none. In both cases the group goes on."""
    settings = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.share.assignment.interval.ms": "0",
    }
    cluster = Cluster(KAFKACOMPAT, tmp_path / "cluster", 3, BOTH, settings)
    try:
        cluster.start()
        cluster.create_topic(TOPIC, assignment=[[WORKS, SUCCEEDS]], configs={"min.insync.replicas": "1"})
        enabled = {"min.insync.replicas": "1", "errors.deadletterqueue.group.enable": "true"}
        cluster.create_topic(QUEUE, assignment=[[LEADS_QUEUE, SUCCEEDS]], configs=enabled)
        node = cluster.nodes[WORKS]

        def coordinator() -> str | None:
            with Connection(node.bootstrap, timeout_s=5) as connection:
                asked = {"KeyType": 0, "CoordinatorKeys": [GROUP]}
                (found,) = connection.call("FindCoordinator", 4, asked)["Coordinators"]
                return f"{found['Host']}:{found['Port']}" if found["ErrorCode"] == 0 else None

        with Connection(node.bootstrap) as connection:
            read_from_start(
                connection,
                GROUP,
                errors_deadletterqueue_topic_name=QUEUE,
                errors_deadletterqueue_copy_record_enable="true",
            )
            id_ = topic_id(connection, TOPIC)
        initialize(coordinator, [GROUP], TOPIC)
        hand = Hand(lambda: Leader(node.bootstrap), GROUP, "hand", id_)
        written = 0

        def reject(count: int) -> None:
            """Write jobs, and reject whatever is delivered until all are archived."""
            nonlocal written
            with Connection(node.bootstrap) as connection:
                for number in range(written, written + count):
                    assert produce(connection, TOPIC, BatchPlan([b"%d" % number]))["ErrorCode"] == 0
            written += count

            def is_done() -> bool:
                for first, last, _ in hand.fetch():
                    hand.acknowledge(first, last, REJECT)
                with suppress(*BROKEN):
                    address = coordinator()
                    if address is not None:
                        with Connection(address, timeout_s=5) as connection:
                            return list(lag(connection, GROUP)) == [(0, 0)]
                return False

            cluster.wait(is_done, f"{written} jobs are archived", 120.0)

        reject(1)
        cluster.nodes[LEADS_QUEUE].kill()
        reject(4)
        cluster.wait(lambda: leads(cluster) == SUCCEEDS, "the dead letters have their next leader")
        reject(5)
        words = ("--bootstrap", node.bootstrap, "--from-beginning", "--until-end", "--print", "value")
        letters = {int(line) for line in output_of("consume", QUEUE, *words).split()}
        given_up: set[int] = set()
        for found in GIVEN_UP.finditer(node.log_text()):
            first, last = (int(each) for each in found.groups() if each is not None)
            given_up |= set(range(first, last + 1))
        assert letters | given_up == set(range(written))
        assert {0, *range(5, 10)} <= letters
    finally:
        cluster.close()


def leads(cluster: Cluster) -> int | None:
    found = cluster.partition(QUEUE)
    return found.leader if found else None
