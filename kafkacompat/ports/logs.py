"""The interfaces of logs for partitions, coordinators and handlers: one partition's log, and all logs of a node.

Protocols and their values; nothing here acts. The package log implements them on top of the Disk port.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.ports.files import FileSlice

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import OffsetAndEpoch, TopicPartition, Uuid
    from kafkacompat.ports.files import Buffer
    from kafkacompat.wire.errors import ErrorCode


class Fault(enum.Enum):
    """What is wrong with produced records, as far as Kafka counts it."""

    CRC = "the crc of a batch"
    OFFSET_OR_SEQUENCE = "the offsets or the sequence number of a batch, or a control batch"
    NO_KEY = "a record without a key for a compacted topic"


class LogRefused(Exception):
    """An expected refusal of an append or read, with Kafka's error code."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
        fault: Fault | None = None,
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.record_errors = tuple(record_errors)
        """(index of the record in the batch, message) for single invalid records."""
        self.fault = fault


class RefusedAtSight(LogRefused):
    """A refusal because of the structure of the produced bytes, before the log is used: it has no data of the log."""


class IndexesRebuilt(LogRefused):
    """Indexes that the operation needs are damaged and are being rebuilt. It will succeed afterwards."""


@dataclass(slots=True)
class AppendInfo:
    """The result of an append. For a duplicate of an idempotent producer: the original's values and duplicate=True."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses append time."""
    duplicate: bool = False


EMPTY_RECORDS = b""
Records = FileSlice | bytes
"""The result of a read: a slice of one segment file, or b'' for nothing."""


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int


@dataclass(slots=True)
class LogRead:
    records: Records
    first_batch_truncated: bool = False
    """True if max_bytes was below the size of the first batch, and minimum_one_batch was not requested."""
    end_offset: int = -1
    """An offset above every record of the slice, at most an index interval further. -1 without records."""


@dataclass(slots=True)
class TimestampOffset:
    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class ProducerStateEntry:
    """An active producer for DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    """-1 if there is none."""


class VerificationGuard:
    """A transactional producer that may open a transaction in a partition after its coordinator has verified it
    (KIP-890).

    It is created before the coordinator is asked and passed to the append afterwards. A marker in between makes it
    invalid.
    """

    __slots__ = ("bumps_epochs", "epoch", "lowest_sequence", "timestamp_ms")

    def __init__(self, epoch: int, lowest_sequence: int, bumps_epochs: bool, timestamp_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """The lowest sequence of the batches so far. -1 without sequences."""
        self.bumps_epochs = bumps_epochs
        """The client has a new epoch for each transaction (transaction.version 2), so each begins with sequence 0."""
        self.timestamp_ms = timestamp_ms


class TransactionTerms:
    """The rules for the append of a transaction's batch or marker."""

    __slots__ = ("from_client", "transaction_version", "verification_guard")

    def __init__(
        self,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = 0,
        *,
        from_client: bool = True,
    ) -> None:
        self.verification_guard = verification_guard
        """For data: required to open a transaction, not to continue an open one."""
        self.transaction_version = transaction_version
        """For a marker: the transaction.version whose epoch rule applies."""
        self.from_client = from_client
        """False for a coordinator's batches: each begins with sequence number 0, so their sequences do not follow one
        another."""


class Log(Protocol):
    """The log of one partition: synchronous, one thread. Offsets are absolute, sizes in bytes.

    An append runs in this order: sequence check, stamp offsets and epoch, epoch cache, roll, write, producer state.
    The caller moves the high watermark. If the write fails, nothing has changed and OSError is raised.
    """

    topic_partition: TopicPartition
    topic_id: Uuid
    directory: str
    """The path of the log's own directory, inside a log directory."""
    config: LogConfig
    log_start_offset: int
    local_log_start_offset: int
    """The first offset in the local files. What lies below it, from the log start on, is in the remote storage. Of a log
    that is not tiered it is the log start."""
    highest_offset_in_remote_storage: int
    """The last offset that is known to be there. -1 if none is."""
    is_tiered: bool
    """Whether closed segments are copied to the remote storage (remote.storage.enable)."""
    log_end_offset: int
    high_watermark: int
    is_durable: bool
    """False for a new log until its directory and topic id are durable. Until then its high watermark does not move."""

    @property
    def producer_count(self) -> int:
        """Producer ids that the log remembers."""
        ...

    def oldest_open_timestamp_ms(self) -> int:
        """When the producer of the earliest open transaction has last written, by the wall clock. -1: none is open."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, otherwise the high watermark. Never above that, nor below the
        log's start."""
        ...

    def append_as_leader(
        self, batch: Any, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        """Append one validated batch (records.validate.ValidatedBatch). Raises LogRefused for sequence and size
        errors.

        With `terms`, a transactional batch must be verified or its transaction open (INVALID_TXN_STATE).
        """
        ...

    def append_next(
        self,
        batch: Buffer,
        size: int,
        record_count: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        leader_epoch: int,
    ) -> int:
        """Append a valid data batch of a client, outside a transaction, if it needs no closer look: it fits into the active
        segment, and its producer is known and goes on. Returns its first offset. Otherwise -1, without any effect, and
        `append_as_leader` decides."""
        ...

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """None if the producer's transaction is already open here. Raises LogRefused INVALID_PRODUCER_EPOCH."""
        ...

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append whole batches as the leader sent them, with their offsets."""
        ...

    def end_mirror(self, first_epoch: int, leader_epoch: int) -> bool:
        """Abort the open transactions and forget the producers of the cluster from which a mirror has brought everything
        below `first_epoch`. Returns False if there are more, so that it is to be called again before any other append."""
        ...

    def set_high_watermark(self, offset: int) -> None:
        """Limited to [log start, log end]. Only a truncation lowers it."""
        ...

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        """Whole batches from the one that contains the offset on, within one segment, cut at max_bytes and at the
        bound.

        Raises LogRefused OFFSET_OUT_OF_RANGE outside [log start, log end], and OFFSET_MOVED_TO_TIERED_STORAGE below the
        local log start.
        """
        ...

    def aborted_transactions(
        self, fetch_offset: int, upper_bound_offset: int, most: int
    ) -> tuple[list[AbortedTransaction], int]:
        """Aborted transactions that overlap [fetch offset, upper bound), by first offset, and the upper bound.

        If there are more than `most`, the upper bound is lower, but above the fetch offset: the first offset of a
        transaction, up to which the caller may read again. Only of transactions that were open together there may still
        be more.
        """
        ...

    def with_aborted(
        self, offset: int, read: LogRead, max_bytes: int, minimum_one_batch: bool, most: int
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        """What was read at an offset, with the aborted transactions that overlap it. Less of it if there are more than `most`.
        Raises as `read`."""
        ...

    def readable_bytes(self, offset: int, upper_bound_offset: int) -> int:
        """Bytes from the batch that contains the offset to the bound (for fetch.min.bytes), over all segments."""
        ...

    def producers_as_of(self, offset: int) -> Generator[int, None, Any]:
        """What a truncation at an offset has to know of producers: a `tasks.Work`, because it may be long to read."""
        ...

    def truncate_to(self, offset: int, now_ms: int = 0, producers: Any = None) -> None:
        """`producers`: of `producers_as_of`, just before. Without it they are read in this step."""
        ...

    def truncate_fully_and_start_at(self, offset: int, *, anew: bool = False) -> None:
        """Drop everything. Of a tiered log, the start and the epochs below the offset stay unless it begins `anew`."""
        ...

    def take_remote_part_of(self, log: Log) -> None:
        """This log takes the place of another, which begins in the remote storage. Raises OSError."""
        ...

    def start_after_remote_segment(
        self,
        offset: int,
        log_start_offset: int,
        epochs: Iterable[tuple[int, int]],
        producer_snapshot: bytes,
    ) -> bool:
        """Drop everything, and begin where a remote segment ends, with its epochs and producers. False if it must be called
        again to drop the rest."""
        ...

    def increment_log_start_offset(self, offset: int) -> bool: ...

    def latest_epoch(self) -> int:
        """-1 if the log has no epoch."""
        ...

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None: ...

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs, ascending."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Kafka's endOffsetFor: (offset, epoch), both -1 if undefined."""
        ...

    def epoch_for_offset(self, offset: int) -> int: ...

    def begin_lookup(self, timestamp_ms: int | None) -> OffsetSearch:
        """A search for the first record at or after the timestamp and at or above log start. None: for the record with
        the largest timestamp."""
        ...

    def finish_lookup(self, lookup: Any) -> bool:
        """Take over a finished search. Returns False if the log has changed meanwhile: search again. Raises
        LogRefused, OSError, or the error for unreadable batches."""
        ...

    def size_bytes(self) -> int: ...

    def segment_base_offset(self, offset: int) -> int:
        """Base offset of the segment that contains the offset. A parked fetch is due when it changes."""
        ...

    def active_producers(self) -> Iterator[ProducerStateEntry]: ...

    def begin_making_durable(self) -> Any:
        """The work that makes a new log durable, for log.flush.make_durable in a worker. `finish_flush` follows."""
        ...

    def begin_flush(self) -> LogFlush:
        """What must be synced at this moment. In the loop's thread; does not block."""
        ...

    def finish_flush(self, flush: Any) -> None:
        """The LogFlush has run: advance the recovery point."""
        ...


class OffsetSearch(Protocol):
    """One search by time. Its result counts once `finish_lookup` accepts it."""

    found: TimestampOffset | None
    abandoned: bool
    """Set when the answer is no longer needed: the search may end."""

    def run(self, most: int = ...) -> bool:
        """Do a piece of the search, in units of about a record. Blocks, so a worker calls it. Returns whether the search
        is over. Errors are kept for `finish_lookup`."""
        ...

    def give_up(self) -> None:
        """Free what an unfinished search has in memory."""
        ...


class LogFlush(Protocol):
    def run(self) -> None:
        """fsync. Blocks, so a worker calls it, while appends continue. Raises SyncFailed, also if an earlier sync of
        this log has failed. Any other OSError means that the sync could not begin."""
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
    """Copies that will replace current logs in other directories."""


class PreparedLog(Protocol):
    """The files of a new log, created in advance."""

    topic_partition: TopicPartition
    topic_id: Uuid

    def run(self) -> None:
        """Create them. Blocks; any thread; never raises OSError."""
        ...


class Plan(Protocol):
    """Work on files, prepared in the loop's thread."""

    def run(self) -> None:
        """The blocking part. It touches nothing of the loop's."""
        ...

    def finish(self) -> bool | None:
        """Take over the result, in the loop's thread, after `run`. Returns True if more work should be done at once."""
        ...


class LogManager(Protocol):
    """Every partition's log, and the log directories."""

    def get(self, topic_partition: TopicPartition) -> Log | None: ...

    def when_offline(self, on_offline: Callable[[Sequence[TopicPartition]], None]) -> None:
        """`on_offline` is called with the partitions of each directory that fails."""
        ...

    closed: bool
    """True after a clean stop: nothing may be opened any more."""

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> Log:
        """The partition's log. A new one goes into the directory with that id, if it is online. `is_new`: no earlier
        start of this node can have created it. Raises OSError, or LogRefused KAFKA_STORAGE_ERROR."""
        ...

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is here, or may be in an offline directory."""
        ...

    def is_short(self, error: BaseException | None) -> bool:
        """Whether the refused operation may succeed later, when there is space or there are descriptors again."""
        ...

    def may_make(self, topic_partition: TopicPartition) -> bool:
        """False while the checkpoints have entries of a deleted log of that name. Call `clear_names` first."""
        ...

    def clear_names(self, names: Sequence[TopicPartition]) -> Plan | None:
        """Prepare these names for new logs. Returns the work to do first, or None."""
        ...

    def when_true(self, log: Log) -> Deferred[None]:
        """Resolve when no checkpoint has an offset that is too high for a log. For logs that were truncated."""
        ...

    def prepare(
        self, topic_partition: TopicPartition, topic_id: Uuid, directory_id: Uuid | None = None
    ) -> PreparedLog:
        """For a partition without a log: run it in a worker, then `place` or `discard` it. Raises LogRefused."""
        ...

    def place(self, prepared: Any, config: LogConfig) -> bool:
        """Use the result of `prepare` as the partition's log. Returns False if it is unusable and `get_or_create` must
        create the log."""
        ...

    def discard(self, prepared: Any) -> None:
        """Remove the result of `prepare`, which is not needed."""
        ...

    def partition_failed(self, topic_partition: TopicPartition, error: OSError) -> None:
        """An operation on the partition's files has failed. The directory goes offline unless a write met a full disk
        or a similar error."""
        ...

    def log_failed(self, log: Log, error: OSError) -> None:
        """Like partition_failed, if `log` is still the partition's log."""
        ...

    def delete_later(self, topic_partition: TopicPartition) -> None:
        """Rename the directory to <name>.<uuid>-delete now, and remove it after file.delete.delay.ms."""
        ...

    def log_dirs(self) -> list[LogDirStatus]: ...
