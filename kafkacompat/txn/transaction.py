"""One transactional id: what its last record says, and the step that is on its way to the log.

Duty: hold the values, let at most one step be pending, and refuse steps that the table does not have. Must not know: requests,
the log. A step is prepared (pending), written, and then taken or dropped, as in Kafka; the values never change otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from kafkacompat.txn.states import SOURCES, TransactionState

MAX_EPOCH = 32_767
LAST_EPOCH_FOR_CLIENTS = MAX_EPOCH - 1
"""The one above is kept for fencing."""
NO_TIMESTAMP = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
EPOCH_BUMP_VERSION = 2
"""From this transaction.version on each transaction has an epoch of its own (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TransactionValues:
    """What a record says, and `last_epoch`, which none does: the epoch before the last bump, -1 when a retry has no use of it."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """transaction.version of the client's last request."""
    last_epoch: int = NO_EPOCH

    @property
    def epoch_is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH_FOR_CLIENTS


class IllegalTransition(RuntimeError):
    """A bug of ours: a step that the table does not have, or a second one while one is pending."""


class Transaction:
    __slots__ = ("failed_fence", "pending", "transactional_id", "values")

    def __init__(self, transactional_id: str, values: TransactionValues) -> None:
        self.transactional_id = transactional_id
        self.values = values
        self.pending: TransactionState | None = None
        """The state that is being written."""
        self.failed_fence = False
        """The epoch was raised to fence a producer, but that could not be written: it need not be raised again."""

    @property
    def is_fencing(self) -> bool:
        return self.pending is TransactionState.PREPARE_EPOCH_FENCE

    def prepare(self, values: TransactionValues) -> TransactionValues:
        """Make the step pending. The previous producer id is the one in force until now."""
        if self.pending is not None:
            raise IllegalTransition(
                f"{self.transactional_id}: {values.state.name} while {self.pending.name} is pending"
            )
        if self.values.state not in SOURCES[values.state]:
            raise IllegalTransition(
                f"{self.transactional_id}: {values.state.name} cannot follow {self.values.state.name}"
            )
        self.pending = values.state
        return replace(values, previous_producer_id=self.values.producer_id)

    def prepare_fence(self) -> int:
        """Begin to fence the producer; the epoch that does it."""
        values = self.values
        self.prepare(replace(values, state=TransactionState.PREPARE_EPOCH_FENCE))
        return values.epoch if self.failed_fence or values.epoch == MAX_EPOCH else values.epoch + 1

    def take(self, values: TransactionValues) -> None:
        """The pending step is in the log."""
        if self.pending is not values.state:
            raise IllegalTransition(f"{self.transactional_id}: {values.state.name} was not pending")
        self.pending = None
        self.values = values

    def drop_step(self) -> None:
        """The pending step could not be written."""
        self.pending = None
