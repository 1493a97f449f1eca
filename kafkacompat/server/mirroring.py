"""A broker's mirrors, connected: how they reach their sources and the controller.

What mirrors need is imported when this broker leads the first one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.config import ConfigError, load_properties, resolved
from kafkacompat.security.sasl_client import NO_SECURITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.deferred import Deferred
    from kafkacompat.mirror.manager import MirrorManager
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports.network import Channels
    from kafkacompat.security.sasl_client import ClientSecurity
    from kafkacompat.server.services import NodeServices
    from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest

CLIENT_PROPERTIES = "mirror.client.properties"
BOOTSTRAP_SERVERS = "bootstrap.servers"


class Mirroring:
    """Of partition.hosted_partitions.Mirroring, which it is told as. Call `close` once."""

    def __init__(
        self,
        services: NodeServices,
        hosted: HostedPartitions,
        channels: Callable[[ClientSecurity], Channels],
        create_partitions: Callable[[CreatePartitionsRequest], Deferred[Any]],
    ) -> None:
        """`channels` gives new channels to other clusters. `create_partitions` asks the controller."""
        self._services = services
        self._hosted = hosted
        self._channels = channels
        self._create_partitions = create_partitions
        self._manager: MirrorManager | None = None
        self._is_closed = False

    def role_taken(self, core: Partition) -> None:
        if self._manager is None and core.is_read_only and not self._is_closed:
            from kafkacompat.mirror.manager import MirrorManager

            services = self._services
            self._manager = MirrorManager(
                services.tasks,
                services.work_clock,
                self._hosted,
                lambda servers: services.tasks.run(f"connecting to {servers}", self._connect(servers)),
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

    async def _connect(self, servers: str) -> Channels:
        from kafkacompat.mirror.source import SourceUnknown

        config = self._services.config
        path = config.get_string(CLIENT_PROPERTIES) or None
        is_guarded = bool(config.get_string("authorizer.class.name"))
        try:
            security = await self._services.workers.reads.submit(
                partial(security_for, servers, path, is_guarded=is_guarded)
            )
        except ConfigError as error:
            raise SourceUnknown(f"{CLIENT_PROPERTIES}: {error}") from None
        return self._channels(security)


def security_for(servers: str, path: str | None, *, is_guarded: bool) -> ClientSecurity:
    """How to connect to a source. Raises ConfigError, without secrets, also if the file is for another source.

    Who may create topics names the source. So the credentials of the file are shown only to the brokers that the file names.
    `is_guarded`: there is an authorizer, so not everyone may do everything. Then the node connects to no other source either."""
    if path is None:
        if is_guarded:
            text = f"with an authorizer, it must name a file whose {BOOTSTRAP_SERVERS} is the mirror's source {servers}"
            raise ConfigError(CLIENT_PROPERTIES, path, text, whole=True)
        return NO_SECURITY
    from kafkacompat.security.client_settings import security_of_client

    try:
        properties = resolved(load_properties(path))
    except OSError as error:
        raise ConfigError(CLIENT_PROPERTIES, path, f"{path}: {error.strerror}", whole=True) from None
    named = properties.get(BOOTSTRAP_SERVERS)
    if named != servers:
        text = f"{path}: {BOOTSTRAP_SERVERS} is {named or 'missing'}, and the mirror's source is {servers}"
        raise ConfigError(BOOTSTRAP_SERVERS, named, text, whole=True)
    return security_of_client(properties)
