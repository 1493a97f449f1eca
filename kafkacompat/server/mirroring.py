"""A broker's mirrors, connected: how they reach their sources and the controller.

What mirrors need is imported when this broker leads the first one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.config import ConfigError, load_properties, resolved
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.config.topic import MIRROR_BOOTSTRAP_SERVERS, MIRROR_STATE, MIRROR_TOPIC_ID, MIRRORING
from kafkacompat.controller.image import changed_configs
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.ports import WorkersBusy
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ids import TopicPartition
    from kafkacompat.metrics.families import Families
    from kafkacompat.mirror.group_offsets import GroupOffsets
    from kafkacompat.mirror.manager import MirrorManager
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports.network import Channels
    from kafkacompat.security.client_settings import Connection
    from kafkacompat.server.broker_coordinators import BrokerCoordinators
    from kafkacompat.server.services import NodeServices
    from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
    from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest
    from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse

CLIENT_PROPERTIES = "mirror.client.properties"
BOOTSTRAP_SERVERS = "bootstrap.servers"
COMMIT_VERSION, FETCH_VERSION = 9, 9
NO_STORES = (None, None)

logger = logging.getLogger(__name__)


class Mirroring:
    """Of partition.hosted_partitions.Mirroring, which it is told as. Call `close` once."""

    def __init__(
        self,
        services: NodeServices,
        hosted: HostedPartitions,
        channels: Callable[[ClientSecurity], Channels],
        create_partitions: Callable[[CreatePartitionsRequest], Deferred[Any]],
        groups: OwnGroups,
    ) -> None:
        """`channels` gives new channels to other clusters. `create_partitions` asks the controller."""
        self._services = services
        self._hosted = hosted
        self._channels = channels
        self._create_partitions = create_partitions
        self._groups = groups
        self._manager: MirrorManager | None = None
        self._offsets: GroupOffsets | None = None
        self._is_closed = False

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Groups of any broker may have offsets in a topic that follows."""
        for kind, topic in changed_configs(old, new):
            if kind != ConfigResourceType.TOPIC:
                continue
            config = new.config(kind, topic)
            source = config.get(MIRROR_BOOTSTRAP_SERVERS) if config.get(MIRROR_STATE) == MIRRORING else None
            if self._offsets is None and source is not None and not self._is_closed:
                from kafkacompat.mirror.group_offsets import GroupOffsets

                services = self._services
                self._offsets = GroupOffsets(
                    services.tasks, services.work_clock, self._connecting, self._groups
                )
            if self._offsets is not None:
                self._offsets.follow(topic, source, config.get(MIRROR_TOPIC_ID, ""))

    def families(self) -> Families:
        """The metrics. None before a partition here has followed."""
        if self._manager is None:
            return iter(())
        from kafkacompat.metrics.mirror import mirror_families

        copied = 0 if self._offsets is None else self._offsets.copied
        return mirror_families(self._manager.traffic, self._manager.states(), copied)

    def role_taken(self, core: Partition) -> None:
        if self._manager is None and core.is_read_only and not self._is_closed:
            from kafkacompat.mirror.manager import MirrorManager

            services = self._services
            self._manager = MirrorManager(
                services.tasks,
                services.work_clock,
                self._hosted,
                self._connecting,
                self._create_partitions,
            )
        if self._manager is not None:
            self._manager.role_taken(core)

    def gone(self, core: Partition) -> None:
        if self._manager is not None:
            self._manager.gone(core)

    def close(self) -> None:
        """Nothing follows any more."""
        self._is_closed = True
        if self._manager is not None:
            self._manager.close()
            self._manager = None
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None

    def _connecting(self, servers: str) -> Deferred[Any]:
        return self._services.tasks.run(f"connecting to {servers}", self._connect(servers))

    async def _connect(self, servers: str) -> SourceChannels:
        config = self._services.config
        path = config.get_string(CLIENT_PROPERTIES) or None
        is_guarded = bool(config.get_string(AUTHORIZER_CLASS_NAME))
        client = SourceClient(servers, path, self._services, is_guarded=is_guarded)
        await client.read()
        return SourceChannels(client, self._channels(client.security))


class SourceClient:
    """How this node connects to a source: by the file of properties, and by the stores that it names, as they are now."""

    def __init__(self, servers: str, path: str | None, services: NodeServices, *, is_guarded: bool) -> None:
        self._servers = servers
        self._services = services
        self._read = partial(terms_for, servers, path, is_guarded=is_guarded)
        self._terms: SourceTerms | None = None
        self._told = ""
        """The last trouble, which is logged once while it lasts."""
        self.security = ClientSecurity()

    async def read(self) -> None:
        """Raises SourceUnknown; then `security` stays as it was."""
        from kafkacompat.mirror.source import SourceUnknown

        try:
            terms: SourceTerms | None = await self._services.workers.reads.submit(
                partial(self._read, self._terms)
            )
        except ConfigError as error:
            raise SourceUnknown(f"{CLIENT_PROPERTIES}: {error}") from None
        except WorkersBusy as busy:
            raise SourceUnknown(f"{CLIENT_PROPERTIES} is not read: {busy}") from None
        if terms is not None:
            self._terms = terms
            self.security.take(terms.security)

    def renew(self) -> Deferred[None]:
        """Never fails."""
        if self._terms is None or self._terms.connection is None:
            return Deferred.of(None)
        return self._services.tasks.run(f"reading how to connect to {self._servers}", self._renew())

    async def _renew(self) -> None:
        from kafkacompat.mirror.source import SourceUnknown

        before, trouble = self._terms, ""
        try:
            await self.read()
        except SourceUnknown as problem:
            trouble = str(problem)
        if trouble and trouble != self._told:
            logger.error("[Mirror source=%s] %s; connections are made as before", self._servers, trouble)
        elif self._terms is not before:
            logger.info("[Mirror source=%s] other credentials or stores from now on", self._servers)
        self._told = trouble


class SourceChannels:
    """Of mirror.source.Channels."""

    def __init__(self, client: SourceClient, channels: Channels) -> None:
        self.renew = client.renew
        self.get = channels.get
        self.close_all = channels.close_all


class OwnGroups:
    """Of mirror.group_offsets.Groups."""

    def __init__(
        self,
        services: NodeServices,
        image: Callable[[], MetadataImage],
        coordinators: Callable[[], BrokerCoordinators | None],
        create_topic: Callable[[str], None],
    ) -> None:
        """`coordinators`: None while this broker coordinates nothing. `create_topic` makes an internal topic."""
        self._services = services
        self._image = image
        self._coordinators = coordinators
        self._create_topic = create_topic

    def coordinates(self, group: str) -> bool:
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            self._create_topic(OFFSETS_TOPIC)
            return False
        partition = topic.partitions.get(partition_for_key(group, len(topic.partitions)))
        node_id = self._services.config.node_id
        return partition is not None and partition.leader == node_id and self._coordinators() is not None

    def fetch(self, request: OffsetFetchRequest) -> Deferred[OffsetFetchResponse]:
        return self._made().groups.offset_fetch(request, self._context(request, FETCH_VERSION))

    def commit(self, request: OffsetCommitRequest) -> Deferred[OffsetCommitResponse]:
        topics = self._image().topics
        request.topics = [each for each in request.topics if each.name in topics]
        for each in request.topics:
            each.topic_id = topics[each.name].id
        return self._made().groups.offset_commit(request, self._context(request, COMMIT_VERSION))

    async def _ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await self._made().ends.latest(partitions)
        return {name: end.offset for name, end in found.items() if end.code is ErrorCode.NONE}

    def ends(self, partitions: Collection[TopicPartition]) -> Deferred[Mapping[TopicPartition, int]]:
        return self._services.tasks.run("reading the ends of mirrors", self._ends(partitions))

    def retention_ms(self) -> int:
        return self._services.config.get_int("offsets.retention.minutes") * 60_000

    def _made(self) -> BrokerCoordinators:
        made = self._coordinators()
        assert made is not None
        return made

    def _context(self, request: OffsetCommitRequest | OffsetFetchRequest, version: int) -> RequestContext:
        listener = self._services.config.inter_broker_listener_name
        assert request.API_KEY is not None
        return RequestContext(request.API_KEY, version, 0, None, NO_CONNECTION, listener, "127.0.0.1")


class SourceTerms(NamedTuple):
    """How to connect to a source."""

    connection: Connection | None
    """None without a file."""
    stores_ms: tuple[int | None, int | None]
    """When the files of the stores were modified."""
    security: ClientSecurity


def terms_for(
    servers: str, path: str | None, before: SourceTerms | None, *, is_guarded: bool
) -> SourceTerms | None:
    """None if nothing has changed. Reads files, in any thread. Raises ConfigError, without secrets, also if the file is for
    another source.

    Who may create topics names the source. So the credentials of the file are shown only to the brokers that the file names.
    `is_guarded`: there is an authorizer, so not everyone may do everything. Then the node connects to no other source either."""
    if path is None:
        if is_guarded:
            text = f"with an authorizer, it must name a file whose {BOOTSTRAP_SERVERS} is the mirror's source {servers}"
            raise ConfigError(CLIENT_PROPERTIES, path, text, whole=True)
        return SourceTerms(None, NO_STORES, NO_SECURITY)
    from kafkacompat.security.client_settings import connection_of_client
    from kafkacompat.security.ssl_factory import file_times

    try:
        properties = resolved(load_properties(path))
    except OSError as error:
        raise ConfigError(CLIENT_PROPERTIES, path, f"{path}: {error.strerror}", whole=True) from None
    named = properties.get(BOOTSTRAP_SERVERS)
    if named != servers:
        text = f"{path}: {BOOTSTRAP_SERVERS} is {named or 'missing'}, and the mirror's source is {servers}"
        raise ConfigError(BOOTSTRAP_SERVERS, named, text, whole=True)
    connection = connection_of_client(properties)
    stores_ms = NO_STORES if connection.ssl is None else file_times(connection.ssl)
    if before is not None and (connection, stores_ms) == (before.connection, before.stores_ms):
        return None
    return SourceTerms(connection, stores_ms, connection.security())
