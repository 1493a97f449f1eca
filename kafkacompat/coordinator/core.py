"""What a coordinator's machine and the runtime agree upon.

The result of an operation, the machine and the log as the runtime sees them, and the refusal that reaches a client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkacompat.ports import VerificationGuard
from kafkacompat.wire.decoder_source import STEP_UNITS
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Buffer, Log, TransactionTerms

R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[R, T]):
    """Records go to the partition as one batch; the response leaves once they are committed.

    With `replay` the machine's `replay` is called for each record once the log has it. Without, the operation has changed
    the state itself, as classic membership does; `refused` then undoes it when the log has not taken the records. It is not
    called when they are in the log and only the wait for the replicas failed: they may be committed any time, and others may use
    what they say. `committed` is called, after `refused`, with the wall clock's ms and NONE when the records are committed, or
    what a client is told of the failure; its own result is carried out like any other.
    """

    records: tuple[R, ...]
    response: T
    replay: bool = True
    refused: Callable[[], None] | None = None
    committed: Callable[[ErrorCode, int], CoordinatorResult[R, Any] | None] | None = None

    def answering(self, response: U) -> CoordinatorResult[R, U]:
        """The same with another response."""
        return CoordinatorResult(self.records, response, self.replay, self.refused, self.committed)


class Refused(Exception):
    """An operation's expected refusal; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message


class LoadFailure(Exception):
    """The partition holds what this machine cannot read: the shard stays failed and the files stay as they are."""


@dataclass(frozen=True, slots=True)
class InTransaction:
    """Whose transaction an operation's records belong to; `verification_guard` as the log gave it, None where none is needed."""

    producer_id: int
    epoch: int
    verification_guard: VerificationGuard | None = None


class Machine(Protocol[R]):
    """One shard's replayed state. `producer_id` is -1 outside transactions."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value bytes; None is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The record, or None for a kind that is not known and to be passed over. Raises LoadFailure."""
        ...

    def replay(self, record: R, offset: int, producer_id: int) -> None: ...

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        """`decode` and `replay` of a value that may hold very much, in pieces, each of which says what it has cost.
        False for a kind that is not known."""
        ...

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> None: ...

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[R, None] | None]:
        """Everything has been replayed: start timers; what must be written now. None after a little that wrote nothing.

        The shard is active already: between two steps anybody may have changed what is there.
        """
        ...

    def unload(self, now_ms: int) -> Iterator[int]:
        """Leadership is gone: answer whoever is parked. Timers are dropped by the runtime. What each step has cost."""
        ...

    def take_apart(self) -> Iterator[int]:
        """Nobody needs the state any more. What each step has cost."""
        ...

    def take_replies(self) -> list[tuple[Any, Any]]:
        """(Deferred, message) to send now, in order; the list is the caller's."""
        ...


class PartitionWriter(Protocol):
    """The partitions of one internal topic, by index."""

    def append(self, partition: int, batch: Buffer) -> tuple[ErrorCode, int]:
        """(NONE, last offset), or the error and -1."""
        ...

    def append_transactional(
        self, partition: int, batch: Buffer, terms: TransactionTerms
    ) -> tuple[ErrorCode, int]:
        """As `append`, a batch of a transaction or a marker."""
        ...

    def when_committed(self, partition: int, end_offset: int) -> Deferred[ErrorCode] | None:
        """None when the high watermark is there already; else NONE once it is, or what went wrong."""
        ...

    def log(self, partition: int) -> Log | None:
        """The log when this node leads the partition."""
        ...


UNBOUNDED = 1 << 62
"""Bytes."""
LOADED_ELEMENTS_MAX = 1_000_000
"""Members, partitions and the like that one value of a coordinator's log may name: each takes up to a kilobyte."""
ELEMENT_COST = 6
"""Of one of those, to decode it or to take it over."""
STEP_COST = STEP_UNITS * ELEMENT_COST
"""Of a step of decoding."""
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def client_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator's own write fails with this code."""
    return _APPEND_ERRORS.get(code, code)
