"""The oracles of groups find the errors they exist for, and accept correct behaviour."""

from __future__ import annotations

import pytest

from kafkacompat.sim.group_oracles import NOTHING, GroupLedger
from kafkacompat.sim.quorum_oracles import Breach


def test_what_was_answered_is_fetched_or_something_later() -> None:
    ledger = GroupLedger("g")
    for _ in range(3):
        ledger.issue(0)
    ledger.committed(0, 2)
    ledger.fetched({0: 2}, {0: 2})
    ledger.fetched({0: 2}, {0: 3})
    for number in (1, NOTHING, 4):
        with pytest.raises(Breach, match="answered commits are fetched"):
            ledger.fetched({0: 2}, {0: number})


def test_what_was_shown_once_stays() -> None:
    ledger = GroupLedger("g")
    ledger.issue(0)
    ledger.fetched({}, {0: NOTHING})
    ledger.fetched({}, {0: 1})
    with pytest.raises(Breach, match="answered or shown was 1"):
        ledger.fetched(dict(ledger.settled), {0: NOTHING})


def test_nothing_is_left_of_a_deleted_group() -> None:
    ledger = GroupLedger("g")
    ledger.issue(0)
    ledger.is_deleted = True
    ledger.fetched({}, {0: NOTHING})
    with pytest.raises(Breach, match="deleted groups stay deleted"):
        ledger.fetched({}, {0: 1})


def test_a_partition_has_one_owner_in_each_generation() -> None:
    ledger = GroupLedger("g")
    ledger.assigned(1, "a", [0, 1])
    ledger.assigned(1, "a", [0, 1])
    ledger.assigned(2, "b", [0])
    with pytest.raises(Breach, match="of a and of b in generation 1"):
        ledger.assigned(1, "b", [1])
