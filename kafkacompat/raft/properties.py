"""Writes Java properties text, the format of Kafka's `meta.properties`. config.properties reads it.

It handles the escapes; the keys are unknown here. Follows java.util.Properties.store for text without surrogate pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_NAMES = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
_SPECIAL = "=:#!\\"


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, True)}={_escape(value, False)}" for key, value in properties.items()]
    return "".join(line + "\n" for line in lines)


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character == " " and (is_key or position == 0):
            out.append("\\ ")
        elif character in _SPECIAL:
            out.append("\\" + character)
        elif character in _NAMES:
            out.append("\\" + _NAMES[character])
        elif not " " <= character <= "~":
            out.append(f"\\u{ord(character):04X}")
        else:
            out.append(character)
    return "".join(out)
