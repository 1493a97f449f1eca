"""The transactions that ListTransactions returns, for each filter alone and all together."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, PauselessTasks, PromptWorkers
from kafkacompat.txn.operations import (
    LOOKED_AT_A_STEP,
    MATCHED_AT_ONCE_CHARACTERS,
    ListFilter,
    list_transactions,
)
from kafkacompat.txn.transaction_log import TransactionRecord
from kafkacompat.txn.transaction_metadata import TransactionState as S
from kafkacompat.txn.transaction_metadata import TxnTransitMetadata
from kafkacompat.txn.transaction_state_manager import (
    Environment,
    TransactionSettings,
    TransactionStateManager,
)

NOW_MS = 1_000_000
KNOWN = {
    "idle": TxnTransitMetadata(1, 0, 60_000, S.EMPTY, NOW_MS, start_ms=-1),
    "young": TxnTransitMetadata(2, 0, 60_000, S.ONGOING, NOW_MS, start_ms=NOW_MS - 500),
    "old": TxnTransitMetadata(3, 0, 60_000, S.ONGOING, NOW_MS, start_ms=NOW_MS - 5_000),
    "ending": TxnTransitMetadata(4, 0, 60_000, S.PREPARE_COMMIT, NOW_MS, start_ms=NOW_MS - 5_000),
}

STATES = {"idle": "Empty", "young": "Ongoing", "old": "Ongoing", "ending": "PrepareCommit"}
"""Kafka's names."""


def machine() -> TransactionStateManager:
    """A machine with loaded transactions."""
    settings = TransactionSettings(900_000, 900_000)
    made = TransactionStateManager(Environment(settings, lambda: None, lambda: 2, lambda markers: None))
    for offset, (name, values) in enumerate(KNOWN.items()):
        made.replay(TransactionRecord(name, values), offset, -1)
    return made


def listed_of(made: TransactionStateManager, wanted: ListFilter) -> Any:
    listing = list_transactions(made, wanted, NOW_MS, PromptWorkers())
    return PauselessTasks(HandTime()).run("listing", listing).result()


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
    found = listed_of(machine(), ListFilter(**wanted))
    assert [each.transactional_id for each in found] == listed
    for each in found:
        assert each.producer_id == KNOWN[each.transactional_id].producer_id
        assert each.transaction_state == STATES[each.transactional_id]


def test_an_id_that_is_forgotten_is_not_listed() -> None:
    made = machine()
    made.replay(TransactionRecord("old", None), 9, -1)
    assert [each.transactional_id for each in listed_of(made, ListFilter())] == [
        "idle",
        "young",
        "ending",
    ]


def stepped(wanted: ListFilter, made: TransactionStateManager) -> tuple[list[str], int, list[int]]:
    """(ids, pauses, how many ids each job of a worker matched)."""
    jobs: list[int] = []

    class Counting(PromptWorkers):
        def submit(self, function: Any) -> Any:
            done = super().submit(function)
            jobs.append(len(done.result()))
            return done

    listing = list_transactions(made, wanted, NOW_MS, Counting())
    pauses = 0
    while True:
        try:
            listing.send(None)
        except StopIteration as end:
            return [each.transactional_id for each in end.value], pauses, jobs
        pauses += 1


def test_many_ids_are_listed_in_steps_and_matched_in_a_thread_few_at_a_time() -> None:
    made = machine()
    count = 3 * LOOKED_AT_A_STEP
    for number in range(count):
        made.replay(TransactionRecord(f"id-{number}", KNOWN["idle"]), number, -1)
    names, pauses, jobs = stepped(ListFilter(), made)
    assert (len(names), pauses, jobs) == (count + len(KNOWN), 4, [])
    names, pauses, jobs = stepped(ListFilter(matches_id=lambda name: name.endswith("7")), made)
    assert names == [f"id-{number}" for number in range(7, count, 10)]
    assert sum(jobs) == count + len(KNOWN)
    assert len(jobs) >= 3


def test_a_long_id_is_matched_alone() -> None:
    """The time of a pattern grows with the length of the id."""
    made = machine()
    long = "x" * MATCHED_AT_ONCE_CHARACTERS
    for number in range(3):
        made.replay(TransactionRecord(f"{long}{number}", KNOWN["idle"]), number, -1)
    names, _, jobs = stepped(ListFilter(matches_id=lambda name: len(name) > 9), made)
    assert names == [f"{long}{number}" for number in range(3)]
    assert jobs == [len(KNOWN) + 1, 1, 1]
