"""Where to listen, and which Host headers may ask. Knows no socket.

A page of another site can make a name of its own point at 127.0.0.1 and then read what we serve (DNS rebinding). The
browser still sends that name as Host, so names are refused unless they are known; an address cannot be rebound.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

MAX_HOST_CHARACTERS = 260


def listen_address(text: str) -> tuple[str, int]:
    """HOST:PORT or [IPV6]:PORT as (host, port). ValueError with a line for a person otherwise."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return host, int(port)


def host_of(header: str) -> str:
    """The host in a Host header, in lower case, without port, brackets and final dot."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def may_ask(header: str | None, allowed: Collection[str]) -> bool:
    """Whether a request with this Host header is answered: localhost, an IP address, or one of the allowed names."""
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
