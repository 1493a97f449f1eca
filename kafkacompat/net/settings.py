"""The network's settings, and the pure decisions about accepting and closing connections."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from kafkacompat.config import ServerConfig, parse_connection_overrides
from kafkacompat.dataclass import dataclass

UNLIMITED = 2**31 - 1
SYSTEM_DEFAULT = -1
"""A socket buffer size that the operating system chooses."""
RECEIVE_BUFFER_BYTES = 256 * 1024
"""If socket.receive.buffer.bytes is not set. With Kafka's 100 KiB a request of twelve batches of 16 kB comes in two pieces."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Kafka's settings of a network client."""

    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 500
    connection_setup_timeout_ms: int = 10_000
    """For connecting and agreeing on versions together (socket.connection.setup.timeout.ms)."""
    response_max_bytes: int = 2**31 - 1 - 4
    """The largest frame accepted from the peer. Memory grows with the bytes received, not with the size announced."""

    @classmethod
    def from_config(cls, config: ServerConfig) -> ChannelSettings:
        return cls(connection_setup_timeout_ms=config.get_int("socket.connection.setup.timeout.ms"))


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Named after Kafka's settings, with their defaults."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_request_without_records_max_bytes: int = 16 * 1024 * 1024
    """For requests other than Produce. Kafka has no such setting."""
    sasl_server_max_receive_size: int = 512 * 1024
    """For frames of a client that is not authenticated yet."""
    listener_sasl_server_max_receive_size: Mapping[str, int] = field(default_factory=dict)
    """By listener name in capitals: listener.name.<name>.sasl.server.max.receive.size, or the node's."""
    socket_send_buffer_bytes: int = 100 * 1024
    socket_send_buffer_grows: bool = True
    """Unless its size is set (send_buffer.py)."""
    socket_receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES
    socket_listen_backlog_size: int = 50
    queued_max_request_bytes: int = -1
    """Not positive: requests may take as much memory as they need."""
    connections_max_idle_ms: int = 600_000
    """Negative: idle connections are never closed."""
    max_connections: int = UNLIMITED
    max_connection_creation_rate: int = UNLIMITED
    """New connections per second."""
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    """By listener name in capitals: listener.name.<name>.max.connection.creation.rate, or the node's. The protected listener
    has this bound only."""
    quota_windows: int = 11
    quota_window_ms: int = 1000
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """By textual address or host name. The server resolves names (resolving.py)."""
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """By listener name in upper case: listener.name.<name>.max.connections, or the node's."""
    protected_listener: str | None = None
    """The inter-broker listener, if the broker has others: the connections of those never block it. The controllers' do not
    count, because they have a server of their own."""
    listeners_of_nodes: frozenset[str] = frozenset()
    """It and the controllers' listeners: their connections may use descriptors that clients do not get."""

    @classmethod
    def from_config(cls, config: ServerConfig) -> NetworkSettings:
        return cls(
            socket_request_max_bytes=config.get_int("socket.request.max.bytes"),
            socket_request_without_records_max_bytes=config.get_int(
                "socket.request.without.records.max.bytes"
            ),
            sasl_server_max_receive_size=config.get_int("sasl.server.max.receive.size"),
            listener_sasl_server_max_receive_size=_of_listeners(config, "sasl.server.max.receive.size"),
            socket_send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
            socket_send_buffer_grows="socket.send.buffer.bytes" not in config.originals,
            socket_receive_buffer_bytes=config.get_int("socket.receive.buffer.bytes")
            if "socket.receive.buffer.bytes" in config.originals
            else RECEIVE_BUFFER_BYTES,
            socket_listen_backlog_size=config.get_int("socket.listen.backlog.size"),
            queued_max_request_bytes=config.get_int("queued.max.request.bytes"),
            connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
            max_connections=config.get_int("max.connections"),
            max_connection_creation_rate=config.get_int("max.connection.creation.rate"),
            listener_max_connection_creation_rate=_of_listeners(config, "max.connection.creation.rate"),
            quota_windows=config.get_int("quota.window.num"),
            quota_window_ms=1000 * config.get_int("quota.window.size.seconds"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=parse_connection_overrides(
                config.get_string("max.connections.per.ip.overrides") or ""
            ),
            listener_max_connections=_of_listeners(config, "max.connections"),
            protected_listener=config.inter_broker_listener_name
            if len(config.broker_listeners()) > 1
            else None,
            listeners_of_nodes=_listeners_of_nodes(config),
        )


def _of_listeners(config: ServerConfig, setting: str) -> dict[str, int]:
    """What holds for each listener by itself: its own value, or the node's."""
    values = {
        each.listener_name: config.of_listener(each.listener_name, setting) for each in config.listeners()
    }
    return {name.upper(): value for name, value in values.items() if isinstance(value, int)}


def _listeners_of_nodes(config: ServerConfig) -> frozenset[str]:
    names = {each.listener_name for each in config.controller_listeners()}
    if len(config.broker_listeners()) > 1:
        names.add(config.inter_broker_listener_name)
    return frozenset(names)


class Admission(enum.Enum):
    ADMITTED = "counted"
    PROTECTED = "counted; another listener's least recently used connection has to go"
    REFUSED = "one connection too many from its address"


class ConnectionCounts:
    """The number of connections by listener and address, and whether more are allowed."""

    __slots__ = ("by_address", "by_listener", "settings", "total")

    def __init__(self, settings: NetworkSettings) -> None:
        self.settings = settings
        """May be replaced at any time."""
        self.total = 0
        self.by_listener: dict[str, int] = {}
        self.by_address: dict[str, int] = {}

    def may_accept(self, listener: str) -> bool:
        """Whether this listener may accept. Otherwise its acceptor waits until a connection closes."""
        settings = self.settings
        of_listener = self.by_listener.get(listener, 0)
        if of_listener >= settings.listener_max_connections.get(listener.upper(), UNLIMITED):
            return False
        return self.total < settings.max_connections or listener == settings.protected_listener

    def admit(self, listener: str, address: str) -> Admission:
        settings = self.settings
        bound = settings.max_connections_per_ip_overrides.get(address, settings.max_connections_per_ip)
        if self.by_address.get(address, 0) >= bound:
            return Admission.REFUSED
        self.total += 1
        self.by_listener[listener] = self.by_listener.get(listener, 0) + 1
        self.by_address[address] = self.by_address.get(address, 0) + 1
        return Admission.PROTECTED if self.total > settings.max_connections else Admission.ADMITTED

    def release(self, listener: str, address: str) -> None:
        self.total -= 1
        self.by_listener[listener] -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


def idle_too_long(now_ms: int, last_active_ms: int, requests_in_flight: int, max_idle_ms: int) -> bool:
    """connections.max.idle.ms. A request that waits for its reply keeps its connection open."""
    return 0 <= max_idle_ms <= now_ms - last_active_ms and not requests_in_flight
