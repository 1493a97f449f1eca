"""The reference codec: a message definition converted to a `construct` declaration.

It encodes and decodes any message at any version in a readable way. It serves rare uses, and tests compare it with the
generated codecs, which must agree byte for byte. Import this module only where it is used: `construct` takes long to
load.

The protocol's types that `construct` lacks come first. Varints have Kafka's bound, lengths may be null, array lengths are
compared with the bytes left, and there are nullable structs and tag sections. Failures are construct's errors.
"""

import io
from typing import Any, TypeVar

from construct import (
    Bytes,
    BytesInteger,
    Construct,
    ConstructError,
    ExprAdapter,
    Float64b,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    StreamError,
    Struct,
    Subconstruct,
    ValidationError,
    stream_read,
    stream_tell,
    stream_write,
)

from kafkacompat.wire.codec import message_classes, specification
from kafkacompat.wire.definition import FieldSpec, StructSpec
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.primitives import ByteSequence
from kafkacompat.wire.remember import remembered

MAX_STRING_BYTES = 32767
UINT32 = BytesInteger(4)
BOOL = ExprAdapter(Int8sb, lambda value, _: value != 0, lambda value, _: 1 if value else 0)


def bytes_left(stream: Any, path: str) -> int:
    """Return the number of bytes of a stream that have not been read."""
    here = stream_tell(stream, path)
    end: int = stream.seek(0, 2)
    stream.seek(here)
    return end - int(here)


class UVarInt(Construct):  # type: ignore[misc]
    """An unsigned varint of at most 5 bytes and 32 bits."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = 0
        for place in range(5):
            byte: int = stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << 7 * place
            if not byte & 0x80:
                if value >> 32:
                    raise ValidationError("a varint does not fit 32 bits", path=path)
                return value
        raise ValidationError("a varint is longer than 5 bytes", path=path)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        rest = obj
        while rest >= 0x80:
            stream_write(stream, bytes([rest & 0x7F | 0x80]), 1, path)
            rest >>= 7
        stream_write(stream, bytes([rest]), 1, path)
        return obj


UVARINT = UVarInt()


class Length(Construct):  # type: ignore[misc]
    """A length, or None if the type allows it."""

    def __init__(self, compact: bool, wide: bool, nullable: bool) -> None:
        super().__init__()
        self.declared = UVARINT if compact else Int32sb if wide else Int16sb
        self.bias = 1 if compact else 0
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> int | None:
        length: int = self.declared._parsereport(stream, context, path) - self.bias
        if length == -1 and self.nullable:
            return None
        if length < 0:
            raise ValidationError(f"length {length}", path=path)
        return length

    def _build(self, obj: int | None, stream: Any, context: Any, path: str) -> int | None:
        if obj is None and not self.nullable:
            raise ValidationError("null is not allowed here", path=path)
        self.declared._build((-1 if obj is None else obj) + self.bias, stream, context, path)
        return obj


class Sized(Construct):  # type: ignore[misc]
    """Bytes after their length, or None. Text with `text`."""

    def __init__(self, length: Length, text: bool) -> None:
        super().__init__()
        self.length = length
        self.text = text

    def _parse(self, stream: Any, context: Any, path: str) -> str | bytes | None:
        length = self.length._parsereport(stream, context, path)
        if length is None:
            return None
        if self.text and length > MAX_STRING_BYTES:
            raise ValidationError(f"a string of {length} bytes", path=path)
        data: bytes = stream_read(stream, length, path)
        return data.decode("utf-8") if self.text else data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            self.length._build(None, stream, context, path)
            return obj
        data = obj.encode("utf-8") if self.text else bytes(obj)
        if self.text and len(data) > MAX_STRING_BYTES:
            raise ValidationError(f"a string of {len(data)} bytes", path=path)
        self.length._build(len(data), stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj


class Counted(Subconstruct):  # type: ignore[misc]
    """Elements after their number, or None. Each element takes at least one byte."""

    def __init__(self, length: Length, subcon: Construct) -> None:
        super().__init__(subcon)
        self.length = length

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any] | None:
        length = self.length._parsereport(stream, context, path)
        if length is None:
            return None
        if length > bytes_left(stream, path):
            raise StreamError(f"an array of {length}", path=path)
        return [self.subcon._parsereport(stream, context, path) for _ in range(length)]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.length._build(None if obj is None else len(obj), stream, context, path)
        for item in obj or ():
            self.subcon._build(item, stream, context, path)
        return obj


class Nullable(Subconstruct):  # type: ignore[misc]
    """A struct after a byte (a varint in a tag section) that says whether the struct is present."""

    def __init__(self, subcon: Construct, tagged: bool) -> None:
        super().__init__(subcon)
        self.mark = UVARINT if tagged else Int8sb
        self.null = 0 if tagged else -1

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if self.mark._parsereport(stream, context, path) <= self.null:
            return None
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.mark._build(self.null if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class Tags(Construct):  # type: ignore[misc]
    """A tag section: values by tag. Unknown tags are skipped; tags are written in ascending order."""

    def __init__(self, subcons: dict[int, Construct]) -> None:
        super().__init__()
        self.subcons = subcons

    def _parse(self, stream: Any, context: Any, path: str) -> dict[int, Any]:
        values: dict[int, Any] = {}
        for _ in range(UVARINT._parsereport(stream, context, path)):
            tag = UVARINT._parsereport(stream, context, path)
            size = UVARINT._parsereport(stream, context, path)
            if size > bytes_left(stream, path):
                raise StreamError(f"a tagged field of {size} bytes", path=path)
            end = stream_tell(stream, path) + size
            if tag in self.subcons:
                values[tag] = self.subcons[tag]._parsereport(stream, context, path)
                if stream_tell(stream, path) != end:
                    raise ValidationError(f"tag {tag} does not fill its size", path=path)
            stream.seek(end)
        return values

    def _build(self, obj: dict[int, Any], stream: Any, context: Any, path: str) -> dict[int, Any]:
        UVARINT._build(len(obj), stream, context, path)
        for tag in sorted(obj):
            data = self.subcons[tag].build(obj[tag])
            UVARINT._build(tag, stream, context, path)
            UVARINT._build(len(data), stream, context, path)
            stream_write(stream, data, len(data), path)
        return obj


M = TypeVar("M", bound=Message)
TAGS = "tagged fields"
FIXED = {
    "bool": BOOL,
    "int8": Int8sb,
    "int16": Int16sb,
    "uint16": Int16ub,
    "int32": Int32sb,
    "uint32": UINT32,
    "int64": Int64sb,
    "float64": Float64b,
    "uuid": Bytes(16),
}


class Reference:
    """The declaration of one message at one version, and the conversion between its values and the typed message."""

    def __init__(self, cls: type[Message], version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.spec = specification(cls)
        self.classes = message_classes(cls)
        self.version = version
        self.flexible = version in self.spec.flexible_versions
        self.declaration = self._struct(self.spec.root)

    def _struct(self, struct: StructSpec) -> Construct:
        members = [field.name / self._field(field, tagged=False) for field in struct.plain(self.version)]
        if self.flexible:
            tagged = struct.tagged(self.version)
            members.append(TAGS / Tags({field.tag: self._field(field, tagged=True) for field in tagged}))
        return Struct(*members)

    def _field(self, field: FieldSpec, tagged: bool) -> Construct:
        compact = self.flexible
        if field.flexible_versions is not None:
            compact = compact and self.version in field.flexible_versions
        nullable = field.nullable(self.version)
        if field.is_array:
            return Counted(Length(compact, True, nullable), self._element(field, compact, False))
        if field.struct is not None and nullable:
            return Nullable(self._struct(field.struct), tagged)
        return self._element(field, compact, nullable)

    def _element(self, field: FieldSpec, compact: bool, nullable: bool) -> Construct:
        if field.struct is not None:
            return self._struct(field.struct)
        if field.kind in FIXED:
            return FIXED[field.kind]
        text = field.kind == "string"
        return Sized(Length(compact, not text, nullable), text)

    def values(self, struct: StructSpec, message: Any) -> dict[str, Any]:
        """Return the values from which the declaration builds. EncodeError for a field that the version lacks and that matters."""
        for field in struct.absent(self.version):
            if not field.ignorable and not self._is_default(field, getattr(message, field.name)):
                raise EncodeError(f"{self.spec.name} version {self.version} has no {field.name}")
        found = {f.name: self._value(f, getattr(message, f.name)) for f in struct.plain(self.version)}
        if self.flexible:
            found[TAGS] = {
                field.tag: self._value(field, value)
                for field in struct.tagged(self.version)
                if not self._is_default(field, value := getattr(message, field.name))
            }
        return found

    def _value(self, field: FieldSpec, value: Any) -> Any:
        if field.struct is None or value is None:
            return value
        if field.is_array:
            return [self.values(field.struct, item) for item in value]
        return self.values(field.struct, value)

    def _is_default(self, field: FieldSpec, value: Any) -> bool:
        if value is None:
            return field.default is None or field.absent_is_none
        if field.struct is not None and not field.is_array and field.default is not None:
            return bool(value == self.classes[field.struct.name]())
        return bool(value == field.default)

    def message(self, struct: StructSpec, values: Any) -> Any:
        """Return the typed struct of the values that the declaration parsed."""
        made = self.classes[struct.name]()
        for field in (*struct.absent(self.version), *struct.tagged(self.version)):
            if field.struct is not None and not field.is_array and not field.absent_is_none:
                default = None if field.default is None else self.classes[field.struct.name]()
                setattr(made, field.name, default)
        for field in struct.plain(self.version):
            setattr(made, field.name, self._typed(field, values[field.name]))
        for field in struct.tagged(self.version) if self.flexible else ():
            if field.tag in values[TAGS]:
                setattr(made, field.name, self._typed(field, values[TAGS][field.tag]))
        return made

    def _typed(self, field: FieldSpec, value: Any) -> Any:
        if field.struct is None or value is None:
            return value
        if field.is_array:
            return [self.message(field.struct, item) for item in value]
        return self.message(field.struct, value)


@remembered
def reference(cls: type[Message], version: int) -> Reference:
    """Return the declaration of a message class at a version. ValueError for a version out of range."""
    return Reference(cls, version)


def reference_encode(message: Message, version: int) -> bytes:
    """Return the message as bytes. EncodeError if the version cannot represent it."""
    found = reference(type(message), version)
    try:
        data: bytes = found.declaration.build(found.values(found.spec.root, message))
    except (ConstructError, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{found.spec.name} version {version}: {error}") from error
    return data


def reference_decode(cls: type[M], version: int, buffer: ByteSequence, position: int = 0) -> tuple[M, int]:
    """Return the message at `position`, and the position after it. WireError for malformed bytes."""
    found = reference(cls, version)
    stream = io.BytesIO(buffer)
    stream.seek(position)
    try:
        values = found.declaration.parse_stream(stream)
    except (ConstructError, UnicodeDecodeError) as error:
        raise WireError(f"{found.spec.name} version {version}: {error}") from error
    made: M = found.message(found.spec.root, values)
    return made, stream.tell()
