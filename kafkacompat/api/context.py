"""What a handler may call: the node's services, as Protocols.

A handler turns a message into calls of these and their answers into a message. It never sees sockets, files or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, Union

from kafkacompat.api.encoded_topics import EncodedTopics
from kafkacompat.api.returning import ReturningBrokers

if TYPE_CHECKING:
    from kafkacompat.api.transaction_services import Transactions
    from kafkacompat.config import LogConfig, ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.ports import Buffer, Clock, Log, LogManager, LogRefused, Random, TransactionTerms
    from kafkacompat.records.validate import Allowance, Origin
    from kafkacompat.records.validated import ValidatedBatch
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode

T = TypeVar("T")

NO_CONNECTION = -1
"""The connection id of a request that this node makes of itself."""
_Str = str
"""str, where a method of that name hides it."""


class NotController(Exception):
    """This node is not the active controller, or ceased to be it before the records were committed (error NOT_CONTROLLER)."""


class ControllerTimedOut(Exception):
    """No active controller answered in time (error REQUEST_TIMED_OUT); the request may have been carried out."""


class Principal(NamedTuple):
    """Who asks, as security knows it: type and name, 'User' and 'ANONYMOUS' where nobody said."""

    type: _Str
    name: _Str
    token_authenticated: bool = False


ANONYMOUS = Principal("User", "ANONYMOUS")


class RequestContext:
    """One request's envelope: who asks, where, in which version."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "client_software",
        "connection_id",
        "correlation_id",
        "listener_is_sasl",
        "listener_name",
        "principal",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection_id: int,
        listener_name: str,
        client_host: str,
        listener_is_sasl: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection_id = connection_id
        self.listener_name = listener_name
        self.client_host = client_host
        """Textual address, e.g. '127.0.0.1'."""
        self.listener_is_sasl = listener_is_sasl
        self.principal = principal
        self.client_software: tuple[str, str] | None = None
        """Name and version, known from an ApiVersions request itself."""


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


@dataclass(slots=True)
class OffsetLookup:
    error: ErrorCode
    timestamp_ms: int = -1
    offset: int = -1
    leader_epoch: int = -1


class PartitionService(Protocol):
    """Every partition this node leads or follows (partition/manager.py)."""

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


class ControllerService(Protocol):
    """What clients may ask of the active controller, or the way to it. Request message in, response message out.

    Responses are complete but for versions: fields the client's version lacks are dropped by the codec. May raise or fail
    with NotController and ControllerTimedOut.
    """

    def create_topics(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def delete_topics(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def create_partitions(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def elect_leaders(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def list_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def describe_quorum(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def unregister_broker(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def add_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def remove_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]: ...


class ActiveControllerService(ControllerService, Protocol):
    """This node's own controller, with what brokers and controllers ask besides, on controller listeners."""

    def broker_registration(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def broker_heartbeat(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_partition(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def assign_replicas_to_dirs(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def allocate_producer_ids(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def controller_registration(self, request: Any, context: RequestContext) -> Deferred[Any]: ...


class QuorumService(Protocol):
    """This node's part in the metadata quorum (raft's driver)."""

    @property
    def leader_id(self) -> int:
        """-1 while unknown."""
        ...

    def handle(self, message: Any, api_version: int) -> Deferred[Any]:
        """A request between quorum members, of a node that wants to be one, or of one that follows the metadata log."""
        ...


class DirectoryService(Protocol):
    """In which directory each replica of this node lies (partition/placement.py)."""

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a replica to the directory of that absolute path, or end a move elsewhere."""
        ...


class GroupService(Protocol):
    """Group coordinator (coordinator/ + group/). Takes request messages, gives response messages.

    Parked calls give a Deferred. Authorisation, topic existence and version shapes are done before, in api/.
    """

    def is_active(self) -> bool: ...

    def join_group(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def sync_group(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def heartbeat(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def leave_group(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def offset_commit(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def offset_fetch(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Request and response of the batched shape (Groups), whatever the client's version."""
        ...

    def offset_delete(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def describe_groups(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def list_groups(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def delete_groups(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def partition_for(self, group_id: str) -> int: ...

    def transactional_offset_commit(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """TxnOffsetCommit: offsets that count once the transaction is committed."""
        ...

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        """A marker to a partition of the offsets topic: its offsets count now, or are dropped."""
        ...


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


class ProducerIds(Protocol):
    def next_producer_id(self) -> int | None:
        """A fresh producer id, or None while a block is on its way (answer COORDINATOR_LOAD_IN_PROGRESS)."""
        ...

    def when_available(self) -> Deferred[None]:
        """Done when an id is there, at once if one is, or when it is no use to wait any longer."""
        ...


@dataclass(slots=True)
class Node:
    """The handlers' whole world: built by server/broker_server.py, passed to every handler."""

    node_id: int
    cluster_id: str
    config: ServerConfig
    clock: Clock
    random: Random
    partitions: PartitionService
    fetches: FetchService
    controller: ControllerService
    groups: GroupService
    producer_ids: ProducerIds
    log_manager: LogManager
    image: MetadataImage
    """Replaced at each published image."""
    auto_create: AutoTopicCreator
    dynamic: DynamicSettings
    transactions: Transactions
    directories: DirectoryService | None = None
    """None where replicas stay where they are (the simulator)."""
    encoded_topics: EncodedTopics = field(default_factory=EncodedTopics)
    """What Metadata has told before."""
    returning: ReturningBrokers = field(default_factory=ReturningBrokers)
    """Brokers that are named though they are fenced."""


@dataclass(slots=True)
class ControllerNode:
    """The world of handlers on controller listeners, where there are no partitions, groups or clients of topics."""

    node_id: int
    cluster_id: str
    config: ServerConfig
    clock: Clock
    random: Random
    controller: ActiveControllerService
    """This node's own, active or not: raises, or fails with, NotController while it is not."""
    quorum: QuorumService
    image: MetadataImage
    """Replaced at each published image."""
    dynamic: DynamicSettings


AnyNode = Union["Node", "ControllerNode"]
"""For handlers that both kinds of listener have."""


class Opening(Protocol):
    """Holds requests while this broker listens and does not take part in the cluster yet (node/opening.py)."""

    is_open: bool
    """Nothing is held any more."""

    def hold(self, answer: Callable[[], Deferred[T]]) -> Deferred[T]:
        """What `answer` gives, when the time has come."""
        ...


class AutoTopicCreator(Protocol):
    def request(self, topics: Sequence[str]) -> None:
        """Start creating these topics with default or internal settings; at most one creation a name at a time."""
        ...


class DynamicSettings(Protocol):
    """Effective settings of this node: static file under the image's dynamic layers."""

    def get_int(self, name: _Str) -> int: ...

    def get_boolean(self, name: _Str) -> bool: ...

    def get_string(self, name: _Str) -> _Str | None: ...

    def log_config(self, topic: _Str) -> LogConfig: ...

    def describe_broker(self, resource_name: _Str) -> Sequence[Any]: ...

    def describe_topic(self, topic: _Str) -> Sequence[Any]: ...

    def describe_group(self, group: _Str) -> Sequence[Any]: ...
