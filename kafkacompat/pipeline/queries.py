"""The three jobs that come with kafkacompat, as values: what they read, how records are checked, and what they write."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline import topics
from kafkacompat.pipeline.alerting import Alerting
from kafkacompat.pipeline.formats.registry import log_format
from kafkacompat.pipeline.job import APPEND, UPDATE, Job, Query, Table, Topic
from kafkacompat.pipeline.jobs import activity, logs, metrics
from kafkacompat.pipeline.jobs.validation import deduplicate
from kafkacompat.pipeline.options import RunOptions, log_sources
from kafkacompat.pipeline.results import as_records, row_record

# Log collection.


def _lines(records: DataFrame, options: RunOptions) -> DataFrame:
    forms = {topic: log_format(text) for topic, text in log_sources(options).items()}
    return logs.validate(records, forms)


def _log_topics(options: RunOptions) -> tuple[str, ...]:
    return tuple(log_sources(options))


def log_events(events: DataFrame, options: RunOptions) -> DataFrame:
    """Every valid line once. The watermark is on the arrival time: a line that arrives a day late is still kept."""
    once = deduplicate(events, options.duplicate_horizon_s, "received")
    # Each task writes a file in each hour's folder. Partitioned by the hour, one task could get the work of two.
    return logs.event_rows(once).repartition(options.files_per_batch, "event_id")


def log_summary(events: DataFrame, options: RunOptions) -> DataFrame:
    """The summary per minute."""
    return logs.summary(events)


LOGS: Final = Job(
    name="logs",
    inputs=(topics.LOGS_RAW,),
    reads=_log_topics,
    validate=_lines,
    sinks=(
        Table("logs/events", log_events, is_deduplicated=False, is_one_file=False),
        Topic(topics.LOGS_SUMMARY, log_summary, ("window_start_ms",)),
    ),
    settings=("--duplicate-horizon",),
)

# Activity tracking.


def activity_sessions_table(events: DataFrame, options: RunOptions) -> DataFrame:
    """Closed sessions, with their date."""
    return activity.session_rows(events, options.session_gap_s)


def activity_sessions(events: DataFrame, options: RunOptions) -> DataFrame:
    """Closed sessions."""
    return activity.sessions(events, options.session_gap_s)


def activity_top_pages(events: DataFrame, options: RunOptions) -> DataFrame:
    """Ranked pages of closed windows."""
    return activity.top_page_rows(events, options.window_s)


def activity_visitors(events: DataFrame, options: RunOptions) -> DataFrame:
    """Visitors of closed windows."""
    return activity.visitor_rows(events, options.window_s)


def activity_live(records: DataFrame, options: RunOptions) -> DataFrame:
    """Pages and visitors of windows while they grow, to two topics."""
    rows = activity.live_windows(ACTIVITY.events(records, options), options.window_s)
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


_ACTIVITY_INPUTS: Final = (topics.ACTIVITY_PAGE_VIEWS, topics.ACTIVITY_SEARCHES)

ACTIVITY: Final = Job(
    name="activity",
    inputs=_ACTIVITY_INPUTS,
    fields=activity.FIELDS,
    sinks=(
        Table("activity/sessions", activity_sessions_table, ("user_id",)),
        Table("activity/top_pages", activity_top_pages, ("page", "window_start_ms")),
        Table("activity/visitors", activity_visitors, ("window_start_ms",)),
        Topic(topics.ACTIVITY_SESSIONS, activity_sessions, ("user_id",), APPEND),
        Query(
            "activity-live",
            _ACTIVITY_INPUTS,
            activity_live,
            UPDATE,
            writes=(topics.ACTIVITY_TOP_PAGES, topics.ACTIVITY_VISITORS),
        ),
    ),
    settings=("--window", "--session-gap"),
    state_version=2,
)

# Operational metrics.


def metrics_windows(events: DataFrame, options: RunOptions) -> DataFrame:
    """The figures of closed windows."""
    return metrics.window_rows(events, options.window_s)


def metrics_live(records: DataFrame, options: RunOptions) -> DataFrame:
    """The figures of windows while they grow. `Alerting` writes them as records, and the alerts that they change."""
    return metrics.live_windows(METRICS.events(records, options), options.window_s)


def metrics_latest(events: DataFrame, options: RunOptions) -> DataFrame:
    """The last sample of each service."""
    return metrics.latest(events)


METRICS: Final = Job(
    name="metrics",
    inputs=(topics.METRICS_RAW,),
    fields=metrics.FIELDS,
    sinks=(
        Table("metrics/windows", metrics_windows, ("service", "window_start_ms")),
        Query(
            "metrics-live",
            (topics.METRICS_RAW,),
            metrics_live,
            UPDATE,
            writer=Alerting,
            writes=(topics.METRICS_WINDOWS, topics.METRICS_ALERTS),
        ),
        # Duplicates need not be removed, because a repeated sample changes nothing.
        Topic(
            topics.METRICS_LATEST,
            metrics_latest,
            ("service",),
            is_deduplicated=False,
        ),
    ),
    settings=("--window",),
    state_version=2,
)

JOBS: Final = {job.name: job for job in (LOGS, ACTIVITY, METRICS)}

QUERIES: Final = {name: job.queries for name, job in JOBS.items()}
"""The queries of each job."""
