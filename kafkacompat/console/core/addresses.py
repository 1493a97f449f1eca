"""The address on which to listen, and the Host headers that are accepted. No sockets.

A page of another site can let a name of its domain point to 127.0.0.1 and then read what the console serves (DNS
rebinding). The browser still sends that name as Host. So unknown names are refused; an address cannot be rebound.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

MAX_HOST_CHARACTERS = 260


def listen_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT or [IPV6]:PORT into (host, port). Raises ValueError with a message for a person."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def host_of(header: str) -> str:
    """Return the host of a Host header, in lower case, without port, brackets and final dot."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def may_ask(header: str | None, allowed: Collection[str]) -> bool:
    """Return whether to answer a request with this Host header: localhost, an IP address, or one of the allowed names."""
    if header is None or len(header) > MAX_HOST_CHARACTERS:
        return False
    host = host_of(header)
    if host == "localhost" or host in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
