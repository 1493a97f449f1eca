"""A transactional producer by hand: every request of the protocol over one raw connection, in both protocol versions."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from interop_tests.harness.raw_kafka import produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

TRANSACTIONAL = 0x10
CONTROL = 0x20
LOADING, NOT_AVAILABLE, CONCURRENT = 14, 15, 51
TRANSACTION_KEY = 1


class Protocol(NamedTuple):
    """Versions of the requests that a client sends with one transaction.version."""

    produce: int
    end: int
    offsets: int
    adds: bool
    """Whether Produce adds the partition implicitly."""


OLD = Protocol(produce=11, end=4, offsets=4, adds=False)
NEW = Protocol(produce=12, end=5, offsets=5, adds=True)


def init_producer_id(
    connection: Connection,
    transactional_id: str | None,
    *,
    timeout_ms: int = 60_000,
    producer_id: int = -1,
    epoch: int = -1,
    version: int = 5,
) -> dict[str, Any]:
    """Send one InitProducerId and return its response."""
    body: dict[str, Any] = {"TransactionalId": transactional_id, "TransactionTimeoutMs": timeout_ms}
    if version >= 3:
        body |= {"ProducerId": producer_id, "ProducerEpoch": epoch}
    return connection.call("InitProducerId", version, body)


def find_coordinator(connection: Connection, transactional_id: str) -> dict[str, Any]:
    """Repeat until the coordinator serves."""

    def ask() -> dict[str, Any] | None:
        reply = connection.call(
            "FindCoordinator", 4, {"KeyType": TRANSACTION_KEY, "CoordinatorKeys": [transactional_id]}
        )
        (found,) = reply["Coordinators"]
        if found["ErrorCode"] == NOT_AVAILABLE:
            return None
        assert found["ErrorCode"] == 0, found
        return found

    return wait_until(ask, "there is a transaction coordinator")


class Producer:
    """`id`, `epoch` and `sequences` are the values for the next batch. Tests may change them."""

    def __init__(self, connection: Connection, transactional_id: str, protocol: Protocol) -> None:
        self.connection = connection
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000) -> Producer:
        """Initialize as a starting client. An open transaction is aborted."""
        find_coordinator(self.connection, self.transactional_id)

        def ask() -> dict[str, Any] | None:
            reply = init_producer_id(self.connection, self.transactional_id, timeout_ms=timeout_ms)
            return None if reply["ErrorCode"] in (LOADING, NOT_AVAILABLE, CONCURRENT, 16) else reply

        reply = wait_until(ask, "the producer is initialised")
        assert reply["ErrorCode"] == 0, reply
        self.id, self.epoch = reply["ProducerId"], reply["ProducerEpoch"]
        self.sequences.clear()
        return self

    def add(self, topic: str, partition: int = 0, version: int = 3) -> int:
        """AddPartitionsToTxn as a client sends it. Returns the partition's error."""
        reply = self.connection.call(
            "AddPartitionsToTxn",
            version,
            {
                "V3AndBelowTransactionalId": self.transactional_id,
                "V3AndBelowProducerId": self.id,
                "V3AndBelowProducerEpoch": self.epoch,
                "V3AndBelowTopics": [{"Name": topic, "Partitions": [partition]}],
            },
        )
        (of_topic,) = reply["ResultsByTopicV3AndBelow"]
        return int(of_topic["ResultsByPartition"][0]["PartitionErrorCode"])

    def batch(
        self, topic: str, *values: bytes, partition: int = 0, attributes: int = TRANSACTIONAL
    ) -> BatchPlan:
        return BatchPlan(
            list(values),
            attributes=attributes,
            base_timestamp_ms=time.time_ns()
            // 1_000_000,  # current, as in markers; otherwise the segment would be rolled
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
        )

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None
    ) -> dict[str, Any]:
        """Send one batch. Returns the partition's part of the response."""
        body = produce_body(topic, self.batch(topic, *values, partition=partition), partition)
        body["TransactionalId"] = self.transactional_id
        reply = self.connection.call("Produce", version or self.protocol.produce, body)
        result = reply["Responses"][0]["PartitionResponses"][0]
        if result["ErrorCode"] == 0:
            at = topic, partition
            self.sequences[at] = self.sequences.get(at, 0) + len(values)
        return result

    def send(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Produce as a client does: add the partition first if necessary. Returns the offset."""
        if not self.protocol.adds:
            wait_until(lambda: self.add(topic, partition) == 0, "the partition is added")
        result: dict[str, Any] = {}

        def sent() -> bool:
            result.update(self.produce(topic, *values, partition=partition))
            return result["ErrorCode"] not in (CONCURRENT, 19)

        wait_until(sent, "the batch is taken")
        assert result["ErrorCode"] == 0, result
        return int(result["BaseOffset"])

    def end(self, commit: bool, version: int | None = None) -> dict[str, Any]:
        """Send one EndTxn and return its response. Uses the epoch in it for the next transaction."""
        used = version or self.protocol.end
        return self.connection.call(
            "EndTxn",
            used,
            {
                "TransactionalId": self.transactional_id,
                "ProducerId": self.id,
                "ProducerEpoch": self.epoch,
                "Committed": commit,
            },
        )

    def finish(self, commit: bool) -> None:
        """Repeat EndTxn until it is accepted. Uses the epoch for the next transaction."""
        reply: dict[str, Any] = {}

        def ended() -> bool:
            reply.update(self.end(commit))
            return reply["ErrorCode"] not in (CONCURRENT, LOADING, NOT_AVAILABLE)

        wait_until(ended, "the transaction ends")
        assert reply["ErrorCode"] == 0, reply
        if self.protocol.adds:
            if (reply["ProducerId"], reply["ProducerEpoch"]) != (self.id, self.epoch):
                self.sequences.clear()
            self.id, self.epoch = reply["ProducerId"], reply["ProducerEpoch"]

    def describe(self) -> dict[str, Any]:
        reply = self.connection.call("DescribeTransactions", 0, {"TransactionalIds": [self.transactional_id]})
        (state,) = reply["TransactionStates"]
        return state

    def state(self) -> str:
        return str(self.describe()["TransactionState"])

    def wait_for(self, *states: str) -> str:
        return wait_until(
            lambda: state if (state := self.state()) in states else None, f"the transaction is {states}"
        )
