"""Listeners: `NAME://host:port` lists and the protocol of each name.

They are parsed and checked for collisions. Follows Kafka 4.4: names are compared in upper case. Equal ports are
allowed only if 0, or for one IPv4 and one IPv6 address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kafkacompat.config.keys import ConfigError
from kafkacompat.dataclass import dataclass

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/@]*)):(-?[0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class EndPoint:
    """One listener. An empty host means all interfaces. An IPv6 host has no brackets."""

    listener_name: str
    host: str
    port: int
    security_protocol: str

    @property
    def is_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


def parse_protocol_map(setting: str, text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` with names in upper case. Raises ConfigError for any other form or protocol."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ConfigError(setting, text, "expected entries of the form NAME:PROTOCOL")
        if protocol.strip() not in SECURITY_PROTOCOLS:
            raise ConfigError(setting, entry, f"the protocol must be one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip()
    return protocols


def listener_name_of(setting: str, text: str) -> str:
    """The upper-case name of one `NAME://host:port`. Raises ConfigError if the text has no name."""
    name, separator, _ = text.partition("://")
    if not separator or not name:
        raise ConfigError(setting, text, "expected NAME://host:port")
    return name.upper()


def _check_ports(setting: str, endpoints: Iterable[EndPoint], text: str) -> None:
    by_port: dict[int, list[EndPoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        import ipaddress  # only for shared ports: the import slows down the start by milliseconds

        versions: list[int] = []
        for endpoint in sharing:
            try:
                versions.append(ipaddress.ip_address(endpoint.host).version)
            except ValueError:
                versions.append(0)
        if sorted(versions) != [4, 6]:
            raise ConfigError(
                setting,
                text,
                f"port {port} is used more than once; only one IPv4 and one IPv6 address may share a port",
            )


def parse_listeners(
    setting: str, entries: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[EndPoint, ...]:
    """The endpoints of a listener list in order. A ConfigError names `setting` and the reason."""
    entries = tuple(entries)
    text = ",".join(entries)
    endpoints: list[EndPoint] = []
    for entry in entries:
        name = listener_name_of(setting, entry)
        parsed = _LISTENER.fullmatch(entry)
        if parsed is None:
            raise ConfigError(setting, entry, "expected NAME://host:port")
        port = int(parsed[4])
        if not 0 <= port <= 65535:
            raise ConfigError(setting, entry, f"{port} is not a port")
        if name not in protocols:
            raise ConfigError(
                setting, entry, f"no protocol for listener {name} in listener.security.protocol.map"
            )
        endpoints.append(EndPoint(name, parsed[2] or parsed[3] or "", port, protocols[name]))
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(setting, text, "each listener needs a name of its own")
    if distinct_ports:
        _check_ports(setting, endpoints, text)
    return tuple(endpoints)
