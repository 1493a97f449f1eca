"""What the network takes from a node's settings, and the pure decisions on who may connect and stay."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkacompat.config import ServerConfig

UNLIMITED = 2**31 - 1
SYSTEM_DEFAULT = -1
"""A socket buffer size that leaves the choice to the operating system."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Named after Kafka's settings, whose defaults they have."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_request_without_records_max_bytes: int = 16 * 1024 * 1024
    """Of requests other than Produce; a setting that Kafka does not have."""
    socket_send_buffer_bytes: int = 100 * 1024
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_listen_backlog_size: int = 50
    connections_max_idle_ms: int = 600_000
    """Negative: never closed for being idle."""
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """By textual address or host name; the server resolves names (resolving.py)."""
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """listener.name.<name>.max.connections by listener name in capitals."""
    protected_listener: str | None = None
    """The inter-broker listener, where there is another: max.connections never keeps it closed."""

    @classmethod
    def from_config(cls, config: ServerConfig) -> NetworkSettings:
        names = [endpoint.listener_name for endpoint in config.listeners()]
        return cls(
            socket_request_max_bytes=config.get_int("socket.request.max.bytes"),
            socket_request_without_records_max_bytes=config.get_int(
                "socket.request.without.records.max.bytes"
            ),
            socket_send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
            socket_receive_buffer_bytes=config.get_int("socket.receive.buffer.bytes"),
            socket_listen_backlog_size=config.get_int("socket.listen.backlog.size"),
            connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=parse_overrides(
                config.get_string("max.connections.per.ip.overrides") or ""
            ),
            listener_max_connections={
                name.upper(): int(text)
                for name in names
                if (text := config.originals.get(f"listener.name.{name.lower()}.max.connections"))
            },
            protected_listener=config.inter_broker_listener_name if len(names) > 1 else None,
        )


def parse_overrides(text: str) -> dict[str, int]:
    """'host:n,host:n' as a mapping; the last colon divides. ValueError when it is not that."""
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not host or not count.strip().isdigit():
            raise ValueError(f"max.connections.per.ip.overrides: {entry!r} is not host:count")
        overrides[host.strip().strip("[]")] = int(count)
    return overrides


class Admission(enum.Enum):
    ADMITTED = "counted"
    PROTECTED = "counted; another listener's least recently used connection has to go"
    REFUSED = "one connection too many from its address"


class ConnectionCounts:
    """How many connections there are, by listener and address, and whether there may be more."""

    __slots__ = ("by_address", "by_listener", "settings", "total")

    def __init__(self, settings: NetworkSettings) -> None:
        self.settings = settings
        """May be replaced at any time; connections over a lowered bound stay."""
        self.total = 0
        self.by_listener: dict[str, int] = {}
        self.by_address: dict[str, int] = {}

    def may_accept(self, listener: str) -> bool:
        """Whether this listener's acceptor goes on; else it waits until a connection closes."""
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
    """connections.max.idle.ms: a request that waits for its reply keeps its connection."""
    return 0 <= max_idle_ms <= now_ms - last_active_ms and not requests_in_flight
