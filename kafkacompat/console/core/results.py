"""Folds the records of the result topics into the latest row of each key. A record that was written twice counts once.

Result topics are written at least once. A repeated row has the same key (or event_id, for alerts and rejects) as
before. For each key the highest offset wins. Rows are bounded per topic; the oldest by event time are dropped. This
module knows no consumers, no clock and no views.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafkacompat.console.core.result_topics import RESULT_TOPICS, ResultTopic, Types
from kafkacompat.console.core.words import encodable

MAX_VALUE_BYTES = 64 * 1024
MAX_KEY_BYTES = 256
MAX_TEXT_CHARACTERS = 512
MAX_JSON_INTEGER = 1 << 53
TRIM_SLACK = 1.25

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """One record as it was read. timestamp_ms is the record's timestamp."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Row:
    """The newest row of one key. `fields` has only the topic's named fields."""

    partition: int
    offset: int
    timestamp_ms: int
    event_id: str
    fields: Fields


@dataclass(slots=True)
class TopicFold:
    """The rows of one topic, and how many records were read, repeated or malformed."""

    shape: ResultTopic
    rows: dict[bytes, Row] = field(default_factory=dict)
    records: int = 0
    repeats: int = 0
    malformed: int = 0
    last_malformed: str = ""


class RowError(ValueError):
    """The value does not follow its topic's schema. The text says why."""


def row_fields(shape: ResultTopic, value: bytes) -> Fields:
    """Return the named fields of a record's value. Raises RowError if it is not a JSON object of this shape."""
    if len(value) > MAX_VALUE_BYTES:
        raise RowError(f"value of {len(value)} bytes")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        raise RowError("malformed JSON") from None
    if not isinstance(parsed, dict):
        raise RowError("not a JSON object")
    fields = {name: _checked(shape, name, parsed.get(name), types) for name, types in shape.fields.items()}
    for name, types in shape.optional.items():
        fields[name] = None if parsed.get(name) is None else _checked(shape, name, parsed[name], types)
    event_id = parsed.get("event_id")
    fields["event_id"] = _kept(event_id) if isinstance(event_id, str) else ""
    return fields


def _checked(shape: ResultTopic, name: str, value: Any, types: Types) -> Any:
    if value is None:
        raise RowError(f"missing field: {name}")
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise RowError(f"wrong type: {name}")
    if isinstance(value, str):
        return encodable(value) if name in shape.whole else _kept(value)
    # This comparison is also safe for a NaN and for an integer of any length. It converts nothing.
    if isinstance(value, (int, float)) and not abs(value) <= MAX_JSON_INTEGER:
        raise RowError(f"out of range: {name}")
    return value


def _kept(text: str) -> str:
    return encodable(text[:MAX_TEXT_CHARACTERS])


def _identity(key: bytes) -> bytes:
    """Return the key, or a digest of a long key. The number of rows is bounded, so the size of their keys must be too."""
    return key if len(key) < MAX_KEY_BYTES else key[: MAX_KEY_BYTES // 2] + hashlib.sha256(key).digest()


class Results:
    """The folded rows of all topics. `revision` grows whenever anything changes that a view shows."""

    __slots__ = ("revision", "topics")

    def __init__(self, shapes: Iterable[ResultTopic] = tuple(RESULT_TOPICS.values())) -> None:
        self.topics = {shape.name: TopicFold(shape) for shape in shapes}
        self.revision = 0

    def rows(self, topic: str) -> list[Fields]:
        """Return the rows of a topic, in no particular order."""
        return [row.fields for row in self.topics[topic].rows.values()]

    def forget(self, topic: str) -> None:
        """Drop all rows of a topic that was deleted, or deleted and created again."""
        fold = self.topics.get(topic)
        if fold is not None:
            self.topics[topic] = TopicFold(fold.shape)
            self.revision += 1

    def fold(self, record: ResultRecord) -> None:
        """Add one record. Records of other topics are ignored."""
        fold = self.topics.get(record.topic)
        if fold is None:
            return
        self.revision += 1
        fold.records += 1
        if record.value is None:
            if record.key is not None and not fold.shape.by_event:
                fold.rows.pop(_identity(record.key), None)
            return
        try:
            fields = row_fields(fold.shape, record.value)
        except RowError as error:
            fold.malformed += 1
            fold.last_malformed = f"{record.topic}-{record.partition} offset {record.offset}: {error}"
            return
        event_id = fields["event_id"]
        identity = event_id.encode() if fold.shape.by_event else _identity(record.key or b"")
        known = fold.rows.get(identity)
        if known is not None:
            if known.event_id == event_id and event_id:
                fold.repeats += 1
            if not _is_later(record, known):
                return
        if fields.get(fold.shape.order) is None:
            fields[fold.shape.order] = record.timestamp_ms
        fold.rows[identity] = Row(record.partition, record.offset, record.timestamp_ms, event_id, fields)
        if len(fold.rows) > fold.shape.max_rows * TRIM_SLACK:
            _trim(fold)


def _is_later(record: ResultRecord, known: Row) -> bool:
    if record.partition == known.partition:
        return record.offset > known.offset
    # After partitions were added to the topic, a key may be in two of them.
    return record.timestamp_ms >= known.timestamp_ms


def _trim(fold: TopicFold) -> None:
    newest = sorted(fold.rows.items(), key=lambda item: item[1].fields[fold.shape.order], reverse=True)
    fold.rows = dict(newest[: fold.shape.max_rows])
