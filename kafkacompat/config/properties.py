"""Java's .properties syntax, as in server.properties.

Follows java.util.Properties.load: comments with # or !, separators = and : and blanks, a backslash at the end of a
line continues it, \\uXXXX and the usual escapes.
"""

from __future__ import annotations

import re
from pathlib import Path

from kafkacompat.config.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        # With an odd number of backslashes at the end, the last one escapes the line end.
        if (len(natural) - len(natural.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = None
        lines.append(line)
    if pending is not None:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    position, length = 0, len(line)
    while position < length and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    name_end = min(position, length)
    rest = line[name_end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    return line[:name_end], rest


def _unescape(text: str, line: str) -> str:
    if "\\" not in text:
        return text
    units: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            units.append(character)
            continue
        if position == len(text):
            break
        escape = text[position]
        position += 1
        if escape != "u":
            units.append(_ESCAPES.get(escape, escape))
            continue
        digits = text[position : position + 4]
        if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
            raise ConfigError(_split(line)[0], digits, f"malformed \\uXXXX escape in {line!r}", whole=True)
        units.append(chr(int(digits, 16)))
        position += 4
    # Two escapes can be the halves of one character beyond the Basic Multilingual Plane.
    return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in file order. Of equal names the last one counts. Raises ConfigError for a malformed \\u
    escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        properties[_unescape(name, line)] = _unescape(value, line)
    return properties


def load_properties(path: str | Path) -> dict[str, str]:
    """The properties in a file, decoded as Java does (ISO 8859-1). Raises OSError if it cannot be read."""
    return parse_properties(Path(path).read_text("latin-1"))
