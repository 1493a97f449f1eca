"""Operational metrics: samples of hosts and services become figures per window, and the latest sample of each service.

The table's percentiles are computed from counts of latencies rounded to three digits, and its means from integers.
Neither depends on the order of the samples, so a run that was killed gives the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.jobs.validation import (
    date_of,
    event_order,
    validate_json,
    with_window_bounds,
)

LATENCY_MS_MAX: Final = 24 * 3600 * 1000.0
CPU_PERCENT_MAX: Final = 100_000.0
CPU_CORES_MAX: Final = 1 << 16
MEMORY_BYTES_MAX: Final = 1 << 50

FIELDS: Final = (
    Field("event_id", Kind.TEXT, names=True),
    Field("service", Kind.TEXT, names=True),
    Field("host", Kind.TEXT),
    Field("event_time_ms", Kind.INTEGER),
    Field("latency_ms", Kind.NUMBER, least=0.0, most=LATENCY_MS_MAX),
    Field("error", Kind.BOOLEAN),
    Field("cpu_percent", Kind.NUMBER, least=0.0, most=CPU_PERCENT_MAX),
    Field("memory_bytes", Kind.INTEGER, least=0, most=MEMORY_BYTES_MAX),
    Field("cpu_cores", Kind.INTEGER, required=False, least=1, most=CPU_CORES_MAX),
)
SAMPLE_COLUMNS: Final = tuple(field.name for field in FIELDS)

PERCENTILES: Final = (50, 95, 99)
LIVE_PERCENTILE_ACCURACY: Final = 1000
"""The live percentiles are wrong by at most one rank in this number."""

ESTIMATES: Final = frozenset(f"latency_p{percentile}_ms" for percentile in PERCENTILES)
"""Columns of live rows that may depend on the order of the samples."""


def validate(records: DataFrame) -> DataFrame:
    """Turn records of metrics.raw into the envelope, the columns of a sample, and `reason`, which is null for valid samples."""
    return validate_json(records, FIELDS)


def _window(window_s: int) -> Column:
    return F.window("event_time", f"{window_s} seconds")


def _thousandths(column: str) -> Column:
    return F.round(F.col(column) * 1000).cast("bigint")


def _cpu_thousandths() -> Column:
    """CPU use as a share of the cores of the sample's host, by default one core. 100 percent is all cores."""
    return F.round(F.col("cpu_percent") * 1000 / F.coalesce("cpu_cores", F.lit(1))).cast("bigint")


def three_digits(whole: Column) -> Column:
    """Round a whole number that is not negative to three significant digits, half up."""
    unit = F.pow(F.lit(10), F.greatest(F.length(whole.cast("string")) - 3, F.lit(0))).cast("bigint")
    return F.floor((whole + F.floor(unit / 2)) / unit) * unit


def _nearest_rank(percentile: int) -> Column:
    """Return the smallest latency, in microseconds, that at least this percentage of the window's samples do not
    exceed.

    `latencies` is a sorted array of {latency_us, samples}. `count` is the sum of samples.
    """
    rank = F.ceil(F.col("count") * percentile / 100)
    start = F.struct(F.lit(0).cast("bigint").alias("seen"), F.lit(0).cast("bigint").alias("found"))

    def step(state: Column, one: Column) -> Column:
        return F.struct(
            (state["seen"] + one["samples"]).alias("seen"),
            F.when(state["seen"] < rank, one["latency_us"]).otherwise(state["found"]).alias("found"),
        )

    return F.aggregate("latencies", start, step, lambda state: state["found"])


def window_rows(samples: DataFrame, window_s: int) -> DataFrame:
    """The figures of each service in a closed window, as rows of the table metrics/windows."""
    latencies = samples.groupBy(
        _window(window_s), "service", three_digits(_thousandths("latency_ms")).alias("latency_us")
    ).agg(
        F.count("*").alias("samples"),
        F.sum(_thousandths("latency_ms")).alias("total_us"),
        F.count_if("error").alias("errors"),
        F.sum(_cpu_thousandths()).alias("cpu_total"),
    )
    gathered = latencies.groupBy("window", "service").agg(
        F.sum("samples").alias("count"),
        F.sum("total_us").alias("total_us"),
        F.sum("errors").alias("errors"),
        F.sum("cpu_total").alias("cpu_total"),
        F.array_sort(F.collect_list(F.struct("latency_us", "samples"))).alias("latencies"),
    )
    percentiles = [
        (_nearest_rank(percentile) / 1000).alias(f"latency_p{percentile}_ms") for percentile in PERCENTILES
    ]
    return _figures(gathered, percentiles).withColumn("date", date_of("window_start_ms"))


def live_windows(samples: DataFrame, window_s: int) -> DataFrame:
    """The same figures for a window that is still open, in one aggregation. Percentiles (ESTIMATES) are estimates."""
    shares = F.array(*(F.lit(percentile / 100) for percentile in PERCENTILES))
    gathered = samples.groupBy(_window(window_s), "service").agg(
        F.count("*").alias("count"),
        F.sum(_thousandths("latency_ms")).alias("total_us"),
        F.percentile_approx("latency_ms", shares, LIVE_PERCENTILE_ACCURACY).alias("percentiles"),
        F.count_if("error").alias("errors"),
        F.sum(_cpu_thousandths()).alias("cpu_total"),
    )
    percentiles = [
        F.get("percentiles", F.lit(index)).alias(f"latency_p{percentile}_ms")
        for index, percentile in enumerate(PERCENTILES)
    ]
    return _figures(gathered, percentiles)


def _figures(gathered: DataFrame, percentiles: Sequence[Column]) -> DataFrame:
    """The columns of a service's window, from the result of an aggregation."""
    count = F.col("count")
    return with_window_bounds(gathered).select(
        "service",
        "window_start_ms",
        "window_end_ms",
        "count",
        (F.col("total_us") / count / 1000).alias("latency_mean_ms"),
        *percentiles,
        (F.col("errors") / count).alias("error_rate"),
        (F.col("cpu_total") / count / 1000).alias("cpu_mean_percent"),
    )


def latest(samples: DataFrame) -> DataFrame:
    """The sample with the latest event time of each service. The state has one row per service and never expires."""
    sample = F.struct(*(name for name in SAMPLE_COLUMNS if name != "event_id"))
    return samples.groupBy("service").agg(F.max_by(sample, event_order()).alias("sample")).select("sample.*")
