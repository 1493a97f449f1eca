"""A job as a file of SQL: what its header declares, what its SELECT gives, and in which line a problem is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import loading, run_command
from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.job import Format, RunOptions, Table, Topic
from kafkacompat.pipeline.sql_job import FIELD_WORDS, TABLE_WORDS, TOPIC_WORDS, SqlProblem, job_of, load_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
OPTIONS = RunOptions(jobs=("orders",), checkpoint="", output="")
HEADER = """\
-- Orders of each shop and minute.
-- job: orders
-- input: orders.raw
-- field: event_id text names
-- field: event_time_ms integer
-- field: shop text names
-- table: windows key=shop,window_start_ms
"""
SELECT = (
    "SELECT window, shop, count(*) AS orders\nFROM events\nGROUP BY window(event_time, '1 minute'), shop\n"
)


DEFAULTS = {
    Kind.TEXT: ("no where", "no where"),
    Kind.INTEGER: ("7", 7),
    Kind.NUMBER: ("0.5", 0.5),
    Kind.BOOLEAN: ("true", True),
}


@pytest.mark.parametrize("kind", Kind)
def test_a_field_of_each_kind_may_have_a_default(kind: Kind) -> None:
    text, value = DEFAULTS[kind]
    line = f"-- field: more {kind.name.lower()} default='{text}'\n"
    found = job_of(HEADER + line + SELECT, "orders.sql").fields[-1]
    assert found == Field("more", kind, default=value)


WORDS = {
    "key": "key",
    "format": "format",
    "output_mode": "mode",
    "is_exactly_once": "exactly-once",
}
"""The words of a file of SQL for the fields of a sink."""
NOT_IN_SQL = {"name", "rows", "is_deduplicated", "is_one_file", "configs"}
"""The name is the first word, and the rows are the SELECT. The others keep their defaults."""


@pytest.mark.parametrize(("sink", "words"), [(Table, TABLE_WORDS), (Topic, TOPIC_WORDS)])
def test_each_field_of_a_sink_has_a_word_or_is_known_to_have_none(
    sink: type[Table | Topic], words: Mapping[str, bool]
) -> None:
    told = {each.name for each in fields(sink)} - NOT_IN_SQL
    assert told <= set(WORDS), (
        f"the new field of {sink.__name__} needs a word in sql_job.py, or stands in NOT_IN_SQL. Of a table also: does it hold for "
        "files that maintenance has merged (maintenance/local_folder.py, table_formats.py), after a backfill (backfill.py) and in "
        "a declarative pipeline (declarative.py)?"
    )
    assert {WORDS[name] for name in told} == set(words)


def test_each_attribute_of_a_field_has_a_word() -> None:
    told = {each.name for each in fields(Field)} - {"name", "kind", "required"} | {"optional"}
    assert told == set(FIELD_WORDS), (
        "the new attribute of Field needs a word in sql_job.py. A check: _value_checks in jobs/validation.py. "
        "Its value must be hashable, because fields are the key of a cache (_readers in jobs/schema_records.py)"
    )


def test_the_header_is_a_job() -> None:
    job = job_of(
        """
-- job: shop_2
-- input: orders.raw
--input: orders.avro format=avro
-- field: event_id text names
-- field: event_time_ms integer least=0 most=1e15
-- field: cents integer least=-5 default=7 topic=orders.avro
-- field: city text path='customer.address[0]."the city"' optional default="no where"
-- field: paid boolean default=true
-- field: rate number default=0.5
-- table: all format=delta
-- topic: latest key=city mode=append exactly-once
-- state-version: 3
-- continues-from: 2

-- Any comment: the header has no such word.
SELECT * FROM events;
""",
        "shop.sql",
    )
    assert (job.name, job.inputs, job.state_version) == ("shop_2", ("orders.raw", "orders.avro"), 3)
    assert job.continues_from == 2
    assert job.formats == {"orders.avro": Format.AVRO}
    assert job.settings == ()
    assert job.fields == (
        Field("event_id", Kind.TEXT, names=True),
        Field("event_time_ms", Kind.INTEGER, least=0, most=1e15),
        Field("cents", Kind.INTEGER, least=-5, default=7, topic="orders.avro"),
        Field("city", Kind.TEXT, required=False, path='customer.address[0]."the city"', default="no where"),
        Field("paid", Kind.BOOLEAN, default=True),
        Field("rate", Kind.NUMBER, default=0.5),
    )
    table, topic = job.sinks
    assert isinstance(table, Table)
    assert isinstance(topic, Topic)
    assert (table.name, table.key, table.format) == ("shop_2/all", (), "delta")
    assert (topic.name, topic.key, topic.output_mode) == ("shop_2.latest", ("city",), "append")
    assert topic.is_exactly_once
    assert [query.name for query in job.queries] == ["shop-2-all", "shop-2-latest", "shop_2-rejected"]


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("-- job: orders", "-- jobs: orders"), 2, "jobs is none of job, input, field"),
        (("-- job: orders", "-- job: Orders"), 2, "'Orders' is not a lower-case letter"),
        (("-- job: orders", "-- job: orders quick"), 2, "'quick' is none of nothing: one word"),
        (("-- job: orders", "-- job:"), 2, "there is nothing after job:"),
        (("-- job: orders", "--"), 7, "before it there must be a line -- job:"),
        (("-- input: orders.raw", "-- job: two"), 3, "job is in line 2 already"),
        (("-- input: orders.raw", ""), 8, "a line -- input:"),
        (("orders.raw", "orders/raw"), 3, "is no name of a topic"),
        (("orders.raw", "orders.raw format=xml"), 3, "the format 'xml' is none of json, avro, protobuf"),
        (("orders.raw", "orders.raw form=avro"), 3, "'form=avro' is none of format=..."),
        (("orders.raw", "orders.raw 'a"), 3, "No closing quotation"),
        (("event_id text", "event_id string"), 4, "after event_id there must be one of text, integer"),
        (("event_id text names", "event_id"), 4, "after event_id there must be one of"),
        (("event_id text", "event_id integer"), 4, "names is for text"),
        (("event_id text names", "id text"), 8, "every event needs a line -- field: event_id text"),
        (
            ("event_time_ms integer", "event_time_ms text"),
            5,
            "every event needs a line -- field: event_time_ms",
        ),
        (("shop text names", "shop text least=1"), 6, "least is for numbers"),
        (("shop text names", "shop integer least=many"), 6, "'many' is no number"),
        (("shop text names", "shop integer most=nan"), 6, "'nan' is no number"),
        (("shop text names", "shop integer default=1.5"), 6, "the default '1.5' is not a whole number"),
        (("shop text names", "shop boolean default=yes"), 6, "the default 'yes' is not true or false"),
        (("shop text names", "shop text path=a..b"), 6, "its path:"),
        (("shop text names", "shop text names names"), 6, "names is there twice"),
        (("shop text names", "shop text topic=other"), 6, "other is none of the inputs"),
        (("shop text names", "event_id text"), 6, "field event_id is in line 4 already"),
        (("shop text names", "a-b text"), 6, "'a-b' is no name of a column"),
        (("windows key=shop", "Windows key=shop"), 7, "'Windows' is not lower-case letters"),
        (("key=shop,", "key=a-b,"), 7, "'a-b' is no name of a column"),
        (
            ("key=shop,window_start_ms", "format=csv"),
            7,
            "the format 'csv' is none of parquet, delta, iceberg",
        ),
        (("-- table: windows key=shop,window_start_ms", "-- topic: windows"), 7, "a topic needs key="),
        (
            ("-- table: windows", "-- topic: windows mode=complete"),
            7,
            "the mode 'complete' is none of update",
        ),
        (("-- table: windows key=shop,window_start_ms", ""), 8, "a line -- table: ... or -- topic:"),
        (("Orders of each shop and minute.", "state-version: 0"), 1, "'0' is no whole number from 1"),
    ],
)
def test_a_problem_of_the_header_is_said_with_its_line(change: tuple[str, str], line: int, said: str) -> None:
    assert change[0] in HEADER
    with pytest.raises(SqlProblem) as found:
        job_of(HEADER.replace(*change, 1) + SELECT, "orders.sql")
    assert str(found.value).startswith(f"line {line}: ")
    assert said in str(found.value)


def test_a_header_without_a_select_is_no_job() -> None:
    with pytest.raises(SqlProblem, match="line 8: there is no SELECT after the header"):
        job_of(HEADER, "orders.sql")


def test_a_file_is_a_job_of_the_commands(tmp_path: Path) -> None:
    place = tmp_path / "orders.sql"
    assert loading.is_known(str(place))
    assert run_command._job(str(place)) == str(place)
    with pytest.raises(PipelineFailed, match=r"orders\.sql cannot be read: No such file"):
        loading.load(str(place))
    place.write_bytes(HEADER.encode() + b"-- caf\xe9\n" + SELECT.encode())
    with pytest.raises(PipelineFailed, match=r"orders\.sql: line 8: it is not UTF-8"):
        loading.load(str(place))
    place.write_text(HEADER.replace("job:", "jobs:") + SELECT)
    with pytest.raises(PipelineFailed, match=r"orders\.sql: line 2: jobs is none of"):
        loading.load(str(place))
    place.write_text(HEADER + SELECT)
    assert loading.load(str(place)).name == "orders"
    place.write_text(HEADER + SELECT + " " * (1 << 20))
    with pytest.raises(PipelineFailed, match="more than"):
        load_sql(place)


def value(number: int, **changes: Any) -> bytes:
    told = {"event_id": f"o-{number}", "event_time_ms": RECEIVED_MS - number, "shop": f"s{number % 2}"}
    return json.dumps(told | changes).encode()


def test_the_rows_are_those_of_the_select(records: Records) -> None:
    job = job_of(
        HEADER + "-- topic: windows key=shop,window_start_ms\n" + SELECT.rstrip() + ";\n\n", "orders.sql"
    )
    given = records("orders.raw", value(1), value(2), value(3), value(3), b"no order")
    rows = job.query("orders-windows").build(given, OPTIONS).collect()
    assert sorted((row["shop"], row["orders"]) for row in rows) == [("s0", 1), ("s1", 2)]
    assert {row["window_end_ms"] - row["window_start_ms"] for row in rows} == {60_000}
    assert all(row["date"] is not None and row["event_id"] for row in rows)
    (told, _) = job.query("orders-windows-live").build(given, OPTIONS).collect()
    assert json.loads(told["value"])["shop"] in ("s0", "s1")
    rejected = job.query("orders-rejected").build(given, OPTIONS).collect()
    assert [json.loads(row["value"])["reason"] for row in rejected] == ["malformed JSON"]


@pytest.mark.parametrize(
    ("select", "line", "said"),
    [
        ("SELECT shop\nFORM events", 9, "PARSE_SYNTAX_ERROR"),
        ("SELECT shop,\n  shopp\nFROM events", 9, "`shopp` cannot be resolved"),
        ("SELECT shop FROM\n\nothers", 10, "`others` cannot be found"),
        ("SELECT shop FROM events;\nSELECT 1", 8, "PARSE_SYNTAX_ERROR"),
        ("DROP TABLE x", 8, "PARSE_SYNTAX_ERROR"),
        ("WITH a AS (SELECT 1)\nINSERT INTO x SELECT * FROM a", 9, "PARSE_SYNTAX_ERROR"),
        ("CREATE TABLE x AS SELECT * FROM events", 8, "PARSE_SYNTAX_ERROR"),
    ],
)
def test_a_problem_of_the_select_is_said_with_its_line(
    records: Records, select: str, line: int, said: str
) -> None:
    """And nothing but a SELECT is carried out."""
    query = job_of(HEADER + select, "orders.sql").query("orders-windows")
    with pytest.raises(PipelineFailed) as found:
        query.build(records("orders.raw", value(1)), OPTIONS)
    assert str(found.value).startswith(f"orders.sql: line {line}: "), found.value
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_a_column_that_a_sink_needs_is_named(records: Records) -> None:
    query = job_of(HEADER + "SELECT shop, event_time_ms FROM events", "orders.sql").query("orders-windows")
    with pytest.raises(PipelineFailed, match="its rows have no column window_start_ms, but shop"):
        query.build(records("orders.raw", value(1)), OPTIONS)
