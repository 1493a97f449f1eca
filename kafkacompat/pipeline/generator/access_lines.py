"""Lines of a web server's log in the combined format, and malformed lines. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from kafkacompat.pipeline.generator.chance import Chance
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

ASSETS: Final = ("/static/site.css", "/static/site.js", "/static/logo.svg", "/static/photo-%d.webp")
BOT_AGENT: Final = "Mozilla/5.0 (compatible; ExampleBot/2.1; +https://bot.example/)"
BAD_LINES: Final = ("cut", "bytes", "time", "status", "trace", "empty", "oversized")
"""The kinds of bad lines."""


def line_time(time_ms: int) -> str:
    """Format a time as in the combined format, in UTC."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")


def response_bytes(chance: Chance, status: int) -> int:
    """Return the length of a response's body, 0 if it has none."""
    if status in (301, 304):
        return 0
    return int(math.exp(chance.gauss(8.8, 1.0)))


def combined(
    address: str,
    user: str,
    time_ms: int,
    request: str,
    status: int,
    length_bytes: int,
    referrer: str,
    agent: str,
) -> bytes:
    """Return one line without its newline. An empty user, length or referrer is written as `-`."""
    return (
        f'{address} - {user or "-"} [{line_time(time_ms)}] "{request}" {status} {length_bytes or "-"} '
        f'"{referrer or "-"}" "{agent}"'
    ).encode()


def spoiled(chance: Chance, line: bytes, kind: str) -> bytes:
    """Turn a valid line into a bad line of this kind."""
    match kind:
        case "cut":
            return line[: chance.randrange(10, len(line) // 2)]
        case "bytes":
            return bytes(chance.randrange(128, 256) for _ in range(chance.randrange(20, 200)))
        case "time":
            return line.replace(b"[", b"[yesterday ", 1)
        case "status":
            return line.replace(b'HTTP/1.1" ', b'HTTP/1.1" OK ', 1)
        case "trace":
            return b'  File "/srv/shop/app.py", line %d, in handle' % chance.randrange(1, 900)
        case "oversized":
            return line.replace(b" HTTP/1.1", b"?" + b"a" * LINE_BYTES_MAX + b" HTTP/1.1", 1)
        case _:
            return b""
