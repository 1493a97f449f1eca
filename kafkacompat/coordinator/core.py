"""The interfaces between a coordinator's machine and the runtime.

They are the result of an operation, the machine and the log as the runtime uses them, and the refusal sent to a
client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NewType, Protocol, TypeAlias, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ports import VerificationGuard
from kafkacompat.records.record import Record, encode_records
from kafkacompat.wire.codec import steps_decoder
from kafkacompat.wire.codec_source import STEP_UNITS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Log, TransactionTerms
    from kafkacompat.tasks import Work


M = TypeVar("M", bound=Message)
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")

Caller = NewType("Caller", object)
"""Whoever waits for a reply. A machine keeps it and returns it in a reply. Only the runtime knows what it is."""
Reply: TypeAlias = tuple[Caller, Message]


@dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[R, T]):
    """The result of an operation. Its records are appended as one batch, and the response is sent once they are
    committed.

    - With `replay`, the machine's `replay` is called for each record after the append. Without it, the operation has
      already changed the state itself, as classic membership does.
    - `refused` undoes such a change if the log has refused the records. It is not called if they are in the log and
      only the wait for the replicas failed: they may still be committed, and others may already use them.
    - `committed` is called after `refused`, with the wall clock in ms and with NONE once the records are committed, or
      the error that the client gets. Its own result is carried out like any other.
    - `replies` go to parked requests, in order, once the records are in the log or refused. They do not wait for the
      commit. What has to wait for it is in the result of `committed`.
    """

    records: tuple[R, ...]
    response: T
    replay: bool = True
    refused: Callable[[], None] | None = None
    committed: Callable[[ErrorCode, int], CoordinatorResult[R, Any] | None] | None = None
    replies: Sequence[Reply] = ()

    def answering(self, response: U) -> CoordinatorResult[R, U]:
        """The same result with another response."""
        return CoordinatorResult(
            self.records, response, self.replay, self.refused, self.committed, self.replies
        )

    def after(self, replies: Sequence[Reply]) -> CoordinatorResult[R, T]:
        """The same result with these replies before its own."""
        if not replies:
            return self
        together = (*replies, *self.replies) if self.replies else replies
        return CoordinatorResult(
            self.records, self.response, self.replay, self.refused, self.committed, together
        )


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Records that are encoded already. A run comes first among the records of its operation, or alone outside transactions. It
    is not replayed record by record: `apply` puts the state that they make in place."""

    count: int
    size: int
    """Bytes of all keys and values."""
    body: bytes
    """The records as in a batch, with offset deltas from 0 on and without timestamp deltas."""
    apply: Callable[[int], object] | None = None
    """It gets the offset of the first record."""


def encoded_run(encoded: Iterable[tuple[bytes, bytes | None]]) -> Generator[int, None, RecordRun]:
    """The run of these keys and values, in steps that report their cost."""
    body = bytearray()
    count = size = 0
    for key, value in encoded:
        body += encode_records([Record(count, 0, key, value)], 0)
        count += 1
        size += len(key) + (0 if value is None else len(value))
        yield RECORD_COST
    return RecordRun(count, size, bytes(body))


class OperationRefused(Exception):
    """An expected refusal of an operation. Nothing has changed."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message


def or_refused(answer: Deferred[T], refused: Callable[[OperationRefused], T]) -> Deferred[T]:
    """The answer, with a OperationRefused error turned into the response for it."""
    if answer.done:
        try:
            answer.result()
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))
        return answer
    outcome: Deferred[T] = Deferred()

    def done(finished: Deferred[T]) -> None:
        try:
            value = finished.result()
        except OperationRefused as refusal:
            outcome.resolve(refused(refusal))
        except Exception as error:
            outcome.fail(error)
        else:
            outcome.resolve(value)

    answer.on_done(done)
    return outcome


class LoadFailure(Exception):
    """The partition has data that this machine cannot read. The shard stays failed and the files stay as they are."""


class Damaged(LoadFailure):
    """The bytes on this node's disk cannot be read, or are not those that were written. Another replica may have them."""


@dataclass(frozen=True, slots=True)
class InTransaction:
    """The transaction of an operation's records. `verification_guard` comes from the log; None if none is needed."""

    producer_id: int
    epoch: int
    verification_guard: VerificationGuard | None = None


class Machine(Protocol[R]):
    """The replayed state of one shard. `producer_id` is -1 outside transactions."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value bytes. A value of None is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The record, or None for an unknown kind, which is skipped. Raises LoadFailure."""
        ...

    def replay(self, record: R, offset: int, producer_id: int) -> None: ...

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        """`decode` and `replay` of a value that may be very large, in steps that report their cost. Returns False for
        an unknown kind."""
        ...

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> Work[None]:
        """Take what the transaction has written, or drop it. Of an active shard no operation begins before the end, and nobody
        reads."""
        ...

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[R, None] | None]:
        """All records are replayed: start timers. Yields results to write now, or None after a short step that writes
        nothing.

        The shard is already active, so its state may change between two steps.
        """
        ...

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        """The leadership is lost: each step gives its cost, and replies to parked requests. In the end none is left. The
        runtime drops the timers."""
        ...

    def take_apart(self) -> Iterator[int]:
        """Free the state, which is no longer needed. Each step reports its cost."""
        ...


class HasMachine(Protocol):
    """A shard, for who only takes its machine."""

    @property
    def machine(self) -> Machine[Any]: ...


class PartitionWriter(Protocol):
    """The partitions of one internal topic, by index."""

    def append(self, partition: int, batch: Buffer) -> tuple[ErrorCode, int]:
        """Returns (NONE, last offset), or (error, -1)."""
        ...

    def append_built(
        self, partition: int, batch: bytearray, count: int, now_ms: int, base_sequence: int
    ) -> tuple[ErrorCode, int, bool] | None:
        """Like `append`, for a batch of `build_plain_batch`, whose records are not looked at again. Returns (NONE, first offset,
        whether it is committed), or (error, -1, False). None if it has to be given to `append`."""
        ...

    def append_transactional(
        self, partition: int, batch: Buffer, terms: TransactionTerms
    ) -> tuple[ErrorCode, int]:
        """Like `append`, for a batch of a transaction or a marker."""
        ...

    def when_committed(self, partition: int, end_offset: int) -> Deferred[ErrorCode] | None:
        """None if the high watermark has reached the offset. Otherwise a result: NONE once it has, or the error."""
        ...

    def log(self, partition: int) -> Log | None:
        """The log if this node leads the partition, otherwise None."""
        ...

    def hand_over(self, partition: int, damaged_offset: int) -> bool:
        """Have another replica lead the partition, because this one cannot be read at an offset. False if there is none
        that could."""
        ...


UNBOUNDED = 1 << 62
"""A number of bytes that is never reached."""
LOADED_ELEMENTS_MAX = 1_000_000
"""Members, partitions and similar elements that one value of a coordinator's log may contain. Each takes up to a
kilobyte."""
ELEMENT_COST = 6
"""Cost of decoding or applying one such element."""
RECORD_COST = 12
"""Cost of encoding one record of the usual size."""
STEP_COST = STEP_UNITS * ELEMENT_COST
"""Cost of one step of decoding."""


def decoded_in_steps(value_class: type[M], version: int, value: bytes) -> Generator[int, None, M]:
    """The message behind the version of a record's value, in steps that report their cost. Raises WireError."""
    steps = steps_decoder(value_class, version)(value, 2, LOADED_ELEMENTS_MAX)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: M = end.value[0]
            return message
        yield STEP_COST


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
    """The error that a client gets if the coordinator's own write fails with this code."""
    return _APPEND_ERRORS.get(code, code)
