"""What a partition, a coordinator or a handler knows of logs: one partition's, and all of a node's.

Protocols, the values that cross them, and nothing that acts. The package log implements them over the disk's door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.ports.files import FileSlice

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import OffsetAndEpoch, TopicPartition, Uuid
    from kafkacompat.ports.files import Buffer
    from kafkacompat.wire.errors import ErrorCode


class LogRefused(Exception):
    """An expected refusal of an append or read, with Kafka's error code."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.record_errors = tuple(record_errors)
        """(index of the record in the batch, message) where single records are to blame."""


class RefusedAtSight(LogRefused):
    """By the shape of what was produced, before the log is looked at: nothing is told of the log."""


@dataclass(slots=True)
class AppendInfo:
    """What an append did. For a duplicate of an idempotent producer: the original's figures and duplicate=True."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps append time."""
    duplicate: bool = False


EMPTY_RECORDS = b""
Records = FileSlice | bytes
"""What a read gives: a slice of one segment file, or b'' when there is nothing."""


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int


@dataclass(slots=True)
class LogRead:
    records: Records
    first_batch_truncated: bool = False
    """True when max_bytes was below the first batch and minimum_one_batch was not asked."""
    end_offset: int = -1
    """Above every record of the slice, and at most an index interval further; -1 with no records."""


@dataclass(slots=True)
class TimestampOffset:
    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class ProducerStateEntry:
    """An active producer as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    """-1 when none."""


class VerificationGuard:
    """A transactional producer that may open a transaction at a partition once its coordinator has said so (KIP-890).

    Made before the coordinator is asked and handed to the append afterwards; a marker that came in between has ended it.
    """

    __slots__ = ("bumps_epochs", "epoch", "lowest_sequence", "timestamp_ms")

    def __init__(self, epoch: int, lowest_sequence: int, bumps_epochs: bool, timestamp_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """Of the batches that have come so far; -1 without sequences."""
        self.bumps_epochs = bumps_epochs
        """The client has an epoch a transaction (transaction.version 2), so each begins with sequence 0."""
        self.timestamp_ms = timestamp_ms


class TransactionTerms:
    """What an append of a transaction's batch or marker is held to, besides the batch itself."""

    __slots__ = ("transaction_version", "verification_guard")

    def __init__(
        self, verification_guard: VerificationGuard | None = None, transaction_version: int = 0
    ) -> None:
        self.verification_guard = verification_guard
        """For data: needed to open a transaction; one that is open already goes on without."""
        self.transaction_version = transaction_version
        """For a marker: the transaction.version whose rule of epochs it is held to."""


class Log(Protocol):
    """The log of one partition: synchronous, one thread. Offsets are absolute, sizes in bytes.

    Order kept by an append: sequence check, offsets and epoch stamped, epoch cache, roll, write, producer state,
    high watermark left to the caller. If the write fails nothing has changed and OSError passes through.
    """

    topic_partition: TopicPartition
    topic_id: Uuid
    directory: str
    """The path of its own, which lies in that of a log directory."""
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    is_anchored: bool
    """False for a new one, until its directory and its topic's id are durable: its high watermark stands still."""

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, else the high watermark; never above it nor below the log's start."""
        ...

    def append_as_leader(
        self, batch: Any, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        """Append one validated batch (records.validate.ValidatedBatch). Raises LogRefused for sequence and size errors.

        With `terms` a transactional batch must be verified or its transaction open (INVALID_TXN_STATE).
        """
        ...

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """None when the producer's transaction is open here already. Raises LogRefused INVALID_PRODUCER_EPOCH."""
        ...

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append whole batches as they came from the leader, offsets already given."""
        ...

    def set_high_watermark(self, offset: int) -> None:
        """Clamped to [log start, log end]; never lowered but by truncation."""
        ...

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        """Whole-batch aligned start, from the batch that holds offset, within one segment, cut at max_bytes, not past the bound.

        Raises LogRefused OFFSET_OUT_OF_RANGE outside [log start, log end].
        """
        ...

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """Those that overlap [fetch offset, upper bound), wherever they began and ended, by first offset."""
        ...

    def readable_bytes(self, offset: int, upper_bound_offset: int) -> int:
        """Bytes between the batch holding offset and the bound (for fetch.min.bytes); summed over segments."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def increment_log_start_offset(self, offset: int) -> bool: ...

    def latest_epoch(self) -> int:
        """-1 when the log knows none."""
        ...

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Kafka's endOffsetFor: (offset, epoch), both -1 when undefined."""
        ...

    def epoch_for_offset(self, offset: int) -> int: ...

    def begin_lookup(self, timestamp_ms: int | None) -> OffsetSearch:
        """Of the first record at or after the timestamp and at or above log start; None: of the one with the largest timestamp."""
        ...

    def finish_lookup(self, lookup: Any) -> bool:
        """Its search ran: False when the log has changed meanwhile, so that another is needed. LogRefused, OSError, or what
        tells of unreadable batches."""
        ...

    def size_bytes(self) -> int: ...

    def segment_base_offset(self, offset: int) -> int:
        """Base of the segment that holds offset (a parked fetch is due when this changes)."""
        ...

    def active_producers(self) -> Iterator[ProducerStateEntry]: ...

    def begin_anchoring(self) -> Any:
        """What makes a new log durable, for log.flush.anchor in a worker, and `finish_flush` after it."""
        ...

    def begin_flush(self) -> LogFlush:
        """What has to be synced as of now; the loop's thread, does not block."""
        ...

    def finish_flush(self, flush: Any) -> None:
        """The LogFlush ran: the recovery point moves."""
        ...


class OffsetSearch(Protocol):
    """One search by time. What it found counts once `finish_lookup` says so."""

    found: TimestampOffset | None
    abandoned: bool
    """Set when nobody wants the answer any more: the search may end."""

    def run(self) -> None:
        """Blocks, so a worker calls it; keeps what goes wrong for `finish_lookup`."""
        ...


class LogFlush(Protocol):
    def run(self) -> None:
        """fsync; blocks, so a worker calls it, while appends go on. SyncFailed, also when an earlier one of this log has failed;
        any other OSError says that it could not begin."""
        ...


@dataclass(slots=True)
class LogDirStatus:
    path: str
    directory_id: Uuid
    online: bool
    total_bytes: int
    usable_bytes: int
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    futures: Mapping[TopicPartition, Log] = field(default_factory=dict)
    """Copies that are to take the place of current logs in other directories."""


class PreparedLog(Protocol):
    """Files of a new log, made aside."""

    topic_partition: TopicPartition
    topic_id: Uuid

    def run(self) -> None:
        """Make them. Blocks; any thread; never raises OSError."""
        ...


class Plan(Protocol):
    """Work with files, prepared in the loop's thread."""

    def run(self) -> None:
        """The blocking part; touches nothing of the loop's."""
        ...

    def finish(self) -> bool | None:
        """After `run`, in the loop's thread: take over what came of it. True: more of it is to be done at once."""
        ...


class LogManager(Protocol):
    """Owns every partition's log and the log directories."""

    def get(self, topic_partition: TopicPartition) -> Log | None: ...

    on_offline: Callable[[Sequence[TopicPartition]], None]
    """Told which partitions a failed directory took along."""
    closed: bool
    """After a clean stop: nothing may be opened any more."""

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> Log:
        """A new log goes into the directory of that id, if it is online. `is_new`: no earlier start of this node can have made
        it. OSError, or LogRefused KAFKA_STORAGE_ERROR."""
        ...

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is here, or may lie in a directory that is offline."""
        ...

    def is_short(self, error: BaseException | None) -> bool:
        """Whether what was refused for it may be done later: for want of room, or of descriptors."""
        ...

    def may_make(self, topic_partition: TopicPartition) -> bool:
        """False while the checkpoints speak of a log of that name that has gone: `clear_names` first."""
        ...

    def clear_names(self, names: Sequence[TopicPartition]) -> Plan | None:
        """What has logs of these names made; None when nothing stands in their way."""
        ...

    def when_true(self, log: Log) -> Deferred[None]:
        """There once no checkpoint says more of a log than is true: it was cut back."""
        ...

    def prepare(
        self, topic_partition: TopicPartition, topic_id: Uuid, directory_id: Uuid | None = None
    ) -> PreparedLog:
        """For a partition without a log: run it in a worker, then `place` or `discard` it. LogRefused."""
        ...

    def place(self, prepared: Any, config: LogConfig) -> bool:
        """Take what `prepare` gave for the partition's log; False when it was of no use and `get_or_create` has to make it."""
        ...

    def discard(self, prepared: Any) -> None:
        """What `prepare` gave is not wanted any more."""
        ...

    def partition_failed(self, topic_partition: TopicPartition, error: OSError) -> None:
        """An operation on its files failed; its directory goes offline unless a write met a full disk or the like."""
        ...

    def log_failed(self, log: Log, error: OSError) -> None:
        """As partition_failed, while the log is that partition's."""
        ...

    def delete_later(self, topic_partition: TopicPartition) -> None:
        """Rename to <name>.<uuid>-delete now, remove after file.delete.delay.ms."""
        ...

    def log_dirs(self) -> list[LogDirStatus]: ...
