"""Shows a record's bytes as JSON, text or hex. Bounded. Independent of topics and clients."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kafkacompat.console.core.words import encodable

HEX_BYTES_A_LINE = 16
MAX_JSON_BYTES = 256 * 1024
MAX_INDENTED_TIMES = 10
"""How many times longer indented JSON may be. Each level of nesting adds characters to every line inside it."""

INDENT: Final = "  "
TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""Matches one token of JSON."""

NOTHING, JSON_TEXT, PLAIN_TEXT, HEX = "null", "json", "text", "hex"

Decoded = dict[str, Any]


def decoded(data: bytes | None, max_bytes: int) -> Decoded:
    """Return {kind, text, size_bytes, truncated}. At most max_bytes of the data are shown; size_bytes is the full
    length.

    For JSON, `raw` has the original text.
    """
    if data is None:
        return {"kind": NOTHING, "text": "", "size_bytes": 0, "truncated": False}
    kind, text, truncated = _shown(data, max_bytes)
    shown: Decoded = {"kind": kind, "text": text, "size_bytes": len(data), "truncated": truncated}
    if kind == JSON_TEXT:
        shown["raw"] = data.decode()
    return shown


def _shown(data: bytes, max_bytes: int) -> tuple[str, str, bool]:
    truncated = len(data) > max_bytes
    shown = data[:max_bytes]
    text = _as_text(shown, truncated)
    if text is None:
        return HEX, hex_lines(shown), truncated
    if not truncated and len(data) <= MAX_JSON_BYTES and text[:1] in ("{", "["):
        pretty = _as_json(text)
        if pretty is not None:
            return JSON_TEXT, pretty, False
    return PLAIN_TEXT, text, truncated


def _as_text(data: bytes, truncated: bool) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may be inside a character, which has up to four bytes.
        if not truncated or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode("utf-8")
    control = any(ord(letter) < 32 and letter not in "\t\n\r" for letter in text)
    return None if control else text


def _as_json(text: str) -> str | None:
    """Return the text with one line per member. Numbers, names and repeated names stay as they are written."""
    try:
        json.loads(text, parse_constant=_no_number, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    return _indented(text, len(text) * MAX_INDENTED_TIMES)


def _no_number(word: str) -> str:
    raise ValueError(f"{word} is no JSON")


def _indented(text: str, most: int) -> str | None:
    """Indent valid JSON. None if the result is longer than `most` characters."""
    lines: list[str] = []
    line, depth, length = "", 0, 0
    opened = False
    for token in TOKENS.findall(text):
        if token in "]}":
            depth -= 1
            if not opened:
                length += len(line) + 1
                lines.append(line)
                line = INDENT * depth
        elif opened:
            length += len(line) + 1
            lines.append(line)
            line = INDENT * depth
        opened = token in "[{"
        depth += opened
        line += _readable(token)
        if token == ",":
            length += len(line) + 1
            lines.append(line)
            line = INDENT * depth
        elif token == ":":
            line += " "
        if length > most:
            return None
    return "\n".join([*lines, line])


def _readable(token: str) -> str:
    """Return a string without unnecessary escapes. Any other token stays as it is written."""
    return encodable(json.dumps(json.loads(token), ensure_ascii=False)) if token.startswith('"') else token


def hex_lines(data: bytes) -> str:
    """Return lines of offset, sixteen bytes in hex, and printable ASCII."""
    lines = []
    for at in range(0, len(data), HEX_BYTES_A_LINE):
        part = data[at : at + HEX_BYTES_A_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{HEX_BYTES_A_LINE * 3 - 1}}  {letters}")
    return "\n".join(lines)
