"""The services of the node that a handler may call, as Protocols.

A handler translates a request message into calls of these services, and their results into a response message.
Handlers do not use sockets, files or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from kafkacompat.api.encoded_topics import EncodedTopics
from kafkacompat.api.returning import ReturningBrokers
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.quota.client_quotas import QuotaManagers

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.config import LogConfig, ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.group.service import GroupService
    from kafkacompat.late import Late, Provisions
    from kafkacompat.partition.service import DirectoryService, FetchService, PartitionService
    from kafkacompat.ports import Clock, LogManager, Random
    from kafkacompat.security.authorizer import StandardAuthorizer
    from kafkacompat.share.service import ShareCoordinatorService, SharePartitionService, SharePersister
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.txn.service import ProducerIds, Transactions
    from kafkacompat.wire.messages.create_topics_request import CreatableTopic

T = TypeVar("T")

_Str = str
"""An alias of str for classes in which a method named `str` hides it."""


class ControllerService(Protocol):
    """Requests of clients to the active controller, from handlers that brokers and controllers have. Takes and returns messages.

    Responses have all fields of the newest version: the codec drops fields that the client's version lacks. Calls may
    raise, or fail with, NotController and ControllerTimedOut.
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

    def alter_client_quotas(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def create_delegation_token(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def renew_delegation_token(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def expire_delegation_token(self, request: Any, context: RequestContext) -> Deferred[Any]: ...


class ForwardingService(ControllerService, Protocol):
    """The active controller for broker listeners, on this node or another one."""

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Return the controller's answer to a request that brokers only send on."""
        ...

    def controller_versions(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and the highest version of an API that the active controller serves; the highest is below the lowest
        if there is none. None while that is not known, or this node is the active controller."""
        ...


class ActiveControllerService(ControllerService, Protocol):
    """This node's own controller, with the requests that brokers only send on, and those that only brokers and
    controllers send."""

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def describe_quorum(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def unregister_broker(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def unregister_controller(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def add_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def remove_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def broker_registration(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def broker_heartbeat(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def alter_partition(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def assign_replicas_to_dirs(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def allocate_producer_ids(self, request: Any, context: RequestContext) -> Deferred[Any]: ...

    def controller_registration(self, request: Any, context: RequestContext) -> Deferred[Any]: ...


class QuorumService(Protocol):
    """This node's part in the metadata quorum (the driver in raft/)."""

    @property
    def leader_id(self) -> int:
        """The leader's node id, or -1 while it is unknown."""
        ...

    def handle(self, message: Any, api_version: int, listener: str) -> Deferred[Any]:
        """Handle a request from a voter, from a node that wants to become a voter, or from an observer, that came in by
        this listener."""
        ...


@dataclass(slots=True)
class Node:
    """All services that a handler can use. server/broker_server.py builds it, and every handler receives it."""

    node_id: int
    cluster_id: str
    config: ServerConfig
    clock: Clock
    random: Random
    partitions: PartitionService
    fetches: FetchService
    controller: ForwardingService
    producer_ids: ProducerIds
    log_manager: LogManager
    image: MetadataImage
    """Replaced at each published image."""
    auto_create: AutoTopicCreator
    dynamic: DynamicSettings
    groups: GroupService = field(init=False)
    """This and the next four are set when the coordinators are made. They are there when a handler with
    `asks_coordinators` is called. Others wait for `when_coordinating`."""
    transactions: Transactions = field(init=False)
    share_coordinator: ShareCoordinatorService = field(init=False)
    share_persister: SharePersister = field(init=False)
    shares: SharePartitionService | None = None
    coordinators: Late[Any] | None = None
    """None if they are there from the start."""
    provisions: Provisions | None = None
    """None if nothing is imported in the background (the simulator)."""
    directories: DirectoryService | None = None
    """None if replicas cannot move between directories (the simulator)."""
    encoded_topics: EncodedTopics = field(default_factory=EncodedTopics)
    """Topics of earlier Metadata responses, already encoded."""
    returning: ReturningBrokers = field(default_factory=ReturningBrokers)
    """Brokers that clients are told of although they are fenced."""
    opening: Opening | None = None
    """None if no request waits until this broker has joined the cluster."""
    authorizer: StandardAuthorizer | None = None
    """None if everything is allowed."""
    quotas: QuotaManagers = field(default_factory=QuotaManagers)
    client_metrics: ClientMetricsManager | None = None
    """None: the telemetry APIs are not served."""
    client_metrics_configs: Any = None
    """The settings in the metadata from which it has its subscriptions."""
    monotonic_s: Callable[[], float] = float
    """The clock that measures the time of requests. Without it, requests take no time."""
    check_listeners: Callable[[ServerConfig], None] | None = None
    """Raise ConfigError if this node's listeners cannot use the settings, because of the stores that the settings name."""

    def when_coordinating(self) -> Deferred[Any]:
        """Resolved when the coordinators are there."""
        return Deferred.of(None) if self.coordinators is None else self.coordinators.ready()


@dataclass(slots=True)
class ControllerNode:
    """The services of handlers on controller listeners. There are no partitions, groups or topics' clients here."""

    node_id: int
    cluster_id: str
    config: ServerConfig
    clock: Clock
    random: Random
    controller: ActiveControllerService
    """This node's own controller. While it is not active, its calls raise, or fail with, NotController."""
    quorum: QuorumService
    image: MetadataImage
    """Replaced at each published image."""
    dynamic: DynamicSettings
    opening: Opening | None = None
    """Always None: a controller serves requests from its start."""
    coordinators: Late[Any] | None = None
    """Always None: a controller coordinates no groups."""
    provisions: Provisions | None = None
    authorizer: StandardAuthorizer | None = None
    quotas: QuotaManagers = field(default_factory=QuotaManagers)
    monotonic_s: Callable[[], float] = float


AnyNode = Union["Node", "ControllerNode"]
"""The node type of handlers that serve both kinds of listener."""


class Opening(Protocol):
    """Holds requests while this broker listens but has not joined the cluster yet (node/opening.py)."""

    is_open: bool
    """True once no request is held any more."""

    def hold(self, answer: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Return the result of `answer`, which is called when the broker opens."""
        ...


class AutoTopicCreator(Protocol):
    def request(self, topics: Sequence[str], asker: RequestContext | None = None) -> None:
        """Start to create these topics with default or internal settings. One creation per name runs at a time.

        The topics are created in the name of the sender of the request `asker`. Without it, this node creates them in
        its own name.
        """
        ...

    async def created(self, name: str) -> None:
        """Wait for a topic that was requested. Return when it is there, or when it cannot be waited for."""
        ...

    def create_streams_internal_topics(
        self, topics: Sequence[CreatableTopic], asker: RequestContext, error_kept_ms: int
    ) -> None:
        """Start to create the internal topics of a streams group in the asker's name, except those with a recent error."""
        ...

    def streams_creation_errors(self, names: Iterable[str]) -> dict[str, str]:
        """The recent errors of such creations, by topic."""
        ...


class DynamicSettings(Protocol):
    """The effective settings of this node: the dynamic settings of the image override the static file."""

    def get_int(self, name: _Str) -> int: ...

    def get_boolean(self, name: _Str) -> bool: ...

    def get_string(self, name: _Str) -> _Str | None: ...

    def log_config(self, topic: _Str) -> LogConfig: ...

    def describe_broker(self, resource_name: _Str) -> Sequence[Any]: ...

    def describe_topic(self, topic: _Str) -> Sequence[Any]: ...

    def describe_group(self, group: _Str) -> Sequence[Any]: ...
