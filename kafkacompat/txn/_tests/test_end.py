"""EndTxn's two tables, every cell: state, pending step, commit or abort, and epoch, in both protocol versions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TypeVar

import pytest

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.txn.operations import (
    NO_EXPECTATION,
    EndAction,
    Ended,
    EndRequest,
    Initialised,
    ProducerIdAndEpoch,
    abort_timed_out,
    decide,
    end_transaction,
    expired_id_records,
    init_producer_id,
)
from kafkacompat.txn.transaction_log import TransactionRecord
from kafkacompat.txn.transaction_metadata import (
    MAX_EPOCH,
    MAX_PRODUCER_EPOCH_FOR_CLIENTS,
    TransactionMetadata,
    TxnTransitMetadata,
)
from kafkacompat.txn.transaction_metadata import TransactionState as S
from kafkacompat.txn.transaction_state_manager import (
    Environment,
    Markers,
    TransactionResult,
    TransactionSettings,
    TransactionStateManager,
)
from kafkacompat.wire.errors import ErrorCode as E

T = TypeVar("T")
STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
Outcome = E | EndAction


def outcome(transaction: TransactionMetadata, request: EndRequest) -> Outcome:
    try:
        return decide(transaction, request)
    except OperationRefused as refusal:
        return refusal.code


def transaction(
    state: S, *, epoch: int = 5, client_transaction_version: int = 2, previous: int = 7
) -> TransactionMetadata:
    values = TxnTransitMetadata(
        7,
        epoch,
        60_000,
        state,
        0,
        client_transaction_version=client_transaction_version,
        prev_producer_id=previous,
    )
    return TransactionMetadata("tx", values)


BY_STATE: dict[S, tuple[Outcome, Outcome]] = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (EndAction.PREPARE, EndAction.PREPARE),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (EndAction.DONE_BEFORE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, EndAction.DONE_BEFORE),
}
"""State -> result of (commit, abort) with the id's epoch."""

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
def test_old_protocol(state: S, committed: bool, version: int) -> None:
    each = transaction(state, client_transaction_version=0)
    assert outcome(each, EndRequest(7, 5, committed, version)) == BY_STATE[state][not committed]
    assert outcome(each, EndRequest(8, 5, committed, version)) is E.INVALID_PRODUCER_ID_MAPPING
    assert outcome(each, EndRequest(7, 4, committed, version)) is E.PRODUCER_FENCED
    assert outcome(each, EndRequest(7, 6, committed, version)) is E.PRODUCER_FENCED
    each.pending_state = S.ONGOING
    assert outcome(each, EndRequest(7, 5, committed, version)) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(("state", "committed"), list(itertools.product(STATES, [True, False])))
def test_new_protocol(state: S, committed: bool) -> None:
    each = transaction(state)
    assert outcome(each, EndRequest(7, 5, committed, 2)) == SAME_EPOCH[state][not committed]
    assert outcome(each, EndRequest(7, 4, committed, 2)) == ONE_BEFORE[state][not committed]
    assert outcome(each, EndRequest(8, 5, committed, 2)) is E.INVALID_PRODUCER_ID_MAPPING
    for epoch in (3, 6):
        assert outcome(each, EndRequest(7, epoch, committed, 2)) is E.PRODUCER_FENCED
    each.pending_state = S.ONGOING
    assert outcome(each, EndRequest(7, 5, committed, 2)) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(("state", "committed"), list(itertools.product(STATES, [True, False])))
def test_the_new_protocol_is_the_same_after_a_transaction_of_the_old(state: S, committed: bool) -> None:
    """A producer may change its version between two transactions. Kafka 4.3 uses only the request's version."""
    each = transaction(state, client_transaction_version=0)
    assert outcome(each, EndRequest(7, 5, committed, 2)) == SAME_EPOCH[state][not committed]
    assert outcome(each, EndRequest(7, 4, committed, 2)) == ONE_BEFORE[state][not committed]


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
    epoch = each.prepare_fence_producer_epoch()
    assert epoch == 6
    assert outcome(each, EndRequest(7, epoch, False, version, from_client=False)) is EndAction.PREPARE
    assert each.values == replace(each.values, epoch=5)


class Coordinator:
    """A machine whose writes succeed at once, with one id, "tx"."""

    def __init__(self, transaction_version: int) -> None:
        ids = iter((7, 8, 9))
        self.sent: list[Markers] = []
        self.transaction_version = transaction_version
        self.machine = TransactionStateManager(
            Environment(
                TransactionSettings(), lambda: next(ids), lambda: self.transaction_version, self.sent.append
            )
        )
        assert self.initialised(NO_EXPECTATION) == Initialised(E.NONE, 7, 0)

    def initialised(self, expected: ProducerIdAndEpoch) -> Initialised:
        return self.written(init_producer_id(self.machine, "tx", 60_000, expected, 1))

    def written(self, result: TransactionResult[T]) -> T:
        if result.committed is not None:
            result.committed(E.NONE, 1)
        return result.response

    def open_at_the_last_epoch(self, client_transaction_version: int) -> None:
        known = self.machine.transactions["tx"]
        known.values = replace(
            known.values,
            state=S.ONGOING,
            epoch=MAX_PRODUCER_EPOCH_FOR_CLIENTS,
            start_ms=1,
            client_transaction_version=client_transaction_version,
        )

    def time_out(self) -> TxnTransitMetadata:
        """Time out, and have the markers written."""
        self.written(abort_timed_out(self.machine, "tx", 100_000))
        self.written(self.machine.complete("tx"))
        return self.machine.transactions["tx"].values


BEFORE = ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS)


def test_a_fence_at_the_last_epoch_of_clients_goes_on_with_a_fresh_id() -> None:
    """Like every end at that epoch with transaction.version 2: the markers have the next epoch, which no client gets."""
    coordinator = Coordinator(2)
    coordinator.open_at_the_last_epoch(2)
    after = coordinator.time_out()
    assert [(each.producer_id, each.epoch) for each in coordinator.sent] == [(7, MAX_EPOCH)]
    assert (after.state, after.producer_id, after.epoch) == (S.COMPLETE_ABORT, 8, 0)
    again = EndRequest(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS, False, 2)
    assert coordinator.written(end_transaction(coordinator.machine, "tx", again, 1)) == Ended(8, 0)
    assert coordinator.initialised(BEFORE) == Initialised(E.NONE, 8, 0)


def test_the_last_epoch_which_is_for_fencing_is_given_to_nobody() -> None:
    """Before transaction.version 2 the fence takes the last epoch. A producer that returns with its old id and epoch
    (KIP-360) gets a new id. With the fence's epoch it could never be fenced."""
    coordinator = Coordinator(1)
    coordinator.open_at_the_last_epoch(0)
    after = coordinator.time_out()
    assert (after.producer_id, after.epoch) == (7, MAX_EPOCH)
    with pytest.raises(OperationRefused, match="PRODUCER_FENCED"):
        coordinator.initialised(BEFORE)


def test_a_fence_for_which_no_id_is_to_be_had_leaves_the_transaction_to_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that stayed pending would block every other end forever."""
    coordinator = Coordinator(2)
    coordinator.open_at_the_last_epoch(2)

    def refuse(machine: TransactionStateManager) -> int:
        raise OperationRefused(E.COORDINATOR_LOAD_IN_PROGRESS)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionStateManager, "fresh_producer_id", refuse)
        with pytest.raises(OperationRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
            abort_timed_out(coordinator.machine, "tx", 100_000)
    known = coordinator.machine.transactions["tx"]
    assert (known.pending_state, known.is_fencing) == (None, False)
    assert (known.values.state, known.values.epoch) == (S.ONGOING, MAX_PRODUCER_EPOCH_FOR_CLIENTS)
    assert coordinator.time_out().state is S.COMPLETE_ABORT


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 2)])
def test_a_fence_that_is_written_at_the_second_attempt_fences_at_each_level_of_the_feature(
    before: int, after: int
) -> None:
    """transaction.version may be lowered in between. A producer that kept its epoch could go on, and commit the rest of a
    transaction whose beginning is aborted."""
    coordinator = Coordinator(before)
    known = coordinator.machine.transactions["tx"]
    known.values = replace(known.values, state=S.ONGOING, epoch=3, start_ms=1, client_transaction_version=0)
    failed = abort_timed_out(coordinator.machine, "tx", 100_000)
    assert failed.committed is not None
    failed.committed(E.COORDINATOR_NOT_AVAILABLE, 100_000)
    assert known.values.state is S.ONGOING
    coordinator.transaction_version = after
    values = coordinator.time_out()
    assert (values.state, values.epoch > 3) == (S.COMPLETE_ABORT, True)


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_of_the_old_protocol_changes_no_epoch_and_may_be_asked_for_again(committed: bool) -> None:
    coordinator = Coordinator(1)
    known = coordinator.machine.transactions["tx"]
    known.values = replace(known.values, state=S.ONGOING, epoch=3, start_ms=1, client_transaction_version=0)
    request = EndRequest(7, 3, committed, 1)
    assert coordinator.written(end_transaction(coordinator.machine, "tx", request, 1)) == Ended()
    assert [(each.producer_id, each.epoch, each.committed) for each in coordinator.sent] == [
        (7, 3, committed)
    ]
    coordinator.written(coordinator.machine.complete("tx"))
    after = coordinator.machine.transactions["tx"].values
    assert (after.state, after.producer_id, after.epoch) == (
        S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT,
        7,
        3,
    )
    assert coordinator.written(end_transaction(coordinator.machine, "tx", request, 2)) == Ended()
    assert len(coordinator.sent) == 1


def test_an_id_that_was_written_since_a_sweep_began_is_not_forgotten() -> None:
    coordinator = Coordinator(2)
    machine = coordinator.machine
    before = machine.transactions["tx"]
    late_ms = machine.env.settings.expiration_ms + 100_000
    assert len(expired_id_records(machine, [before], late_ms)) == 1
    before.drop_transition()
    machine.replay(TransactionRecord("tx", replace(before.values, last_update_ms=late_ms)), 5, -1)
    assert expired_id_records(machine, [before], late_ms) == []
    assert machine.transactions["tx"].pending_state is None


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("epoch", "given"),
    [
        (3, Ended(7, 4)),
        (MAX_PRODUCER_EPOCH_FOR_CLIENTS - 1, Ended(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS)),
        (MAX_PRODUCER_EPOCH_FOR_CLIENTS, Ended(8, 0)),
    ],
)
def test_an_end_of_the_new_protocol_gives_the_next_epoch_and_after_the_last_a_fresh_id(
    committed: bool, epoch: int, given: Ended
) -> None:
    coordinator = Coordinator(2)
    known = coordinator.machine.transactions["tx"]
    known.values = replace(
        known.values, state=S.ONGOING, epoch=epoch, start_ms=1, client_transaction_version=2
    )
    request = EndRequest(7, epoch, committed, 2)
    assert coordinator.written(end_transaction(coordinator.machine, "tx", request, 5)) == given
    assert known.values.start_ms == 1, "when it began, not when it ends"
    assert [(each.producer_id, each.epoch, each.committed) for each in coordinator.sent] == [
        (7, epoch + 1, committed)
    ]
    coordinator.written(coordinator.machine.complete("tx"))
    after = coordinator.machine.transactions["tx"].values
    assert Ended(after.producer_id, after.epoch) == given
