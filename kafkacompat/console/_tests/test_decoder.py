"""Values in a registry's wire format: the process that decodes them, and what happens if it does not."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import fastavro
import pytest

from kafkacompat.console import decoder as decoder_module
from kafkacompat.console._tests.test_browse import ReadMessage
from kafkacompat.console._tests.test_searching import Logs, log
from kafkacompat.console.browse import Page, _newest, _page, found_of, shown
from kafkacompat.console.core.columns import columns_of
from kafkacompat.console.core.parameters import NewestQuery, RecordsQuery, SearchQuery
from kafkacompat.console.decoder import REST_S, Decoder, Told
from kafkacompat.console.decoder_process import RestingRegistry
from kafkacompat.console.searching import _search
from kafkacompat.pipeline._tests.registry_kit import RegistryKit, a_registry, framed
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.schemas.client import TOKEN, RegistrySettings, SchemaText

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "raw", "type": "bytes"},
    ],
}
PROTO = 'syntax = "proto3"; package shop; message Other {} message Item { string sku = 1; int32 count = 2; }'
BOMB_FIELDS = 40_000
BOMB = {
    "type": "record",
    "name": "Bomb",
    "fields": [
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "paid", "type": "int"},
                        *({"name": f"n{number}", "type": "null"} for number in range(BOMB_FIELDS)),
                    ],
                },
            },
        }
    ],
}
"""One byte of an item makes an object of many fields."""


@pytest.fixture
def registry() -> Iterator[RegistryKit]:
    with a_registry() as kit:
        yield kit


@pytest.fixture
def decoder(registry: RegistryKit) -> Iterator[Decoder]:
    made = Decoder(RegistrySettings(registry.url, ((TOKEN, "s3cret"),)))
    yield made
    made.close()


def avro(schema: object, record: object) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), record)
    return file.getvalue()


def test_avro_and_protobuf_are_told_as_json_and_what_is_neither_is_said(
    registry: RegistryKit, decoder: Decoder
) -> None:
    registry.authorization = "Bearer s3cret"
    registry.register(3, ORDER)
    registry.register(4, PROTO, "PROTOBUF")
    value = framed(3, avro(ORDER, {"id": 7, "city": "Zo\u00eb <b>", "raw": b"\xff"}))
    told = decoder.decoded(value)
    assert told is not None
    assert (json.loads(told.text), told.writer) == (
        {"id": 7, "city": "Zo\u00eb <b>", "raw": "ff"},
        "avro, shop.Order, schema 3",
    )
    told = decoder.decoded(framed(4, b"\x0a\x02S1\x10\x05", indexes=b"\x02\x02"))
    assert told == Told('{\n  "sku": "S1",\n  "count": 5\n}', "protobuf, shop.Item, schema 4")
    registry.register(8, {"type": "object"}, "JSON")
    told = decoder.decoded(framed(8, b'{"id":1.10}'))
    assert told == Told('{\n  "id": 1.10\n}', "json, schema 8")
    told = decoder.decoded(framed(8, b"[" * 100_000))
    assert told is not None
    assert "it is of type JSON" in told.problem
    for other in (None, b"", b"{}", b"\x00\x00\x00\x00", b"\x01" + value[1:]):
        assert decoder.decoded(other) is None
    for wrong, said in (
        (framed(9, b""), "unknown schema: the registry has no schema with id 9"),
        (value[:-1], "malformed Avro"),
        (value + b"x", "1 bytes follow the record"),
        (b"\x00" * 300_000, "it is longer than 262,144 bytes"),
    ):
        told = decoder.decoded(wrong)
        assert told is not None
        assert said in told.problem
        assert not told.text


def test_a_registry_that_refuses_is_named_without_the_credentials(
    registry: RegistryKit, decoder: Decoder
) -> None:
    registry.authorization = "Bearer other"
    told = decoder.decoded(framed(3, b""))
    assert told is not None
    assert "status 401" in told.problem
    assert "s3cret" not in told.problem
    assert "s3cret" not in repr(decoder._settings)
    registry.authorization = None
    registry.register(3, ORDER)
    told = decoder.decoded(framed(3, avro(ORDER, {"id": 1, "city": "", "raw": b""})))
    assert told is not None
    assert not told.problem, "it is asked again"


def test_a_schema_whose_values_are_beyond_measure_ends_no_more_than_the_decoder(
    registry: RegistryKit, decoder: Decoder
) -> None:
    registry.register(5, BOMB)
    registry.register(3, ORDER)
    count = 100_000
    told = decoder.decoded(framed(5, avro("long", count) + b"\x02" * count + b"\x00"))
    assert told is not None
    assert told.problem
    decoder._resting_until_s = None
    told = decoder.decoded(framed(3, avro(ORDER, {"id": 1, "city": "", "raw": b""})))
    assert told is not None
    assert told.writer == "avro, shop.Order, schema 3"


@pytest.mark.parametrize(
    "program", ["import time; time.sleep(60)", "", "print('no json', flush=True); input(); input()"]
)
def test_a_decoder_that_does_not_answer_is_ended_and_rests(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_module, "TIMEOUT_S", 0.2)
    now_s = 100.0
    made = Decoder(RegistrySettings("http://127.0.0.1:1"), (sys.executable, "-c", program), lambda: now_s)
    first = made.decoded(framed(3, b""))
    assert first is not None
    assert "nothing is decoded for 10 s" in first.problem
    assert made._process is None
    assert made.decoded(framed(3, b"")) == first
    made.close()


class Away:
    """A registry that keeps everybody waiting."""

    place = "http://registry"

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[int] = []

    def schema(self, number: int) -> SchemaText:
        self.asked.append(number)
        self.now_s += 5.0
        raise PipelineFailed("no answer")


def test_a_registry_that_does_not_answer_keeps_one_value_of_a_page_waiting() -> None:
    away = Away()
    resting = RestingRegistry(away, lambda: away.now_s)
    for number in (3, 4, 5):
        with pytest.raises(PipelineFailed, match="no answer"):
            resting.schema(number)
    assert away.asked == [3]
    away.now_s += REST_S
    with pytest.raises(PipelineFailed, match="no answer"):
        resting.schema(6)
    assert away.asked == [3, 6]


class Canned:
    """A decoder with one answer."""

    def __init__(self, told: Told) -> None:
        self.told = told

    def of_page(self) -> Canned:
        return self

    def decoded(self, value: bytes | None) -> Told | None:
        return self.told if value is not None and value[:1] == b"\0" else None


def view_of(message: ReadMessage, query: RecordsQuery, decoder: Canned) -> Page:
    (view,) = shown([found_of(message, query, decoder)], query, decoder)  # type: ignore[arg-type]
    return view


def test_a_record_shows_what_its_schema_says_and_its_bytes() -> None:
    value = framed(3, b"\x0e")
    told = Told('{\n  "id": 7,\n  "city": "' + "x" * 500 + '"\n}', "avro, shop.Order, schema 3")
    query = RecordsQuery("t", 0, value_bytes=20, columns=columns_of("id"))
    shown = view_of(ReadMessage(b"k", value), query, Canned(told))
    assert shown["key"] == {"kind": "text", "text": "k", "size_bytes": 1, "truncated": False}
    assert (shown["value"]["kind"], shown["value"]["writer"], shown["cells"]) == ("json", told.writer, ["7"])
    assert (len(shown["value"]["text"]), shown["value"]["truncated"]) == (200, True)
    assert shown["value"]["raw"].startswith("000000  00 00 00 00 03 0e")
    shown = view_of(ReadMessage(b"k", value), query, Canned(Told(problem="unknown schema")))
    assert (shown["value"]["kind"], shown["value"]["problem"], shown["cells"]) == (
        "hex",
        "unknown schema",
        [None],
    )
    shown = view_of(ReadMessage(b"k", value), RecordsQuery("__consumer_offsets", 0), Canned(told))
    assert "writer" not in shown["value"]


class Slow(Decoder):
    """Each value takes this time."""

    def __init__(self, takes_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.takes_s = takes_s
        self.asked = 0
        monkeypatch.setattr("kafkacompat.console.browse.time.monotonic", lambda: self.now_s)
        super().__init__(RegistrySettings("http://127.0.0.1:1"), now=lambda: self.now_s)

    def decoded(self, value: bytes | None) -> Told | None:
        if value is None or value[:1] != b"\0":
            return None
        self.now_s += self.takes_s
        self.asked += 1
        return Told("7", "avro")


@pytest.mark.parametrize(("takes_s", "asked"), [(12.0, 1), (2.5, 4), (0.0, 9)])
@pytest.mark.parametrize(
    "query",
    [
        RecordsQuery("t", 0),
        RecordsQuery("t", 0, offset=0),
        NewestQuery("t"),
        SearchQuery("t", None, to_ms=99_999),
    ],
)
def test_a_page_comes_however_long_its_values_take_to_decode(
    query: RecordsQuery | NewestQuery | SearchQuery,
    takes_s: float,
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, consumer = Slow(takes_s, monkeypatch), Logs(log(0, 9, framed(3, b"")))
    if isinstance(query, RecordsQuery):
        page = _page(consumer, query, decoder)  # type: ignore[arg-type]
    elif isinstance(query, NewestQuery):
        page = _newest(consumer, query, decoder)  # type: ignore[arg-type]
    else:
        page = _search(consumer, query, decoder)  # type: ignore[arg-type]
    told = [record["value"] for record in page["records"]]
    assert [value.get("writer") for value in told] == ["avro"] * asked + [None] * (9 - asked)
    assert decoder.asked == asked
    if asked < 9:
        assert (
            told[-1]["problem"] == "the values before it took more than 8 s to decode: ask for fewer records"
        )
