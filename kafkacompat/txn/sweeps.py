"""Expiry in transaction shards: aborts transactions that were open too long, and removes ids that were unused too
long.

It walks all ids periodically, in steps. An id that fails is reported, and the others continue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.coordinator.rounds import TOMBSTONE_COST, Rounds, stretches
from kafkacompat.coordinator.shard import OPERATION_COST, Shard
from kafkacompat.faults import report
from kafkacompat.txn.expiry import abort_timed_out, expired_records, has_timed_out
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks, Work

logger = logging.getLogger(__name__)

_LATER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors for a timed-out transaction that another request is ending."""


class TransactionSweeps:
    """Call `start`, then `stop`. A sweep that is not complete at the next interval continues."""

    def __init__(self, clock: Clock, tasks: Tasks, shards: Iterable[Shard]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._rounds = Rounds(tasks, shards)

    def start(self, abort_interval_ms: int, expiry_interval_ms: int) -> None:
        self._rounds.plan("the sweep to abort transactions", abort_interval_ms, self._abort_timed_out)
        self._rounds.plan("the sweep to expire transactions", expiry_interval_ms, self._expire)

    def stop(self) -> None:
        self._rounds.stop()

    def _abort_timed_out(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        for transaction in list(machine.transactions.values()):
            now_ms = self._clock.now_ms()
            if has_timed_out(machine, transaction, now_ms):
                transactional_id = transaction.transactional_id
                what = f"aborting the transaction of {transactional_id!r}"
                self._tasks.start(what, self._abort(shard, transactional_id))
                yield OPERATION_COST
            else:
                yield 1

    async def _abort(self, shard: Shard, transactional_id: str) -> None:
        try:
            await shard.write(partial(abort_timed_out, machine_of(shard), transactional_id))
        except Refused as refusal:
            if refusal.code not in _LATER:
                logger.warning(
                    "the transaction of %r, whose time is over, is not aborted: %s", transactional_id, refusal
                )
        else:
            logger.info("the transaction of %r is aborted, its time is over", transactional_id)

    def _expire(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        for stretch in stretches(iter(list(machine.transactions.values()))):
            now_ms = self._clock.now_ms()
            try:
                expired = expired_records(machine, stretch, now_ms)
            except Exception as error:
                report("looking for unused transactional ids", error)
                expired = []
            for result in expired:
                self._tasks.start("forgetting unused transactional ids", _forget(shard, result))
                yield len(result.records) * TOMBSTONE_COST
            yield len(stretch)


def machine_of(shard: Shard) -> TransactionStateManager:
    machine = shard.machine
    assert isinstance(machine, TransactionStateManager)
    return machine


async def _forget(shard: Shard, result: CoordinatorResult[Any, None]) -> None:
    try:
        await shard.write(lambda _: result)
    except Refused as refusal:
        logger.warning("transactional ids that are unused stay: %s", refusal)
