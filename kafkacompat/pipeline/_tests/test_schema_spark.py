"""Records of Avro, Protobuf and JSON in one job: Spark's reading of each is that of plain Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("grpc_tools")

from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline._tests.registry_kit import RegistryKit, a_registry, framed
from kafkacompat.pipeline._tests.test_schema_records import avro, proto_class, record
from kafkacompat.pipeline.job import Field, Format, Job, Kind, RunOptions, Table
from kafkacompat.pipeline.jobs.schema_records import SchemaDecoder
from kafkacompat.pipeline.runner import failure_of
from kafkacompat.pipeline.schemas.client import RegistrySettings
from kafkacompat.pipeline.schemas.reading import READERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
AVRO_SCHEMA = record(
    ("event_id", "string"), ("at", "long"), ("amount", "double"), ("state", ["null", "string"])
)
NARROW_SCHEMA = record(("event_id", "string"), ("at", "long"), ("amount", "string"))
PROTO = """
syntax = "proto3";
message Order { string event_id = 1; int64 at = 2; double amount = 3; optional bool paid = 4; }
"""
FIELDS = (
    Field("event_id", Kind.TEXT, names=True),
    Field("event_time_ms", Kind.INTEGER, path="at"),
    Field("amount", Kind.NUMBER, least=0),
    Field("state", Kind.TEXT, required=False, topic="orders.avro"),
    Field("paid", Kind.BOOLEAN, topic="orders.proto"),
)
FORMATS = {"orders.avro": Format.AVRO, "orders.proto": Format.PROTOBUF}
JOB = Job(
    name="orders",
    inputs=("orders.avro", "orders.proto", "orders.json"),
    fields=FIELDS,
    formats=FORMATS,
    sinks=(Table("orders/all", lambda events, options: events.select("event_id", "event_time_ms")),),
)


@pytest.fixture
def registry() -> Iterator[RegistryKit]:
    with a_registry() as kit:
        kit.register(1, AVRO_SCHEMA)
        kit.register(2, PROTO, "PROTOBUF")
        kit.register(3, NARROW_SCHEMA)
        yield kit


def sent() -> dict[str, list[bytes | None]]:
    order: dict[str, Any] = {"event_id": "1", "at": RECEIVED_MS, "amount": 2.5, "state": "open"}
    message = proto_class(PROTO, (0,))
    good = avro(AVRO_SCHEMA, order)
    proto = message(event_id="2", at=RECEIVED_MS, amount=1, paid=False).SerializeToString()
    return {
        "orders.avro": [
            good,
            avro(AVRO_SCHEMA, order | {"state": None}),
            avro(AVRO_SCHEMA, order | {"amount": float("nan")}),
            avro(AVRO_SCHEMA, order | {"amount": -1}),
            avro(AVRO_SCHEMA, order | {"event_id": ""}),
            avro(AVRO_SCHEMA, order | {"at": 0}),
            avro(NARROW_SCHEMA, order | {"amount": "1"}, 3),
            good[:-1],
            good + b" ",
            framed(9, b""),
            b"{}",
            b"",
            None,
            b"\0" * 70_000,
        ],
        "orders.proto": [
            framed(2, proto, b"\0"),
            framed(2, message(event_id="3", at=RECEIVED_MS).SerializeToString(), b"\0"),
            framed(2, b"\xff", b"\0"),
            framed(1, proto, b"\0"),
        ],
        "orders.json": [json.dumps(order | {"event_id": "4"}).encode(), b"\0\0\0\0\1", None],
    }


def test_spark_reads_each_record_as_python_does(records: Records, registry: RegistryKit) -> None:
    assert {field.kind for field in FIELDS} == {*Kind}, "a kind needs a field and values here"
    assert {*FORMATS.values()} == {*READERS}, "a format needs a topic and values here"
    settings = RegistrySettings(registry.url)
    options = RunOptions(jobs=("orders",), checkpoint="", output="", registry=settings)
    values = sent()
    frames = [records(topic, *given) for topic, given in values.items()]
    found: dict[str, list[Any]] = {topic: [] for topic in values}
    validated = JOB.validated(reduce(lambda one, other: one.union(other), frames), options)
    for row in validated.orderBy("topic", "offset").collect():
        found[row["topic"]].append((row["reason"], *(row[field.name] for field in FIELDS)))
    decoder = SchemaDecoder(tuple(FORMATS.items()), FIELDS, settings)
    checked = {
        2: None,
        3: "out of range: amount",
        4: "empty field: event_id",
        5: "ancient timestamp",
        13: "oversized record",
    }
    for topic in FORMATS:
        for offset, value in enumerate(values[topic]):
            if topic == "orders.avro" and checked.get(offset) is not None:
                assert found[topic][offset][0] == checked[offset]
            else:
                assert found[topic][offset] == decoder.read(topic, value), (topic, offset)
    assert found["orders.avro"][0] == (None, "1", RECEIVED_MS, 2.5, "open", None)
    assert found["orders.proto"][:2] == [
        (None, "2", RECEIVED_MS, 1.0, None, False),
        ("missing field: paid", None, None, None, None, None),
    ]
    assert [row[0] for row in found["orders.json"]] == [None, "malformed JSON", "malformed JSON"]
    # Each worker has asked for each schema once, and this process too.
    assert registry.asked.count("/schemas/ids/1") <= 2
    rejected = JOB.query("orders-rejected").build(frames[0], options).collect()
    assert len(rejected) == len(values["orders.avro"]) - 2


def test_a_registry_out_of_reach_ends_the_query_and_says_which(
    records: Records, registry: RegistryKit
) -> None:
    settings = RegistrySettings(registry.url, (("basic.auth.user.info", "ann:s3cret"),))
    registry.authorization = "Basic other"
    options = RunOptions(jobs=("orders",), checkpoint="", output="", registry=settings)
    frame = JOB.validated(records("orders.avro", *sent()["orders.avro"][:1]), options)
    with pytest.raises(Exception, match="Python worker") as failed:
        frame.collect()

    class Query:
        @staticmethod
        def exception() -> Exception:
            return failed.value

    told = failure_of(Query())  # type: ignore[arg-type]
    assert told == (
        f"schema id 1 of the schema registry {registry.url}: status 401: it does not accept the credentials of "
        "--registry-config"
    )
    assert "s3cret" not in str(failed.value)


def test_an_executor_without_the_package_says_so() -> None:
    class Query:
        @staticmethod
        def exception() -> Exception:
            return Exception(
                "Traceback (most recent call last):\n\nModuleNotFoundError: No module named 'kafkacompat'\n"
            )

    assert failure_of(Query()) == (  # type: ignore[arg-type]
        "an executor's Python: No module named 'kafkacompat': PYSPARK_PYTHON must name one with kafkacompat[registry]"
    )
