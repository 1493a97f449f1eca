"""The partition services that handlers call, and their parameters and results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.ports import (
        AbortedTransaction,
        Buffer,
        Log,
        LogRefused,
        ProducerStateEntry,
        TransactionTerms,
        VerificationGuard,
    )
    from kafkacompat.records.batch import ValidatedBatch
    from kafkacompat.records.plain_produce import BatchFacts, PlainBounds, PlainFacts
    from kafkacompat.records.validate import Allowance, Origin
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.fetch_response import PartitionData

Pack: TypeAlias = Callable[..., Any]
"""Takes the values of wire.plain_fetch.packed_response, and returns what stands for a FetchResponse."""


@dataclass(slots=True)
class ProduceResult:
    """The result of a produce to one partition. Offsets are -1 on error."""

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader_id: int = -1
    leader_epoch: int = -1


PlainResult: TypeAlias = "tuple[int, int] | ProduceResult"
"""Of a partition: the offset of the first record and the log start, or the refusal."""


BuiltAppend: TypeAlias = "tuple[int, bool]"
"""The offset of the first record, and whether the high watermark is above the batch already."""


PlainAppends: TypeAlias = "tuple[list[PlainResult], Mapping[TopicPartition, int]]"
"""Of a plain request: the results in its order, and the end offsets of the partitions with an append or a duplicate. No ends if
all of them are known to be below the high watermarks, and nothing is to be flushed."""


@dataclass(slots=True)
class FetchRequestPartition:
    topic_id: Uuid
    topic: str | None
    """None if the id is unknown."""
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchParameters:
    replica_id: int
    """-1 for a consumer."""
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    rack_id: str
    session_id: int
    session_epoch: int
    uses_topic_ids: bool
    version: int
    listener_name: str = ""
    throttle: Callable[[int], int] | None = None
    """Records the size of the response in bytes, and returns the throttle time in milliseconds. The response to a
    throttled fetch is empty. None if no quota applies."""
    may_read: Callable[[str | None], bool] | None = None
    """Whether the topic of this name may be read. The name is None for an unknown id. Without this check, everything
    may be read."""
    tiered: list[TieredPartitionFetch] | None = None
    """What the fetch wants of the remote storage. None if it is nothing."""
    pack: Pack | None = None
    """Encodes the usual response to a fetch that has waited. None if it is to be a FetchResponse."""
    untold: Sequence[tuple[Any, Any]] | None = None
    """The Partition and the request for each of which a follower has all records, but not the newest high watermark."""


class TieredPartitionFetch(NamedTuple):
    """A consumer's read below a log's local start. The answer is empty until the remote storage has given the records."""

    core: Any
    """The Partition."""
    asked: Any
    answer: PartitionData
    max_bytes: int
    minimum_one_batch: bool


class RemoteFetch(NamedTuple):
    """What a fetch asks the remote storage for of one partition."""

    core: Any
    """The Partition."""
    offset: int
    max_bytes: int
    minimum_one_batch: bool


class FetchedRemotely(NamedTuple):
    """Whole batches, and the aborted transactions among them if they were asked for."""

    records: memoryview
    aborted_transactions: Sequence[AbortedTransaction]


@dataclass(slots=True)
class OffsetLookup:
    error: ErrorCode
    timestamp_ms: int = -1
    offset: int = -1
    leader_epoch: int = -1


class PartitionService(Protocol):
    """The owner of all partitions that this node leads or follows (partition/replica_manager.py). Handlers name a
    partition, and get values."""

    @property
    def opens_logs(self) -> bool:
        """Whether the logs of new partitions are not open yet. The first request that needs a log opens it, which
        takes as long as dozens of lookups."""
        ...

    plain_bounds: PlainBounds
    """Of what is read of a plain request."""

    def append(
        self,
        partition: TopicPartition,
        records: Buffer | ValidatedBatch | LogRefused,
        acks: int,
        api_version: int,
        internal_allowed: bool,
        terms: TransactionTerms | None = ...,
        origin: Origin = ...,
        allowance: Allowance | None = ...,
    ) -> ProduceResult:
        """Append the records.

        `terms` are the additional conditions on a transactional batch or a marker. `origin` is a client by default.
        Raises TooMuchAtOnce, before anything is appended, if the records need more time of the loop than the
        allowance.
        """
        ...

    def append_built(
        self, topic: str, batch: bytearray, facts: BatchFacts
    ) -> ProduceResult | BuiltAppend | None:
        """Append a batch that this node has built, with acks=all: without a codec, with a key in each record and one timestamp,
        which is now. Its records are not looked at. The result is a refusal if it is a ProduceResult. None, before any effect,
        if the batch needs a closer look: then `append` decides."""
        ...

    def append_plain(self, frame: memoryview, version: int, request: PlainFacts) -> PlainAppends | None:
        """Append the batches of a plain request. None, before any effect, if the partitions and their settings do not take
        all of them as they are: then `append` decides about each."""
        ...

    def validate(
        self, partition: TopicPartition, records: Buffer, api_version: int
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """Validate records for which `append` raised TooMuchAtOnce. Pass the result to `append` instead of the records."""
        ...

    def when_replicated(
        self, ends: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """Resolve with an error code for each partition (NONE if its high watermark has reached the given end offset).

        None if all high watermarks have already reached their end offsets.
        """
        ...

    def when_flushed(
        self, partitions: Mapping[TopicPartition, int], timeout_ms: int, *, is_replicated: bool
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """Resolve when the syncs that flush.messages and new logs require are done (NONE or KAFKA_STORAGE_ERROR), or with
        REQUEST_TIMED_OUT. None if there are none. `is_replicated`: the request also waits for `when_replicated`."""
        ...

    def hold_wakeups(self) -> object:
        """Delay wake-ups of waiting requests until release_wakeups, for several appends that belong together."""
        ...

    def release_wakeups(self) -> None: ...

    def leader_error(self, partition: TopicPartition, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE if this node leads the partition in that epoch, otherwise the error for the client."""
        ...

    def replica_error(self, partition: TopicPartition) -> ErrorCode:
        """NONE if this node has a replica of the partition, otherwise the error for the client."""
        ...

    def leads(self, partition: TopicPartition) -> bool: ...

    def start_verification(
        self,
        partition: TopicPartition,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        bumps_epochs: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Log.start_verification of a partition that this node leads."""
        ...

    def active_producers(self, partition: TopicPartition) -> Iterator[ProducerStateEntry]:
        """The producers of a partition of which this node has a replica."""
        ...

    def log(self, partition: TopicPartition) -> Log | None:
        """The log, if this node leads the partition. It is for coordinators, which are where their partition is. A handler
        asks the other questions, so that the owner of a partition can be elsewhere."""
        ...

    def list_offset(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        read_committed: bool,
        current_leader_epoch: int,
        replica_id: int,
        connection_id: int = ...,
        timeout_ms: int = ...,
    ) -> OffsetLookup | Deferred[OffsetLookup]:
        """Return the offset. It comes later if the log must be searched for a timestamp. Connections take turns with
        their searches. A search of the remote storage ends after `timeout_ms`. 0: as the setting says."""
        ...

    def search_room(self) -> Deferred[None] | None:
        """Resolve when a search by timestamp can start. None if it can start now."""
        ...

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """Return (error, epoch, end offset)."""
        ...

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int, *, of_internal_topics: bool = False
    ) -> Deferred[Mapping[TopicPartition, tuple[ErrorCode, int]]]:
        """Move the log start of each partition. Only a coordinator may do so in an internal topic."""
        ...

    def hand_over(self, partition: TopicPartition, damaged_offset: int) -> bool:
        """Have another replica lead the partition, because this node's log cannot be read at an offset. False if no other
        replica is in sync and well."""
        ...


class FetchService(Protocol):
    """Fetch with sessions and long polling (partition/fetch)."""

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> Any | Awaitable[Any]:
        """Return a FetchResponse message: now, or when enough bytes are available or the time is over. Many partitions
        are read in steps."""
        ...


class DirectoryService(Protocol):
    """The log directory of each replica of this node (partition/placement.py)."""

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Start to move a replica to the directory with that absolute path, or cancel its move to another directory."""
        ...
