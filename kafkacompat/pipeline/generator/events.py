"""The generator's events in the order of their arrival, and counts by kind. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

ACCESS_LINES: Final = "access lines"
"""The stream of events that are lines of a web server's log instead of records of a topic."""


class Event(NamedTuple):
    """One record or line."""

    arrival_ms: int
    """The time when it can be read, which is the record's timestamp. It may differ from the event time."""
    stream: str
    """A topic, or ACCESS_LINES."""
    key: str
    """The record's key. For a line, the host that writes it."""
    value: bytes


def encoded(fields: dict[str, Any]) -> bytes:
    """Encode a record's value as a JSON object."""
    return json.dumps(fields, separators=(",", ":")).encode()
