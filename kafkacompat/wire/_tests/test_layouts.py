"""Layouts that are learned from two messages."""

from __future__ import annotations

from struct import Struct

import pytest

from kafkacompat.wire.layouts import layout_of, places_of_numbers

ZEROS = b"ab" + bytes(8) + b"c" + bytes(4)
ONES = b"ab" + b"\xff" * 8 + b"c" + b"\xff" * 4


def test_numbers_are_where_bytes_differ() -> None:
    assert places_of_numbers(ZEROS, ONES) == [(2, 10), (11, 15)]
    assert places_of_numbers(ZEROS + b"d", ONES + b"d") == [(2, 10), (11, 15)]
    assert places_of_numbers(b"abc", b"abc") == []


@pytest.mark.parametrize("end", [b"", b"tail"])
def test_a_layout_takes_a_message_apart(end: bytes) -> None:
    layout = Struct(layout_of(ZEROS + end, ONES + end, {8: "q", 4: "i"}))
    assert layout.unpack(ONES + end) == (b"ab", -1, b"c", -1, end)
    assert layout.pack(b"ab", 5, b"c", 6, end) == b"ab" + (5).to_bytes(8) + b"c" + (6).to_bytes(4) + end
