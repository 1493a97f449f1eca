"""One transactional id: its states and the allowed transitions, the values of its last record, and the pending transition.

Numbers and names of the states are those of Kafka's TransactionState. PREPARE_EPOCH_FENCE is only ever pending, DEAD is the state
between an id's expiry and its tombstone, and neither is ever written. At most one step is pending, and only steps in the table of
transitions are allowed. As in Kafka, a step is prepared (pending), written, and then completed or dropped. The values never change
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from enum import IntEnum

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from kafkacompat.memory import Held


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

STATE_NAMES: Mapping[TransactionState, str] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}
STATES_BY_NAME: Mapping[str, TransactionState] = {name: state for state, name in STATE_NAMES.items()}

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open or being ended."""
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETED = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""State -> the states it may follow. An abort without a transaction is from KIP-890 and only increments the epoch."""

COMPLETION_OF: Mapping[TransactionState, TransactionState] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}


MAX_EPOCH = 32_767
MAX_PRODUCER_EPOCH_FOR_CLIENTS = MAX_EPOCH - 1
"""The next higher epoch is reserved for fencing."""
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout in the record of a producer with two-phase commit. Its transactions do not time out (KIP-939)."""
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
EPOCH_BUMP_VERSION = 2
"""From this transaction.version on, each transaction has a new epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TxnTransitMetadata:
    """The contents of a record, and `last_producer_epoch`, which is not in the record: the epoch before the last
    increment.

    It is -1 if a retry does not need it.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    prev_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    """The transaction.version of the client's last request."""
    last_producer_epoch: int = NO_EPOCH

    def next_transaction(self, now_ms: int) -> TxnTransitMetadata:
        """The beginning of another transaction. It has of the last one only what is named here."""
        return TxnTransitMetadata(
            self.producer_id,
            self.epoch,
            self.timeout_ms,
            TransactionState.ONGOING,
            now_ms,
            start_ms=now_ms,
            last_producer_epoch=self.last_producer_epoch,
        )

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    def is_past_its_timeout(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )


def is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_PRODUCER_EPOCH_FOR_CLIENTS


class IllegalTransition(RuntimeError):
    """A bug in kafkacompat: a step that is not in the table, or a second one while one is pending."""


class TransactionMetadata:
    __slots__ = ("_held", "has_failed_epoch_fence", "marked", "pending_state", "transactional_id", "values")

    def __init__(self, transactional_id: str, values: TxnTransitMetadata, held: Held | None = None) -> None:
        """`held`: the memory that is counted for it."""
        self._held = held
        self.transactional_id = transactional_id
        self.values = values
        self.pending_state: TransactionState | None = None
        """The state that is being written."""
        self.marked: Set[TopicPartition] = NO_PARTITIONS
        """The partitions of a prepared transaction that have their marker, or are gone."""
        self.has_failed_epoch_fence = False
        """The epoch was incremented to fence a producer, but the write failed. It need not be incremented again."""

    @property
    def is_fencing(self) -> bool:
        return self.pending_state is TransactionState.PREPARE_EPOCH_FENCE

    def prepare_transition_to(self, values: TxnTransitMetadata) -> TxnTransitMetadata:
        """Make the step pending. The previous producer id is the present one."""
        if self.pending_state is not None:
            raise IllegalTransition(
                f"{self.transactional_id}: {values.state.name} while {self.pending_state.name} is pending"
            )
        if self.values.state not in VALID_PREVIOUS_STATES[values.state]:
            raise IllegalTransition(
                f"{self.transactional_id}: {values.state.name} cannot follow {self.values.state.name}"
            )
        self.pending_state = values.state
        return replace(values, prev_producer_id=self.values.producer_id)

    def prepare_fence_producer_epoch(self) -> int:
        """Begin to fence the producer. Returns the epoch that fences it."""
        values = self.values
        self.prepare_transition_to(replace(values, state=TransactionState.PREPARE_EPOCH_FENCE))
        return values.epoch if self.has_failed_epoch_fence or values.epoch == MAX_EPOCH else values.epoch + 1

    def complete_transition_to(self, values: TxnTransitMetadata) -> None:
        """The pending step is in the log: adopt its values."""
        if self.pending_state is not values.state:
            raise IllegalTransition(f"{self.transactional_id}: {values.state.name} was not pending")
        self.pending_state = None
        self.values = values

    def drop_transition(self) -> None:
        """The pending step could not be written."""
        self.pending_state = None
