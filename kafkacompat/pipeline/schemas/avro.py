"""Avro: a writer's schema, what it has for the fields of a job, and the records that it has written. By fastavro.

Whoever can write to the topic chooses the bytes, and whoever can register the schema. So a schema must bound what a record may
cost: it is not recursive, each item of an array has at least one byte, and few values have none.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafkacompat.pipeline.fields import Kind
from kafkacompat.pipeline.formats.named_fields import Place
from kafkacompat.pipeline.schemas.client import SchemaText
from kafkacompat.pipeline.schemas.wire_format import HEAD_BYTES, Malformed, NotRead, Unshown

MALFORMED_AVRO: Final = "malformed Avro"
EPOCH: Final = datetime.datetime(1970, 1, 1)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
DEPTH_MAX: Final = 64
"""Maximum number of types in each other."""
TOO_DEEP: Final = f"it has more than {DEPTH_MAX} types in each other"

BYTELESS_MAX: Final = 1_000
"""Maximum number of values without bytes in a record (of type null, and records of these), outside of arrays and maps."""
BYTELESS_ITEM_MAX: Final = 16
"""The same in one item of an array or map. A record has as many items as it has bytes."""
SHOWN_CHARACTERS_MAX: Final = 16 * 1024 * 1024
"""Maximum number of characters of a record that is shown as JSON."""
TOO_LARGE: Final = f"its JSON has more than {SHOWN_CHARACTERS_MAX:,} characters"

_KINDS: Final = {
    "string": (Kind.TEXT,),
    "enum": (Kind.TEXT,),
    "int": (Kind.INTEGER, Kind.NUMBER),
    "long": (Kind.INTEGER, Kind.NUMBER),
    "float": (Kind.NUMBER,),
    "double": (Kind.NUMBER,),
    "boolean": (Kind.BOOLEAN,),
}
_DECIMALS: Final[dict[Kind, Callable[[Decimal], object]]] = {Kind.TEXT: str, Kind.NUMBER: float}
"""What a decimal becomes for each kind of field that may have one."""

_LOGICAL_KINDS: Final = {
    ("string", "uuid"): (Kind.TEXT,),
    ("fixed", "uuid"): (Kind.TEXT,),
    ("bytes", "decimal"): tuple(_DECIMALS),
    ("fixed", "decimal"): tuple(_DECIMALS),
    ("int", "date"): (Kind.TEXT,),
    ("int", "time-millis"): (Kind.TEXT,),
    ("long", "time-micros"): (Kind.TEXT,),
    ("long", "timestamp-millis"): (Kind.INTEGER,),
    ("long", "timestamp-micros"): (Kind.INTEGER,),
    ("long", "local-timestamp-millis"): (Kind.INTEGER,),
    ("long", "local-timestamp-micros"): (Kind.INTEGER,),
}
_MALFORMED: Final = (
    EOFError,
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    TypeError,
    ArithmeticError,
    MemoryError,
)
"""What fastavro raises for bytes that the schema has not written. UnicodeDecodeError is a ValueError."""


class Unusable(NotRead):
    """A schema by which no record is read. The message says why."""


def _parsed(text: str) -> Any:
    """Parse JSON. ValueError, also for half of a surrogate pair, which no column and no topic takes."""
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode()
    return found


class AvroSchema:
    """A writer's schema. Unusable."""

    def __init__(self, schema: SchemaText) -> None:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema

        self._named: dict[str, Any] = {}
        try:
            for _, text in schema.references:
                parse_schema(_parsed(text), named_schemas=self._named)
            self._schema: Any = parse_schema(_parsed(schema.text), named_schemas=self._named)
        except UnknownType as error:
            raise Unusable(f"it has an unknown type {error.name}") from None
        except (
            SchemaParseException,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise Unusable(f"it is no valid Avro schema: {error}") from None
        self._measured: dict[str, _Measure] = {}
        try:
            whole = self._measure(self._schema, frozenset())
        except RecursionError:
            raise Unusable(TOO_DEEP) from None
        if whole.byteless > BYTELESS_MAX:
            raise Unusable(f"it has more than {BYTELESS_MAX} values without bytes")
        if not any(kind == "record" for kind, _ in self._branches(self._schema)):
            raise Unusable("it is not a record")

    @property
    def name(self) -> str:
        """The name of the record's type."""
        return next(str(node["name"]) for kind, node in self._branches(self._schema) if kind == "record")

    def kinds(self, place: Place) -> tuple[frozenset[Kind], str] | None:
        """Return the kinds of field for which there may be a value at this place, and its type for a message. None if there
        is no such place."""
        found = [self._schema]
        for step in place.steps:
            found = [inner for node in found for inner in self._stepped(node, step)]
        if not found:
            return None
        leaves = [leaf for node in found for leaf in self._branches(node)]
        kinds = frozenset(kind for leaf in leaves for kind in _kinds(*leaf))
        return kinds, " or ".join(
            dict.fromkeys(_text(*leaf) for leaf in leaves if leaf[0] != "null")
        ) or "null"

    def record(self, value: bytes) -> tuple[AvroSchema, Any]:
        """Return the record in a value, and its schema. Malformed."""
        from fastavro import schemaless_reader

        file = io.BytesIO(value)
        file.seek(HEAD_BYTES)
        try:
            record = schemaless_reader(file, self._schema, None)
        except _MALFORMED:
            raise Malformed(f"{MALFORMED_AVRO}: the bytes are not those of a record of its schema") from None
        if file.tell() != len(value):
            raise Malformed(f"{MALFORMED_AVRO}: {len(value) - file.tell()} bytes follow the record")
        return self, record

    @staticmethod
    def value(record: Any, place: Place, kind: Kind) -> object:
        """Return what a record has at this place, as a value of JSON where it fits the kind. None if there is nothing."""
        found = record
        for step in place.steps:
            if isinstance(step, int):
                found = found[step] if isinstance(found, list) and step < len(found) else None
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return _plain(found, kind)

    @staticmethod
    def shown(record: Any) -> dict[str, object]:
        """Return the record as JSON has it. Unshown if that is too large: each item of an array has the names of its fields
        again."""
        pieces, characters = [], 0
        for piece in json.JSONEncoder(default=_shown).iterencode(record):
            characters += len(piece)
            if characters > SHOWN_CHARACTERS_MAX:
                raise Unshown(TOO_LARGE)
            pieces.append(piece)
        found: dict[str, object] = json.loads("".join(pieces))
        return found

    def _branches(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Return the types of a node with their nodes: of a union those in it."""
        if isinstance(node, list):
            for each in node:
                yield from self._branches(each)
        elif isinstance(node, str):
            if node in self._named:
                yield from self._branches(self._named[node])
            else:
                yield node, {"type": node}
        elif isinstance(node["type"], str) and node["type"] not in self._named:
            yield node["type"], node
        else:
            yield from self._branches(node["type"])

    def _stepped(self, node: Any, step: str | int) -> Iterator[Any]:
        for kind, inner in self._branches(node):
            if kind == "record" and isinstance(step, str):
                yield from (each["type"] for each in inner["fields"] if each["name"] == step)
            elif kind == "map" and isinstance(step, str):
                yield inner["values"]
            elif kind == "array" and isinstance(step, int):
                yield inner["items"]

    def _measure(self, node: Any, above: frozenset[str]) -> _Measure:
        """Unusable for a type without a bound. above: the records in which the node is."""
        if isinstance(node, list):
            # The number of the branch, and the smallest of them.
            branches = [self._measure(each, above) for each in node]
            least = 1 + min((each.least for each in branches), default=0)
            height, byteless = _highest(branches), max((each.byteless for each in branches), default=0)
        else:
            ((kind, inner),) = self._branches(node)
            least, height, byteless = (
                {"null": 0, "float": 4, "double": 8}.get(kind, 1),
                0,
                int(kind == "null"),
            )
            if kind == "record":
                least, height, byteless = self._measure_record(inner, above)
            elif kind == "array":
                item = self._measure_item(inner["items"], above)
                if not item.least:
                    raise Unusable("it has an array of items without bytes, so that nothing bounds a record")
                height = item.height
            elif kind == "map":
                height = self._measure_item(inner["values"], above).height
            elif kind == "fixed":
                least = int(inner["size"])
                byteless = int(not least)
        if height >= DEPTH_MAX:
            raise Unusable(TOO_DEEP)
        return _Measure(least, height + 1, byteless)

    def _measure_item(self, node: Any, above: frozenset[str]) -> _Measure:
        item = self._measure(node, above)
        if item.byteless > BYTELESS_ITEM_MAX:
            raise Unusable(f"items in it have more than {BYTELESS_ITEM_MAX} values without bytes")
        return item

    def _measure_record(self, node: Any, above: frozenset[str]) -> _Measure:
        name = str(node["name"])
        if name in above:
            raise Unusable(f"its type {name} contains itself, so that nothing bounds a record")
        if name not in self._measured:
            fields = [self._measure(each["type"], above | {name}) for each in node["fields"]]
            least = sum(each.least for each in fields)
            byteless = sum(each.byteless for each in fields) + (not least)
            self._measured[name] = _Measure(least, _highest(fields), byteless)
        return self._measured[name]


class _Measure(NamedTuple):
    """Of the values of a type."""

    least: int
    """Bytes that each has at least."""
    height: int
    """Types in each other."""
    byteless: int
    """Values in it that have no bytes, but for those in arrays and maps."""


def _highest(measured: list[_Measure]) -> int:
    return max((each.height for each in measured), default=0)


def _kinds(kind: str, node: Any) -> tuple[Kind, ...]:
    logical = node.get("logicalType")
    return _LOGICAL_KINDS.get((kind, logical), _KINDS.get(kind, ()))


def _text(kind: str, node: Any) -> str:
    logical = node.get("logicalType")
    return str(logical) if (kind, logical) in _LOGICAL_KINDS else kind


def _plain(value: Any, kind: Kind) -> object:
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - EPOCH) // MILLISECOND
    if isinstance(value, Decimal):
        # Another kind is that of another type of the union, and the text is of the wrong type.
        return _DECIMALS.get(kind, str)(value)
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else value


def _shown(value: Any) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return _plain(value, Kind.TEXT)
