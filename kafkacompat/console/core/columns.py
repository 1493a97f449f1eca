"""Columns of a table of records: what the JSON of each value has at paths that the user has chosen. Bounded. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kafkacompat.console.core.decoding import MAX_JSON_BYTES
from kafkacompat.console.core.words import encodable
from kafkacompat.pipeline.formats.named_fields import Place, json_place
from kafkacompat.pipeline.formats.patterns import FormatProblem

MAX_COLUMNS: Final = 8
MAX_COLUMNS_CHARACTERS: Final = 1_000
MAX_CELL_CHARACTERS: Final = 120
_ONE: Final = re.compile(r'(?:[^,"]|"[^"]*")+')
"""One of the paths. In quotes a name may have commas."""

Cells = list[str | None]


def columns_of(text: str) -> tuple[Place, ...]:
    """Return the places for paths with commas between them, such as `id,customer.address[0]."post code"`. ValueError."""
    if len(text) > MAX_COLUMNS_CHARACTERS:
        raise ValueError(f"columns may have at most {MAX_COLUMNS_CHARACTERS} characters")
    if text.count('"') % 2:
        raise ValueError("columns: a quotation mark is not closed")
    paths = [path.strip() for path in _ONE.findall(text)]
    if len(paths) > MAX_COLUMNS:
        raise ValueError(f"there may be at most {MAX_COLUMNS} columns")
    try:
        return tuple(json_place(path) for path in paths)
    except FormatProblem as problem:
        raise ValueError(f"columns: {problem}") from None


def cells_of(value: bytes | str | None, places: tuple[Place, ...]) -> Cells:
    """Return what the value has at each place. None where it has nothing, and for a value that is no JSON."""
    if not places or value is None or len(value) > MAX_JSON_BYTES:
        return [None] * len(places)
    try:
        # Numbers are shown as they are written.
        content = json.loads(value, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return [None] * len(places)
    return [_cell(content, place) for place in places]


def _cell(content: Any, place: Place) -> str | None:
    for step in place.steps:
        if isinstance(step, int):
            if not isinstance(content, list) or step >= len(content):
                return None
            content = content[step]
        elif isinstance(content, dict) and step in content:
            content = content[step]
        else:
            return None
    return _text(content)


def _text(content: Any) -> str:
    if isinstance(content, dict):
        return f"{{{_count(len(content), 'field')}}}"
    if isinstance(content, list):
        return f"[{_count(len(content), 'item')}]"
    if not isinstance(content, str):
        return json.dumps(content)
    text = encodable(content[: MAX_CELL_CHARACTERS + 1])
    return text if len(text) <= MAX_CELL_CHARACTERS else text[:MAX_CELL_CHARACTERS] + "\u2026"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
