"""Addresses as text. The expected forms are what Java's InetAddress gives."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.addresses import (
    as_peer_host,
    host_address,
    host_and_port,
    is_peer_host,
    peer_host,
    split_host_and_port,
    without_zone,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("2001:DB8::a", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::ffff:102:304", "1.2.3.4"),
        ("::1.2.3.4", "0:0:0:0:0:0:102:304"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
    ],
)
def test_a_peer_has_the_text_that_java_writes(text: str, told: str) -> None:
    assert peer_host(text) == told


def test_a_link_local_peer_ends_in_the_number_of_its_interface_but_counts_without_it() -> None:
    assert peer_host("fe80::1", 4) == "fe80:0:0:0:0:0:0:1%4"
    assert without_zone("fe80:0:0:0:0:0:0:1%4") == "fe80:0:0:0:0:0:0:1"
    assert ip_address("fe80:0:0:0:0:0:0:1%4").packed == ip_address("fe80::1").packed


@given(st.binary(min_size=16, max_size=16) | st.binary(min_size=4, max_size=4))
def test_every_address_keeps_its_text_and_its_bytes(packed: bytes) -> None:
    text = host_address(packed)
    assert peer_host(text) == as_peer_host(text) == text
    assert is_peer_host(text)
    mapped = packed[12:] if len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff") else packed
    assert ip_address(text).packed == mapped


@pytest.mark.parametrize("count", [0, 3, 5, 15, 17])
def test_other_numbers_of_bytes_are_no_address(count: int) -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        host_address(bytes(count))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("0000:0:0:0:0:0:0:0001", "0:0:0:0:0:0:0:1"),
        ("2001:DB8:0:0:0:0:0:A", "2001:db8:0:0:0:0:0:a"),
        ("2001:db8::1%3", "2001:db8:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("010.0.0.001", "10.0.0.1"),
        ("fe80::1%4", "fe80:0:0:0:0:0:0:1%4"),
        ("fe80::1%04", "fe80:0:0:0:0:0:0:1%4"),
        ("fe80::1", "fe80:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%NUMBER_OF_THE_INTERFACE"),
        ("256.0.0.1", None),
        ("10.0.0.0/8", None),
        ("one.example", None),
        ("", None),
        (" ::1", None),
        ("::1 ", None),
        ("1", None),
    ],
)
def test_an_address_in_any_form_has_the_text_of_a_peer(text: str, told: str | None) -> None:
    assert as_peer_host(text) == told
    assert is_peer_host(text) == (text == told)


@given(st.from_regex(r"[0-9a-f:.%]{1,24}|([0-9]{1,3}\.){3}[0-9]{1,3}", fullmatch=True))
def test_a_text_is_a_peers_exactly_if_it_is_the_text_of_its_address(text: str) -> None:
    assert is_peer_host(text) == (as_peer_host(text) == text)


def test_a_host_with_colons_stands_in_brackets_before_its_port() -> None:
    assert host_and_port("::1", 9092) == "[::1]:9092"
    assert host_and_port("one.example", 9092) == "one.example:9092"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[::1]:9092", ("::1", 9092)),
        (" one.example:1 ", ("one.example", 1)),
        ("::1:9092", ("::1", 9092)),  # Kafka's clients read the last part as the port
        ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
        ("one.example", None),
        (":9092", None),
        ("[]:9092", None),
        ("[::1:9092", None),
        ("::1]:9092", None),
        ("one.example:65536", None),
        ("one.example:9_2", None),
        ("one.example:\u0661", None),
        ("one.example:+1", None),
        ("one example:1", None),
    ],
)
def test_host_and_port_are_read_as_by_kafkas_clients(text: str, parts: tuple[str, int] | None) -> None:
    assert split_host_and_port(text) == parts
