"""Query parameters of the JSON API with their bounds. A value out of bounds gives one clear line. No HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_TOPIC_CHARACTERS = 249
MAX_PARTITION = 1_000_000
MAX_LIMIT = 200
DEFAULT_LIMIT = 25
MAX_VALUE_BYTES = 1_000_000
DEFAULT_VALUE_BYTES = 4_096
MAX_PAGE_BYTES = 4_000_000
MAX_OFFSET = 2**63 - 1
MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999."""

ALL = "all"
"""In place of a partition: the newest records of all."""

MAX_PARTITIONS_TOGETHER = 64

KNOWN = ("topic", "partition", "limit", "value_bytes", "offset", "before", "time_ms", "uncommitted", "ends")
STARTS = ("offset", "before", "time_ms")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+\Z")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_ENDS = re.compile(rf"[0-9]{{1,19}}(?:\.[0-9]{{1,19}}){{0,{MAX_PARTITIONS_TOGETHER - 1}}}\Z")


class BadParameter(ValueError):
    """A parameter is out of bounds. The text names it and the allowed values."""


@dataclass(frozen=True, slots=True)
class RecordsQuery:
    """The requested records of a partition. At most one of offset, before and time_ms is set. None of them means the
    latest records."""

    topic: str
    partition: int
    limit: int = DEFAULT_LIMIT
    value_bytes: int = DEFAULT_VALUE_BYTES
    offset: int | None = None
    before: int | None = None
    time_ms: int | None = None
    uncommitted: bool = False


@dataclass(frozen=True, slots=True)
class NewestQuery:
    """The newest records of all partitions of a topic. ends: for each partition the offset before which they are, or None
    for the end."""

    topic: str
    limit: int = DEFAULT_LIMIT
    value_bytes: int = DEFAULT_VALUE_BYTES
    ends: tuple[int, ...] | None = None
    uncommitted: bool = False


def records_query(pairs: Iterable[tuple[str, str]]) -> RecordsQuery | NewestQuery:
    """Parse the name-value pairs of GET /api/records. Raises BadParameter if one is missing, repeated or out of bounds."""
    given: dict[str, str] = {}
    for name, text in pairs:
        if name not in KNOWN:
            raise BadParameter(f"unknown parameter {name[:40]!r}; there are {', '.join(KNOWN)}")
        if name in given:
            raise BadParameter(f"{name} is given twice")
        given[name] = text
    starts = [name for name in STARTS if name in given]
    if len(starts) > 1:
        raise BadParameter(f"{starts[0]} and {starts[1]} cannot be given together")
    topic = given.get("topic", "")
    if len(topic) > MAX_TOPIC_CHARACTERS or not _TOPIC.match(topic):
        raise BadParameter(f"topic must be 1 to {MAX_TOPIC_CHARACTERS} letters, digits, '.', '_' or '-'")
    limit = _number(given, "limit", 1, MAX_LIMIT, DEFAULT_LIMIT)
    value_bytes = _number(given, "value_bytes", 1, MAX_VALUE_BYTES, DEFAULT_VALUE_BYTES)
    if limit * value_bytes > MAX_PAGE_BYTES:
        raise BadParameter(f"limit times value_bytes may be at most {MAX_PAGE_BYTES}")
    if given.get("uncommitted", "false") not in ("true", "false"):
        raise BadParameter("uncommitted must be true or false")
    ends = given.get("ends")
    if given.get("partition") == ALL:
        if starts:
            raise BadParameter(f"{starts[0]} is for one partition, and the partition is {ALL}")
        if ends is not None and (
            not _ENDS.match(ends) or any(int(end) > MAX_OFFSET for end in ends.split("."))
        ):
            raise BadParameter(
                f"ends must be offsets with dots between them, at most {MAX_PARTITIONS_TOGETHER}"
            )
        return NewestQuery(
            topic,
            limit,
            value_bytes,
            None if ends is None else tuple(map(int, ends.split("."))),
            given.get("uncommitted") == "true",
        )
    if ends is not None:
        raise BadParameter(f"ends is for the partition {ALL}")
    return RecordsQuery(
        topic,
        _number(given, "partition", 0, MAX_PARTITION, 0),
        limit,
        value_bytes,
        _optional(given, "offset", MAX_OFFSET),
        _optional(given, "before", MAX_OFFSET),
        _optional(given, "time_ms", MAX_TIME_MS),
        given.get("uncommitted") == "true",
    )


def _optional(given: dict[str, str], name: str, highest: int) -> int | None:
    return _number(given, name, 0, highest, 0) if name in given else None


def _number(given: dict[str, str], name: str, lowest: int, highest: int, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not _NUMBER.match(text) or not lowest <= int(text) <= highest:
        raise BadParameter(f"{name} must be a whole number from {lowest} to {highest}")
    return int(text)
