"""The first table of each job in plain Spark, as a program that is written by hand: python -m benchmarks.plain_spark JOB ...

It reads records, checks them, drops copies, writes the table, and writes what is wrong to a topic. Only the rows of a window are
those of the job's own functions. LOGS_TABLE and the like are the jobs with this table alone, to be compared with it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.pipeline import BY_HAND
from kafkacompat.pipeline.job import Job, Table
from kafkacompat.pipeline.jobs import activity, logs, metrics
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import ACTIVITY, LOGS, METRICS
from kafkacompat.pipeline.session import settings
from kafkacompat.security.cluster_address import ClusterAddress

LINE: Final = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (.*?) (\S+)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"\s*$'
TIME: Final = "dd/MMM/yyyy:HH:mm:ss Z"
ACTIVITY_FIELDS: Final = (
    "event_id string, user_id string, event_time_ms bigint, page string, referrer string, device string, "
    "query string, results bigint"
)
METRICS_FIELDS: Final = (
    "event_id string, service string, host string, event_time_ms bigint, latency_ms double, error boolean, cpu_percent double, "
    "memory_bytes bigint, cpu_cores bigint"
)
WINDOW_S, WATERMARK, HORIZON = 60, "600 seconds", "3600 seconds"


def every_line(found: DataFrame, options: RunOptions) -> DataFrame:
    """Each valid line as a row of logs/events. Without a state thousands of batches take minutes."""
    return logs.event_rows(found).repartition(options.files_per_batch, "event_id")


def _with_table(job: Job, table: str) -> Job:
    return replace(job, sinks=tuple(sink for sink in job.sinks if sink.name == table))


LOGS_TABLE: Final = _with_table(LOGS, "logs/events")
ACTIVITY_TABLE: Final = _with_table(ACTIVITY, "activity/visitors")
METRICS_TABLE: Final = _with_table(METRICS, "metrics/windows")
LOGS_ROWS: Final = replace(LOGS, sinks=(Table("logs/events", every_line, is_deduplicated=False),))


def _timely(event_time: Column) -> Column:
    received = F.col("timestamp")
    return event_time.between(received - F.expr("interval 7 days"), received + F.expr("interval 10 minutes"))


def lines(records: DataFrame) -> DataFrame:
    """Lines of combined logs as columns. `event_time` is null for what is none."""
    text = F.col("value").cast("string")
    header = "filter(headers, header -> header.key = '{}')[0].value"
    names = (
        "client",
        "user",
        "time",
        "method",
        "path",
        "protocol",
        "status",
        "bytes",
        "referrer",
        "user_agent",
    )
    parts = [F.regexp_extract(text, LINE, number).alias(name) for number, name in enumerate(names, 1)]
    file, position = (F.expr(header.format(name)).cast("string") for name in ("file", "position"))
    found = records.select(
        "*",
        F.concat(file, F.lit("@"), position).alias("event_id"),
        F.col("key").cast("string").alias("source"),
        *parts,
    )
    moment = F.try_to_timestamp("time", F.lit(TIME))
    return found.withColumn("event_time", F.when(_timely(moment), moment))


def events(records: DataFrame, fields: str, needed: tuple[str, ...]) -> DataFrame:
    """JSON objects as columns. `event_time` is null for what lacks a field."""
    found = records.select("*", F.from_json(F.col("value").cast("string"), fields).alias("event")).select(
        "*", "event.*"
    )
    moment = F.timestamp_millis("event_time_ms")
    is_good = _timely(moment)
    for name in needed:
        is_good &= F.col(name).isNotNull()
    return found.withColumn("event_time", F.when(is_good, moment))


def parsed(job: str, records: DataFrame) -> DataFrame:
    """The columns of a job's events."""
    if job == "logs":
        return lines(records)
    if job == "activity":
        found = events(records, ACTIVITY_FIELDS, ("event_id", "user_id"))
        is_whole = F.when(
            F.col("topic") == "activity.searches", F.col("query").isNotNull() & (F.col("results") >= 0)
        )
        return found.withColumn(
            "event_time", F.when(is_whole.otherwise(F.col("page").isNotNull()), F.col("event_time"))
        )
    needed = ("event_id", "service", "host", "error", "memory_bytes")
    found = events(records, METRICS_FIELDS, needed)
    is_whole = (F.col("latency_ms") >= 0) & (F.col("cpu_percent") >= 0)
    return found.withColumn("event_time", F.when(is_whole, F.col("event_time")))


def rows(job: str, found: DataFrame) -> DataFrame:
    """The rows of the job's table."""
    good = found.where(F.col("event_time").isNotNull())
    if job != "logs":
        once = good.withWatermark("event_time", WATERMARK).dropDuplicatesWithinWatermark(["event_id"])
        made = (
            activity.visitor_rows(once, WINDOW_S)
            if job == "activity"
            else metrics.window_rows(once, WINDOW_S)
        )
        return made.repartition(1)
    once = good.withWatermark("timestamp", HORIZON).dropDuplicatesWithinWatermark(["event_id"])
    columns = ("event_id", "source", "client", "user", "method", "path", "protocol", "referrer", "user_agent")
    return once.select(
        *columns,
        F.unix_millis("event_time").alias("event_time_ms"),
        F.col("status").try_cast("int").alias("status"),
        F.col("bytes").try_cast("bigint").alias("bytes"),
        F.date_format("event_time", "yyyy-MM-dd").alias("date"),
        F.date_format("event_time", "HH").alias("hour"),
    ).repartition(1, "event_id")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=list(BY_HAND))
    for name in ("bootstrap", "folder", "master", "ivy", "batch-records"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    job, folder = arguments.job, Path(arguments.folder)
    value = {"logs": LOGS_TABLE, "activity": ACTIVITY_TABLE, "metrics": METRICS_TABLE}[job]
    options = RunOptions(
        (job,), "", "", ClusterAddress(arguments.bootstrap), master=arguments.master, ivy=arguments.ivy
    )
    builder = SparkSession.builder.master(arguments.master)
    for key, setting in settings(options).items():
        builder = builder.config(key, setting)
    spark = builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": arguments.bootstrap}

    def records() -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .options(
                **kafka, subscribe=",".join(value.inputs), startingOffsets="earliest", includeHeaders="true"
            )
            .option("maxOffsetsPerTrigger", arguments.batch_records)
            .load()
        )

    partitions = ("date", "hour") if job == "logs" else ("date",)
    table = rows(job, parsed(job, records())).writeStream.partitionBy(*partitions)
    bad = parsed(job, records()).where(F.col("event_time").isNull())
    told = F.to_json(F.struct("topic", "partition", "offset", F.col("value").cast("string").alias("line")))
    rejected = bad.select(
        F.lit(f"plain.{job}.rejected").alias("topic"), "key", told.alias("value")
    ).writeStream
    queries = [
        table.queryName("table")
        .option("checkpointLocation", str(folder / "checkpoint" / "table"))
        .trigger(availableNow=True)
        .start(str(folder / "tables" / BY_HAND[job][1])),
        rejected.queryName("rejected")
        .format("kafka")
        .options(**kafka)
        .option("checkpointLocation", str(folder / "checkpoint" / "rejected"))
        .trigger(availableNow=True)
        .start(),
    ]
    for query in queries:
        query.awaitTermination()
    with open(folder / "progress.jsonl", "w", encoding="utf-8") as file:
        for query in queries:
            for each in query.recentProgress:
                file.write((each.json if isinstance(each.json, str) else json.dumps(each)) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
