"""A form of messages without ids, clocks and addresses, so that the responses of two brokers can be compared.

Ids are replaced by the order in which they first appeared. Lists are sorted if Kafka's order comes from a hash table.
Records are represented by their headers.
"""

from __future__ import annotations

import re
import struct
from typing import Any, TypeAlias

from interop_tests.side_by_side.differing import Told
from kafkacompat.config.keys import own_names
from kafkacompat.wire.message import Struct

Canonical: TypeAlias = Any
"""Values, tuples of them, and the form of messages."""
MEMBER_ID = re.compile(r".*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMES = ("timestamp", "log_append_time_ms", "transaction_start_time_ms", "last_timestamp")
TEXTS = ("error_message", "batch_index_error_message", "message", "documentation")
ADDRESSES = ("host", "port", "cluster_id", "rack")
OWN_SETTINGS = own_names("broker") | own_names("topic") | own_names("group")
"""Apache Kafka does not describe them."""


class Names:
    """The ids of one broker, in the order in which they first appeared."""

    def __init__(self, data_dir: str = "", dropped: frozenset[tuple[str, str]] = frozenset()) -> None:
        """`dropped` are fields that are not compared, each with the type of the whole message."""
        self._seen: dict[str, dict[Any, int]] = {}
        self._data_dir = data_dir
        self._dropped = dropped
        self._whole = ""
        self._is_naming = True
        """Whether ids that are new get a name."""

    def canonical(self, message: Any) -> Canonical:
        """The message without the values that differ between any two clusters."""
        if isinstance(message, str):
            return message
        self._whole = type(message).__name__
        return self._struct(message)

    def _struct(self, item: Struct) -> Canonical:
        kind = type(item).__name__
        found: list[tuple[str, Any]] = []
        for name in item.__slots__:
            if (self._whole, name) in self._dropped:
                continue
            value = getattr(item, name)
            if type(value) is list:
                found.append((name, self._list(name, value)))
            else:
                found.append((name, self.value(name, value)))
        return Told(kind, tuple(found))

    def _list(self, name: str, items: list[Any]) -> Canonical:
        if self._whole == "FetchResponse" and name == "responses":
            items = together(items)
        if self._whole == "DescribeConfigsResponse" and name == "configs":
            items = [each for each in items if each.name not in OWN_SETTINGS]
        # Sort by everything else before ids are replaced. A message may contain the same list in several places.
        unnamed = Unnamed(self._data_dir, self._dropped)
        unnamed._whole = self._whole
        items[:] = sorted(
            items, key=lambda each: (repr(unnamed.value(name, each)), self._as_known(name, each))
        )
        return tuple(sorted((self.value(name, each) for each in items), key=repr))

    def _as_known(self, name: str, value: Any) -> str:
        """Elements that differ only in their ids are in the order of the names that these have already."""
        before, self._is_naming = self._is_naming, False
        known = repr(self.value(name, value))
        self._is_naming = before
        return known

    def value(self, name: str, value: Any) -> Canonical:
        if isinstance(value, Struct):
            return self._struct(value)
        if name in TEXTS or name in ADDRESSES:
            return None
        if name in TIMES:
            return value > 0
        if name == "records":
            return None if value is None else headers_of(bytes(value))
        if isinstance(value, float) and value != value:
            return "nan"  # which is not even like itself
        if isinstance(value, memoryview):
            value = bytes(value)
        if isinstance(value, bytes) and len(value) == 16 and any(value):
            return self._order("id", value)
        if name == "session_id" and value:
            return self._order("session", value)
        if name in ("producer_id", "base_producer_id") and value >= 0:
            return self._order("producer", value)
        if isinstance(value, str):
            if MEMBER_ID.fullmatch(value):
                return self._order("member", value)
            if self._data_dir and value.startswith(self._data_dir):
                return "the data folder"
        return value

    def _order(self, kind: str, value: Any) -> str:
        seen = self._seen.setdefault(kind, {})
        if not self._is_naming:
            return f"{kind} {seen.get(value, 'new')}"
        return f"{kind} {seen.setdefault(value, len(seen))}"


def together(topics: list[Any]) -> list[Any]:
    """Kafka lists partitions that do not exist after all others, so a topic may appear twice."""
    found: dict[tuple[str, bytes], Any] = {}
    for topic in topics:
        first = found.setdefault((topic.topic, topic.topic_id), topic)
        if first is not topic:
            first.partitions = [*first.partitions, *topic.partitions]
    return list(found.values())


class Unnamed(Names):
    """A form in which all ids are equal."""

    def _order(self, kind: str, value: Any) -> str:
        return kind


def headers_of(records: bytes) -> Canonical:
    """Base offset, leader epoch, attributes, last delta, epoch, base sequence and count of each batch."""
    found = []
    position = 0
    while position + 61 <= len(records):
        base, length, leader_epoch, _, _, attributes, delta = struct.unpack_from(
            ">qiibIhi", records, position
        )
        epoch, sequence, count = struct.unpack_from(">hii", records, position + 51)
        found.append((base, leader_epoch, attributes, delta, epoch, sequence, count))
        if length < 0:
            break  # only in a request
        position += 12 + length
    return tuple(found)
