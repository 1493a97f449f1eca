"""Records of Avro and Protobuf as events: the wire format, evolution of schemas, and bytes that nobody should have written."""

from __future__ import annotations

import datetime
import errno
import io
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("grpc_tools")

import fastavro
from google.protobuf import wrappers_pb2

from kafkacompat.pipeline._tests.registry_kit import InMemory, framed
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.schemas import avro as avro_schemas
from kafkacompat.pipeline.schemas import client, protobuf, reading
from kafkacompat.pipeline.schemas.client import SchemaText
from kafkacompat.pipeline.schemas.protobuf import ProtobufFile
from kafkacompat.pipeline.schemas.reading import READERS, EventReader, Format, Schemas
from kafkacompat.pipeline.schemas.wire_format import (
    HEAD_BYTES,
    Malformed,
    NotRead,
    message_indexes,
    schema_id,
)

FIELDS = (
    Field("event_id", Kind.TEXT, names=True),
    Field("shop", Kind.TEXT),
    Field("event_time_ms", Kind.INTEGER),
    Field("amount", Kind.NUMBER),
    Field("channel", Kind.TEXT, default="shop"),
    Field("city", Kind.TEXT, required=False, path="address.city"),
)
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "jobs.md"
MOMENT = datetime.datetime(2026, 11, 20, 10, 0, 0, 250_000, datetime.UTC)
MOMENT_MS = 1_795_168_800_250


def record(*fields: object, name: str = "Order") -> dict[str, Any]:
    made = [{"name": field[0], "type": field[1]} if isinstance(field, tuple) else field for field in fields]
    return {"type": "record", "name": name, "namespace": "shop", "fields": made}


BASE = (("event_id", "string"), ("shop", "string"), ("event_time_ms", "long"), ("amount", "int"))
ADDRESS = record(("city", "string"), name="Address")


def avro_text(schema: object, *references: tuple[str, object]) -> SchemaText:
    return SchemaText(
        "AVRO", json.dumps(schema), tuple((name, json.dumps(text)) for name, text in references)
    )


def avro(schema: object, content: object, number: int = 1) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), content)
    return framed(number, file.getvalue())


def reader(*texts: SchemaText, fields: tuple[Field, ...] = FIELDS, form: Format = Format.AVRO) -> EventReader:
    """A reader of a registry that has these schemas under the ids from 1 on."""
    registry = InMemory(**{f"n{number}": text for number, text in enumerate(texts, 1)})
    return EventReader(form, fields, Schemas(registry))


ORDER = {"event_id": "o-1", "shop": "north", "event_time_ms": MOMENT_MS, "amount": 250}


def test_the_wire_format_has_the_schema_id_and_the_message_indexes() -> None:
    assert schema_id(b"\0\0\0\1\2rest") == 258
    assert message_indexes(framed(1, b"rest", b"\0")) == ((0,), 6)
    # Two indexes, 1 and 0, as zigzag numbers.
    assert message_indexes(framed(1, b"rest", b"\4\2\0")) == ((1, 0), 8)
    assert message_indexes(framed(1, b"", b"\2\x80\1")) == ((64,), 8)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0\0\1", b"\1\0\0\0\1rest", b'{"a": 1}'])
def test_a_value_without_a_schema_id_is_no_record(value: bytes) -> None:
    with pytest.raises(
        Malformed, match=r"^malformed record: expected byte 0 and the 4 bytes of a schema's id$"
    ):
        schema_id(value)
    reason, values = reader(avro_text(record(*BASE))).read(value)
    assert (reason, set(values)) == (
        "malformed record: expected byte 0 and the 4 bytes of a schema's id",
        {None},
    )


@pytest.mark.parametrize("indexes", [b"", b"\4\2", b"\1", b"\x80\x80\x80\x80\x80\1", b"\x42" + b"\0" * 33])
def test_a_value_without_message_indexes_is_no_record_of_protobuf(indexes: bytes) -> None:
    with pytest.raises(Malformed, match=r"^malformed record: .*message indexes"):
        message_indexes(framed(1, b"", indexes))


def test_fields_of_a_schema_that_evolves_are_found_by_name() -> None:
    """Three compatible steps: a field with a default, a wider type with an optional record, and fields in another order
    without one that the job does not need. The fourth step is not compatible."""
    first = record(*BASE)
    second = record(*BASE, {"name": "channel", "type": "string", "default": "shop"})
    third = record(
        *BASE[:3], ("amount", "double"), ("channel", ["null", "string"]), ("address", ["null", ADDRESS])
    )
    fourth = record(
        ("note", {"type": "map", "values": "bytes"}), ("address", ADDRESS), ("amount", "long"), *BASE[:3]
    )
    fifth = record(*BASE[:3], ("amount", "string"))
    schemas = (first, second, third, fourth, fifth)
    read = reader(*map(avro_text, schemas)).read
    plain = ("o-1", "north", MOMENT_MS)
    assert read(avro(first, ORDER, 1)) == (None, (*plain, 250.0, "shop", None))
    assert read(avro(second, ORDER | {"channel": "web"}, 2)) == (None, (*plain, 250.0, "web", None))
    third_order = ORDER | {"amount": 2.5, "channel": None, "address": {"city": "Kiel"}}
    assert read(avro(third, third_order, 3)) == (None, (*plain, 2.5, "shop", "Kiel"))
    assert read(avro(third, third_order | {"address": None}, 3))[1][-1] is None
    fourth_order = ORDER | {"note": {"a": b"b"}, "address": {"city": "Ulm"}}
    assert read(avro(fourth, fourth_order, 4)) == (None, (*plain, 250.0, "shop", "Ulm"))
    why = "incompatible schema: id 5: shop.Order: field amount is string, and the job reads a number"
    assert read(avro(fifth, ORDER | {"amount": "1"}, 5)) == (why, (None,) * 6)


def test_a_schema_without_a_field_that_the_job_needs_is_incompatible() -> None:
    schema = record(*BASE[1:])
    without = {name: value for name, value in ORDER.items() if name != "event_id"}
    assert reader(avro_text(schema)).read(avro(schema, without))[0] == (
        "incompatible schema: id 1: shop.Order has no field event_id"
    )


def test_a_value_that_a_union_allows_and_the_field_does_not_is_of_the_wrong_type() -> None:
    schema = record(("event_id", ["null", "string", "long"]), *BASE[1:])
    read = reader(avro_text(schema)).read
    assert read(avro(schema, ORDER))[0] is None
    assert read(avro(schema, ORDER | {"event_id": 7}))[0] == "wrong type: event_id"
    assert read(avro(schema, ORDER | {"event_id": None}))[0] == "missing field: event_id"


@pytest.mark.parametrize(
    ("avro_type", "kind", "given", "found"),
    [
        ("float", Kind.NUMBER, 0.5, 0.5),
        ("long", Kind.NUMBER, 7, 7.0),
        ("boolean", Kind.BOOLEAN, True, True),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, Kind.TEXT, "B", "B"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Kind.TEXT,
            Decimal("2.50"),
            "2.50",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Kind.NUMBER,
            Decimal("2.50"),
            2.5,
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, Kind.INTEGER, MOMENT, MOMENT_MS),
        ({"type": "long", "logicalType": "timestamp-micros"}, Kind.INTEGER, MOMENT, MOMENT_MS),
        ({"type": "long", "logicalType": "unheard-of"}, Kind.INTEGER, 7, 7),
        ({"type": "int", "logicalType": "date"}, Kind.TEXT, MOMENT.date(), "2026-11-20"),
        ({"type": "array", "items": "string"}, Kind.TEXT, ["a"], None),
        ("bytes", Kind.TEXT, b"a", None),
        ("boolean", Kind.INTEGER, True, None),
        ("double", Kind.INTEGER, 1.0, None),
    ],
)
def test_types_of_avro_are_kinds_of_fields(
    avro_type: object, kind: Kind, given: object, found: object
) -> None:
    schema = record(("a", avro_type))
    reason, values = reader(avro_text(schema), fields=(Field("a", kind),)).read(avro(schema, {"a": given}))
    assert values == (found,)
    if found is None:
        assert reason is not None
        assert reason.startswith("incompatible schema: id 1: shop.Order: field a is ")
        assert reason.endswith(f", and the job reads {kind.text}")


def test_numbers_that_json_lacks_are_of_the_wrong_type() -> None:
    schema = record(("a", "double"))
    read = reader(avro_text(schema), fields=(Field("a", Kind.NUMBER),)).read
    assert read(avro(schema, {"a": float("nan")})) == ("wrong type: a", (None,))
    assert read(avro(schema, {"a": float("inf")})) == ("wrong type: a", (None,))


def test_paths_go_through_records_maps_and_arrays() -> None:
    schema = record(
        ("lines", {"type": "array", "items": record(("sku", "string"), name="Line")}),
        ("tags", {"type": "map", "values": "string"}),
    )
    fields = (
        Field("sku", Kind.TEXT, path="lines[1].sku"),
        Field("tag", Kind.TEXT, required=False, path='tags."a b"'),
    )
    read = reader(avro_text(schema), fields=fields).read
    lines = [{"sku": "x"}, {"sku": "y"}]
    assert read(avro(schema, {"lines": lines, "tags": {"a b": "c"}})) == (None, ("y", "c"))
    assert read(avro(schema, {"lines": lines, "tags": {}})) == (None, ("y", None))
    assert read(avro(schema, {"lines": [], "tags": {}}))[0] == "missing field: sku"


def test_a_schema_may_use_others_by_reference() -> None:
    schema = record(*BASE, ("address", "shop.Address"))
    whole = record(*BASE, ("address", ADDRESS))
    value = avro(whole, ORDER | {"address": {"city": "Kiel"}})
    assert reader(avro_text(schema, ("shop.Address", ADDRESS))).read(value)[1][-1] == "Kiel"
    reason, _ = reader(avro_text(schema)).read(value)
    assert reason is not None
    assert reason.startswith("incompatible schema: id 1: it has an unknown type shop.Address")


NODE = record(("next", ["null", "shop.Node"]), name="Node")


def nulls(count: int) -> list[tuple[str, object]]:
    return [(f"n{index}", "null") for index in range(count)]


def doubled(times: int) -> object:
    """Each record has two of the next one: 2 ** times values, and not a byte."""
    made: object = record(("n", "null"), name="R0")
    for index in range(times):
        made = record(("a", made), ("b", f"shop.R{index}"), name=f"R{index + 1}")
    return made


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (NODE, "its type shop.Node contains itself, so that nothing bounds a record"),
        (
            record(("a", {"type": "array", "items": "null"})),
            "it has an array of items without bytes, so that nothing bounds a record",
        ),
        (
            record(
                (
                    "a",
                    {
                        "type": "array",
                        "items": record(("b", {"type": "fixed", "name": "F", "size": 0}), name="B"),
                    },
                )
            ),
            "it has an array of items without bytes, so that nothing bounds a record",
        ),
        (record(*nulls(1001)), "it has more than 1000 values without bytes"),
        (record(("a", doubled(60))), "it has more than 1000 values without bytes"),
        (
            record(("a", {"type": "array", "items": record(("b", "int"), *nulls(17), name="B")})),
            "items in it have more than 16 values without bytes",
        ),
        (
            record(("a", {"type": "map", "values": record(*nulls(17), name="B")})),
            "items in it have more than 16 values without bytes",
        ),
        ("string", "it is not a record"),
        ({"type": "recrod"}, "it has an unknown type"),
        ({"type": "record", "fields": []}, "it is no valid Avro schema: "),
    ],
)
def test_a_schema_by_which_nothing_is_read_says_why(schema: object, why: str) -> None:
    reason, _ = reader(avro_text(schema)).read(framed(1, b"\2" * 60_000))
    assert reason is not None
    assert reason.startswith(f"incompatible schema: id 1: {why}")


def test_some_values_without_bytes_are_read() -> None:
    schema = record(
        *BASE, *nulls(100), ("a", {"type": "array", "items": record(("b", "int"), *nulls(16), name="B")})
    )
    item = {"b": 1} | dict.fromkeys((name for name, _ in nulls(16)), None)
    value = avro(schema, ORDER | dict.fromkeys((name for name, _ in nulls(100)), None) | {"a": [item] * 3})
    assert reader(avro_text(schema)).read(value)[0] is None


def test_a_schema_that_is_no_json_or_too_deep_says_why() -> None:
    half = json.dumps(record(("a", {"type": "enum", "name": "E", "symbols": ["\ud800"]})))
    for text in ("{", "[" * 100_000, '"\ud800"', half):
        reason, _ = reader(SchemaText("AVRO", text)).read(framed(1, b""))
        assert reason is not None
        assert reason.startswith("incompatible schema: id 1: it is no valid Avro schema")
    deep: object = "string"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    reason, _ = reader(avro_text(record(("a", deep)))).read(framed(1, b""))
    assert reason == "incompatible schema: id 1: it has more than 64 types in each other"


def test_bytes_that_the_schema_has_not_written_are_malformed() -> None:
    schema = record(*BASE, ("more", {"type": "array", "items": "string"}))
    read = reader(avro_text(schema)).read
    value = avro(schema, ORDER | {"more": ["a", "b"]})
    assert read(value)[0] is None
    none_of_it = "malformed Avro: the bytes are not those of a record of its schema"
    for end in range(5, len(value)):
        reason = read(value[:end])[0]
        assert reason == none_of_it, end
    assert read(value + b"!")[0] == "malformed Avro: 1 bytes follow the record"
    # A text of more bytes than there are, of a negative number of bytes, and one that is not UTF-8.
    assert read(framed(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"))[0] == none_of_it
    assert read(framed(1, b"\1" + value[6:]))[0] is not None
    assert read(framed(1, b"\2\xff"))[0] == none_of_it


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { string a = 1; }
message Order {
  message Line { string sku = 1; int64 count = 2; }
  enum State { OPEN = 0; PAID = 1; }
  string event_id = 1;
  optional string shop = 2;
  int64 event_time_ms = 3;
  double amount = 4;
  repeated Line lines = 5;
  map<string, Line> by_name = 6;
  State state = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.StringValue channel = 9;
  uint64 large = 10;
  bytes raw = 11;
}
"""
ORDER_INDEXES = b"\2\2"
"""One index, 1: the second message of the file."""


def proto_class(text: str, indexes: tuple[int, ...] = (1,)) -> Any:
    return ProtobufFile(SchemaText("PROTOBUF", text)).message(indexes)._class


def proto_reader(*texts: str, fields: tuple[Field, ...]) -> EventReader:
    return reader(*(SchemaText("PROTOBUF", text) for text in texts), fields=fields, form=Format.PROTOBUF)


def test_fields_of_a_message_are_found_by_name() -> None:
    order = proto_class(PROTO)(
        event_id="o-1", shop="north", event_time_ms=MOMENT_MS, amount=2.5, state=1, large=2**63
    )
    order.lines.add(sku="x", count=3)
    order.by_name["a b"].count = 4
    order.at.FromMilliseconds(MOMENT_MS)
    order.channel.value = "web"
    fields = (
        Field("event_id", Kind.TEXT),
        Field("shop", Kind.TEXT),
        Field("at", Kind.INTEGER),
        Field("amount", Kind.NUMBER),
        Field("state", Kind.TEXT),
        Field("sku", Kind.TEXT, path="lines[0].sku"),
        Field("count", Kind.INTEGER, path='by_name."a b".count'),
        Field("other", Kind.INTEGER, required=False, path="by_name.other.count"),
        Field("channel", Kind.TEXT),
    )
    read = proto_reader(PROTO, fields=fields).read
    value = framed(1, order.SerializeToString(), ORDER_INDEXES)
    assert read(value) == (None, ("o-1", "north", MOMENT_MS, 2.5, "PAID", "x", 4, None, "web"))
    order.state = 9
    order.ClearField("shop")
    assert read(framed(1, order.SerializeToString(), ORDER_INDEXES))[0] == "missing field: shop"
    order.shop = ""
    # A field that does not track its presence has its type's default.
    order.ClearField("event_id")
    assert read(framed(1, order.SerializeToString(), ORDER_INDEXES))[1][:5] == ("", "", MOMENT_MS, 2.5, "9")
    large = proto_reader(PROTO, fields=(Field("large", Kind.INTEGER),)).read
    assert large(framed(1, order.SerializeToString(), ORDER_INDEXES)) == ("wrong type: large", (None,))


AVRO_OF_ALL_TYPES = record(
    *BASE,
    ("moment", {"type": "long", "logicalType": "timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("more", {"type": "map", "values": ["null", "double", {"type": "array", "items": "long"}]}),
)


def avro_sample() -> tuple[SchemaText, tuple[Field, ...], bytes]:
    fields = (
        *FIELDS[:4],
        Field("moment", Kind.INTEGER),
        Field("day", Kind.TEXT),
        Field("price", Kind.NUMBER),
        Field("uuid", Kind.TEXT),
        Field("more", Kind.NUMBER, required=False, path="more.a"),
    )
    content = ORDER | {
        "moment": MOMENT,
        "day": MOMENT.date(),
        "price": Decimal("12.50"),
        "uuid": "12345678-1234-5678-1234-567812345678",
        "more": {"a": 1.5, "b": [1, 2], "c": None},
    }
    return avro_text(AVRO_OF_ALL_TYPES), fields, avro(AVRO_OF_ALL_TYPES, content)


def protobuf_sample() -> tuple[SchemaText, tuple[Field, ...], bytes]:
    fields = (
        Field("event_id", Kind.TEXT),
        Field("at", Kind.INTEGER),
        Field("amount", Kind.NUMBER),
        Field("state", Kind.TEXT),
        Field("sku", Kind.TEXT, required=False, path="lines[0].sku"),
        Field("count", Kind.INTEGER, required=False, path="by_name.a.count"),
        Field("channel", Kind.TEXT, required=False),
        Field("large", Kind.NUMBER),
    )
    order = proto_class(PROTO)(event_id="o-1", amount=2.5, state=1, large=2**63, raw=b"\xff")
    order.lines.add(sku="x", count=3)
    order.by_name["a"].count = 4
    order.at.FromMilliseconds(MOMENT_MS)
    order.channel.value = "web"
    return (
        SchemaText("PROTOBUF", PROTO),
        fields,
        framed(1, order.SerializeToString(), ORDER_INDEXES),
    )


SAMPLES = {Format.AVRO: avro_sample, Format.PROTOBUF: protobuf_sample}
"""Of each format with schemas: a schema, fields of a job, and a record."""

HOSTILE = (
    b"\xff" * 10,
    b"\x80" * 40,
    b"\xfe" + b"\xff" * 8 + b"\1",
    b"\xff" * 4 + b"\x0f",
    b"\xed\xa0\x80",
    b"\0" * 3000,
    b"\n\x7f" * 3000,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'"\\ud800"',
    b"NaN",
    b"1e999",
    b"9" * 5000,
)
"""Lengths and numbers beyond any bound, halves of a surrogate pair, nothing often, much in each other, no numbers of JSON."""


def hostile_values(good: bytes, chance: random.Random) -> Iterator[bytes]:
    """Values with the id of the schema. `good`: a record by it."""
    head = good[:HEAD_BYTES]
    yield head + chance.randbytes(chance.randrange(200))
    yield head + chance.choice(HOSTILE)
    at = chance.randrange(HEAD_BYTES, len(good) + 1)
    yield good[:at]
    yield good[:at] + chance.choice(HOSTILE)
    yield good[:at] + chance.choice(HOSTILE) + good[at:]
    changed = bytearray(good)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(HEAD_BYTES, len(good))] = chance.randrange(256)
    yield bytes(changed)


@pytest.mark.parametrize("form", READERS)
def test_no_bytes_end_a_query_or_another_reader(form: Format) -> None:
    """A query writes the values and the reason as UTF-8. `pipeline try` and the console show the record as JSON."""
    text, fields, good = SAMPLES[form]()
    schemas = Schemas(InMemory(n1=text))
    read = EventReader(form, fields, schemas).read
    assert read(good)[0] is None
    is_read = 0
    for seed in range(300):
        for value in hostile_values(good, random.Random(seed)):
            reason, values = read(value)
            assert (reason is None) == (values[0] is not None), (seed, value[:100])
            json.dumps((reason, values), ensure_ascii=False, allow_nan=False).encode()
            is_read += reason is None
            with suppress(NotRead):
                schemas.read(form, value).shown()
    assert is_read > 20, "no change has reached the values"


def test_a_whole_number_that_no_bigint_holds_is_a_number() -> None:
    text = 'syntax = "proto3"; message Counted { string event_id = 1; uint64 bytes = 2; }'
    most = (1 << 64) - 1
    sent = framed(1, b"\x00" + b"\x0a\x01a" + b"\x10" + b"\xff" * 9 + b"\x01")
    for kind, found in (
        (Kind.NUMBER, (None, ("a", float(most)))),
        (Kind.INTEGER, ("wrong type: bytes", (None, None))),
    ):
        fields = (Field("event_id", Kind.TEXT), Field("bytes", kind))
        assert reader(SchemaText("PROTOBUF", text), fields=fields, form=Format.PROTOBUF).read(sent) == found


def test_a_reason_has_a_bound_whatever_names_a_schema_has() -> None:
    """It is in the rejected record, and one that Kafka refuses would end the query whenever it is started."""
    name = "M" * 20_000
    text = f'syntax = "proto3"; message {name} {{ string event_id = 1; }}'
    fields = (Field("event_id", Kind.TEXT),)
    sent = framed(1, b"\x00" + b"\xff")
    reason, _ = reader(SchemaText("PROTOBUF", text), fields=fields, form=Format.PROTOBUF).read(sent)
    assert reason is not None
    assert reason.startswith("malformed Protobuf: ")
    assert len(reason) == reading.REASON_CHARACTERS_MAX


def test_a_message_that_evolves_goes_on_until_it_cannot() -> None:
    head = 'syntax = "proto3"; message Order { string event_id = 1; '
    steps = [
        head + "int32 amount = 2; }",
        head + "int64 amount = 2; string channel = 3; }",
        head + "double amount = 4; reserved 2; optional string channel = 3; bool test = 9; }",
        head + "string amount = 5; }",
    ]
    fields = (
        Field("event_id", Kind.TEXT),
        Field("amount", Kind.NUMBER),
        Field("channel", Kind.TEXT, default="shop"),
    )
    read = proto_reader(*steps, fields=fields).read
    found = []
    for number, text in enumerate(steps, 1):
        message = proto_class(text, (0,))(event_id="o", amount="7" if number == 4 else 7)
        found.append(read(framed(number, message.SerializeToString(), b"\0")))
    assert found == [
        (None, ("o", 7.0, "shop")),
        (None, ("o", 7.0, "")),
        (None, ("o", 7.0, "shop")),
        (
            "incompatible schema: id 4: Order: field amount is string, and the job reads a number",
            (None, None, None),
        ),
    ]


@pytest.mark.parametrize(
    ("path", "kind", "why"),
    [
        ("absent", Kind.TEXT, "shop.Order has no field absent"),
        ("lines", Kind.TEXT, "shop.Order: field lines is repeated, and the job reads text"),
        ("lines[0]", Kind.TEXT, "shop.Order: field lines[0] is shop.Order.Line, and the job reads text"),
        ("lines.sku", Kind.TEXT, "shop.Order has no field lines.sku"),
        ("event_id[0]", Kind.TEXT, "shop.Order has no field event_id[0]"),
        ("by_name", Kind.TEXT, "shop.Order: field by_name is map, and the job reads text"),
        ("raw", Kind.TEXT, "shop.Order: field raw is bytes, and the job reads text"),
        ("amount", Kind.INTEGER, "shop.Order: field amount is double, and the job reads a whole number"),
        ("state", Kind.BOOLEAN, "shop.Order: field state is enum, and the job reads true or false"),
    ],
)
def test_a_message_without_what_the_job_needs_is_incompatible(path: str, kind: Kind, why: str) -> None:
    read = proto_reader(PROTO, fields=(Field("a", kind, path=path),)).read
    assert read(framed(1, b"", ORDER_INDEXES)) == (f"incompatible schema: id 1: {why}", (None,))


def test_a_file_may_import_others() -> None:
    text = 'syntax = "proto3"; import "shop/line.proto"; message Order { shop.Line line = 1; }'
    line = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'
    whole = SchemaText("PROTOBUF", text, (("shop/line.proto", line),))
    fields = (Field("sku", Kind.TEXT, path="line.sku"),)
    assert reader(whole, fields=fields, form=Format.PROTOBUF).read(framed(1, b"\n\3\n\1x", b"\0")) == (
        None,
        ("x",),
    )
    for name, told in (
        ("../line.proto", "it imports '../line.proto', which is no name of a file"),
        ("/a", "it imports '/a'"),
    ):
        bad = SchemaText("PROTOBUF", text, ((name, line),))
        reason, _ = reader(bad, fields=fields, form=Format.PROTOBUF).read(framed(1, b"", b"\0"))
        assert reason is not None
        assert reason.startswith(f"incompatible schema: id 1: {told}")


@pytest.mark.parametrize(
    ("text", "names", "told"),
    [
        ("// \ud800", (), "schema.proto is no text: it has half of a surrogate pair"),
        ("", ("a", "a/b"), "what it imports cannot be files of one folder: File exists"),
        ("", ("a/b", "a"), "what it imports cannot be files of one folder: Is a directory"),
        ("", ("a", "a/b/c"), "what it imports cannot be files of one folder: Not a directory"),
        ("", ("a" * 300,), "what it imports cannot be files of one folder: File name too long"),
    ],
)
def test_imports_that_are_no_files_of_one_folder_end_no_reader(
    text: str, names: tuple[str, ...], told: str
) -> None:
    schema = SchemaText("PROTOBUF", PROTO + text, tuple((name, 'syntax = "proto3";') for name in names))
    fields = (Field("event_id", Kind.TEXT),)
    reason, _ = reader(schema, fields=fields, form=Format.PROTOBUF).read(framed(1, b"", ORDER_INDEXES))
    assert reason == f"incompatible schema: id 1: {told}"


def test_a_file_may_be_named_as_what_protoc_makes() -> None:
    schema = SchemaText("PROTOBUF", PROTO, (("descriptors/x", 'syntax = "proto3";'),))
    fields = (Field("event_id", Kind.TEXT),)
    reason, _ = reader(schema, fields=fields, form=Format.PROTOBUF).read(framed(1, b"", ORDER_INDEXES))
    assert reason is None


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (-9, "", "protoc cannot be run: it has ended with status -9"),
        (
            1,
            "/x/.descriptors: No space left on device",
            "protoc cannot be run: .descriptors: No space left on device",
        ),
    ],
)
def test_a_protoc_that_was_stopped_says_nothing_of_the_schema(
    monkeypatch: pytest.MonkeyPatch, status: int, said: str, told: str
) -> None:
    """The records are read when the run goes on."""

    def run(words: list[str], *, cwd: str, **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, status, "", said.replace("/x", cwd))

    monkeypatch.setattr(subprocess, "run", run)
    fields = (Field("event_id", Kind.TEXT),)
    with pytest.raises(PipelineFailed) as failed:
        proto_reader(PROTO, fields=fields).read(framed(1, b"", ORDER_INDEXES))
    assert str(failed.value) == told


def test_a_disk_without_room_for_the_files_of_a_schema_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(protobuf.tempfile, "TemporaryDirectory", full)
    with pytest.raises(PipelineFailed, match="protoc cannot be run: No usable temporary directory found"):
        ProtobufFile(SchemaText("PROTOBUF", 'syntax = "proto3"; message A {}'))


def test_a_reader_without_protoc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "find_spec", lambda _: None)
    fields = (Field("event_id", Kind.TEXT),)
    with pytest.raises(PipelineFailed, match="grpcio-tools is not installed"):
        proto_reader(PROTO, fields=fields).read(framed(1, b"", ORDER_INDEXES))


@pytest.mark.parametrize("text", ["No module named grpc_tools", "/.descriptors: No space left on device"])
def test_a_schema_whose_text_is_that_of_a_failure_ends_no_reader(text: str) -> None:
    """protoc repeats it in its error."""
    names = "".join(f'string {name} = {at} [json_name = "{text}"];' for at, name in enumerate("ab", 1))
    schema = 'syntax = "proto3"; message Order { ' + names + " }"
    fields = (Field("event_id", Kind.TEXT),)
    reason, _ = proto_reader(schema, fields=fields).read(framed(1, b"", ORDER_INDEXES))
    assert reason is not None
    assert reason.startswith("incompatible schema: id 1: it is no valid Protobuf schema: schema.proto:1:")
    assert text in reason


def test_protobuf_that_nobody_should_have_written_is_told_apart() -> None:
    fields = (Field("event_id", Kind.TEXT),)
    read = proto_reader(PROTO, "no schema", fields=fields).read
    assert read(framed(1, b"\xff\xff", ORDER_INDEXES))[0] == (
        "malformed Protobuf: the bytes are not those of a message shop.Order"
    )
    assert read(framed(1, b"\n\1\xff", ORDER_INDEXES))[0] is not None
    assert (
        read(framed(1, b"", b"\2\x08"))[0]
        == "incompatible schema: id 1: it has no message with the indexes 4"
    )
    assert (
        read(framed(1, b"", b"\2\1"))[0] == "incompatible schema: id 1: it has no message with the indexes -1"
    )
    reason = read(framed(2, b"", b"\0"))[0]
    assert reason is not None
    assert reason.startswith("incompatible schema: id 2: it is no valid Protobuf schema: schema.proto:1:1: ")
    deep = b"\n\0"
    nested = 'syntax = "proto3"; message A { A a = 1; string event_id = 2; }'
    for _ in range(2000):
        size = len(deep)
        deep = b"\n" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + deep
        if size > 16000:
            break
    assert proto_reader(nested, fields=fields).read(framed(1, deep, b"\0"))[0] == (
        "malformed Protobuf: the bytes are not those of a message A"
    )


def test_a_topic_has_one_format() -> None:
    schema = record(*BASE)
    fields = (Field("event_id", Kind.TEXT),)
    texts = (avro_text(schema), SchemaText("PROTOBUF", PROTO), SchemaText("JSON", "{}"))
    told = [
        reader(*texts, fields=fields, form=form).read(framed(number, b"", b"\0"))[0]
        for form, number in ((Format.PROTOBUF, 1), (Format.AVRO, 2), (Format.AVRO, 3))
    ]
    assert told == [
        "incompatible schema: id 1: it is avro, and the topic's format is protobuf",
        "incompatible schema: id 2: it is protobuf, and the topic's format is avro",
        "incompatible schema: id 3: it is of type JSON, not AVRO or PROTOBUF",
    ]


def test_each_schema_is_asked_for_once_and_an_unknown_one_again_after_a_while() -> None:
    now_s = 0.0
    schema = record(*BASE)
    registry = InMemory(n1=avro_text(schema))
    read = EventReader(Format.AVRO, FIELDS, Schemas(registry, lambda: now_s)).read
    for _ in range(3):
        assert read(avro(schema, ORDER, 1))[0] is None
        assert read(avro(schema, ORDER, 2))[0] == "unknown schema: the registry has no schema with id 2"
    assert registry.asked == [1, 2]
    now_s = reading.UNKNOWN_S
    registry.texts[2] = avro_text(schema)
    assert read(avro(schema, ORDER, 2))[0] is None
    assert registry.asked == [1, 2, 2]


OF_THE_CLIENT = [
    each
    for each in vars(client).values()
    if isinstance(each, type) and issubclass(each, NotRead) and each.__module__ == client.__name__
]


@pytest.mark.parametrize("problem", OF_THE_CLIENT)
def test_a_schema_that_the_client_refuses_is_remembered_with_a_reason_of_the_reference(
    problem: type[NotRead],
) -> None:
    registry = InMemory()
    registry.texts[2] = problem("why")
    schemas = Schemas(registry)
    for _ in range(3):
        with pytest.raises(Malformed) as failed:
            schemas.read(Format.AVRO, framed(2, b""))
        assert str(failed.value) == f"{problem.prefix}why"
    assert registry.asked == [2]
    assert problem.prefix
    assert f"\n| `{problem.prefix}...` |" in REFERENCE.with_name("pipeline.md").read_text("utf-8")


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SCHEMAS_MAX", 2)
    monkeypatch.setattr(reading, "UNKNOWN_MAX", 2)
    schema = record(*BASE)
    registry = InMemory(n1=avro_text(schema), n2=avro_text(schema), n3=avro_text(schema))
    schemas = Schemas(registry)
    read = EventReader(Format.AVRO, FIELDS, schemas).read
    for number in range(10, 20):
        assert read(avro(schema, ORDER, number))[0] is not None
    assert len(schemas._unknown) == 2
    assert read(avro(schema, ORDER, 1))[0] is None
    assert read(avro(schema, ORDER, 2))[0] is None
    with pytest.raises(PipelineFailed) as failed:
        read(avro(schema, ORDER, 3))
    assert str(failed.value).startswith(
        "schema id 3 of the schema registry http://registry:8081 is beyond the 2 schemas that are kept"
    )


def test_protoc_has_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "COMPILE_TIMEOUT_S", 0.000_001)
    fields = (Field("event_id", Kind.TEXT),)
    assert proto_reader(PROTO, fields=fields).read(framed(1, b"", ORDER_INDEXES))[0] == (
        "incompatible schema: id 1: protoc has not read it within 1e-06 s"
    )


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_field_has_types_in_both_formats(kind: Kind) -> None:
    avro_kinds = [*avro_schemas._KINDS.values(), *avro_schemas._LOGICAL_KINDS.values()]
    assert any(kind in kinds for kinds in avro_kinds)
    wrapped = wrappers_pb2.DESCRIPTOR.message_types_by_name.values()
    assert any(kind in protobuf._kinds(message.fields_by_name["value"]) for message in wrapped)


def test_the_reference_has_each_kind_of_field() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    _, _, below = page.partition("| kind | Avro | Protobuf |\n| --- | --- | --- |\n")
    table, _, _ = below.partition("\n\n")
    rows = dict(line.removeprefix("| `").split("` | ", 1) for line in table.splitlines())
    assert list(rows) == [kind.name for kind in Kind]
    for kind in Kind:
        of_avro = rows[kind.name].split(" | ")[0]
        assert {name for name, kinds in avro_schemas._KINDS.items() if kind in kinds} <= {
            *of_avro.split(", ")
        }
    assert f"`Kind` ({', '.join(f'`{kind.name}`' for kind in Kind)})" in page
    *first, last = (f"`{kind.name.lower()}`" for kind in Kind)
    assert f"| `field: NAME KIND` | {', '.join(first)} or {last}," in page
