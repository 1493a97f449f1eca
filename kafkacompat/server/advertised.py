"""What a node tells others of its listeners: this machine's name for an empty host, the port that was bound for port 0.

Knows the settings listeners and advertised.listeners; sockets and who is told it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.net.resolving import own_name


async def broker_addresses(config: ServerConfig, ports: Mapping[str, int]) -> tuple[EndPoint, ...]:
    """The clients' listeners. `ports` are those really bound, by listener name."""
    return await _told(config.advertised_broker_listeners(), ports)


async def controller_addresses(config: ServerConfig, ports: Mapping[str, int]) -> tuple[EndPoint, ...]:
    """The controller's, in the order of controller.listener.names: the quorum speaks at the first."""
    known = {each.listener_name: each for each in config.controller_listeners()}
    known.update((each.listener_name, each) for each in config.advertised_listeners())
    return await _told([known[name] for name in config.controller_listener_names], ports)


async def _told(endpoints: Sequence[EndPoint], ports: Mapping[str, int]) -> tuple[EndPoint, ...]:
    # An empty host is all interfaces; clients are told the machine's own full name, as by Kafka.
    name = await own_name(endpoints)
    return tuple(
        replace(each, host=each.host or name, port=each.port or ports[each.listener_name])
        for each in endpoints
    )
