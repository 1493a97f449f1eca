"""Follows docs/how-to/read-avro-and-protobuf.md: a writer of Avro, `pipeline try`, and a job, with a small registry on loopback.
Then one query reads topics of Avro and Protobuf while their schemas change."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.conftest import MakeBroker
from interop_tests.harness.kafka_jars import require_program
from interop_tests.pipeline.runs import read_topic, run_words, typed
from kafkacompat.pipeline._tests.registry_kit import a_registry, framed
from kafkacompat.pipeline._tests.test_schema_records import avro, proto_class, record
from kafkacompat.pipeline.job import Field, Format, Job, Kind, RunOptions, Table
from kafkacompat.pipeline.runner import start
from kafkacompat.pipeline.schemas.client import RegistrySettings
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = text_of("docs/how-to/read-avro-and-protobuf.md")
REGISTRY, BROKER = "http://127.0.0.1:8081", "127.0.0.1:9092"

pytestmark = pytest.mark.needs_control


class Folder:
    """A folder with the page's files, in which its commands run with this Python, broker and registry."""

    def __init__(self, root: Path, bootstrap: str, registry: str) -> None:
        self.root = root
        program, job = blocks(PAGE, "python")
        (root / "send_order.py").write_text(program)
        (root / "shop_orders.py").write_text(job)
        self._bootstrap, self._registry = bootstrap, registry

    def type(self, line: str) -> str:
        """Run a line of the page. Returns its output."""
        quick = run_words()
        here = f"{sys.executable} -m kafkacompat"
        asked = line.replace(REGISTRY, self._registry).replace(BROKER, self._bootstrap)
        asked = re.sub(
            r"\bkafkacompat (topics|consume) ", rf"{here} \1 --bootstrap {self._bootstrap} ", asked
        )
        asked = asked.replace("kafkacompat pipeline try", f"{here} pipeline try")
        asked = asked.replace(
            "kafkacompat pipeline run shop_orders:job",
            f"{here} pipeline run shop_orders:job --bootstrap {self._bootstrap} {quick}",
        )
        asked = re.sub(r"^python ", f"{sys.executable} ", asked)
        assert asked != line
        done = typed(asked, self.root)
        assert done.returncode == (1 if "no order" in line else 0), (line, done.stdout, done.stderr)
        return done.stdout


def test_a_job_reads_avro_as_the_page_says(make_broker: MakeBroker, tmp_path: Path) -> None:
    """On a broker of its own: the tutorial's job has the same topics."""
    require_program("java")
    with a_registry() as registry:
        folder = Folder(tmp_path, make_broker().bootstrap, registry.url)
        for line, _ in commands(blocks(section(PAGE, "## Write a record"))[0]):
            folder.type(line)
        for line, shown in commands(blocks(section(PAGE, "## See a record"))[0]):
            said = re.sub(r"^(  at +)\d+$", r"\g<1>1795168800000", folder.type(line), flags=re.MULTILINE)
            assert said.splitlines() == shown, line
        run, *consume = [line for line, _ in commands(blocks(section(PAGE, "## Write the job"))[0])]
        folder.type(run)
        windows, rejects = (
            [json.loads(value) for value in folder.type(line).splitlines()] for line in consume
        )
    assert [(row["shop"], row["channel"], row["orders"], row["amount_cents"]) for row in windows] == [
        ("north", "counter", 1, 250)
    ]
    assert [(row["reason"], row["line"]) for row in rejects] == [
        ("malformed record: expected byte 0 and the 4 bytes of a schema's id", "no order")
    ]


BASE = (("event_id", "string"), ("event_time_ms", "long"))
AMOUNT, WIDER = ("amount_cents", "int"), ("amount_cents", "long")
AVRO = [
    record(*BASE, AMOUNT),
    record(*BASE, AMOUNT, {"name": "channel", "type": "string", "default": "shop"}),
    record(*BASE, WIDER, ("channel", ["null", "string"])),
    record(("note", {"type": "map", "values": "bytes"}), WIDER, *BASE),
    record(*BASE, ("amount_cents", "string")),
]
HEAD = 'syntax = "proto3"; message Order { string event_id = 1; int64 event_time_ms = 2; '
PROTOBUF = [
    HEAD + "int32 amount_cents = 3; }",
    HEAD + "int32 amount_cents = 3; optional string channel = 4; }",
    HEAD + "int64 amount_cents = 3; optional string channel = 4; }",
    HEAD + "int64 amount_cents = 5; reserved 3, 4; map<string, bytes> note = 6; }",
    HEAD + "string amount_cents = 7; }",
]
"""The first schemas, three steps that the job can read, and one that it cannot."""

INCOMPATIBLE = len(AVRO)


def orders(events: DataFrame, options: RunOptions) -> DataFrame:
    return events.select("event_id", "event_time_ms", "amount_cents", "channel")


CHANGES = Job(
    name="changes",
    inputs=("changes.avro", "changes.protobuf"),
    formats={"changes.avro": Format.AVRO, "changes.protobuf": Format.PROTOBUF},
    fields=(
        Field("event_id", Kind.TEXT, names=True),
        Field("event_time_ms", Kind.INTEGER),
        Field("amount_cents", Kind.INTEGER),
        Field("channel", Kind.TEXT, default="counter"),
    ),
    sinks=(Table("changes/orders", orders, is_deduplicated=False),),
)


def told_apart(step: int, name: str, schema: object, protobuf: str) -> tuple[bytes, bytes]:
    """An order in Avro and one in Protobuf by the schemas of a step, which have the ids STEP and 10 + STEP."""
    content: dict[str, Any] = {"event_time_ms": time.time_ns() // 1_000_000, "amount_cents": 100 + step}
    if step == INCOMPATIBLE:
        content["amount_cents"] = "much"
    if step in (2, 3):
        content["channel"] = "web"
    message = proto_class(protobuf, (0,))(event_id=f"p{name}", **content)
    told = avro(schema, {"event_id": f"a{name}", "note": {}, **content}, step)
    return told, framed(10 + step, message.SerializeToString(), b"\0")


def test_one_query_goes_on_while_the_schemas_of_its_topics_change(
    bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    names = [*CHANGES.inputs, CHANGES.rejected_topic]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    with a_registry() as registry:
        options = RunOptions(
            jobs=(CHANGES.name,),
            checkpoint=str(tmp_path / "checkpoint"),
            output=str(tmp_path / "tables"),
            bootstrap=ClusterAddress(bootstrap),
            trigger_s=0.2,
            table_trigger_s=0.2,
            registry=RegistrySettings(registry.url),
        )
        running = [start(spark, query, options) for query in CHANGES.queries]
        try:
            # Writers of the step before go on beside the one that cannot be read.
            for count, step in enumerate((1, 2, 3, 4, INCOMPATIBLE, 4, 1), 1):
                schema, protobuf = AVRO[step - 1], PROTOBUF[step - 1]
                registry.register(step, schema)
                registry.register(10 + step, protobuf, "PROTOBUF")
                values = told_apart(step, str(count), schema, protobuf)
                for topic, value in zip(CHANGES.inputs, values, strict=True):
                    producer.produce(topic, value, "north")
                assert producer.flush(30) == 0
                for query in running:
                    query.processAllAvailable()
            assert all(query.isActive for query in running)
        finally:
            for query in running:
                query.stop()
    rows = spark.read.parquet(str(tmp_path / "tables/changes/orders")).collect()
    wanted = [(1, 101, "counter"), (2, 102, "web"), (3, 103, "web")]
    wanted += [(4, 104, "counter"), (6, 104, "counter"), (7, 101, "counter")]
    assert sorted((row["event_id"], row["amount_cents"], row["channel"]) for row in rows) == [
        (f"{form}{number}", *rest) for form in "ap" for number, *rest in wanted
    ]
    rejects = [value for _, value in read_topic(bootstrap, CHANGES.rejected_topic)]
    why = "Order: field amount_cents is string, and the job reads a whole number"
    assert sorted((row["topic"], row["offset"], row["reason"]) for row in rejects) == [
        ("changes.avro", 4, f"incompatible schema: id {INCOMPATIBLE}: shop.{why}"),
        ("changes.protobuf", 4, f"incompatible schema: id {10 + INCOMPATIBLE}: {why}"),
    ]
    assert why in section(PAGE, "## When a schema changes"), "the page does not say what to do"
