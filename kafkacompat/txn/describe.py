"""DescribeTransactions and ListTransactions of one shard. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.tasks import pause
from kafkacompat.txn.records import partitions_by_topic
from kafkacompat.txn.states import STATE_NAMES, TransactionState
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_transactions_response import TopicData
from kafkacompat.wire.messages.describe_transactions_response import TransactionState as Described
from kafkacompat.wire.messages.list_transactions_response import TransactionState as Listed

if TYPE_CHECKING:
    from kafkacompat.ports import Workers
    from kafkacompat.txn.transaction_metadata import TxnTransitMetadata

LOOKED_AT_A_STEP = 1_000
"""Transactional ids handled in one step, at one or two microseconds each."""
MATCHED_AT_ONCE_CHARACTERS = 16_000
"""Characters of the ids that one job of a thread matches."""


def describe_transaction(machine: TransactionStateManager, transactional_id: str) -> Described:
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
    """The filters of a request. None, or an empty set of producer ids, accepts all."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] = frozenset()
    open_longer_than_ms: int = -1
    """A negative value accepts all."""
    matches_id: Callable[[str], bool] | None = None


async def list_transactions(
    machine: TransactionStateManager, wanted: ListFilter, now_ms: int, workers: Workers
) -> list[Listed]:
    """A worker matches a few ids at a time, because a pattern may take half a second for an id of 32,000 characters."""
    listed: list[Listed] = []
    every = list(machine.transactions.values())
    for start in range(0, len(every), LOOKED_AT_A_STEP):
        if start:
            await pause()
        some = [
            Listed(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.values.producer_id,
                transaction_state=STATE_NAMES[transaction.values.state],
            )
            for transaction in every[start : start + LOOKED_AT_A_STEP]
            if _is_wanted(transaction.values, wanted, now_ms)
        ]
        if wanted.matches_id is not None:
            some = await _matching(some, wanted.matches_id, workers)
        listed += some
    return listed


def _is_wanted(values: TxnTransitMetadata, wanted: ListFilter, now_ms: int) -> bool:
    return (
        values.state is not TransactionState.DEAD
        and (not wanted.producer_ids or values.producer_id in wanted.producer_ids)
        and (wanted.states is None or values.state in wanted.states)
        and (wanted.open_longer_than_ms < 0 or now_ms - values.start_ms > wanted.open_longer_than_ms)
    )


async def _matching(listed: list[Listed], matches: Callable[[str], bool], workers: Workers) -> list[Listed]:
    found: list[Listed] = []
    left = listed
    while left:
        characters = count = 0
        while count < len(left) and (not count or characters < MATCHED_AT_ONCE_CHARACTERS):
            characters += len(left[count].transactional_id)
            count += 1
        ids = [each.transactional_id for each in left[:count]]
        answers = await workers.submit(partial(_matches_of, matches, ids))
        found += [each for each, is_matching in zip(left, answers, strict=False) if is_matching]
        left = left[count:]
    return found


def _matches_of(matches: Callable[[str], bool], ids: list[str]) -> list[bool]:
    return [matches(each) for each in ids]
