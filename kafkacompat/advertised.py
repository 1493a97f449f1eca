"""What a node tells others of its listeners: this machine's name for an empty host, the port that was bound for port 0.

Knows the settings listeners and advertised.listeners; sockets and who is told it does not.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace

from kafkacompat.config import EndPoint, ServerConfig


def broker_addresses(config: ServerConfig, ports: Mapping[str, int]) -> tuple[EndPoint, ...]:
    """The clients' listeners. `ports` are those really bound, by listener name."""
    return tuple(_told(each, ports) for each in config.advertised_broker_listeners())


def controller_addresses(config: ServerConfig, ports: Mapping[str, int]) -> tuple[EndPoint, ...]:
    """The controller's, in the order of controller.listener.names: the quorum speaks at the first."""
    known = {each.listener_name: each for each in config.controller_listeners()}
    known.update((each.listener_name, each) for each in config.advertised_listeners())
    return tuple(_told(known[name], ports) for name in config.controller_listener_names)


def _told(endpoint: EndPoint, ports: Mapping[str, int]) -> EndPoint:
    # An empty host is all interfaces; clients are told the machine's own full name, as by Kafka.
    host = endpoint.host or socket.getfqdn()
    return replace(endpoint, host=host, port=endpoint.port or ports[endpoint.listener_name])
