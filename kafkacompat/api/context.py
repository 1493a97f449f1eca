"""What a handler may call: the node's services, as Protocols.

A handler turns a message into calls of these and their answers into a message. It never sees sockets, files or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from kafkacompat.api.encoded_topics import EncodedTopics
from kafkacompat.api.returning import ReturningBrokers

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import DirectoryService, FetchService, PartitionService
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.transaction_services import Transactions
    from kafkacompat.config import LogConfig, ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Clock, LogManager, Random
    from kafkacompat.security.authorizer import StandardAuthorizer
    from kafkacompat.wire.errors import ErrorCode

T = TypeVar("T")

_Str = str
"""str, where a method of that name hides it."""


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

    def create_acls(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def delete_acls(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

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
    opening: Opening | None = None
    """None where nothing waits until this broker takes part."""
    authorizer: StandardAuthorizer | None = None
    """None where everybody may do everything."""


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
    opening: Opening | None = None
    """None: a controller answers from the first moment."""
    authorizer: StandardAuthorizer | None = None


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
    def request(self, topics: Sequence[str], asker: RequestContext | None = None) -> None:
        """Start creating these topics with default or internal settings; at most one creation a name at a time.

        `asker`: the request in whose sender's name they are made; this node's own without it.
        """
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
