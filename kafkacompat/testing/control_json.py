"""What tests are shown, as JSON, and its schemas. Bytes that are UTF-8 are text, others are `{"base64": "..."}`."""

from __future__ import annotations

import base64
import binascii
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from kafkacompat.exchanges.message_json import BASE64, bytes_as_json, message_as_json
from kafkacompat.exchanges.recorded import Recorded
from kafkacompat.testing.values import Record


class JsonError(ValueError):
    """The text says what is wrong."""


def from_json(value: Any, place: str) -> Any:
    """What a record has, of its JSON: bytes for `{"base64": "..."}`."""
    if isinstance(value, dict) and value.keys() == {BASE64}:
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise JsonError(f"{place} is not base64") from None
    if isinstance(value, str):
        return _encoded(value, place)
    return value


def _encoded(text: str, place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise JsonError(f"{place} is not Unicode") from None


def as_json(value: Any) -> Any:
    """Plain values of what json.dumps takes."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_as_json(bytes(value))
    if isinstance(value, Record):
        headers = [{"name": name, "value": as_json(each)} for name, each in value.headers]
        return {**_fields(value), "headers": headers}
    if isinstance(value, Recorded):
        return {
            **_fields(value),
            "request": message_as_json(value.request),
            "response": message_as_json(value.response),
        }
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value]


def _fields(value: Any) -> dict[str, Any]:
    return {
        each.name: as_json(getattr(value, each.name))
        for each in fields(value)
        if not each.name.startswith("_")
    }


# Schemas.

BYTES_SCHEMA = {
    "description": "Text, or where bytes are not UTF-8 an object with their base64.",
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {BASE64: {"type": "string"}}, "required": [BASE64]},
    ],
}
_SIMPLE: Mapping[Any, str] = {int: "integer", str: "string", bool: "boolean", float: "number"}


def schema_of(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """The schema of what `as_json` makes of a type. `[x]` is a list, `{name: x}` an object. Those of dataclasses go to `named`."""
    if kind in (None, type(None)):
        return {"type": "null"}
    if isinstance(kind, list):
        return {"type": "array", "items": schema_of(kind[0], named)}
    if isinstance(kind, dict):
        return _object({name: schema_of(each, named) for name, each in kind.items()})
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if kind is bytes:
        named.setdefault("Bytes", BYTES_SCHEMA)
        return {"$ref": "#/components/schemas/Bytes"}
    if is_dataclass(kind):
        name = typing.cast("type", kind).__name__
        if name not in named:
            named[name] = _schema_of_dataclass(kind, named)
        return {"$ref": f"#/components/schemas/{name}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"type": "string", "enum": [*arguments]}
    if origin in (types.UnionType, typing.Union):
        return {"oneOf": [schema_of(each, named) for each in arguments]}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], named)}
    return {"type": "object", "additionalProperties": schema_of(arguments[1], named)}


def _schema_of_dataclass(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {
        each.name: schema_of(hints[each.name], named)
        for each in fields(kind)
        if not each.name.startswith("_") and each.name != "headers"
    }
    if kind is Record:
        properties["headers"] = schema_of([{"name": str, "value": bytes | None}], named)
    if kind is Recorded:
        properties["request"] = properties["response"] = {"type": ["object", "null"]}
    return _object(properties)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": [*properties]}
