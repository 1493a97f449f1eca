"""Blocks of addresses in the hosts of access control entries (KIP-1276), `10.0.0.0/8` and `2001:db8::/32`.

Pure. What is a block, which addresses it has, and the words of a refusal are those of Apache Kafka's CidrUtils: the library
behind it reads IPv4 by a pattern, and IPv6 as Java reads any address. Two of its habits are kept because a cluster of both
kinds of node must decide alike: no IPv4 block has the address 0.0.0.0, and no block of either kind has an address of the
other.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple

SLASH = "/"
"""A host with it is a block, or is refused."""

_IPV4_BLOCK = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})", re.ASCII)
_IPV4_HOST = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})", re.ASCII)
_PREFIX = re.compile(r"[+-]?\d+")
_LEADING_ZEROS = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9A-Fa-f])")
_ZONE = re.compile(r"[0-9]+", re.ASCII)
_BITS = {4: 32, 6: 128}
_INT_MAX = 2**31 - 1


class CidrFlaw(Exception):
    """The text is no block. The message is Kafka's."""


class Address(NamedTuple):
    version: int
    number: int


class CidrBlock(NamedTuple):
    version: int
    prefix: int
    """How many bits all addresses have in common."""
    network: int
    """These bits, as a number."""


def parse_cidr(text: str) -> CidrBlock:
    """Raises CidrFlaw."""
    return _ipv6_block(text) if ":" in text else _ipv4_block(text)


def address_of(host: str) -> Address | None:
    """The address that a peer's text means; None for a text that no block can have."""
    found = _IPV4_HOST.fullmatch(host)
    if found is not None:
        octets = [int(each) for each in found.groups()]
        number = int.from_bytes(bytes(octets)) if max(octets) <= 255 else 0
        return Address(4, number) if number else None
    if ":" not in host:
        return None
    ipv6 = _ipv6_number(host)
    return None if ipv6 is None else Address(6, ipv6)


def common_bits(address: Address, prefix: int) -> int:
    return address.number >> (_BITS[address.version] - prefix)


def _ipv4_block(text: str) -> CidrBlock:
    found = _IPV4_BLOCK.fullmatch(text)
    if found is None:
        raise CidrFlaw(f"Could not parse [{text}]")
    *octets, prefix = (int(each) for each in found.groups())
    for value, most in (*((each, 255) for each in octets), (prefix, 32)):
        if value > most:
            raise CidrFlaw(f"Value [{value}] not in range [0,{most}]")
    return CidrBlock(4, prefix, int.from_bytes(bytes(octets)) >> (32 - prefix))


def _ipv6_block(text: str) -> CidrBlock:
    host, slash, prefix_text = text.partition(SLASH)
    if not slash:
        raise CidrFlaw(f"Could not parse [{text}] - missing prefix length")
    prefix = int(prefix_text) if _PREFIX.fullmatch(prefix_text) and len(prefix_text) <= 64 else _INT_MAX + 1
    if abs(prefix) > _INT_MAX:
        raise CidrFlaw(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= prefix <= 128:
        raise CidrFlaw(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    number = _ipv6_number(host)
    if number is None:
        # Java reads an IPv4 address within an IPv6 one as that IPv4 address.
        reason = " - not an IPv6 address" if _is_mapped(host) else ""
        raise CidrFlaw(f"Could not parse [{host}]{reason}")
    return CidrBlock(6, prefix, number >> (128 - prefix))


def _ipv6_number(host: str) -> int | None:
    """None for what Java reads as no address, or as an IPv4 address. The zone of an address may be a number only."""
    parsed = _parse_ipv6(host)
    return None if parsed is None or parsed.ipv4_mapped is not None else int(parsed)


def _is_mapped(host: str) -> bool:
    parsed = _parse_ipv6(host)
    return parsed is not None and parsed.ipv4_mapped is not None


def _parse_ipv6(host: str) -> IPv6Address | None:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    address, percent, zone = bare.partition("%")
    if percent and not (_ZONE.fullmatch(zone) and len(zone) <= 64 and int(zone) <= _INT_MAX):
        return None
    try:
        return IPv6Address(_LEADING_ZEROS.sub("", address))
    except ValueError:
        return None
