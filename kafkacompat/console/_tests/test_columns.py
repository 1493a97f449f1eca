"""Columns of JSON: what stands at a path, whatever the value is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.core.columns import MAX_CELL_CHARACTERS, MAX_COLUMNS, cells_of, columns_of
from kafkacompat.console.core.decoding import MAX_JSON_BYTES

ORDER = (
    b'{"id": 12345678901234567890, "price": 1.10, "paid": true, "note": null, "customer": {"post code": "0150", '
    b'"a,b": "c"}, "items": [{"sku": "S1"}, {}], "text": "caf\\u00e9 \\ud800"}'
)


@pytest.mark.parametrize(
    ("paths", "cells"),
    [
        ("id", ["12345678901234567890"]),
        ("price, paid,note", ["1.10", "true", "null"]),
        ('customer."post code",customer."a,b"', ["0150", "c"]),
        ("items[0].sku,items[1].sku,items[2].sku,items", ["S1", None, None, "[2 items]"]),
        ("customer,text", ["{2 fields}", "caf\u00e9 \ufffd"]),
        ("absent,id.more,items.sku,paid[0]", [None, None, None, None]),
        ("", []),
    ],
)
def test_a_cell_has_what_stands_at_the_path(paths: str, cells: list[str | None]) -> None:
    assert cells_of(ORDER, columns_of(paths)) == cells


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\xfe",
        b"text",
        b"17",
        b"[1]",
        b'{"a":',
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"a": "' + b"x" * MAX_JSON_BYTES + b'"}',
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_value_without_the_path_has_no_cell(value: bytes | None) -> None:
    assert cells_of(value, columns_of("a,b.c")) in ([None, None], ["{1 field}", None])


def test_a_long_text_is_cut() -> None:
    (cell,) = cells_of(json.dumps({"a": "x" * 5_000}), columns_of("a"))
    assert cell == "x" * MAX_CELL_CHARACTERS + "\u2026"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (",".join(f"c{number}" for number in range(MAX_COLUMNS + 1)), "at most 8 columns"),
        ("a" * 1_001, "at most 1000 characters"),
        ("a..b", "it is no path at character 2"),
        ("a.b.c.d.e.f.g.h.i", "9 steps"),
        ('a,"open', "a quotation mark is not closed"),
    ],
)
def test_what_is_no_path_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        columns_of(text)


@given(
    st.text(max_size=30),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inside: (
            st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3)
        ),
        max_leaves=8,
    ),
)
def test_any_path_of_any_json_has_a_cell_that_can_be_sent(path: str, value: object) -> None:
    try:
        places = columns_of(path)
    except ValueError:
        return
    for cell in cells_of(json.dumps(value), places):
        assert cell is None or cell.encode()
