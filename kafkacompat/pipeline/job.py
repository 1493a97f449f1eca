"""A job as one value: the topics that it reads, how records are checked, and the tables and topics that it writes.

Queries, the topic of rejected records, the configs of topics and the checkpoint's manifest follow from it. The functions
of a job turn DataFrames into DataFrames, and are tested on plain batch frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as declared
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.jobs.schema_records import SchemaDecoder
from kafkacompat.pipeline.jobs.validation import (
    OWN_COLUMNS,
    date_of,
    deduplicate,
    nullable,
    rejected,
    valid_events,
    validate_json,
    with_window_bounds,
)
from kafkacompat.pipeline.options import OPTIONS, RunOptions
from kafkacompat.pipeline.results import one_record_each, rejected_records, with_event_id
from kafkacompat.pipeline.schemas.reading import READERS, Format
from kafkacompat.pipeline.tables import FORMATS, PARQUET, partitioned_by
from kafkacompat.pipeline.topics import CONFIGS, EVENTS, PIPELINE_PROGRESS, REJECTED_SUFFIX, RESULTS
from kafkacompat.pipeline.transactions import TransactionalSink

__all__ = ["Field", "Format", "Job", "Kind", "Query", "RunOptions", "Table", "Topic"]

Build = Callable[[DataFrame, RunOptions], DataFrame]
Rows = Callable[[DataFrame, RunOptions], DataFrame]
"""Called with valid events. They have the columns of the fields and `event_time`, a timestamp."""

BatchWriter = Callable[[DataFrame, int], None]
MakeWriter = Callable[[str, RunOptions], BatchWriter]
"""Called with the folder of the query's checkpoint. The writer may get the same batch again after a crash."""

APPEND: Final = "append"
UPDATE: Final = "update"

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SINK: Final = re.compile(r"[a-z0-9_-]{1,100}")
_NEEDED: Final = {"event_id": Kind.TEXT, "event_time_ms": Kind.INTEGER}


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. `build` turns the source's records into rows of `table`, or into (topic, key, value).

    A query has one checkpoint, a folder of its name, and one sink. So the sink is exactly once (files) or at least once
    with the same ids (topics).
    """

    name: str
    reads: tuple[str, ...]
    build: Build
    output_mode: str
    # Folder below --output (tables.py has its partition columns). None for a query that writes to topics.
    table: str | None = None
    # The format of the table, unless the run has --table-format.
    format: str = PARQUET
    # Writes each batch, if something other than the rows of `build` must be written.
    writer: MakeWriter | None = None
    # The topics that it writes.
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table below --output, exactly once: rows of closed windows and sessions (append mode).

    name: JOB/NAME. rows: events to rows. A column `window` becomes window_start_ms and window_end_ms, and `date`, by
    which files are kept, is that of the window or else of the event. key: the columns that identify a row. Rows without
    a key have their own event_id. is_deduplicated: events that were read before are dropped before `rows`. is_one_file:
    a batch writes one file for each date. format: parquet, delta or iceberg, unless the run has --table-format.
    """

    name: str
    rows: Rows
    key: tuple[str, ...] = ()
    is_deduplicated: bool = True
    is_one_file: bool = True
    format: str = PARQUET


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of JSON records, at least once and with the same ids: the latest record of a key counts.

    name: JOB.NAME. rows and key are as in Table. output_mode: update, or append for rows of closed windows and
    sessions. configs: of the topic, if it is created. is_exactly_once: each batch is one transaction, so that readers
    of committed records get it once (transactions.py). Executors then run Python.
    """

    name: str
    rows: Rows
    key: tuple[str, ...]
    output_mode: str = UPDATE
    is_deduplicated: bool = True
    configs: Mapping[str, str] | None = None
    is_exactly_once: bool = False


Sink = Table | Topic | Query


class JobProblem(ValueError):
    """The value is no job that can be run. The message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. A sink that is a Query is used as it is.

    fields: of the events; event_id (text) and event_time_ms (whole number) must be among them. formats: of the topics
    whose records are not JSON. validate: in place of fields, turns records into the columns of an event and `reason`,
    as jobs/validation.py does. settings: the options of `pipeline run` that its state and tables depend on, besides
    OF_EVERY_JOB. A checkpoint is continued with the same values only. state_version: increased when its state or tables
    change. A column that is only added counts: Spark reads the schema of the oldest file. continues_from: the earliest
    state_version whose checkpoint and tables it continues. None: its own alone. reads: the topics of a run, if they
    depend on its options.
    """

    name: str
    inputs: tuple[str, ...]
    sinks: tuple[Sink, ...]
    fields: tuple[Field, ...] = ()
    validate: Build | None = None
    settings: tuple[str, ...] = ("--window",)
    state_version: int = 1
    continues_from: int | None = None
    reads: Callable[[RunOptions], tuple[str, ...]] | None = None
    formats: Mapping[str, Format] = declared(default_factory=dict)

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise JobProblem(f"job {self.name}: {problem}")

    @property
    def rejected_topic(self) -> str:
        """The topic of the records that are no valid events."""
        return self.name + REJECTED_SUFFIX

    @property
    def outputs(self) -> tuple[str, ...]:
        """The topics that it writes."""
        written = [name for query in self.queries for name in query.writes]
        return tuple(dict.fromkeys([*written, PIPELINE_PROGRESS]))

    @property
    def configs(self) -> dict[str, Mapping[str, str]]:
        """The configs of the topics that it reads and writes."""
        results = {sink.name: sink.configs or RESULTS for sink in self.sinks if isinstance(sink, Topic)}
        events = dict.fromkeys((*self.inputs, self.rejected_topic), EVENTS)
        found = {**dict.fromkeys(self.outputs, RESULTS), **results, **events}
        return {name: CONFIGS.get(name, configs) for name, configs in found.items()}

    @property
    def queries(self) -> tuple[Query, ...]:
        """A query for each sink, and one for the rejected records."""
        tables = [_query_name(sink.name) for sink in self.sinks if isinstance(sink, Table)]
        made = [self._query(sink, tables) for sink in self.sinks]
        bad = Query(
            f"{self.name}-rejected", self.inputs, self._rejects, APPEND, writes=(self.rejected_topic,)
        )
        return (*made, bad)

    def inputs_of(self, options: RunOptions) -> tuple[str, ...]:
        """The topics that it reads in a run."""
        return self.inputs if self.reads is None else self.reads(options)

    def for_run(self, query: Query, options: RunOptions) -> Query:
        """A query of it with the topics that it reads in a run: those of the job, unless it is one of some inputs alone."""
        return replace(query, reads=self.inputs_of(options)) if query.reads == self.inputs else query

    def query(self, name: str) -> Query:
        """The query of this name. KeyError."""
        return {query.name: query for query in self.queries}[name]

    def validated(self, records: DataFrame, options: RunOptions) -> DataFrame:
        """Return records of Spark's Kafka source as columns of events, with `reason`, which is null for valid events."""
        if self.validate is not None:
            return self.validate(records, options)
        return validate_json(records, self.fields, self._decoder(options))

    def events(self, records: DataFrame, options: RunOptions, *, is_deduplicated: bool = True) -> DataFrame:
        """Return the valid events of records, each once. Spark reads and counts the records again for each call in a query."""
        found = valid_events(self.validated(records, options))
        return deduplicate(found, options.watermark_s) if is_deduplicated else found

    @property
    def registered_formats(self) -> frozenset[Format]:
        """The formats of its topics whose schemas are in a registry."""
        return frozenset(self.formats.values()) - {Format.JSON}

    def require_registry(self, options: RunOptions) -> None:
        """Raise PipelineFailed unless the run has a registry, and this Python what its formats need."""
        names = [form for form in Format if form in self.registered_formats]
        if options.registry is None:
            raise PipelineFailed(
                f"job {self.name} reads {', '.join(form.value for form in names)}, whose schemas are in a registry: "
                "give its address with --registry URL"
            )
        require_extra("registry", *(READERS[form].module for form in names))

    def _decoder(self, options: RunOptions) -> SchemaDecoder | None:
        if not self.registered_formats:
            return None
        self.require_registry(options)
        assert options.registry is not None
        formats = tuple((topic, form) for topic, form in self.formats.items() if form is not Format.JSON)
        return SchemaDecoder(formats, self.fields, options.registry)

    def _problems(self) -> Iterable[str]:
        if _NAME.fullmatch(self.name) is None:
            yield "its name is not a lower-case letter and then at most 63 letters, digits and underscores"
        if not self.inputs:
            yield "it has no inputs, which are the topics that it reads"
        if bool(self.fields) == (self.validate is not None):
            yield "it needs fields or a function validate, and not both"
        kinds = {field.name: field.kind for field in self.fields}
        for name, kind in _NEEDED.items() if self.fields else ():
            if kinds.get(name) is not kind:
                yield f"the fields have no {name} of Kind.{kind.name}, which every event needs"
        # Spark's columns are the same in capitals.
        if len({name.lower() for name in kinds}) < len(self.fields):
            yield "two fields have the same name"
        for field in self.fields:
            if not field.name or {*".`"} & {*field.name}:
                yield f"the name of field {field.name!r} is no name of a column: give it another, and this one as its path"
            if field.topic is not None and field.topic not in self.inputs:
                yield f"field {field.name} is of topic {field.topic}, which is none of its inputs"
            if field.name.lower() in OWN_COLUMNS:
                yield f"field {field.name} has the name of a column of every event: give it another, and this one as its path"
            if field.default is not None and not field.kind.takes(field.default):
                yield f"the default of field {field.name} is not {field.kind.text}"
            if (problem := field.path_problem) is not None:
                yield f"the path of field {field.name}: {problem}"
        for topic in self.formats:
            if topic not in self.inputs:
                yield f"it has a format for topic {topic}, which is none of its inputs"
        if self.formats and not self.fields:
            yield "it has formats, which are for fields, and it has a function validate"
        if self.continues_from is not None and not 1 <= self.continues_from <= self.state_version:
            yield f"continues_from is {self.continues_from}, which is not from 1 to its state_version {self.state_version}"
        for setting in self.settings:
            if setting not in OPTIONS:
                yield f"the setting {setting} is none of {', '.join(OPTIONS)}"
        for sink in self.sinks:
            mark = {Table: "/", Topic: "."}.get(type(sink), "-")
            for topic in sink.reads if isinstance(sink, Query) else ():
                if topic not in self.inputs:
                    yield f"query {sink.name} reads topic {topic}, which is none of its inputs"
            beginning, _, rest = sink.name.partition(mark)
            if beginning != self.name or _SINK.fullmatch(rest) is None:
                yield f"the name of {type(sink).__name__} {sink.name!r} is not {self.name}{mark}NAME"
            if isinstance(sink, Topic) and not sink.key:
                yield f"topic {sink.name} has no key"
            if isinstance(sink, Table) and sink.format not in FORMATS:
                yield f"the format {sink.format!r} of table {sink.name} is none of {', '.join(FORMATS)}"
        names = [query.name for query in self.queries]
        for name in names:
            if names.count(name) > 1:
                yield f"two queries have the name {name}"

    def _query(self, sink: Sink, tables: list[str]) -> Query:
        if isinstance(sink, Query):
            return sink
        name = _query_name(sink.name)
        if isinstance(sink, Table):
            return Query(name, self.inputs, self._table_rows(sink), APPEND, sink.name, sink.format)
        if name in tables:
            name += "-live"
        made = Query(name, self.inputs, self._topic_records(sink), sink.output_mode, writes=(sink.name,))
        return replace(made, writer=partial(_exactly_once, made)) if sink.is_exactly_once else made

    def _table_rows(self, sink: Table) -> Build:
        def build(records: DataFrame, options: RunOptions) -> DataFrame:
            rows = self._rows(sink, records, options)
            wanted = [name for name in partitioned_by(sink.name) if name not in rows.columns]
            for column in ("window_start_ms", "event_time_ms"):
                if wanted == ["date"] and column in rows.columns:
                    rows, wanted = rows.withColumn("date", date_of(column)), []
            self._require(rows, sink, wanted)
            if sink.key:
                rows = with_event_id(sink.name, rows, sink.key)
            rows = nullable(rows)
            return rows.repartition(1) if sink.is_one_file else rows

        return build

    def _topic_records(self, sink: Topic) -> Build:
        return lambda records, options: one_record_each(
            sink.name, self._rows(sink, records, options), sink.key
        )

    def _rows(self, sink: Table | Topic, records: DataFrame, options: RunOptions) -> DataFrame:
        rows = sink.rows(self.events(records, options, is_deduplicated=sink.is_deduplicated), options)
        if "window" in rows.columns:
            rows = with_window_bounds(rows)
        self._require(rows, sink, sink.key)
        return rows

    def _require(self, rows: DataFrame, sink: Table | Topic, names: Iterable[str]) -> None:
        for name in names:
            if name not in rows.columns:
                raise PipelineFailed(
                    f"job {self.name}: {sink.name}: its rows have no column {name}, but {', '.join(rows.columns)}"
                )

    def _rejects(self, records: DataFrame, options: RunOptions) -> DataFrame:
        return rejected_records(self.rejected_topic, rejected(self.validated(records, options)))


def _exactly_once(query: Query, checkpoint: str, options: RunOptions) -> BatchWriter:
    (topic,) = query.writes
    return TransactionalSink(options.bootstrap.spark(), topic, f"{options.group_prefix}{query.name}")


def _query_name(sink: str) -> str:
    return re.sub(r"[/._]", "-", sink)
