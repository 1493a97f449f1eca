"""The partitions of a transaction: added by clients and by partition leaders, verified by partition leaders.

AddPartitionsToTxn and AddOffsetsToTxn of one transactional id. KIP-98, KIP-890.
"""

from __future__ import annotations

from dataclasses import replace

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.ids import TopicPartition
from kafkacompat.txn.environment import TransactionResult
from kafkacompat.txn.states import PREPARED, TransactionState
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode


def add_partitions(
    machine: TransactionStateManager,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    client_transaction_version: int,
    now_ms: int,
) -> TransactionResult[None]:
    """Add partitions, and begin the transaction if necessary. Raises Refused."""
    transaction = machine.find(transactional_id)
    values = transaction.values
    if transaction.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if values.producer_id != producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if values.epoch != epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if values.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = values.state is TransactionState.ONGOING
    if is_open and partitions <= values.partitions:
        return CoordinatorResult((), None)
    following = replace(
        values,
        state=TransactionState.ONGOING,
        partitions=values.partitions | partitions,
        start_ms=values.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=client_transaction_version,
    )
    return machine.step(transaction, following, None)


def verify_partitions(
    machine: TransactionStateManager,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is part of the open transaction. Changes nothing. Raises Refused for all of them."""
    values = machine.find(transactional_id).values
    if values.producer_id != producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if values.epoch != epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if values.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in values.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }
