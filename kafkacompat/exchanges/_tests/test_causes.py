"""A reason names what was done to the cluster, if that explains the state."""

from __future__ import annotations

from types import SimpleNamespace as Said
from typing import Any

import pytest

from kafkacompat.exchanges._tests.test_reasons import Known
from kafkacompat.exchanges.causes import KEPT_MAX, Causes
from kafkacompat.exchanges.reasons import Batch, Refusal, reason
from kafkacompat.wire.errors import ErrorCode

ORDERS_0 = {"topic": "orders", "partition": 0}


def stand(epoch: int, *isr: int) -> Any:
    return {("orders", 0): (epoch, frozenset(isr))}


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (
            "NOT_LEADER_OR_FOLLOWER",
            {"names": ORDERS_0},
            "orders-0 is led by node 2 since epoch 5, which began after node 1 was paused; node 1 follows it",
        ),
        (
            "FENCED_LEADER_EPOCH",
            {"names": ORDERS_0, "element": Said(current_leader_epoch=4)},
            "the request says leader epoch 4, and orders-0 is in epoch 5, led by node 2, which began after node 1 was paused",
        ),
        (
            "NOT_ENOUGH_REPLICAS",
            {"names": ORDERS_0},
            "orders-0 has 1 replicas in sync (nodes 2), and min.insync.replicas is 2; node 1 was paused",
        ),
        (
            "UNKNOWN_MEMBER_ID",
            {"names": {"group": "consumer"}, "request": Said(member_id="x")},
            "group 'consumer' (Stable) has no member 'x'; its members are m; expire_session has removed member 'x'",
        ),
        (
            "PRODUCER_FENCED",
            {
                "names": {"transactional_id": "tx"},
                "request": Said(producer_epoch=5),
                "batch": Batch(1, 1, 1, 1),
            },
            "transactional id 'tx' belongs to producer 4 with epoch 6, and the request says epoch 5; fence_producer was called",
        ),
    ],
)
def test_what_was_done_is_named(code: str, said: Any, expected: str) -> None:
    state = Known()
    state.causes.note("node 3 was killed", stand(3, 1, 2))
    state.causes.note("node 1 was paused", stand(4, 1, 2))
    state.causes.note("node 9 was stopped", stand(5, 2))
    state.causes.note("expire_session has removed member 'x'", about=("group", "consumer"))
    state.causes.note("fence_producer was called", about=("transactional_id", "tx"))
    assert reason(Refusal(ErrorCode[code], "Api", **said), state) == f"{code}: {expected}"


def test_only_the_last_causes_are_kept() -> None:
    causes = Causes()
    causes.note("first", about=("group", "g"))
    for _ in range(KEPT_MAX):
        causes.note("later")
    assert causes.of_name("group", "g") is None
    causes.note("again", about=("group", "g"))
    assert causes.of_name("group", "g") == "again"
    causes.clear()
    assert causes.of_name("group", "g") is None
