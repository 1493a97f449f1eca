"""The complete transition table: every pair of states, and the requirements of a step."""

from __future__ import annotations

import itertools

import pytest

from kafkacompat.txn.transaction_metadata import (
    STATE_NAMES,
    STATES_BY_NAME,
    VALID_PREVIOUS_STATES,
    IllegalTransition,
    TransactionMetadata,
    TxnTransitMetadata,
)
from kafkacompat.txn.transaction_metadata import TransactionState as S

REST = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
ALLOWED = (
    {(source, S.EMPTY) for source in REST}
    | {(source, S.ONGOING) for source in REST | {S.ONGOING}}
    | {(S.ONGOING, S.PREPARE_COMMIT)}
    | {(source, S.PREPARE_ABORT) for source in REST | {S.ONGOING, S.PREPARE_EPOCH_FENCE}}
    | {(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)}
    | {(source, S.DEAD) for source in REST}
    | {(S.ONGOING, S.PREPARE_EPOCH_FENCE)}
)


def transaction(state: S) -> TransactionMetadata:
    return TransactionMetadata("tx", TxnTransitMetadata(7, 3, 60_000, state, 1_000))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(S, S)))
def test_every_pair_of_states_is_allowed_or_a_bug(source: S, target: S) -> None:
    each = transaction(source)
    values = TxnTransitMetadata(7, 4, 60_000, target, 2_000)
    if (source, target) in ALLOWED:
        prepared = each.prepare_transition_to(values)
        assert (each.pending_state, each.values.epoch, prepared.prev_producer_id) == (target, 3, 7)
        each.complete_transition_to(prepared)
        assert (each.pending_state, each.values) == (None, prepared)
    else:
        with pytest.raises(IllegalTransition):
            each.prepare_transition_to(values)
        assert each.pending_state is None
    assert (source in VALID_PREVIOUS_STATES[target]) == ((source, target) in ALLOWED)


@pytest.mark.parametrize("pending", S)
def test_one_step_is_pending_at_most(pending: S) -> None:
    each = transaction(S.EMPTY)
    each.pending_state = pending
    with pytest.raises(IllegalTransition):
        each.prepare_transition_to(TxnTransitMetadata(7, 4, 60_000, S.EMPTY, 2_000))


def test_only_the_pending_step_is_taken() -> None:
    each = transaction(S.ONGOING)
    prepared = each.prepare_transition_to(TxnTransitMetadata(7, 3, 60_000, S.PREPARE_COMMIT, 2_000))
    with pytest.raises(IllegalTransition):
        each.complete_transition_to(TxnTransitMetadata(7, 3, 60_000, S.PREPARE_ABORT, 2_000))
    each.drop_transition()
    assert each.values.state is S.ONGOING
    with pytest.raises(IllegalTransition):
        each.complete_transition_to(prepared)


def test_names_are_kafkas() -> None:
    assert STATE_NAMES[S.PREPARE_EPOCH_FENCE] == "PrepareEpochFence"
    assert [STATE_NAMES[state] for state in list(S)[:7]] == (
        ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
    )
    assert STATES_BY_NAME["CompleteAbort"] is S.COMPLETE_ABORT
