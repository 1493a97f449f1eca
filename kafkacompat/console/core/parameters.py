"""Query parameters of the JSON API with their bounds. A value out of bounds gives one clear line. No HTTP."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkacompat.console.core.columns import columns_of
from kafkacompat.pipeline.formats.named_fields import Place

MAX_TOPIC_CHARACTERS = 249
MAX_GROUP_CHARACTERS = 8_000
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
MAX_SOUGHT_CHARACTERS = 1_000

SHARED = ("topic", "partition", "limit", "value_bytes", "uncommitted", "ends", "columns")
KNOWN = (*SHARED, "offset", "before", "time_ms")
SEARCH_KNOWN = (*SHARED, "key", "value", "from_ms", "to_ms")
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
    columns: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class NewestQuery:
    """The newest records of all partitions of a topic. ends: for each partition the offset before which they are, or None
    for the end."""

    topic: str
    limit: int = DEFAULT_LIMIT
    value_bytes: int = DEFAULT_VALUE_BYTES
    ends: tuple[int, ...] | None = None
    uncommitted: bool = False
    columns: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is looked for in a partition, or in all of a topic. At least one of key, value (a text in it), from_ms and to_ms is
    set. ends: for each partition the offset before which to go on, or None for the end."""

    topic: str
    partition: int | None
    limit: int = DEFAULT_LIMIT
    value_bytes: int = DEFAULT_VALUE_BYTES
    key: str | None = None
    value: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    ends: tuple[int, ...] | None = None
    uncommitted: bool = False
    columns: tuple[Place, ...] = ()


def records_query(pairs: Iterable[tuple[str, str]]) -> RecordsQuery | NewestQuery:
    """Parse the name-value pairs of GET /api/records. Raises BadParameter if one is missing, repeated or out of bounds."""
    given = _given(pairs, KNOWN)
    starts = [name for name in STARTS if name in given]
    if len(starts) > 1:
        raise BadParameter(f"{starts[0]} and {starts[1]} cannot be given together")
    topic, (limit, value_bytes), uncommitted = _topic(given), _size(given), _uncommitted(given)
    if given.get("partition") == ALL:
        if starts:
            raise BadParameter(f"{starts[0]} is for one partition, and the partition is {ALL}")
        return NewestQuery(topic, limit, value_bytes, _ends(given), uncommitted, _columns(given))
    if "ends" in given:
        raise BadParameter(f"ends is for the partition {ALL}")
    return RecordsQuery(
        topic,
        _number(given, "partition", 0, MAX_PARTITION, 0),
        limit,
        value_bytes,
        _optional(given, "offset", MAX_OFFSET),
        _optional(given, "before", MAX_OFFSET),
        _optional(given, "time_ms", MAX_TIME_MS),
        uncommitted,
        _columns(given),
    )


def search_query(pairs: Iterable[tuple[str, str]]) -> SearchQuery:
    """Parse the name-value pairs of GET /api/search. Raises BadParameter as records_query does."""
    given = _given(pairs, SEARCH_KNOWN)
    if not given.get("value"):
        given.pop("value", None)
    topic, (limit, value_bytes), uncommitted = _topic(given), _size(given), _uncommitted(given)
    if not any(name in given for name in SEARCH_KNOWN if name not in SHARED):
        raise BadParameter("nothing to look for: give key, value, from_ms or to_ms")
    for name in ("key", "value"):
        if len(given.get(name, "")) > MAX_SOUGHT_CHARACTERS:
            raise BadParameter(f"{name} may have at most {MAX_SOUGHT_CHARACTERS} characters")
    from_ms, to_ms = _optional(given, "from_ms", MAX_TIME_MS), _optional(given, "to_ms", MAX_TIME_MS)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise BadParameter("from_ms must be before to_ms")
    return SearchQuery(
        topic,
        None
        if given.get("partition", ALL) == ALL
        else _number(given, "partition", 0, MAX_PARTITION, 0, f" or {ALL}"),
        limit,
        value_bytes,
        given.get("key"),
        given.get("value"),
        from_ms,
        to_ms,
        _ends(given),
        uncommitted,
        _columns(given),
    )


def topic_name(pairs: Iterable[tuple[str, str]]) -> str:
    """Parse the name-value pairs of GET /api/topic."""
    return _topic(_given(pairs, ("topic",)))


def group_name(pairs: Iterable[tuple[str, str]]) -> str:
    """Parse the name-value pairs of GET /api/lag. A group may have any name."""
    group = _given(pairs, ("group",)).get("group")
    if group is None or len(group) > MAX_GROUP_CHARACTERS:
        raise BadParameter(f"group must have at most {MAX_GROUP_CHARACTERS} characters")
    return group


def _given(pairs: Iterable[tuple[str, str]], known: Collection[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, text in pairs:
        if name not in known:
            raise BadParameter(f"unknown parameter {name[:40]!r}; there are {', '.join(known)}")
        if name in given:
            raise BadParameter(f"{name} is given twice")
        given[name] = text
    return given


def _topic(given: dict[str, str]) -> str:
    topic = given.get("topic", "")
    if len(topic) > MAX_TOPIC_CHARACTERS or not _TOPIC.match(topic):
        raise BadParameter(f"topic must be 1 to {MAX_TOPIC_CHARACTERS} letters, digits, '.', '_' or '-'")
    return topic


def _size(given: dict[str, str]) -> tuple[int, int]:
    limit = _number(given, "limit", 1, MAX_LIMIT, DEFAULT_LIMIT)
    value_bytes = _number(given, "value_bytes", 1, MAX_VALUE_BYTES, DEFAULT_VALUE_BYTES)
    if limit * value_bytes > MAX_PAGE_BYTES:
        raise BadParameter(f"limit times value_bytes may be at most {MAX_PAGE_BYTES}")
    return limit, value_bytes


def _uncommitted(given: dict[str, str]) -> bool:
    if given.get("uncommitted", "false") not in ("true", "false"):
        raise BadParameter("uncommitted must be true or false")
    return given.get("uncommitted") == "true"


def _ends(given: dict[str, str]) -> tuple[int, ...] | None:
    text = given.get("ends")
    if text is None:
        return None
    if not _ENDS.match(text) or any(int(end) > MAX_OFFSET for end in text.split(".")):
        raise BadParameter(f"ends must be offsets with dots between them, at most {MAX_PARTITIONS_TOGETHER}")
    return tuple(map(int, text.split(".")))


def _columns(given: dict[str, str]) -> tuple[Place, ...]:
    try:
        return columns_of(given.get("columns", ""))
    except ValueError as problem:
        raise BadParameter(str(problem)) from None


def _optional(given: dict[str, str], name: str, highest: int) -> int | None:
    return _number(given, name, 0, highest, 0) if name in given else None


def _number(given: dict[str, str], name: str, lowest: int, highest: int, default: int, also: str = "") -> int:
    text = given.get(name)
    if text is None:
        return default
    if not _NUMBER.match(text) or not lowest <= int(text) <= highest:
        raise BadParameter(f"{name} must be a whole number from {lowest} to {highest}{also}")
    return int(text)
