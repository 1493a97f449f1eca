"""Jobs as values: what follows from one, what is refused, and how one is found by its name."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.__main__ import main
from kafkacompat.pipeline import loading, run_command
from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.job import Field, Format, Job, JobProblem, Kind, Query, RunOptions, Table, Topic
from kafkacompat.pipeline.jobs.validation import OWN_COLUMNS, rejected
from kafkacompat.pipeline.queries import ACTIVITY, JOBS, LOGS, METRICS
from kafkacompat.pipeline.topics import CONFIGS, EVENTS, PIPELINE_PROGRESS, RESULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
KEY = ("shop", "window_start_ms")
DAY_MS = 24 * 3600 * 1000
FIELDS = (
    Field("event_id", Kind.TEXT, names=True),
    Field("shop", Kind.TEXT, names=True),
    Field("event_time_ms", Kind.INTEGER),
)
OPTIONS = RunOptions(jobs=("orders",), checkpoint="", output="")


def per_shop(orders: DataFrame, options: RunOptions) -> DataFrame:
    from pyspark.sql import functions as F

    windows = orders.groupBy("shop", F.window("event_time", f"{options.window_s} seconds"))
    return windows.agg(F.count("*").alias("orders"))


def orders(**changes: Any) -> Job:
    given: dict[str, Any] = {
        "name": "orders",
        "inputs": ("orders.raw",),
        "fields": FIELDS,
        "sinks": (Table("orders/windows", per_shop, KEY), Topic("orders.windows", per_shop, KEY)),
    }
    return Job(**given | changes)


def test_a_topic_that_is_exactly_once_has_transactions_of_its_query() -> None:
    once = Topic("orders.windows", per_shop, KEY, is_exactly_once=True)
    query = orders(sinks=(once,)).query("orders-windows")
    assert query.writes == ("orders.windows",)
    assert query.writer is not None
    sink: Any = query.writer("a checkpoint", replace(OPTIONS, group_prefix="team-"))
    assert (sink._target.topic, sink._target.name) == ("orders.windows", "team-orders-windows")
    assert orders().query("orders-windows-live").writer is None


def test_queries_and_topics_follow_from_the_value() -> None:
    job = orders()
    assert [(query.name, query.table, query.output_mode, query.writes) for query in job.queries] == [
        ("orders-windows", "orders/windows", "append", ()),
        ("orders-windows-live", None, "update", ("orders.windows",)),
        ("orders-rejected", None, "append", ("orders.rejected",)),
    ]
    assert all(query.reads == ("orders.raw",) for query in job.queries)
    assert job.outputs == ("orders.windows", "orders.rejected", PIPELINE_PROGRESS)
    assert job.configs == {
        "orders.raw": EVENTS,
        "orders.rejected": EVENTS,
        "orders.windows": RESULTS,
        PIPELINE_PROGRESS: RESULTS,
    }


def test_the_names_of_checkpoints_and_topics_of_kafkacompats_jobs_stay() -> None:
    """A query with a changed name starts again, and a topic with a changed name has no readers."""
    assert [(query.name, query.table, query.output_mode, query.writes) for query in LOGS.queries] == [
        ("logs-events", "logs/events", "append", ()),
        ("logs-summary", None, "update", ("logs.summary",)),
        ("logs-rejected", None, "append", ("logs.rejected",)),
    ]
    assert [(query.name, query.table, query.output_mode, query.writes) for query in ACTIVITY.queries] == [
        ("activity-sessions", "activity/sessions", "append", ()),
        ("activity-top-pages", "activity/top_pages", "append", ()),
        ("activity-visitors", "activity/visitors", "append", ()),
        ("activity-sessions-live", None, "append", ("activity.sessions",)),
        ("activity-live", None, "update", ("activity.top_pages", "activity.visitors")),
        ("activity-rejected", None, "append", ("activity.rejected",)),
    ]
    assert [(query.name, query.table, query.output_mode, query.writes) for query in METRICS.queries] == [
        ("metrics-windows", "metrics/windows", "append", ()),
        ("metrics-live", None, "update", ("metrics.windows", "metrics.alerts")),
        ("metrics-latest", None, "update", ("metrics.latest",)),
        ("metrics-rejected", None, "append", ("metrics.rejected",)),
    ]
    told = {
        "logs": (("--duplicate-horizon",), 1, None),
        "activity": (("--window", "--session-gap"), 2, None),
        "metrics": (("--window",), 2, None),
    }
    # An increased state_version without continues_from refuses every checkpoint that exists.
    found = {name: (job.settings, job.state_version, job.continues_from) for name, job in JOBS.items()}
    assert found == told


def test_logs_read_the_topics_of_the_run() -> None:
    assert LOGS.inputs_of(OPTIONS) == LOGS.inputs == ("logs.raw",)
    sources = (("a", "common"), ("b", "caddy"))
    assert LOGS.inputs_of(replace(OPTIONS, sources=sources)) == ("a", "b")
    assert METRICS.inputs_of(replace(OPTIONS, sources=sources)) == ("metrics.raw",)


def test_a_query_of_ones_own_reads_the_topics_that_it_names() -> None:
    own = Query("orders-returned", ("returns.raw",), per_shop, "append")
    job = orders(inputs=("orders.raw", "returns.raw"), sinks=(own, Table("orders/windows", per_shop, KEY)))
    found = {query.name: job.for_run(query, OPTIONS).reads for query in job.queries}
    assert found == {
        "orders-returned": ("returns.raw",),
        "orders-windows": job.inputs,
        "orders-rejected": job.inputs,
    }
    sourced = replace(OPTIONS, sources=(("a", "common"), ("b", "caddy")))
    assert {LOGS.for_run(query, sourced).reads for query in LOGS.queries} == {("a", "b")}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "Orders"}, "job Orders: its name is not a lower-case letter"),
        ({"inputs": ()}, "it has no inputs"),
        ({"fields": ()}, "it needs fields or a function validate, and not both"),
        ({"validate": per_shop}, "it needs fields or a function validate, and not both"),
        ({"fields": FIELDS[1:]}, "the fields have no event_id of Kind.TEXT"),
        ({"fields": FIELDS[:2]}, "the fields have no event_time_ms of Kind.INTEGER"),
        ({"fields": (*FIELDS, FIELDS[1])}, "two fields have the same name"),
        ({"fields": (*FIELDS, Field("Shop", Kind.TEXT))}, "two fields have the same name"),
        *(
            (
                {"fields": (*FIELDS, Field(name, Kind.TEXT))},
                f"the name of field {name!r} is no name of a column",
            )
            for name in ("customer.city", "a`b", "")
        ),
        *(
            ({"fields": (*FIELDS, Field(name, Kind.TEXT))}, f"field {name} has the name of a column of every")
            for name in ("value", "Topic", "event_time", "column")
        ),
        (
            {"fields": (*FIELDS, Field("a", Kind.TEXT, topic="other"))},
            "field a is of topic other, which is none of its inputs",
        ),
        (
            {"fields": (*FIELDS, Field("a", Kind.TEXT, path="a..b"))},
            'the path of field a: it is no path at character 2: write a.b[0] or a."b c"',
        ),
        (
            {"fields": (*FIELDS, Field("a", Kind.INTEGER, default=1.5))},
            "the default of field a is not a whole number",
        ),
        (
            {"formats": {"orders": Format.AVRO}},
            "it has a format for topic orders, which is none of its inputs",
        ),
        (
            {"fields": (), "validate": per_shop, "formats": {"orders.raw": Format.AVRO}},
            "it has formats, which are for fields, and it has a function validate",
        ),
        ({"settings": ("--windows",)}, "the setting --windows is none of --window, --session-gap"),
        ({"sinks": (Table("windows", per_shop),)}, "the name of Table 'windows' is not orders/NAME"),
        (
            {"sinks": (Table("orders/a", per_shop, format="orc"),)},
            "the format 'orc' of table orders/a is none of parquet, delta, iceberg",
        ),
        ({"sinks": (Topic("orders/a", per_shop, KEY),)}, "the name of Topic 'orders/a' is not orders.NAME"),
        ({"sinks": (Topic("orders.a", per_shop, ()),)}, "topic orders.a has no key"),
        (
            {"sinks": (Query("a", ("orders.raw",), per_shop, "append"),)},
            "the name of Query 'a' is not orders-NAME",
        ),
        (
            {"sinks": (Query("orders-a", ("orders.raw", "other"), per_shop, "append"),)},
            "query orders-a reads topic other, which is none of its inputs",
        ),
        (
            {"sinks": (Topic("orders.rejected", per_shop, KEY),)},
            "two queries have the name orders-rejected",
        ),
    ],
)
def test_a_value_that_cannot_be_run_is_refused_where_it_is_made(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(JobProblem) as refused:
        orders(**changes)
    assert why in str(refused.value)


def test_rows_get_what_sinks_need(records: Records) -> None:
    sent = [
        {"event_id": number, "shop": shop, "event_time_ms": RECEIVED_MS}
        for number, shop in (("1", "north"), ("2", "north"), ("2", "north"), ("3", ""))
    ]
    frame = records("orders.raw", *(json.dumps(each).encode() for each in sent))
    start_ms = RECEIVED_MS // 60_000 * 60_000
    (row,) = orders().query("orders-windows").build(frame, OPTIONS).collect()
    assert row.asDict() == {
        "event_id": row["event_id"],
        "shop": "north",
        "orders": 2,
        "window_start_ms": start_ms,
        "window_end_ms": start_ms + 60_000,
        "date": "2026-09-21",
    }
    (record,) = orders().query("orders-windows-live").build(frame, OPTIONS).collect()
    assert (record["topic"], record["key"]) == ("orders.windows", f"north|{start_ms}")
    (bad,) = orders().query("orders-rejected").build(frame, OPTIONS).collect()
    assert json.loads(bad["value"])["reason"] == "empty field: shop"


def test_rows_with_an_event_id_of_their_own_keep_it(records: Records) -> None:
    """Two of the same name would be no JSON object that the jobs accept, and no table."""

    def each(events: DataFrame, options: RunOptions) -> DataFrame:
        return events.select("shop", "event_id", "event_time_ms")

    sinks = (Table("orders/each", each, ("event_id",)), Topic("orders.each", each, ("event_id",)))
    sent = {"event_id": "order-1", "shop": "north", "event_time_ms": RECEIVED_MS}
    frame = records("orders.raw", json.dumps(sent).encode())
    rows = orders(sinks=sinks).query("orders-each").build(frame, OPTIONS)
    assert sorted(rows.columns) == ["date", "event_id", "event_time_ms", "shop"]
    (row,) = rows.collect()
    assert row["event_id"] == "order-1"
    (record,) = orders(sinks=sinks).query("orders-each-live").build(frame, OPTIONS).collect()
    assert record["key"] == "order-1"
    pairs = json.loads(record["value"], object_pairs_hook=list)
    assert sorted(pairs) == sorted(sent.items())


def test_names_of_columns_may_have_dots(records: Records) -> None:
    """Spark gives such a name to an expression with a number, if the SELECT gives none."""
    from pyspark.sql import functions as F

    def each(events: DataFrame, options: RunOptions) -> DataFrame:
        return events.select("shop", F.lit(2).alias("a.b"), F.lit(3).alias("c`d"), "event_time_ms")

    sinks = (Table("orders/each", each, ("shop", "a.b")), Topic("orders.each", each, ("shop", "a.b")))
    sent = {"event_id": "order-1", "shop": "north", "event_time_ms": RECEIVED_MS}
    frame = records("orders.raw", json.dumps(sent).encode())
    (row,) = orders(sinks=sinks).query("orders-each").build(frame, OPTIONS).collect()
    assert (row["a.b"], row["c`d"]) == (2, 3)
    (record,) = orders(sinks=sinks).query("orders-each-live").build(frame, OPTIONS).collect()
    told = json.loads(record["value"])
    assert (record["key"], told["a.b"], told["c`d"]) == ("north|2", 2, 3)


def test_the_page_has_the_fields_of_rejected_records(records: Records) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "pipeline.md"
    (row,) = re.findall(r"^\| `logs\.rejected`,.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    found = rejected(orders().validated(records("orders.raw", b"no order"), OPTIONS))
    assert [name for name in found.columns if re.search(rf"\b{name}\b", row) is None] == []


def test_the_page_says_how_the_topics_are_cleaned_and_how_long_they_keep_records() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "pipeline.md").read_text("utf-8")
    _, _, below = page.partition(
        "| topic | cleanup | key | fields of the value |\n| --- | --- | --- | --- |\n"
    )
    rows = [line.split(" | ", 2) for line in below.partition("\n\n")[0].splitlines()]
    told = {topic: cleanup for names, cleanup, _ in rows for topic in re.findall(r"`([^`]+)`", names)}
    assert told == {topic: configs["cleanup.policy"] for topic, configs in CONFIGS.items()}
    days = {configs.get("cleanup.policy"): configs.get("retention.ms") for configs in CONFIGS.values()}
    assert set(days) == {"delete", "compact,delete", "compact"}
    assert days["compact"] is None
    for cleanup, words in (("delete", "records are"), ("compact,delete", "the last record of a key is")):
        kept = (
            f"Where (?:cleanup|it) is `{cleanup}`, {words} kept for {int(days[cleanup] or 0) // DAY_MS} days"
        )
        assert re.search(kept, page), kept


def test_no_field_has_the_name_of_another_column(records: Records) -> None:
    job = orders(fields=(*FIELDS, Field("amount", Kind.INTEGER, path="value")))
    sent = {"event_id": "1", "shop": "north", "event_time_ms": RECEIVED_MS, "value": 5}
    frame = records("orders.raw", json.dumps(sent).encode())
    events = job.events(frame, OPTIONS)
    others = {*job.validated(frame, OPTIONS).columns, *events.columns} - {field.name for field in job.fields}
    assert others <= OWN_COLUMNS
    (event,) = events.collect()
    assert event["amount"] == 5


def test_fields_are_found_by_their_paths_and_have_defaults(records: Records) -> None:
    fields = (
        *FIELDS,
        Field("city", Kind.TEXT, path="customer.address[0].city"),
        Field("score", Kind.NUMBER, required=False, path='customer."the score"'),
        Field("channel", Kind.TEXT, default="shop"),
        Field("test", Kind.BOOLEAN, default=False),
    )
    sent = {"event_id": "1", "shop": "north", "event_time_ms": RECEIVED_MS}
    kiel = {"address": [{"city": "Kiel"}], "the score": 7}
    frame = records(
        "orders.raw",
        *(
            json.dumps(sent | more).encode()
            for more in (
                {"customer": kiel, "channel": "web", "test": True},
                {"customer": kiel | {"the score": None}, "channel": None},
                {"customer": {"address": []}},
                {"customer": kiel | {"the score": "7"}},
                {"customer": {"address": [{"city": 7}]}},
                {"customer": kiel, "event_time_ms": None},
            )
        ),
        json.dumps(sent | {"customer": kiel}).encode() + b"{}",
    )
    found = orders(fields=fields).validated(frame, OPTIONS).orderBy("offset").collect()
    columns = ("reason", "shop", "city", "score", "channel", "test")
    assert [tuple(row[name] for name in columns) for row in found[:2]] == [
        (None, "north", "Kiel", 7.0, "web", True),
        (None, "north", "Kiel", None, "shop", False),
    ]
    assert [row["reason"] for row in found[2:]] == [
        "missing field: city",
        "wrong type: score",
        "wrong type: city",
        "missing field: event_time_ms",
        "malformed JSON",
    ]


def test_a_field_of_each_kind_takes_what_its_kind_takes(records: Records) -> None:
    made = tuple(Field(f"a_{kind.name.lower()}", kind, required=False) for kind in Kind)
    sent = {"event_id": "1", "shop": "north", "event_time_ms": RECEIVED_MS}
    given: list[tuple[Field, object]] = [
        (field, value) for field in made for value in ("a", "7", "true", 7, 0.5, True, [7], {"a": 7})
    ]
    frame = records(
        "orders.raw", *(json.dumps(sent | {field.name: value}).encode() for field, value in given)
    )
    found = orders(fields=(*FIELDS, *made)).validated(frame, OPTIONS).orderBy("offset").collect()
    for (field, value), row in zip(given, found, strict=True):
        if field.kind.takes(value):
            assert (row["reason"], row[field.name]) == (None, value), (field, value)
        else:
            assert row["reason"] == f"wrong type: {field.name}", (field, value)
    taken = {field.kind for field, value in given if field.kind.takes(value)}
    assert taken == {*Kind}, "a kind needs a value here that it takes"


def test_a_default_needs_no_path(records: Records) -> None:
    fields = (*FIELDS, Field("channel", Kind.TEXT, default="shop"), Field("n", Kind.INTEGER, default=0))
    sent = {"event_id": "1", "shop": "north", "event_time_ms": RECEIVED_MS}
    more: tuple[dict[str, object], ...] = ({}, {"channel": "web", "n": 3}, {"channel": None}, {"n": "3"})
    frame = records("orders.raw", *(json.dumps(sent | each).encode() for each in more))
    found = orders(fields=fields).validated(frame, OPTIONS).orderBy("offset").collect()
    assert [(row["reason"], row["channel"], row["n"]) for row in found[:3]] == [
        (None, "shop", 0),
        (None, "web", 3),
        (None, "shop", 0),
    ]
    assert found[3]["reason"] == "wrong type: n"


def test_a_job_with_schemas_needs_a_registry() -> None:
    job = orders(formats={"orders.raw": Format.AVRO})
    with pytest.raises(PipelineFailed) as failed:
        run_command.require_registry([job], OPTIONS)
    assert str(failed.value) == (
        "job orders reads avro, whose schemas are in a registry: give its address with --registry URL"
    )
    run_command.require_registry([orders(formats={"orders.raw": Format.JSON})], OPTIONS)


def test_a_column_that_a_sink_needs_and_the_rows_lack_is_named(records: Records) -> None:
    frame = records("orders.raw", b"")
    wrong = orders(sinks=(Table("orders/windows", per_shop, ("shopp",)),))
    with pytest.raises(
        PipelineFailed,
        match="job orders: orders/windows: its rows have no column shopp, but shop, orders, window_start_ms",
    ):
        wrong.query("orders-windows").build(frame, OPTIONS)
    undated = orders(sinks=(Table("orders/all", lambda events, options: events.select("shop")),))
    with pytest.raises(
        PipelineFailed, match="job orders: orders/all: its rows have no column date, but shop"
    ):
        undated.query("orders-all").build(frame, OPTIONS)


MODULE = """
from kafkacompat.pipeline.job import Field, Job, Kind, Table

def rows(events, options):
    return events

job = Job(
    name="orders",
    inputs=("orders.raw",),
    fields=(Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER)),
    sinks=(Table("orders/all", rows),),
)
number = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def test_a_job_is_found_in_a_module_of_this_folder(folder: Path) -> None:
    (folder / "own_shop.py").write_text(MODULE)
    assert loading.is_known("own_shop:job")
    assert loading.load("own_shop:job").name == "orders"


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (None, "own_a:job", "there is no module own_a in this folder or on Python's path"),
        ("import own_lacking", "own_b:job", "module own_b: No module named 'own_lacking'"),
        ("1 / 0", "own_c:job", "module own_c: ZeroDivisionError: division by zero"),
        (MODULE, "own_d:jobs", "module own_d has nothing under the name jobs; its jobs are job"),
        (
            MODULE,
            "own_e:number",
            "module own_e has a int, not a Job, under the name number; its jobs are job",
        ),
        (
            MODULE.replace('"orders/all"', '"all"'),
            "own_f:job",
            "own_f:job: job orders: the name of Table 'all' is not orders/NAME",
        ),
    ],
)
def test_a_job_that_cannot_be_loaded_is_said_with_the_place(
    folder: Path, text: str | None, name: str, why: str
) -> None:
    if text is not None:
        (folder / f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(PipelineFailed) as failed:
        loading.load(name)
    assert why in str(failed.value)


def test_a_package_installs_a_job_under_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own_installed.py").write_text(MODULE)
    places = {"shop": "own_installed:job", "logs": "own_installed:job"}
    found = [EntryPoint(name, place, loading.ENTRY_POINTS) for name, place in places.items()]
    monkeypatch.setattr(loading, "entry_points", lambda group: found if group == loading.ENTRY_POINTS else [])
    assert loading.is_known("shop")
    assert not loading.is_known("shops")
    assert loading.load("shop").name == "orders"
    assert loading.load("logs") is LOGS
    with pytest.raises(
        argparse.ArgumentTypeError, match="shops is none of logs, activity, metrics, all, shop"
    ):
        run_command._job("shops")


def test_the_command_says_it_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "own_absent:job", "--checkpoint", "c", "--output", "o"]) == 1
    assert capsys.readouterr().err == (
        "kafkacompat: job own_absent:job cannot be loaded: there is no module own_absent in this folder or on Python's path\n"
    )
