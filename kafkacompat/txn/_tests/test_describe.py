"""Which transactions ListTransactions tells of: each filter alone and all together."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.txn.describe import ListFilter, list_transactions
from kafkacompat.txn.environment import Environment, TransactionSettings
from kafkacompat.txn.machine import TransactionMachine
from kafkacompat.txn.records import TransactionRecord
from kafkacompat.txn.states import TransactionState as S
from kafkacompat.txn.transaction_metadata import TxnTransitMetadata

NOW_MS = 1_000_000
KNOWN = {
    "idle": TxnTransitMetadata(1, 0, 60_000, S.EMPTY, NOW_MS, start_ms=-1),
    "young": TxnTransitMetadata(2, 0, 60_000, S.ONGOING, NOW_MS, start_ms=NOW_MS - 500),
    "old": TxnTransitMetadata(3, 0, 60_000, S.ONGOING, NOW_MS, start_ms=NOW_MS - 5_000),
    "ending": TxnTransitMetadata(4, 0, 60_000, S.PREPARE_COMMIT, NOW_MS, start_ms=NOW_MS - 5_000),
}

STATES = {"idle": "Empty", "young": "Ongoing", "old": "Ongoing", "ending": "PrepareCommit"}
"""As Kafka names them."""


def machine() -> TransactionMachine:
    """What a coordinator has loaded."""
    settings = TransactionSettings(900_000, 900_000)
    made = TransactionMachine(Environment(settings, lambda: None, lambda: 2, lambda markers: None))
    for offset, (name, values) in enumerate(KNOWN.items()):
        made.replay(TransactionRecord(name, values), offset, -1)
    return made


@pytest.mark.parametrize(
    ("wanted", "listed"),
    [
        ({}, ["idle", "young", "old", "ending"]),
        ({"states": frozenset({S.ONGOING})}, ["young", "old"]),
        ({"states": frozenset()}, []),
        ({"producer_ids": frozenset({1, 4, 9})}, ["idle", "ending"]),
        ({"open_longer_than_ms": 0, "states": frozenset({S.ONGOING})}, ["young", "old"]),
        ({"open_longer_than_ms": 500, "states": frozenset({S.ONGOING})}, ["old"]),
        ({"matches_id": lambda name: name.startswith("o")}, ["old"]),
        ({"states": frozenset({S.ONGOING}), "producer_ids": frozenset({2, 4})}, ["young"]),
    ],
    ids=["all", "states", "unknown states only", "producers", "open", "open for long", "pattern", "two"],
)
def test_each_filter_leaves_out_what_it_names_none_of(wanted: dict[str, Any], listed: list[str]) -> None:
    found = list_transactions(machine(), ListFilter(**wanted), NOW_MS)
    assert [each.transactional_id for each in found] == listed
    for each in found:
        assert each.producer_id == KNOWN[each.transactional_id].producer_id
        assert each.transaction_state == STATES[each.transactional_id]


def test_an_id_that_is_forgotten_is_not_listed() -> None:
    made = machine()
    made.replay(TransactionRecord("old", None), 9, -1)
    assert [each.transactional_id for each in list_transactions(made, ListFilter(), NOW_MS)] == [
        "idle",
        "young",
        "ending",
    ]
