"""The reference codec: a message definition converted to a `construct` declaration.

It encodes and decodes any message at any version in a readable way. It serves rare uses, and tests compare it with the
generated codecs, which must agree byte for byte. Import this module only where it is used: `construct` takes long to
load.
"""

import io
from typing import Any, TypeVar

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Float64b,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    Struct,
)

from kafkacompat.wire.codec import message_classes, specification
from kafkacompat.wire.constructs import BOOL, UINT32, Counted, Length, Nullable, Sized, Tags
from kafkacompat.wire.definition import FieldSpec, StructSpec
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.primitives import ByteSequence
from kafkacompat.wire.remember import remembered

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
