"""Expiry: aborts transactions that were open too long, and removes transactional ids that were unused too long.

The functions return what to write. The runtime calls them periodically.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.txn.end import Ended, fence
from kafkacompat.txn.environment import TransactionResult
from kafkacompat.txn.records import TransactionRecord
from kafkacompat.txn.states import AT_REST, TransactionState
from kafkacompat.txn.transaction_metadata import TransactionMetadata
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode

TOMBSTONES_BYTES_MAX = 16_384
"""Bytes of keys in one batch, as in Kafka. A batch has at least one tombstone."""
TOMBSTONE_OVERHEAD_BYTES = 32


def has_timed_out(machine: TransactionStateManager, transaction: TransactionMetadata, now_ms: int) -> bool:
    """Whether the transaction was open longer than its timeout and is not being ended."""
    return (
        transaction.pending_state is None
        and transaction.values.has_timed_out(now_ms)
        and machine.transactions.get(transaction.transactional_id) is transaction
    )


def abort_timed_out(
    machine: TransactionStateManager, transactional_id: str, now_ms: int
) -> TransactionResult[Ended]:
    """Raises Refused. The next round then tries again."""
    transaction = machine.find(transactional_id)
    if transaction.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return fence(machine, transaction, now_ms)


def expired_records(
    machine: TransactionStateManager, stretch: Iterable[TransactionMetadata], now_ms: int
) -> list[TransactionResult[None]]:
    """Tombstones, in batches, for ids at rest that were not used for transactional.id.expiration.ms."""
    latest_ms = now_ms - machine.env.settings.expiration_ms
    results = []
    group: list[TransactionMetadata] = []
    size = 0
    for transaction in stretch:
        values = transaction.values
        if machine.transactions.get(transaction.transactional_id) is not transaction:
            continue
        if (
            transaction.pending_state is None
            and values.state in AT_REST
            and values.last_update_ms <= latest_ms
        ):
            own = (
                len(transaction.transactional_id.encode("utf-8", "surrogatepass")) + TOMBSTONE_OVERHEAD_BYTES
            )
            if group and size + own > TOMBSTONES_BYTES_MAX:
                results.append(_forget(machine, group))
                group, size = [], 0
            group.append(transaction)
            size += own
    if group:
        results.append(_forget(machine, group))
    return results


def _forget(machine: TransactionStateManager, group: list[TransactionMetadata]) -> TransactionResult[None]:
    records: list[TransactionRecord] = []
    for transaction in group:
        transaction.pending_state = TransactionState.DEAD
        records.append(machine.tombstone(transaction))

    def committed(code: ErrorCode, now_ms: int) -> None:
        for transaction in group:
            if code is ErrorCode.NONE:
                machine.transactions.pop(transaction.transactional_id, None)
            else:
                transaction.drop_transition()

    return CoordinatorResult(tuple(records), None, replay=False, committed=committed)
