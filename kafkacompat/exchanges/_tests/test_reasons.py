"""Each reason names the state from which the refusal came."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace as Said
from typing import Any

import pytest

from kafkacompat.exchanges.causes import Causes
from kafkacompat.exchanges.reasons import (
    Batch,
    GroupState,
    PartitionState,
    ProducerState,
    Refusal,
    TransactionState,
    reason,
)
from kafkacompat.wire.errors import ErrorCode

TOPIC_ID = bytes(15) + b"\x63"


class Known:
    """A State of which everything is said."""

    node = 1

    def __init__(self) -> None:
        self.causes = Causes()

    def topics(self) -> Mapping[str, int]:
        return {"orders": 2, "gone": 1, "__consumer_offsets": 50}

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def partition(self, topic: str, index: int) -> PartitionState | None:
        if topic == "gone":
            return PartitionState(-1, 7, [2, 3], [3])
        leader = 1 if index else 2
        return PartitionState(leader, 5, [1, 2], [2], 20, 30, 2, 1000) if topic == "orders" else None

    def producer(self, topic: str, index: int, producer_id: int) -> ProducerState | None:
        return ProducerState(3, 4) if producer_id == 9 else None

    def group(self, group: str) -> GroupState | None:
        return {
            "classic": GroupState("PreparingRebalance", 5, {"a": -1, "b": -1}, 1),
            "consumer": GroupState("Stable", 8, {"m": 7}),
        }.get(group)

    def group_coordinator(self, group: str) -> str | None:
        return "node 2, which leads __consumer_offsets-3"

    def transaction(self, transactional_id: str) -> TransactionState | None:
        return TransactionState("PrepareCommit", 4, 6) if transactional_id == "tx" else None

    def transaction_coordinator(self, transactional_id: str) -> str | None:
        return "node 3, which leads __transaction_state-1"

    def controller(self) -> int:
        return 3


ORDERS_0 = {"topic": "orders", "partition": 0}


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (
            "NOT_LEADER_OR_FOLLOWER",
            {"names": ORDERS_0},
            "orders-0 is led by node 2 since epoch 5; node 1 follows it",
        ),
        (
            "NOT_LEADER_OR_FOLLOWER",
            {"names": {"topic": "gone", "partition": 0}},
            "gone-0 has no leader since epoch 7: of its replicas 2, 3, those in sync were 3",
        ),
        (
            "NOT_LEADER_OR_FOLLOWER",
            {"names": {"topic": "orders", "partition": 1}},
            "node 1 leads orders-1 since epoch 5, and does not serve it yet, or no more",
        ),
        (
            "FENCED_LEADER_EPOCH",
            {"names": ORDERS_0, "element": Said(current_leader_epoch=4)},
            "the request says leader epoch 4, and orders-0 is in epoch 5, led by node 2",
        ),
        (
            "UNKNOWN_TOPIC_OR_PARTITION",
            {"names": {"topic": "ordres"}},
            "node 1 knows no topic 'ordres'; there is 'orders'",
        ),
        (
            "UNKNOWN_TOPIC_OR_PARTITION",
            {"names": {"topic": "orders", "partition": 2}},
            "orders has 2 partitions, and 2 is none of them",
        ),
        (
            "UNKNOWN_TOPIC_ID",
            {"names": {"topic_id": TOPIC_ID, "partition": 0}},
            "node 1 knows no topic with the id AAAAAAAAAAAAAAAAAAAAYw",
        ),
        (
            "TOPIC_ALREADY_EXISTS",
            {"names": {"topic": "orders"}},
            "there is a topic 'orders' already, with 2 partitions",
        ),
        ("GROUP_ID_NOT_FOUND", {"names": {"group": "none"}}, "node 1 has no group 'none'"),
        (
            "NON_EMPTY_GROUP",
            {"names": {"group": "consumer"}},
            "group 'consumer' is Stable, and its members are m",
        ),
        (
            "INVALID_PRODUCER_ID_MAPPING",
            {"names": {"transactional_id": "tx"}, "request": Said(producer_id=9)},
            "transactional id 'tx' belongs to producer 4, and the request says 9",
        ),
        (
            "UNKNOWN_PRODUCER_ID",
            {"names": ORDERS_0, "batch": Batch(11, 0, 5, 10)},
            "orders-0 knows nothing of producer 11",
        ),
        (
            "MEMBER_ID_REQUIRED",
            {"names": {"group": "classic"}},
            "the first request of a member to group 'classic' gets it an id, with which it joins",
        ),
        (
            "OFFSET_OUT_OF_RANGE",
            {"names": ORDERS_0, "element": Said(fetch_offset=17)},
            "orders-0 has the offsets 20 to 30, and 17 is outside of them",
        ),
        (
            "NOT_ENOUGH_REPLICAS",
            {"names": ORDERS_0},
            "orders-0 has 1 replicas in sync (nodes 2), and min.insync.replicas is 2",
        ),
        (
            "INVALID_PRODUCER_EPOCH",
            {"names": ORDERS_0, "batch": Batch(9, 2, 0, 10)},
            "producer 9 writes with epoch 2, and orders-0 has seen its epoch 3",
        ),
        (
            "PRODUCER_FENCED",
            {"names": {"transactional_id": "tx"}, "request": Said(producer_epoch=5)},
            "transactional id 'tx' belongs to producer 4 with epoch 6, and the request says epoch 5",
        ),
        (
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            {"names": ORDERS_0, "batch": Batch(9, 3, 7, 10)},
            "the batch of producer 9 begins with sequence 7, and orders-0 had sequence 4 last",
        ),
        (
            "ILLEGAL_GENERATION",
            {"names": {"group": "classic"}, "request": Said(generation_id=4, member_id="a")},
            "group 'classic' is in generation 5 (PreparingRebalance), and the request says 4",
        ),
        (
            "UNKNOWN_MEMBER_ID",
            {"names": {"group": "classic"}, "request": Said(member_id="c")},
            "group 'classic' (PreparingRebalance) has no member 'c'; its members are a, b",
        ),
        (
            "UNKNOWN_MEMBER_ID",
            {"names": {"group": "none"}, "request": Said(member_id="c")},
            "node 1 has no group 'none'",
        ),
        (
            "FENCED_MEMBER_EPOCH",
            {"names": {"group": "consumer"}, "request": Said(member_epoch=6, member_id="m")},
            "member 'm' of group 'consumer' is in epoch 7, and the request says 6",
        ),
        (
            "REBALANCE_IN_PROGRESS",
            {"names": {"group": "classic"}},
            "group 'classic' is PreparingRebalance after generation 5; 1 of 2 members have joined",
        ),
        (
            "INVALID_TXN_STATE",
            {"names": {"transactional_id": "tx"}},
            "the transaction of 'tx' is in state PrepareCommit",
        ),
        (
            "CONCURRENT_TRANSACTIONS",
            {"names": {"transactional_id": "other"}},
            "node 1 knows no transactional id 'other'",
        ),
        (
            "TOPIC_AUTHORIZATION_FAILED",
            {"names": ORDERS_0, "principal": "User:bob"},
            "User:bob may not ask Produce of topic 'orders'",
        ),
        (
            "GROUP_AUTHORIZATION_FAILED",
            {"names": {"group": "g"}},
            "User:ANONYMOUS may not ask Produce of group 'g'",
        ),
        ("CLUSTER_AUTHORIZATION_FAILED", {}, "User:ANONYMOUS may not ask Produce of the cluster"),
        (
            "MESSAGE_TOO_LARGE",
            {"names": ORDERS_0, "batch": Batch(-1, -1, -1, 2000)},
            "the batch has 2000 bytes, and max.message.bytes of orders is 1000",
        ),
        (
            "NOT_COORDINATOR",
            {"names": {"group": "g"}},
            "the coordinator of group 'g' is node 2, which leads __consumer_offsets-3",
        ),
        (
            "NOT_COORDINATOR",
            {"names": {"transactional_id": "tx"}},
            "the coordinator of transactional id 'tx' is node 3, which leads __transaction_state-1",
        ),
        ("NOT_CONTROLLER", {}, "the active controller is node 3, and not node 1"),
        ("INVALID_TOPIC_EXCEPTION", {"message": "Topic name is illegal."}, "Topic name is illegal"),
    ],
)
def test_a_reason_names_the_state(code: str, said: dict[str, Any], expected: str) -> None:
    refusal = Refusal(ErrorCode[code], "Produce", **{"names": {}, **said})
    assert reason(refusal, Known()) == f"{code}: {expected}"


@pytest.mark.parametrize("code", sorted(ErrorCode, key=int))
def test_without_what_a_reason_needs_there_is_kafkas_text(code: ErrorCode) -> None:
    said = reason(Refusal(code, "Fetch", {}), Known())
    assert said.startswith(f"{code.name}: ")
    assert not said.endswith(".")
