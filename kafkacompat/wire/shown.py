"""Messages as values for JSON by their definitions, with Kafka's names of fields."""

from __future__ import annotations

import re
from typing import Any

from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.codec import decode, specification
from kafkacompat.wire.definition import StructSpec
from kafkacompat.wire.message import Message, Struct


def shown(message_class: type[Message], version: int, data: bytes, position: int) -> dict[str, Any]:
    """Return the message with its type and version. Raises WireError for bytes that are none."""
    spec = specification(message_class)
    fields = _plain(decode(message_class, version, data, position), spec.root, version)
    return {"type": spec.name, "version": version, "data": fields}


def as_hex(data: bytes | None) -> str:
    return "null" if data is None else f"0x{data.hex()}"


def _plain(message: Struct, spec: StructSpec, version: int) -> dict[str, Any]:
    plain = {}
    for field in spec.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if field.struct is not None:
            inner = field.struct
            if value is not None:
                value = (
                    [_plain(item, inner, version) for item in value]
                    if field.is_array
                    else _plain(value, inner, version)
                )
        elif field.is_array:
            value = None if value is None else [_scalar(item, field.kind) for item in value]
        else:
            value = _scalar(value, field.kind)
        plain[re.sub("_(.)", lambda match: match[1].upper(), field.name)] = value
    return plain


def _scalar(value: Any, kind: str) -> Any:
    if kind == "uuid":
        return uuid_to_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return as_hex(bytes(value))
    return value
