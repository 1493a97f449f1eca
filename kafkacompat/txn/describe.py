"""DescribeTransactions and ListTransactions of one shard. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkacompat.txn.machine import TransactionMachine
from kafkacompat.txn.records import partitions_by_topic
from kafkacompat.txn.states import STATE_NAMES, TransactionState
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_transactions_response import TopicData
from kafkacompat.wire.messages.describe_transactions_response import TransactionState as Described
from kafkacompat.wire.messages.list_transactions_response import TransactionState as Listed


def describe_transaction(machine: TransactionMachine, transactional_id: str) -> Described:
    transaction = machine.transactions.get(transactional_id)
    if transaction is None or transaction.values.state is TransactionState.DEAD:
        return Described(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    values = transaction.values
    topics = partitions_by_topic(values.partitions)
    return Described(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[values.state],
        transaction_timeout_ms=values.timeout_ms,
        transaction_start_time_ms=values.start_ms,
        producer_id=values.producer_id,
        producer_epoch=values.epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )


@dataclass(frozen=True, slots=True)
class ListFilter:
    """What is to be listed. None, or an empty set of producer ids, asks for all."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] = frozenset()
    open_longer_than_ms: int = -1
    """Negative: all."""
    matches_id: Callable[[str], bool] | None = None


def list_transactions(machine: TransactionMachine, wanted: ListFilter, now_ms: int) -> list[Listed]:
    listed = []
    for transaction in machine.transactions.values():
        values = transaction.values
        if values.state is TransactionState.DEAD:
            continue
        if wanted.producer_ids and values.producer_id not in wanted.producer_ids:
            continue
        if wanted.states is not None and values.state not in wanted.states:
            continue
        if wanted.open_longer_than_ms >= 0 and now_ms - values.start_ms <= wanted.open_longer_than_ms:
            continue
        if wanted.matches_id is not None and not wanted.matches_id(transaction.transactional_id):
            continue
        listed.append(
            Listed(
                transactional_id=transaction.transactional_id,
                producer_id=values.producer_id,
                transaction_state=STATE_NAMES[values.state],
            )
        )
    return listed
