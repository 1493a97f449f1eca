"""The queries of each job: the topics that it reads, the table or topic that it writes, and the output mode.

Only this module connects jobs, topics and tables. A query has one checkpoint and one sink. By Spark's rules the sink
is therefore exactly once (files) or at least once with the same ids (topics).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline import topics
from kafkacompat.pipeline.alerting import Alerting
from kafkacompat.pipeline.formats.registry import log_format
from kafkacompat.pipeline.jobs import activity, logs, metrics
from kafkacompat.pipeline.jobs.validation import deduplicate, rejected, valid_events
from kafkacompat.pipeline.options import RunOptions, inputs_of, log_sources
from kafkacompat.pipeline.results import (
    as_records,
    one_record_each,
    rejected_records,
    row_record,
    with_event_id,
)

Build = Callable[[DataFrame, RunOptions], DataFrame]
BatchWriter = Callable[[DataFrame, int], None]
MakeWriter = Callable[[str, RunOptions], BatchWriter]
"""Called with the folder of the query's checkpoint. The writer may get the same batch again after a crash."""

APPEND: Final = "append"
UPDATE: Final = "update"


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. `build` turns the source's records into rows of `table`, or into (topic, key, value)."""

    name: str
    reads: tuple[str, ...]
    build: Build
    output_mode: str
    # Folder below --output (tables.py has its partition columns). None for a query that writes to topics.
    table: str | None = None
    # Writes each batch, if something other than the rows of `build` must be written.
    writer: MakeWriter | None = None


def _deduplicated(events: DataFrame, options: RunOptions) -> DataFrame:
    return deduplicate(events, options.watermark_s)


# Log collection.


def _log_lines(source: DataFrame, options: RunOptions) -> DataFrame:
    forms = {topic: log_format(text) for topic, text in log_sources(options).items()}
    return logs.validate(source, forms)


def log_events(source: DataFrame, options: RunOptions) -> DataFrame:
    """Every valid line once. The watermark is on the arrival time: a line that arrives a day late is still kept."""
    events = deduplicate(valid_events(_log_lines(source, options)), options.duplicate_horizon_s, "received")
    # Each task writes a file in each hour's folder. Partitioned by the hour, one task could get the work of two.
    return logs.event_rows(events).repartition(options.files_per_batch, "event_id")


def log_summary(source: DataFrame, options: RunOptions) -> DataFrame:
    """The summary per minute, while it grows."""
    rows = logs.summary(_deduplicated(valid_events(_log_lines(source, options)), options))
    return one_record_each(topics.LOGS_SUMMARY, rows, ["window_start_ms"])


def log_rejects(source: DataFrame, options: RunOptions) -> DataFrame:
    """Bad lines."""
    return rejected_records(topics.LOGS_REJECTED, rejected(_log_lines(source, options)))


# Activity tracking.


def activity_sessions(source: DataFrame, options: RunOptions) -> DataFrame:
    """Closed sessions as a table."""
    rows = activity.session_rows(
        _deduplicated(valid_events(activity.validate(source)), options), options.session_gap_s
    )
    return with_event_id("activity/sessions", rows, ["user_id"]).repartition(1)


def activity_sessions_live(source: DataFrame, options: RunOptions) -> DataFrame:
    """Closed sessions as records."""
    rows = activity.sessions(
        _deduplicated(valid_events(activity.validate(source)), options), options.session_gap_s
    )
    return one_record_each(topics.ACTIVITY_SESSIONS, rows, ["user_id"])


def activity_top_pages(source: DataFrame, options: RunOptions) -> DataFrame:
    """Ranked pages of closed windows."""
    rows = activity.top_page_rows(
        _deduplicated(valid_events(activity.validate(source)), options), options.window_s
    )
    return with_event_id("activity/top_pages", rows, ["page", "window_start_ms"]).repartition(1)


def activity_visitors(source: DataFrame, options: RunOptions) -> DataFrame:
    """Visitors of closed windows."""
    rows = activity.visitor_rows(
        _deduplicated(valid_events(activity.validate(source)), options), options.window_s
    )
    return with_event_id("activity/visitors", rows, ["window_start_ms"]).repartition(1)


def activity_live(source: DataFrame, options: RunOptions) -> DataFrame:
    """Pages and visitors of windows while they grow, to two topics."""
    rows = activity.live_windows(
        _deduplicated(valid_events(activity.validate(source)), options), options.window_s
    )
    bounds = ["window_start_ms", "window_end_ms"]
    # The ids exclude the visitors, because a repeated batch may give another estimate. The estimate only changes
    # together with the counts.
    page_told, whole_told = ["page", *bounds, "views"], [*bounds, "views", "searches"]
    page = row_record(
        topics.ACTIVITY_TOP_PAGES,
        [*page_told, "visitors"],
        ["page", "window_start_ms"],
        told_by=page_told,
    )
    whole = row_record(
        topics.ACTIVITY_VISITORS, [*whole_told, "visitors"], ["window_start_ms"], told_by=whole_told
    )
    return as_records(rows, F.array(F.when(F.col("whole"), whole).otherwise(page)))


def activity_rejects(source: DataFrame, options: RunOptions) -> DataFrame:
    """Bad page views and searches."""
    return rejected_records(topics.ACTIVITY_REJECTED, rejected(activity.validate(source)))


# Operational metrics.


def metrics_windows(source: DataFrame, options: RunOptions) -> DataFrame:
    """The figures of closed windows."""
    rows = metrics.window_rows(
        _deduplicated(valid_events(metrics.validate(source)), options), options.window_s
    )
    return with_event_id("metrics/windows", rows, ["service", "window_start_ms"]).repartition(1)


def metrics_live(source: DataFrame, options: RunOptions) -> DataFrame:
    """The figures of windows while they grow. `Alerting` writes them as records, and the alerts that they change."""
    return metrics.live_windows(
        _deduplicated(valid_events(metrics.validate(source)), options), options.window_s
    )


def metrics_latest(source: DataFrame, options: RunOptions) -> DataFrame:
    """The last sample of each service. Duplicates need not be removed, because a repeated sample changes nothing."""
    rows = metrics.latest(valid_events(metrics.validate(source)))
    return one_record_each(topics.METRICS_LATEST, rows, ["service"])


def metrics_rejects(source: DataFrame, options: RunOptions) -> DataFrame:
    """Bad samples."""
    return rejected_records(topics.METRICS_REJECTED, rejected(metrics.validate(source)))


def _topic(name: str, job: str, build: Build, output_mode: str) -> Query:
    return Query(name, topics.INPUTS[job], build, output_mode)


def _table(name: str, job: str, build: Build, table: str) -> Query:
    return Query(name, topics.INPUTS[job], build, APPEND, table)


def queries_of(job: str, options: RunOptions) -> tuple[Query, ...]:
    """Return the queries of a job, with the topics that they read in this run."""
    return tuple(replace(query, reads=inputs_of(job, options)) for query in QUERIES[job])


QUERIES: Final[dict[str, tuple[Query, ...]]] = {
    "logs": (
        _table("logs-events", "logs", log_events, "logs/events"),
        _topic("logs-summary", "logs", log_summary, UPDATE),
        _topic("logs-rejected", "logs", log_rejects, APPEND),
    ),
    "activity": (
        _table("activity-sessions", "activity", activity_sessions, "activity/sessions"),
        _table("activity-top-pages", "activity", activity_top_pages, "activity/top_pages"),
        _table("activity-visitors", "activity", activity_visitors, "activity/visitors"),
        _topic("activity-sessions-live", "activity", activity_sessions_live, APPEND),
        _topic("activity-live", "activity", activity_live, UPDATE),
        _topic("activity-rejected", "activity", activity_rejects, APPEND),
    ),
    "metrics": (
        _table("metrics-windows", "metrics", metrics_windows, "metrics/windows"),
        Query("metrics-live", topics.INPUTS["metrics"], metrics_live, UPDATE, writer=Alerting),
        _topic("metrics-latest", "metrics", metrics_latest, UPDATE),
        _topic("metrics-rejected", "metrics", metrics_rejects, APPEND),
    ),
}
"""The queries of each job. The names are folders of the checkpoint: a query with a changed name starts again."""
