"""InitProducerId for a transactional id: which producer may continue with it, and with which producer id and epoch.

It has KIP-360's rules for epochs, and fences a producer with an open transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kafkacompat.coordinator.core import Refused
from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID
from kafkacompat.memory import NO_CONNECTION
from kafkacompat.txn.end import fence
from kafkacompat.txn.environment import TransactionResult, TransactionSettings, size_of_id
from kafkacompat.txn.states import PREPARED, TransactionState
from kafkacompat.txn.transaction_metadata import (
    NO_PARTITIONS,
    NO_TIMEOUT_MS,
    NO_TIMESTAMP,
    TxnTransitMetadata,
    is_exhausted,
)
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


NO_EXPECTATION = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


class Initialised(NamedTuple):
    """The answer. It has an error if the client must retry although records are written."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


def checked_timeout_ms(
    timeout_ms: int,
    settings: TransactionSettings,
    has_two_phase_commit: bool = False,
    keeps_prepared: bool = False,
) -> int:
    """The timeout of the producer's transactions: NO_TIMEOUT_MS with two-phase commit, whose end is decided elsewhere.

    Raises Refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without `transaction.two.phase.commit.enable`;
    UNSUPPORTED_VERSION for a prepared transaction that is to be kept, which Kafka 4.3 does not do yet (KIP-939);
    INVALID_TRANSACTION_TIMEOUT (`transaction.max.timeout.ms`).
    """
    if has_two_phase_commit and not settings.has_two_phase_commit:
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if keeps_prepared:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if has_two_phase_commit:
        return NO_TIMEOUT_MS
    if not 0 < timeout_ms <= settings.max_timeout_ms:
        raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return timeout_ms


def init_producer_id(
    machine: TransactionStateManager,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch,
    now_ms: int,
    connection_id: int = NO_CONNECTION,
) -> TransactionResult[Initialised]:
    """`timeout_ms` is from `checked_timeout_ms`. `expected` is the producer id and epoch that the producer believes it
    has, or NO_EXPECTATION. Raises Refused."""
    transaction = machine.transactions.get(transactional_id)
    is_known = transaction is not None
    if transaction is None:
        if not machine.env.memory.has_room(size_of_id(transactional_id), connection_id):
            # Producers come back later. The memory is given back when ids expire (transactional.id.expiration.ms).
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        transaction = machine.new_metadata(
            transactional_id,
            TxnTransitMetadata(
                machine.fresh_producer_id(), NO_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms
            ),
            connection_id,
        )
        machine.transactions[transactional_id] = transaction
    if transaction.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    values = transaction.values
    if expected != NO_EXPECTATION and not _is_of(values, expected):
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if values.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if values.state is TransactionState.ONGOING:
        return fence(machine, transaction, now_ms).answering(Initialised(ErrorCode.CONCURRENT_TRANSACTIONS))
    following = _next_epoch(machine, values, expected)
    following = replace(
        following,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        next_producer_id=NO_PRODUCER_ID,
        last_update_ms=now_ms,
    )
    answer = Initialised(ErrorCode.NONE, following.producer_id, following.epoch)
    step = machine.step(transaction, following, answer)
    return step if is_known else replace(step, refused=lambda: _forget(machine, transactional_id))


def _forget(machine: TransactionStateManager, transactional_id: str) -> None:
    """Remove the id, because the log has refused its first record."""
    del machine.transactions[transactional_id]


def _is_of(values: TxnTransitMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the expectation can belong to this id's last producer."""
    return (
        values.epoch == NO_EPOCH
        or expected.producer_id == values.producer_id
        or (expected.producer_id == values.prev_producer_id and is_exhausted(expected.epoch))
    )


def _next_epoch(
    machine: TransactionStateManager, values: TxnTransitMetadata, expected: ProducerIdAndEpoch
) -> TxnTransitMetadata:
    expects = expected != NO_EXPECTATION
    if values.is_producer_epoch_exhausted and (not expects or expected.epoch == values.epoch):
        return replace(
            values,
            producer_id=machine.fresh_producer_id(),
            epoch=0,
            last_producer_epoch=expected.epoch,
        )
    if not expects:
        return replace(values, epoch=values.epoch + 1, last_producer_epoch=NO_EPOCH)
    if values.epoch == NO_EPOCH or expected.epoch == values.epoch:
        return replace(values, epoch=values.epoch + 1, last_producer_epoch=values.epoch)
    if expected.epoch == values.last_producer_epoch:
        return values  # the answer to the same request was lost
    raise Refused(ErrorCode.PRODUCER_FENCED)
