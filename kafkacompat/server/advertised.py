"""The listeners that a node advertises: this machine's name replaces an empty host, the bound port replaces port 0.

This module knows the settings listeners and advertised.listeners. It knows neither sockets nor the receivers of the
addresses.
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
    """Return the advertised client listeners. `bound` are the listeners of this node, with their ports."""
    return _told(config.advertised_broker_listeners(), bound, network)


def controller_addresses(
    config: ServerConfig, bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    """Return the advertised controller listeners, in the order of controller.listener.names. The quorum uses the first one."""
    known = {each.listener_name: each for each in config.controller_listeners()}
    known.update((each.listener_name, each) for each in config.advertised_listeners())
    return _told([known[name] for name in config.controller_listener_names], bound, network)


def _told(
    endpoints: Sequence[EndPoint], bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    ports = {each.listener_name: each.port for each in bound}

    # An empty host means all interfaces. As in Kafka, clients are then told the machine's full name.
    def named(name: str) -> tuple[EndPoint, ...]:
        return tuple(
            replace(each, host=each.host or name, port=each.port or ports[each.listener_name])
            for each in endpoints
        )

    return network.own_name(endpoints).then(named)
