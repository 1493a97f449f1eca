"""EndTxn's two tables, every cell: state, pending step, verb, epoch, in both protocol versions."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kafkacompat.coordinator.core import Refused
from kafkacompat.txn.end import EndAction, EndRequest, decide
from kafkacompat.txn.environment import Environment, TransactionSettings
from kafkacompat.txn.initialise import NO_EXPECTATION, Initialised, ProducerIdAndEpoch, init_producer_id
from kafkacompat.txn.machine import TransactionMachine
from kafkacompat.txn.states import TransactionState as S
from kafkacompat.txn.transaction import LAST_EPOCH_FOR_CLIENTS, MAX_EPOCH, Transaction, TransactionValues
from kafkacompat.wire.errors import ErrorCode as E

STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
Outcome = E | EndAction


def outcome(transaction: Transaction, request: EndRequest) -> Outcome:
    try:
        return decide(transaction, request)
    except Refused as refusal:
        return refusal.code


def transaction(state: S, *, epoch: int = 5, client_version: int = 2, previous: int = 7) -> Transaction:
    values = TransactionValues(
        7, epoch, 60_000, state, 0, client_version=client_version, previous_producer_id=previous
    )
    return Transaction("tx", values)


BY_STATE: dict[S, tuple[Outcome, Outcome]] = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (EndAction.PREPARE, EndAction.PREPARE),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (EndAction.DONE_BEFORE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, EndAction.DONE_BEFORE),
}
"""State -> (commit, abort), the epoch being the id's."""

SAME_EPOCH: dict[S, tuple[Outcome, Outcome]] = {
    S.EMPTY: (E.INVALID_TXN_STATE, EndAction.EMPTY_ABORT),
    S.ONGOING: (EndAction.PREPARE, EndAction.PREPARE),
    S.PREPARE_COMMIT: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.PREPARE_ABORT: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.COMPLETE_COMMIT: (E.INVALID_TXN_STATE, EndAction.EMPTY_ABORT),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, EndAction.EMPTY_ABORT),
}
ONE_BEFORE: dict[S, tuple[Outcome, Outcome]] = {
    S.EMPTY: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.ONGOING: (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (EndAction.DONE_BEFORE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, EndAction.DONE_BEFORE),
}


@pytest.mark.parametrize(
    ("state", "committed", "version"), list(itertools.product(STATES, [True, False], [0, 1]))
)
def test_t43_old_protocol(state: S, committed: bool, version: int) -> None:
    each = transaction(state, client_version=0)
    assert outcome(each, EndRequest(7, 5, committed, version)) == BY_STATE[state][not committed]
    assert outcome(each, EndRequest(8, 5, committed, version)) is E.INVALID_PRODUCER_ID_MAPPING
    assert outcome(each, EndRequest(7, 4, committed, version)) is E.PRODUCER_FENCED
    assert outcome(each, EndRequest(7, 6, committed, version)) is E.PRODUCER_FENCED
    each.pending = S.ONGOING
    assert outcome(each, EndRequest(7, 5, committed, version)) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(("state", "committed"), list(itertools.product(STATES, [True, False])))
def test_t43_t42_new_protocol(state: S, committed: bool) -> None:
    each = transaction(state)
    assert outcome(each, EndRequest(7, 5, committed, 2)) == SAME_EPOCH[state][not committed]
    assert outcome(each, EndRequest(7, 4, committed, 2)) == ONE_BEFORE[state][not committed]
    assert outcome(each, EndRequest(8, 5, committed, 2)) is E.INVALID_PRODUCER_ID_MAPPING
    for epoch in (3, 6):
        assert outcome(each, EndRequest(7, epoch, committed, 2)) is E.PRODUCER_FENCED
    each.pending = S.ONGOING
    assert outcome(each, EndRequest(7, 5, committed, 2)) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("committed", [True, False])
def test_a_retry_after_the_epochs_overflowed_into_a_new_producer_id(committed: bool) -> None:
    state = S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT
    each = transaction(state, epoch=0, previous=6)
    assert outcome(each, EndRequest(6, 32_766, committed, 2)) is EndAction.DONE_BEFORE
    assert outcome(each, EndRequest(6, 32_766, not committed, 2)) is E.INVALID_TXN_STATE
    assert outcome(each, EndRequest(6, 32_765, committed, 2)) is E.INVALID_PRODUCER_ID_MAPPING
    assert outcome(each, EndRequest(5, 32_766, committed, 2)) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_coordinators_own_abort_passes_its_own_fence(version: int) -> None:
    each = transaction(S.ONGOING)
    epoch = each.prepare_fence()
    assert epoch == 6
    assert outcome(each, EndRequest(7, epoch, False, version, from_client=False)) is EndAction.PREPARE
    assert each.values == replace(each.values, epoch=5)


def test_the_last_epoch_which_is_for_fencing_is_given_to_nobody() -> None:
    """A transaction at the last epoch that clients have times out: its fence takes the one above. Who then comes back as the
    producer it was (KIP-360) gets a fresh id; with the fence's epoch nobody could ever fence it."""
    ids = iter((7, 8))
    machine = TransactionMachine(
        Environment(TransactionSettings(), lambda: next(ids), lambda: 2, lambda markers: None)
    )

    def initialised(expected: ProducerIdAndEpoch) -> Initialised:
        result = init_producer_id(machine, "tx", 60_000, expected, 1)
        if result.committed is not None:
            result.committed(E.NONE, 1)
        return result.response

    assert initialised(NO_EXPECTATION) == Initialised(E.NONE, 7, 0)
    known = machine.transactions["tx"]
    known.values = replace(
        known.values, state=S.COMPLETE_ABORT, epoch=MAX_EPOCH, last_epoch=LAST_EPOCH_FOR_CLIENTS
    )
    before = ProducerIdAndEpoch(7, LAST_EPOCH_FOR_CLIENTS)
    assert initialised(before) == Initialised(E.NONE, 8, 0)
    assert initialised(before) == Initialised(E.NONE, 8, 0), "the answer to the same question was lost"
