"""Internet addresses as text, in the one form that everything of Kafka's compares and shows: Java's.

`InetAddress.getHostAddress` writes all eight parts of an IPv6 address: ACLs, group members, the audit log and the
clients' metrics of a cluster of both kinds of node have `0:0:0:0:0:0:0:1` and never `::1`. An IPv4 address in an IPv6
one (a client on a socket for both) is that IPv4 address. A link-local address of a connection ends in the number of its
interface, `fe80:0:0:0:0:0:0:1%2`.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

NUMBER_OF_INTERFACE = "%NUMBER_OF_THE_INTERFACE"
"""What the text of a link-local address needs besides, if it names no number."""

_IPV4_MAPPED = bytes(10) + b"\xff\xff"
_HOST_AND_PORT = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]\s]+)):([0-9]{1,5})", re.ASCII)
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PART = "(?:0|[1-9a-f][0-9a-f]{0,3})"
_PEER_HOST = re.compile(
    rf"{_OCTET}(?:\.{_OCTET}){{3}}"
    rf"|fe[89ab][0-9a-f](?::{_PART}){{7}}(?:%[1-9][0-9]{{0,9}})?"
    rf"|(?!0:0:0:0:0:ffff:){_PART}(?::{_PART}){{7}}",
    re.ASCII,
)
_FOUR_PARTS = re.compile(r"[0-9]{1,16}(\.[0-9]{1,16}){3}", re.ASCII)


def host_address(packed: bytes) -> str:
    """The text of 4 or 16 bytes. Raises ValueError for another number of bytes."""
    if len(packed) == 16:
        if not packed.startswith(_IPV4_MAPPED):
            return ":".join([f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2)])
        packed = packed[12:]
    if len(packed) != 4:
        raise ValueError(f"an address has 4 or 16 bytes, not {len(packed)}")
    return ".".join([str(part) for part in packed])


def peer_host(address: str, scope_id: int = 0) -> str:
    """The text of an address that a socket or the resolver gave, without its zone; `scope_id` is the interface's number."""
    if ":" not in address:
        return address
    text = host_address(IPv6Address(address.partition("%")[0]).packed)
    return f"{text}%{scope_id}" if scope_id else text


def without_zone(host: str) -> str:
    """Two connections from one address through two interfaces are equal in Kafka's counts and quotas by address."""
    return host.partition("%")[0]


def is_peer_host(text: str) -> bool:
    """Whether a peer can have this text. It costs a microsecond: `as_peer_host` costs ten."""
    return _PEER_HOST.fullmatch(text) is not None


def as_peer_host(text: str) -> str | None:
    """The text that the address has as a peer's, however a person wrote it; None if it is no address."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _FOUR_PARTS.fullmatch(bare):
        parts = [int(part) for part in bare.split(".")]
        return host_address(bytes(parts)) if max(parts) <= 255 else None
    address, _, zone = bare.partition("%")
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return None
    host = host_address(parsed.packed)
    if not parsed.is_link_local:
        return host
    # The same address without a number is the sender's of a forwarded request: an Envelope has no zone.
    if not zone:
        return host
    return f"{host}%{int(zone)}" if zone.isascii() and zone.isdecimal() else host + NUMBER_OF_INTERFACE


def split_host_and_port(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT` as Kafka's clients read them: brackets belong to no host. None for another form."""
    parsed = _HOST_AND_PORT.fullmatch(text.strip())
    if parsed is None or int(parsed[3]) > 65535:
        return None
    return parsed[1] or parsed[2], int(parsed[3])


def host_and_port(host: str, port: int) -> str:
    """An address as clients take it: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
