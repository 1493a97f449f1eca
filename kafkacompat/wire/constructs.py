"""The protocol's types as `construct` declarations that `construct` itself lacks.

Varints have Kafka's bound, lengths may be null, array lengths are compared with the bytes left, and there are nullable
structs and tag sections. Failures are construct's errors.
"""

from typing import Any

from construct import (
    BytesInteger,
    Construct,
    ExprAdapter,
    Int8sb,
    Int16sb,
    Int32sb,
    StreamError,
    Subconstruct,
    ValidationError,
    stream_read,
    stream_tell,
    stream_write,
)

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
