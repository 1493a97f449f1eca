"""Reads records of topics with Avro or Protobuf as a job's fields: for `pipeline try`, and in Spark's Python workers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.fields import Field, Kind, Value
from kafkacompat.pipeline.formats.named_fields import Place
from kafkacompat.pipeline.schemas.avro import AvroSchema, Unusable
from kafkacompat.pipeline.schemas.client import SchemaText
from kafkacompat.pipeline.schemas.protobuf import ProtobufFile, ProtobufMessage
from kafkacompat.pipeline.schemas.wire_format import Malformed, NotRead, schema_id

SCHEMAS_MAX: Final = 1000
"""Maximum number of schemas that a process keeps."""
UNKNOWN_MAX: Final = 1000
"""Maximum number of ids of which it remembers that the registry gives no schema. Any bytes may be such an id."""
UNKNOWN_S: Final = 10.0
"""For how long it remembers that."""

UNSIGNED_MOST: Final = (1 << 64) - 1
INCOMPATIBLE: Final = "incompatible schema"
REASON_CHARACTERS_MAX: Final = 500


class Format(Enum):
    """How the records of a topic are written. All but JSON have a schema in a registry."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Reader(NamedTuple):
    """How records of a format with schemas are read."""

    module: str
    """What it needs besides a plain install."""
    schema: Callable[[SchemaText], AvroSchema | ProtobufFile]
    """Unusable."""


READERS: Final = {
    Format.AVRO: Reader("fastavro", AvroSchema),
    Format.PROTOBUF: Reader("grpc_tools", ProtobufFile),
}
_BY_KIND: Final = {form.name: form for form in READERS}
"""A registry writes their names in capitals."""


class Registry(Protocol):
    @property
    def place(self) -> str:
        """For messages."""

    def schema(self, number: int) -> SchemaText:
        """Return the schema with this id. UnknownSchema, or another NotRead with a prefix of its own."""


class Record(NamedTuple):
    """A record by its writer's schema."""

    schema: AvroSchema | ProtobufMessage
    schema_id: int
    content: Any

    def value(self, place: Place, kind: Kind) -> object:
        return self.schema.value(self.content, place, kind)

    def shown(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return self.schema.shown(self.content)


class _Kept(NamedTuple):
    form: Format
    schema: AvroSchema | ProtobufFile


@dataclass(frozen=True, slots=True)
class _Unread:
    """A schema by which no record is read."""

    reason: str


class Schemas:
    """The schemas of one registry, each asked for once. PipelineFailed if it does not answer, or if they are too many."""

    def __init__(self, registry: Registry, now: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._now = now
        self._kept: dict[int, _Kept | _Unread] = {}
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether it keeps no other schema."""
        return len(self._kept) >= SCHEMAS_MAX

    def read(self, form: Format, value: bytes | None) -> Record:
        """Return a record. Malformed has the reason why it is none."""
        if value is None:
            raise Malformed("malformed record: it has no value")
        number = schema_id(value)
        found = self._schema(number)
        if isinstance(found, _Unread):
            raise Malformed(found.reason)
        if found.form is not form:
            told = f"it is {found.form.value}, and the topic's format is {form.value}"
            raise Malformed(incompatible(number, told))
        try:
            schema, content = found.schema.record(value)
        except Unusable as problem:
            raise Malformed(incompatible(number, str(problem))) from None
        return Record(schema, number, content)

    def format_of(self, value: bytes) -> Format:
        """Return the format of a value's schema. Malformed has the reason why it has none."""
        found = self._schema(schema_id(value))
        if isinstance(found, _Unread):
            raise Malformed(found.reason)
        return found.form

    def _schema(self, number: int) -> _Kept | _Unread:
        found = self._kept.get(number)
        if found is not None:
            return found
        unknown = self._unknown.get(number)
        if unknown is not None and self._now() - unknown[0] < UNKNOWN_S:
            return _Unread(unknown[1])
        try:
            text = self._registry.schema(number)
        except NotRead as problem:
            reason = f"{problem.prefix}{problem}"
            self._unknown[number] = self._now(), reason
            self._unknown.move_to_end(number)
            if len(self._unknown) > UNKNOWN_MAX:
                self._unknown.popitem(last=False)
            return _Unread(reason)
        if self.is_full:
            raise PipelineFailed(
                f"schema id {number} of the schema registry {self._registry.place} is beyond the {SCHEMAS_MAX} schemas that "
                "are kept: writers must not register a schema for each record"
            )
        self._unknown.pop(number, None)
        self._kept[number] = found = _made(number, text)
        return found


def incompatible(number: int, problem: str) -> str:
    """Return the reason for records of a schema that a job cannot read."""
    return f"{INCOMPATIBLE}: id {number}: {problem}"[:REASON_CHARACTERS_MAX]


def _made(number: int, text: SchemaText) -> _Kept | _Unread:
    form = _BY_KIND.get(text.kind)
    if form is None:
        return _Unread(incompatible(number, f"it is of type {text.kind}, not {' or '.join(_BY_KIND)}"))
    try:
        return _Kept(form, READERS[form].schema(text))
    except Unusable as problem:
        return _Unread(incompatible(number, str(problem)))


class EventReader:
    """Reads the records of a topic as events of these fields. The reader's fields are found in the writer's schema by name."""

    def __init__(self, form: Format, fields: Sequence[Field], schemas: Schemas) -> None:
        self._format = form
        self._fields = [(field, field.place) for field in fields]
        self._schemas = schemas
        self._judged: dict[tuple[int, str], tuple[str | None, list[bool]]] = {}

    def read(self, value: bytes | None) -> tuple[str | None, tuple[Value | None, ...]]:
        """Return the reason why it is no event, or None, and the values of the fields. Bounds are not checked."""
        try:
            record = self._schemas.read(self._format, value)
        except NotRead as problem:
            return str(problem)[:REASON_CHARACTERS_MAX], self._nothing
        reason, present = self._judge(record)
        if reason is not None:
            return reason, self._nothing
        values: list[Value | None] = []
        for (field, place), is_present in zip(self._fields, present, strict=True):
            found = record.value(place, field.kind) if is_present else None
            if field.kind is Kind.NUMBER and type(found) is int and abs(found) <= UNSIGNED_MOST:
                # A whole number of Protobuf may be too large for a column of whole numbers.
                found = float(found)
            if found is None:
                if field.is_needed:
                    return f"missing field: {field.name}", self._nothing
                values.append(field.default)
            elif not field.kind.takes(found):
                return f"wrong type: {field.name}", self._nothing
            else:
                values.append(found)  # type: ignore[arg-type]
        return None, tuple(values)

    @property
    def _nothing(self) -> tuple[None, ...]:
        return (None,) * len(self._fields)

    def _judge(self, record: Record) -> tuple[str | None, list[bool]]:
        """Return why no record of this schema is an event, or None, and which fields it has."""
        key = record.schema_id, record.schema.name
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = self._judgement(record)
        return judged

    def _judgement(self, record: Record) -> tuple[str | None, list[bool]]:
        present = []
        for field, place in self._fields:
            found = record.schema.kinds(place)
            present.append(found is not None)
            if found is None:
                if field.is_needed:
                    return incompatible(
                        record.schema_id, f"{record.schema.name} has no field {place.text}"
                    ), []
                continue
            kinds, text = found
            if field.kind not in kinds:
                told = (
                    f"{record.schema.name}: field {place.text} is {text}, and the job reads {field.kind.text}"
                )
                return incompatible(record.schema_id, told), []
        return None, present
