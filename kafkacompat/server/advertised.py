"""What a node tells others of its listeners: this machine's name for an empty host, the port that was bound for port 0.

Knows the settings listeners and advertised.listeners; sockets and who is told it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ports import Network


def broker_addresses(
    config: ServerConfig, bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    """The clients' listeners. `bound` are those of this node, with their ports."""
    return _told(config.advertised_broker_listeners(), bound, network)


def controller_addresses(
    config: ServerConfig, bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    """The controller's, in the order of controller.listener.names: the quorum speaks at the first."""
    known = {each.listener_name: each for each in config.controller_listeners()}
    known.update((each.listener_name, each) for each in config.advertised_listeners())
    return _told([known[name] for name in config.controller_listener_names], bound, network)


def _told(
    endpoints: Sequence[EndPoint], bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    ports = {each.listener_name: each.port for each in bound}

    # An empty host is all interfaces; clients are told the machine's own full name, as by Kafka.
    def named(name: str) -> tuple[EndPoint, ...]:
        return tuple(
            replace(each, host=each.host or name, port=each.port or ports[each.listener_name])
            for each in endpoints
        )

    return network.own_name(endpoints).then(named)
