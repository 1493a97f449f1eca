"""Encodes and decodes Kafka messages as plain dicts. The message definitions are those in kafka-python, and for
requests between nodes, groups of the newer kinds and clients' metrics those of controller_messages,
consumer_group_messages, share_group_messages, streams_group_messages and telemetry_messages.

This is a separate encoder, so that it does not share a mistake with a client or a broker. Decoding is strict: every
byte of a response must be used. Field names are those of the definitions ("ErrorCode"). A field that is missing in a
request gets its default. Unknown tagged fields of a response appear under "_unknown_tags".
"""

from __future__ import annotations

import struct
import uuid
import warnings
from functools import cache
from typing import Any

from interop_tests.harness import (
    consumer_group_messages,
    controller_messages,
    share_group_messages,
    streams_group_messages,
    telemetry_messages,
)
from interop_tests.harness.later_fields import with_later_fields

with warnings.catch_warnings():
    # kafka-python reads its definitions with a deprecated function of importlib.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401 - so that its messages are loaded here
    from kafka.protocol.schemas.load_json import load_json

FIXED = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
ZERO_UUID = uuid.UUID(int=0)


class DecodeError(ValueError):
    """The broker's bytes do not fit the message definition."""


def encode_uvarint(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """A cursor over a response. Reading past the end raises DecodeError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise DecodeError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def fixed(self, format_: str) -> Any:
        return struct.unpack(format_, self.take(struct.calcsize(format_)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise DecodeError("varint longer than 5 bytes")


def _versions(text: str | None) -> tuple[int, int]:
    if not text or text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), 1 << 15)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


class Field:
    """One field of a definition."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name: str = definition["name"]
        self.type: str = definition["type"]
        self.versions = _versions(definition["versions"])
        self.nullable = _versions(definition.get("nullableVersions"))
        self.tagged = _versions(definition.get("taggedVersions"))
        self.tag: int | None = definition.get("tag")
        self.is_array = self.type.startswith("[]")
        self.element = self.type.removeprefix("[]")
        self.fields = [Field(each) for each in definition.get("fields", ())]
        self._default = definition.get("default")

    def default(self, version: int) -> Any:
        if self._default in ("null", None) and self._default is not None:
            return None
        if self.is_array:
            return []
        if self.fields:
            return {}
        text = self._default
        if self.type == "bool":
            return text in (True, "true")
        if self.type == "string":
            return text or ""
        if self.type in ("bytes", "records"):
            return b""
        if self.type == "uuid":
            return ZERO_UUID
        if self.type == "float64":
            return float(text or 0)
        return int(text, 0) if isinstance(text, str) and text else int(text or 0)


def _within(versions: tuple[int, int], version: int) -> bool:
    return versions[0] <= version <= versions[1]


class Message:
    """The definition of one request or response."""

    def __init__(self, name: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            definition = (
                controller_messages.definition(name)
                or consumer_group_messages.definition(name)
                or share_group_messages.definition(name)
                or streams_group_messages.definition(name)
                or telemetry_messages.definition(name)
                or with_later_fields(name, load_json(name))
            )
        self.name = name
        self.key: int = definition.get("apiKey", -1)
        self.flexible_versions = _versions(definition.get("flexibleVersions"))
        self.valid_versions = _versions(definition["validVersions"])
        self.fields = [Field(each) for each in definition["fields"]]

    def flexible(self, version: int) -> bool:
        return _within(self.flexible_versions, version)

    def encode(self, body: dict[str, Any], version: int) -> bytes:
        out: list[bytes] = []
        self._put_struct(out, self.fields, body, version, self.flexible(version))
        return b"".join(out)

    def decode(self, data: bytes, version: int) -> dict[str, Any]:
        reader = Reader(data)
        body = self._get_struct(reader, self.fields, version, self.flexible(version))
        if reader.position != len(data):
            raise DecodeError(f"{self.name} v{version}: {len(data) - reader.position} bytes left over")
        return body

    def _put_struct(
        self, out: list[bytes], fields: list[Field], body: dict[str, Any], version: int, flexible: bool
    ) -> None:
        unknown = set(body) - {field.name for field in fields}
        assert not unknown, f"{self.name} has no field {sorted(unknown)}"
        tagged: list[tuple[int, bytes]] = []
        for field in fields:
            if not _within(field.versions, version):
                continue
            if _within(field.tagged, version):
                if field.name in body:
                    part: list[bytes] = []
                    self._put(part, field, body[field.name], version, flexible)
                    assert field.tag is not None
                    tagged.append((field.tag, b"".join(part)))
                continue
            value = body[field.name] if field.name in body else field.default(version)
            self._put(out, field, value, version, flexible)
        if flexible:
            out.append(encode_uvarint(len(tagged)))
            for tag, data in sorted(tagged):
                out.append(encode_uvarint(tag) + encode_uvarint(len(data)) + data)

    def _put(self, out: list[bytes], field: Field, value: Any, version: int, flexible: bool) -> None:
        if not field.is_array:
            if field.fields:
                if _within(field.nullable, version):
                    out.append(b"\xff" if value is None else b"\x01")
                    if value is None:
                        return
                self._put_struct(out, field.fields, value, version, flexible)
            else:
                out.append(self._scalar(field.type, value, flexible))
            return
        length = -1 if value is None else len(value)
        out.append(encode_uvarint(length + 1) if flexible else struct.pack(">i", length))
        for each in value or ():
            if field.fields:
                self._put_struct(out, field.fields, each, version, flexible)
            else:
                out.append(self._scalar(field.element, each, flexible))

    def _scalar(self, type_: str, value: Any, flexible: bool) -> bytes:
        if type_ in FIXED:
            return struct.pack(FIXED[type_], value)
        if type_ == "bool":
            return b"\x01" if value else b"\x00"
        if type_ == "uuid":
            return bytes(value.bytes)
        if type_ == "string":
            data = None if value is None else value.encode() if isinstance(value, str) else value
            length = -1 if data is None else len(data)
            prefix = encode_uvarint(length + 1) if flexible else struct.pack(">h", length)
        elif type_ in ("bytes", "records"):
            data = value
            length = -1 if data is None else len(data)
            prefix = encode_uvarint(length + 1) if flexible else struct.pack(">i", length)
        else:
            raise AssertionError(f"{self.name}: type {type_} is not known here")
        return prefix + (data or b"")

    def _get_struct(
        self, reader: Reader, fields: list[Field], version: int, flexible: bool
    ) -> dict[str, Any]:
        body: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            if not _within(field.versions, version):
                continue
            if _within(field.tagged, version):
                assert field.tag is not None
                tagged[field.tag] = field
                continue
            body[field.name] = self._get(reader, field, version, flexible)
        if flexible:
            previous = -1
            for _ in range(reader.uvarint()):
                tag, size = reader.uvarint(), reader.uvarint()
                if tag <= previous:
                    raise DecodeError(f"{self.name} v{version}: tag {tag} after {previous}")
                previous = tag
                data = reader.take(size)
                if tag in tagged:
                    part = Reader(data)
                    body[tagged[tag].name] = self._get(part, tagged[tag], version, flexible)
                    if part.position != len(data):
                        raise DecodeError(f"{self.name} v{version}: tag {tag} has bytes left over")
                else:
                    body.setdefault("_unknown_tags", {})[tag] = data
        return body

    def _length(self, reader: Reader, format_: str, flexible: bool, nullable: bool, name: str) -> int:
        length = reader.uvarint() - 1 if flexible else int(reader.fixed(format_))
        if length < -1 or (length == -1 and not nullable):
            raise DecodeError(f"{self.name}: {name} has length {length}")
        return length

    def _get(self, reader: Reader, field: Field, version: int, flexible: bool) -> Any:
        nullable = _within(field.nullable, version)
        if not field.is_array:
            if field.fields:
                if nullable and reader.fixed(">b") < 0:
                    return None
                return self._get_struct(reader, field.fields, version, flexible)
            return self._get_scalar(reader, field.type, flexible, nullable, field.name)
        length = self._length(reader, ">i", flexible, nullable, field.name)
        if length < 0:
            return None
        if length > len(reader.data):
            raise DecodeError(f"{self.name}: {field.name} claims {length} elements")
        if field.fields:
            return [self._get_struct(reader, field.fields, version, flexible) for _ in range(length)]
        return [self._get_scalar(reader, field.element, flexible, False, field.name) for _ in range(length)]

    def _get_scalar(self, reader: Reader, type_: str, flexible: bool, nullable: bool, name: str) -> Any:
        if type_ in FIXED:
            return reader.fixed(FIXED[type_])
        if type_ == "bool":
            byte = reader.take(1)[0]
            if byte > 1:
                raise DecodeError(f"{self.name}: {name} is a bool of {byte}")
            return byte == 1
        if type_ == "uuid":
            return uuid.UUID(bytes=reader.take(16))
        size_format = ">h" if type_ == "string" else ">i"
        length = self._length(reader, size_format, flexible, nullable, name)
        if length < 0:
            return None
        data = reader.take(length)
        return data.decode() if type_ == "string" else data


@cache
def message(name: str) -> Message:
    """The definition of a message, for example "FetchRequest"."""
    return Message(name)
