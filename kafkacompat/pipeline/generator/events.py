"""What the generator makes: events in the order they arrive, and how many of which kind. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

ACCESS_LINES: Final = "access lines"
"""The stream of events that are lines of a web server's log and not records of a topic."""


class Event(NamedTuple):
    """One record or line."""

    arrival_ms: int
    """When it is there to be read: the record's timestamp. Not the time it tells of."""
    stream: str
    """A topic, or ACCESS_LINES."""
    key: str
    """The record's key; of a line, the host that writes it."""
    value: bytes


def encoded(fields: dict[str, Any]) -> bytes:
    """The JSON object of a record's value."""
    return json.dumps(fields, separators=(",", ":")).encode()
