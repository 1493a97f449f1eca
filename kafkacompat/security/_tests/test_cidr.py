"""Blocks of addresses. Texts, results and words were taken from Apache Kafka 4.4.0 (CidrUtils)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.addresses import host_address
from kafkacompat.security.cidr import CidrFlaw, address_of, common_bits, parse_cidr


def is_in(host: str, text: str) -> bool:
    block, address = parse_cidr(text), address_of(host)
    return (
        address is not None
        and address.version == block.version
        and common_bits(address, block.prefix) == block.network
    )


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/8",
        "010.000.0.1/08",
        "0.0.0.0/0",
        "::/0",
        "::1/128",
        "::1/+64",
        "[::1]/64",
        "fe80::1%1/64",
        "::10.0.0.0/104",
        "000000001::/64",
        "::01.02.03.04/64",
        "2001:DB8::/32",
        "1:2:3:4:5:6:7::/64",
        "::2:3:4:5:6:7:8/64",
        "::ffff:0:1.2.3.4/96",
        "::1.2.3.4%1/64",
        "::/00128",
        "::/-0",
        "::/\u0663",
    ],
)
def test_a_block_may_be_written_in_many_ways(text: str) -> None:
    parse_cidr(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("300.0.0.0/8", "Value [300] not in range [0,255]"),
        ("10.0.0.0/300", "Could not parse [10.0.0.0/300]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        (" 10.0.0.0/8", "Could not parse [ 10.0.0.0/8]"),
        ("\u0661\u0660.0.0.0/8", "Could not parse [\u0661\u0660.0.0.0/8]"),
        ("/", "Could not parse [/]"),
        ("::1", "Could not parse [::1] - missing prefix length"),
        ("::1/129", "Could not parse [::1/129] - prefix length must be between 0 and 128"),
        ("::1/-1", "Could not parse [::1/-1] - prefix length must be between 0 and 128"),
        ("::1/", "Could not parse [::1/] - invalid prefix length"),
        ("::/9999999999", "Could not parse [::/9999999999] - invalid prefix length"),
        ("::1/64/::1", "Could not parse [::1/64/::1] - invalid prefix length"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
        ("::ffff:0:0/96", "Could not parse [::ffff:0:0] - not an IPv6 address"),
        ("1::2::3/64", "Could not parse [1::2::3]"),
        ("12345::/64", "Could not parse [12345::]"),
        ("host:1/64", "Could not parse [host:1]"),
        ("[::1/64", "Could not parse [[::1]"),
        ("[:]/64", "Could not parse [[:]]"),
        ("fe80::1%4294967296/64", "Could not parse [fe80::1%4294967296]"),
        ("fe80::1%\u0661/64", "Could not parse [fe80::1%\u0661]"),
        ("::%/64", "Could not parse [::%]"),
    ],
)
def test_what_is_no_block_is_refused_in_kafkas_words(text: str, words: str) -> None:
    with pytest.raises(CidrFlaw) as flaw:
        parse_cidr(text)
    assert str(flaw.value) == words


@pytest.mark.parametrize(
    ("text", "host", "held"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.1.1", False),
        ("010.0.0.0/8", "10.1.1.1", True),
        ("10.0.0.7/31", "10.0.0.6", True),
        ("10.0.0.7/32", "10.0.0.7", True),
        ("0.0.0.0/0", "1.1.1.1", True),
        ("0.0.0.0/0", "0.0.0.0", False),
        ("0.0.0.0/0", "0:0:0:0:0:0:0:1", False),
        ("0.0.0.0/0", "10.0.0.1%1", False),
        ("::/0", "1.2.3.4", False),
        ("::/0", "0:0:0:0:0:0:0:0", True),
        ("fe80::/10", "fe80:0:0:0:0:0:0:1%2", True),
        ("fe80::/10", "fe80:0:0:0:0:0:0:1%eth7", False),
        ("fe80::1%3/128", "fe80:0:0:0:0:0:0:1%2", True),
        ("10.0.0.0/8", "no address", False),
    ],
)
def test_a_block_has_the_addresses_with_its_first_bits(text: str, host: str, held: bool) -> None:
    assert is_in(host, text) is held


@given(st.integers(1, 2**32 - 1), st.integers(0, 31), st.integers(0, 32))
def test_an_ipv4_block_ends_where_a_bit_differs(number: int, bit: int, prefix: int) -> None:
    text = f"{IPv4Address(number)}/{prefix}"
    assert is_in(str(IPv4Address(number)), text)
    other = number ^ 1 << bit
    if other:
        assert is_in(str(IPv4Address(other)), text) is (bit < 32 - prefix)


@given(st.integers(1 << 64, 2**128 - 1), st.integers(0, 127), st.integers(0, 128))
def test_an_ipv6_block_ends_where_a_bit_differs(number: int, bit: int, prefix: int) -> None:
    text = f"{IPv6Address(number)}/{prefix}"
    assert is_in(host_address(IPv6Address(number).packed), text)
    other = IPv6Address(number ^ 1 << bit)
    if other.ipv4_mapped is None:
        assert is_in(host_address(other.packed), text) is (bit < 128 - prefix)
