"""EndTxn, and aborts by the coordinator itself: when a producer is fenced, or a transaction times out.

One table has the allowed ends of each state in both protocol versions, and the next step. With transaction.version 2
every end increments the epoch (KIP-890), so a repeated request is recognised by its epoch; before that only by the
state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID
from kafkacompat.txn.environment import TransactionResult
from kafkacompat.txn.states import AT_REST, COMPLETED, PREPARED, TransactionState
from kafkacompat.txn.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    MAX_PRODUCER_EPOCH_FOR_CLIENTS,
    TransactionMetadata,
    TxnTransitMetadata,
)
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode

_S = TransactionState


class EndRequest(NamedTuple):
    producer_id: int
    epoch: int
    committed: bool
    version: int
    """The client's transaction.version. For the coordinator's own aborts, the cluster's."""
    from_client: bool = True


class Ended(NamedTuple):
    """The producer id and epoch for this producer's next transaction. -1 if the protocol version does not return them."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class EndAction(Enum):
    PREPARE = "prepare"
    EMPTY_ABORT = "an abort of nothing, for the epoch"
    DONE_BEFORE = "done before"


def end_transaction(
    machine: TransactionStateManager, transactional_id: str, request: EndRequest, now_ms: int
) -> TransactionResult[Ended]:
    """Raises Refused."""
    transaction = machine.find(transactional_id)
    action = decide(transaction, request)
    if action is EndAction.DONE_BEFORE:
        values = transaction.values
        if request.version < EPOCH_BUMP_VERSION:
            return CoordinatorResult((), Ended())
        return CoordinatorResult((), Ended(values.producer_id, values.epoch))
    return _prepared(machine, transaction, request, action, now_ms)


def fence(
    machine: TransactionStateManager, transaction: TransactionMetadata, now_ms: int
) -> TransactionResult[Ended]:
    """Abort an open transaction with a higher epoch, which fences its producer. Raises Refused."""
    epoch = transaction.prepare_fence_producer_epoch()
    request = EndRequest(
        transaction.values.producer_id, epoch, False, machine.env.transaction_version(), from_client=False
    )
    try:
        return _prepared(machine, transaction, request, decide(transaction, request), now_ms)
    except Refused:
        transaction.drop_transition()
        raise


def decide(transaction: TransactionMetadata, request: EndRequest) -> EndAction:
    """Raises Refused with the error for the client."""
    values = transaction.values
    if request.version < EPOCH_BUMP_VERSION:
        return _decide_by_state(transaction, values, request)
    return _decide_by_epoch(transaction, values, request)


def _decide_by_state(
    transaction: TransactionMetadata, values: TxnTransitMetadata, request: EndRequest
) -> EndAction:
    if values.producer_id != request.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.epoch < values.epoch or (request.from_client and request.epoch != values.epoch):
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if transaction.pending_state is not None and not transaction.is_fencing:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    state = values.state
    if state is _S.ONGOING:
        return EndAction.PREPARE
    if state in PREPARED and _is_same_outcome(state, request.committed):
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state in COMPLETED and _is_same_outcome(state, request.committed):
        return EndAction.DONE_BEFORE
    raise Refused(ErrorCode.INVALID_TXN_STATE)


def _decide_by_epoch(
    transaction: TransactionMetadata, values: TxnTransitMetadata, request: EndRequest
) -> EndAction:
    state = values.state
    if transaction.pending_state is not None and not transaction.is_fencing:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    after_overflow = (
        not transaction.is_fencing
        and values.prev_producer_id == request.producer_id
        and request.epoch == MAX_PRODUCER_EPOCH_FOR_CLIENTS
        and values.epoch == 0
    )
    after_bump = not transaction.is_fencing and values.epoch == request.epoch + 1
    is_retry = after_bump or after_overflow
    if values.producer_id != request.producer_id and not after_overflow:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not request.from_client:
        valid = request.epoch >= values.epoch
    elif state in PREPARED:
        valid = after_bump
    elif state in COMPLETED:
        valid = is_retry or request.epoch == values.epoch
    else:
        valid = request.epoch == values.epoch
    if not valid:
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if state is _S.ONGOING:
        return EndAction.PREPARE
    if state in PREPARED and _is_same_outcome(state, request.committed):
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state in COMPLETED and is_retry:
        if _is_same_outcome(state, request.committed):
            return EndAction.DONE_BEFORE
    elif state in AT_REST and not request.committed:
        return EndAction.EMPTY_ABORT
    raise Refused(ErrorCode.INVALID_TXN_STATE)


def _is_same_outcome(state: TransactionState, committed: bool) -> bool:
    return (state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)) is committed


def _prepared(
    machine: TransactionStateManager,
    transaction: TransactionMetadata,
    request: EndRequest,
    action: EndAction,
    now_ms: int,
) -> TransactionResult[Ended]:
    bumps = request.version >= EPOCH_BUMP_VERSION
    fencing = transaction.is_fencing
    values = transaction.values
    if bumps:
        next_producer_id = NO_PRODUCER_ID
        if values.is_producer_epoch_exhausted:
            next_producer_id = machine.fresh_producer_id()
        following = replace(
            values,
            epoch=min(values.epoch + 1, MAX_EPOCH),
            last_producer_epoch=values.epoch,
            next_producer_id=next_producer_id,
        )
    elif fencing:
        following = replace(values, epoch=request.epoch, last_producer_epoch=NO_EPOCH)
    else:
        following = values
    following = replace(
        following,
        state=_S.PREPARE_COMMIT if request.committed else _S.PREPARE_ABORT,
        client_transaction_version=request.version,
        start_ms=now_ms if action is EndAction.EMPTY_ABORT else values.start_ms,
        last_update_ms=now_ms,
    )
    if fencing:
        transaction.drop_transition()
    if not bumps:
        answer = Ended()
    elif following.next_producer_id != NO_PRODUCER_ID:
        answer = Ended(following.next_producer_id, 0)
    else:
        answer = Ended(following.producer_id, following.epoch)
    return machine.step(
        transaction,
        following,
        answer,
        taken=lambda at_ms: machine.send_markers(transaction, at_ms),
        dropped=_fence_failed(transaction, request, bumps) if fencing else None,
    )


def _fence_failed(transaction: TransactionMetadata, request: EndRequest, bumps: bool) -> Callable[[], None]:
    def dropped() -> None:
        """The higher epoch was never sent to a client, so the next attempt uses it again."""
        transaction.has_failed_epoch_fence = True
        if not bumps:
            transaction.values = replace(
                transaction.values, epoch=request.epoch, last_producer_epoch=NO_EPOCH
            )

    return dropped
