"""Typed messages as plain values for JSON. Bytes that are UTF-8 are text, others are `{"base64": "..."}`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.definition import snake_case
from kafkacompat.wire.message import Struct

if TYPE_CHECKING:
    from kafkacompat.wire.message import Message

BASE64 = "base64"


def bytes_as_json(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def message_as_json(message: Message | None, records: Callable[[bytes], Any] = bytes_as_json) -> Any:
    """A typed message, with its own names of fields. Ids are told as Kafka's tools write them. `records`: what is told of
    batches."""
    if message is None:
        return None
    return _struct(message, *_fields_of(message.DEFINITION), records)


def _struct(
    value: Any, uuids: frozenset[str], batches: frozenset[str], records: Callable[[bytes], Any]
) -> Any:
    def told(name: str, field: Any) -> Any:
        if isinstance(field, Struct):
            return _struct(field, uuids, batches, records)
        if isinstance(field, list | tuple):
            return [told(name, each) for each in field]
        if isinstance(field, bytes | bytearray | memoryview):
            data = bytes(field)
            if name in uuids and len(data) == 16:
                return uuid_to_text(data)
            return records(data) if name in batches else bytes_as_json(data)
        return field

    return {name: told(name, getattr(value, name)) for name in value.__slots__ if not name.startswith("_")}


@cache
def _fields_of(definition: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the fields that are ids, and of those that have records."""
    fields = list(_fields_in(json.loads(definition)))
    return (
        frozenset(name for name, kind in fields if kind in ("uuid", "[]uuid")),
        frozenset(name for name, kind in fields if kind == "records"),
    )


def _fields_in(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for each in (*definition.get("fields", ()), *definition.get("commonStructs", ())):
        if "type" in each:
            yield snake_case(each["name"]), each["type"]
        yield from _fields_in(each)
