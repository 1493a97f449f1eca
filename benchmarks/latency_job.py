"""A job whose rows are its events: one table and one topic. benchmarks/event_latency.py measures how long each event takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.job import Field, Job, Kind, RunOptions, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT: Final = "latency.raw"
RESULTS: Final = "latency.results"
TABLE: Final = "latency/rows"


def each(events: DataFrame, options: RunOptions) -> DataFrame:
    """The events as they are."""
    return events.select("event_id", "event_time_ms")


JOB: Final = Job(
    name="latency",
    inputs=(INPUT,),
    fields=(Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER)),
    sinks=(Table(TABLE, each), Topic(RESULTS, each, ("event_id",))),
)
