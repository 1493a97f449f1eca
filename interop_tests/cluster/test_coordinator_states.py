"""The transaction coordinator is killed while transactions are in every state. Tests the answers of its new node and
of wrong nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from interop_tests.cluster.asking import OF_A_LEADER_TO_COME
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.test_transactions import coordinator
from interop_tests.cluster.views import BROKEN
from interop_tests.harness.broker import APACHE
from interop_tests.harness.raw_kafka import fetch, produce
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import CONCURRENT, NEW, OLD, Producer, Protocol, init_producer_id
from interop_tests.transactions.test_by_hand import (
    INVALID_TXN_STATE,
    OUT_OF_ORDER,
    add_offsets,
    committed,
)

NOT_COORDINATOR = 16
NOBODY_YET = (14, 15, 16)
"""Errors of a coordinator that is not elected yet or is loading."""
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class Connections:
    """One connection to each node, opened again after the node was down."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: list[Connection] = []

    def to(self, node_id: int) -> Connection:
        made = Connection(self._cluster.nodes[node_id].bootstrap, timeout_s=30.0)
        self._open.append(made)
        return made

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture
def connections(cluster: Cluster) -> Iterator[Connections]:
    made = Connections(cluster)
    yield made
    made.close()


def to_its_coordinator(cluster: Cluster, connections: Connections, producer: Producer) -> int:
    """The node that is the producer's coordinator and serves. The producer connects to it."""

    def probe() -> int:
        node_id = coordinator(cluster, producer.transactional_id)
        with contextlib.suppress(*BROKEN):  # the coordinator may just be starting
            producer.connection = connections.to(node_id)
            return node_id if producer.describe()["ErrorCode"] not in NOBODY_YET else 0
        return 0

    return cluster.wait(probe, f"{producer.transactional_id} has a coordinator", 60)


@pytest.mark.parametrize("protocol", [OLD, NEW], ids=["old protocol", "new protocol"])
def test_every_state_survives_its_coordinator(
    cluster: Cluster, connections: Connections, unique: Callable[[str], str], protocol: Protocol, kind: str
) -> None:
    """A partition has lost its only replica, so the markers of two transactions wait. The node that loads the
    coordinator's log then knows all six states, answers in each as before, and completes the decided transactions when
    the partition is back."""
    if kind == APACHE:
        pytest.skip(
            "Apache Kafka gives up the markers of a partition without a leader, and calls its transaction complete"
        )
    victim = coordinator(cluster, unique("first"))
    away = next(node_id for node_id in cluster.nodes if node_id != victim)
    held = cluster.create_topic(unique("held"), assignment=[[away]])
    whole = cluster.create_topic(unique("whole"))

    def named(state: str) -> str:
        """A transactional id whose coordinator is the victim."""
        return cluster.wait(
            lambda: name if coordinator(cluster, name := unique(state)) == victim else "", "a name", 60
        )

    producers = {state: Producer(connections.to(victim), named(state), protocol).init() for state in STATES}

    def send(producer: Producer, topic: str, value: bytes) -> None:
        """A record of one transaction. The coordinator or the leader adds its partition."""
        home = producer.connection
        if not protocol.adds:
            wait_until(lambda: producer.add(topic) == 0, "the partition is added")
        producer.connection = connections.to(cluster.leader(topic))
        result: dict[str, Any] = {}

        def sent() -> bool:
            result.update(producer.produce(topic, value))
            return result["ErrorCode"] not in (CONCURRENT, 19)

        wait_until(sent, "the batch is taken")
        assert result["ErrorCode"] == 0
        producer.connection = home

    for state in STATES[1:]:
        send(producers[state], whole, state.encode())
        if not state.startswith("Complete"):
            send(producers[state], held, state.encode())
    for state, commit in (("CompleteCommit", True), ("CompleteAbort", False)):
        producers[state].finish(commit)
        producers[state].wait_for(state)
    asked_with = {state: producer.epoch for state, producer in producers.items()}
    cluster.nodes[away].stop()
    for state, commit in (("PrepareCommit", True), ("PrepareAbort", False)):
        assert producers[state].end(commit)["ErrorCode"] == 0

    def described(state: str) -> dict[str, Any]:
        """For a decided transaction, the moment determines which markers are not written yet. The waiting marker is
        always among them."""
        found = producers[state].describe()
        if state.startswith("Prepare"):
            assert held in [each["Topic"] for each in found.pop("Topics")]
        return found

    before = {state: described(state) for state in STATES}
    assert {state: each["TransactionState"] for state, each in before.items()} == {
        state: state for state in STATES
    }

    cluster.nodes[victim].kill()
    cluster.nodes[victim].start()
    for producer in producers.values():
        to_its_coordinator(cluster, connections, producer)
    assert {state: described(state) for state in STATES} == before

    for state, commit in (("PrepareCommit", True), ("PrepareAbort", False)):
        producer = producers[state]
        # Its completion is already pending, so it answers nothing else.
        assert producer.end(commit)["ErrorCode"] == CONCURRENT
        assert producer.end(not commit)["ErrorCode"] == CONCURRENT
        assert init_producer_id(producer.connection, producer.transactional_id)["ErrorCode"] == CONCURRENT
    for state, commit in (("CompleteCommit", True), ("CompleteAbort", False)):
        producer = producers[state]
        current, producer.epoch = producer.epoch, before[state]["ProducerEpoch"] - (1 if protocol.adds else 0)
        again = producer.end(commit)
        assert again["ErrorCode"] == 0
        if protocol.adds:
            assert (again["ProducerId"], again["ProducerEpoch"]) == (producer.id, current)
        assert producer.end(not commit)["ErrorCode"] == INVALID_TXN_STATE
        producer.epoch = current
    empty = producers["Empty"]
    assert empty.end(True)["ErrorCode"] == INVALID_TXN_STATE
    reply: dict[str, Any] = {}

    def initialised() -> bool:
        """A write. The victim may not be in sync yet, so there may be too few in-sync replicas."""
        reply.update(init_producer_id(empty.connection, empty.transactional_id))
        return reply["ErrorCode"] not in NOBODY_YET

    wait_until(initialised, "the id is initialised")
    assert (reply["ErrorCode"], reply["ProducerId"]) == (0, empty.id)
    assert reply["ProducerEpoch"] == asked_with["Empty"] + 1

    cluster.nodes[away].start()
    cluster.wait_until_whole()
    for producer in producers.values():
        to_its_coordinator(cluster, connections, producer)
    producers["PrepareCommit"].wait_for("CompleteCommit")
    producers["PrepareAbort"].wait_for("CompleteAbort")
    assert producers["Ongoing"].state() == "Ongoing"
    producers["Ongoing"].finish(True)
    producers["Ongoing"].wait_for("CompleteCommit")
    for topic, expected in ((held, {b"PrepareCommit", b"Ongoing"}), (whole, None)):
        leader = connections.to(cluster.leader(topic))
        wait_until(
            lambda leader=leader, topic=topic: (
                (found := fetch(leader, topic, 0, IsolationLevel=1))["ErrorCode"] == 0
                and found["LastStableOffset"] == found["HighWatermark"]
            ),
            f"all markers of {topic} are written",
        )
        values = committed(leader, topic)
        assert len(values) == len(set(values))
        assert set(values) == (expected or {b"PrepareCommit", b"Ongoing", b"CompleteCommit"})


def test_a_node_that_does_not_coordinate_says_so(
    cluster: Cluster, connections: Connections, unique: Callable[[str], str]
) -> None:
    """Send every request of a transaction to every node but one. Afterwards none of them has had an effect."""
    name = unique("tx")
    home = coordinator(cluster, name)
    topic = cluster.create_topic(unique("t"))
    producer = Producer(connections.to(home), name, OLD).init()
    before = producer.describe()
    for node_id in cluster.nodes:
        if node_id == home:
            continue
        stranger = Producer(connections.to(node_id), name, OLD)
        stranger.id, stranger.epoch = producer.id, producer.epoch
        assert init_producer_id(stranger.connection, name)["ErrorCode"] == NOT_COORDINATOR
        assert stranger.add(topic) == NOT_COORDINATOR
        assert add_offsets(stranger, unique("group")) == NOT_COORDINATOR
        for version in (1, 4, 5):
            assert stranger.end(True, version)["ErrorCode"] == NOT_COORDINATOR
        assert stranger.describe()["ErrorCode"] == NOT_COORDINATOR
        body = {
            "StateFilters": [],
            "ProducerIdFilters": [],
            "DurationFilter": -1,
            "TransactionalIdPattern": None,
        }
        listed = stranger.connection.call("ListTransactions", 2, body)["TransactionStates"]
        assert name not in [each["TransactionalId"] for each in listed]
    assert producer.describe() == before


def test_repeated_batches_are_known_to_the_next_leader(
    cluster: Cluster, connections: Connections, unique: Callable[[str], str]
) -> None:
    """The responses were lost with the leader. Its last five batches get the offsets that they had, an older batch is
    refused, and the next batch is accepted. A leader that was restarted meanwhile remembers at least the last batch.
    """
    topic = cluster.create_topic(unique("t"))
    first = cluster.leader(topic)
    body = {"TransactionalId": None, "TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1}
    given: dict[str, Any] = {}

    def ask() -> bool:
        given.update(connections.to(first).call("InitProducerId", 4, body))
        return given["ErrorCode"] == 0

    wait_until(ask, "there is a producer id")
    plan = BatchPlan(
        producer_id=given["ProducerId"], producer_epoch=0, base_timestamp_ms=time.time_ns() // 1_000_000
    )

    def send(number: int) -> tuple[int, int]:
        """(error code, offset) of the batch with this sequence number."""

        def probe() -> dict[str, Any] | None:
            node = cluster.nodes[cluster.leader(topic)]
            try:
                with Connection(node.bootstrap, timeout_s=20) as connection:
                    result = produce(
                        connection, topic, replace(plan, base_sequence=number, values=[b"%d" % number])
                    )
            except OSError:
                return None
            return None if result["ErrorCode"] in (*OF_A_LEADER_TO_COME, 19, 20) else result

        result = cluster.wait(probe, "the leader answers", 60)
        return result["ErrorCode"], result["BaseOffset"]

    for number in range(7):
        assert send(number) == (0, number)
    cluster.nodes[first].kill()
    cluster.wait(lambda: cluster.leader(topic) != first, "another node leads", 60)
    second = cluster.leader(topic)
    for number in range(2, 7):
        assert send(number) == (0, number)
    assert send(1)[0] in (OUT_OF_ORDER, 46)
    assert send(8)[0] == OUT_OF_ORDER
    assert send(7) == (0, 7)
    cluster.mend()
    cluster.nodes[second].kill()
    cluster.wait(lambda: cluster.leader(topic) != second, "another node leads", 60)
    assert send(7) == (0, 7)
    assert send(8) == (0, 8)
    cluster.mend()
    leader = connections.to(cluster.leader(topic))
    batches = decode_batches(fetch(leader, topic, 0)["Records"])
    assert [one.value for each in batches for one in each.records] == [b"%d" % number for number in range(9)]
