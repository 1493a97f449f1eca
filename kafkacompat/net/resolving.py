"""Host names to addresses, for this node's listeners and for bounds by host.

The system's resolver is called in a thread, for a bounded time. The name servers may take longer. A caller that gives
up leaves the thread behind; neither the loop nor the end of the process waits for it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import trio

from kafkacompat.addresses import peer_host
from kafkacompat.config import ConfigError, EndPoint

RESOLVE_TIMEOUT_S = 30.0
OWN_NAME_TIMEOUT_S = 5.0
ADDRESS_TIMEOUT_S = 5.0

_NUMBERS = re.compile(
    r"(0x[0-9a-f]{1,16}|[0-9]{1,16})(\.(0x[0-9a-f]{1,16}|[0-9]{1,16})){0,3}", re.ASCII | re.IGNORECASE
)

Address = tuple[socket.AddressFamily, socket.SocketKind, int, tuple[Any, ...]]
"""The arguments for a socket, and its address to bind."""


class NotResolved(OSError):
    """No answer in time, or nobody could be asked."""


async def address_to_bind(endpoint: EndPoint) -> Address:
    """Raises OSError for an unknown host.

    An empty host means every interface, and so do `0.0.0.0` and `::`. Like Java, all three serve IPv4 and IPv6.
    """
    if endpoint.host:
        found = await _resolve(endpoint.host, endpoint.port, socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        if address[0] not in ("0.0.0.0", "::") or not socket.has_dualstack_ipv6():
            return family, kind, protocol, address
    if socket.has_dualstack_ipv6():
        return socket.AF_INET6, socket.SOCK_STREAM, 0, ("::", endpoint.port)
    return socket.AF_INET, socket.SOCK_STREAM, 0, ("", endpoint.port)


async def overrides_by_address(overrides: Mapping[str, int]) -> dict[str, int]:
    """max.connections.per.ip.overrides with host names replaced by their addresses, as Kafka does when the setting is
    read.

    Raises ConfigError for an unknown host.
    """
    found: dict[str, int] = {}
    for host, count in overrides.items():
        try:
            addresses = await _resolve(host, None, 0)
        except OSError as error:
            raise ConfigError(
                "max.connections.per.ip.overrides", f"{host}:{count}", f"unknown host: {error.args[-1]}"
            ) from error
        found.update((peer_host(str(address[0])), count) for *_, address in addresses)
    return found


async def address_of(host: str) -> str | None:
    """Return the first address of a host, or None if the host is unknown or the resolver takes too long."""
    with trio.move_on_after(ADDRESS_TIMEOUT_S):
        try:
            found = await _resolve(host, None, 0)
        except (OSError, ValueError):  # ValueError: the text cannot be a host name
            return None
        return peer_host(str(found[0][4][0]))
    return None


async def addresses_of(host: str) -> tuple[str, ...] | None:
    """Return all addresses of a host, or None if the host is unknown or the resolver takes too long."""
    try:
        found = await _resolve(host, None, 0)
    except (OSError, ValueError):  # ValueError: the text cannot be a host name
        return None
    return tuple(dict.fromkeys(peer_host(str(address[0])) for *_, address in found))


async def own_name(endpoints: Iterable[EndPoint]) -> str:
    """This machine's full host name, for endpoints without a host. If all have one, nothing is resolved."""
    if all(endpoint.host for endpoint in endpoints):
        return ""
    with trio.move_on_after(OWN_NAME_TIMEOUT_S):
        return await trio.to_thread.run_sync(socket.getfqdn, abandon_on_cancel=True)
    return socket.gethostname()


def read_as_by_java(host: str) -> str:
    """A host of a setting or a quota in a form that the system's resolver reads as Java's InetAddress reads the host.

    IPv4 addresses have one to four decimal parts. The resolver would take leading zeros for octal numbers. IPv6
    addresses may stand in brackets. Raises OSError for a hexadecimal address, which Java does not know.
    """
    if host.startswith("[") and host.endswith("]") and ":" in host:
        return host[1:-1]
    if not _NUMBERS.fullmatch(host):
        return host
    if "x" in host.lower():
        raise socket.gaierror(socket.EAI_NONAME, "an address in hexadecimal numbers")
    return ".".join([str(int(part)) for part in host.split(".")])


async def _resolve(host: str, port: int | None, flags: int) -> list[Any]:
    host = read_as_by_java(host)
    with trio.move_on_after(RESOLVE_TIMEOUT_S):
        try:
            return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        except (UnicodeError, RuntimeError) as error:  # the text names no host, or no thread can start
            raise NotResolved(str(error)) from None
    raise NotResolved(f"the resolver gave no answer in {RESOLVE_TIMEOUT_S:.0f} s")
