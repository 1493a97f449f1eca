"""What handlers ask of partitions, and the values that go to and fro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.ports import Buffer, Log, LogRefused, TransactionTerms
    from kafkacompat.records.validate import Allowance, Origin
    from kafkacompat.records.validated import ValidatedBatch
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode

T = TypeVar("T")


@dataclass(slots=True)
class ProduceResult:
    """One partition's outcome of a produce. Offsets -1 on error."""

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class FetchRequestPartition:
    topic_id: Uuid
    topic: str | None
    """None when the id is unknown."""
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
    client_host: str
    listener_name: str
    may_read: Callable[[str | None], bool] | None = None
    """Of a topic's name, None where its id is unknown; without it everything may be read."""


@dataclass(slots=True)
class OffsetLookup:
    error: ErrorCode
    timestamp_ms: int = -1
    offset: int = -1
    leader_epoch: int = -1


class PartitionService(Protocol):
    """Every partition this node leads or follows (partition/replica_manager.py)."""

    @property
    def opens_logs(self) -> bool:
        """Whether partitions that are new wait for whoever asks for them first: that opens a log each, which takes as long as
        dozens of lookups."""
        ...

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
        """`terms`: what a transactional batch or a marker is held to besides; `origin`: of a client unless said.

        Raises TooMuchAtOnce, with nothing done, for records that take more of the loop than the allowance.
        """
        ...

    def validate(
        self, partition: TopicPartition, records: Buffer, api_version: int
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """What `append` takes in the place of records that were too much at once."""
        ...

    def pause(self, given: T) -> Deferred[T]:
        """What was given, after the loop has had a turn."""
        ...

    def when_replicated(
        self, ends: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """None when each high watermark has already reached its end; else, later, an error a partition (NONE when it has)."""
        ...

    def when_flushed(
        self, partitions: Mapping[TopicPartition, int]
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """When the syncs that flush.messages asked for are done (NONE or KAFKA_STORAGE_ERROR); None when there are none."""
        ...

    def hold_wakeups(self) -> None:
        """Wake nobody until release_wakeups: for several appends that belong together."""
        ...

    def release_wakeups(self) -> None: ...

    def leader_error(self, partition: TopicPartition, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE when this node leads the partition in that epoch, else what a client is told."""
        ...

    def log(self, partition: TopicPartition) -> Log | None:
        """The log when this node leads the partition."""
        ...

    def list_offset(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        read_committed: bool,
        current_leader_epoch: int,
        replica_id: int,
    ) -> OffsetLookup | Deferred[OffsetLookup]:
        """Later where the log has to be searched for a timestamp."""
        ...

    def search_room(self) -> Deferred[None] | None:
        """When very many may be searched for a timestamp; None for now."""
        ...

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """(error, epoch, end offset)."""
        ...

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, tuple[ErrorCode, int]]]: ...


class FetchService(Protocol):
    """Fetch with sessions and long poll (partition/fetch)."""

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> Any | Deferred[Any] | Steps[Any]:
        """A FetchResponse message, now or when bytes or time are there, or the steps to one of many partitions."""
        ...


class DirectoryService(Protocol):
    """In which directory each replica of this node lies (partition/placement.py)."""

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a replica to the directory of that absolute path, or end a move elsewhere."""
        ...
