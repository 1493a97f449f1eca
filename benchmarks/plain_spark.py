"""The first table of each job in plain Spark, as a program that is written by hand, beside the job with this table alone.

The program reads records, checks them, drops copies, writes the table, and writes what is wrong to a topic. Only the rows of a
window are those of the job's own functions. Both ways write the same rows and reject the same records.

python -m benchmarks.plain_spark JOB ... runs the two in turns in one Spark, so that the start of the JVM and the compilation of
its own code are not part of the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.measure import cpu_of
from benchmarks.pipeline import BY_HAND, PARTITIONS, batches_of
from kafkacompat.pipeline.groups import GroupCommits
from kafkacompat.pipeline.job import Job, Table
from kafkacompat.pipeline.jobs import activity, logs, metrics
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import ACTIVITY, LOGS, METRICS
from kafkacompat.pipeline.reports import Reports
from kafkacompat.pipeline.runner import Run, StopRequest
from kafkacompat.pipeline.session import settings
from kafkacompat.pipeline.topics import EVENTS, LINE_BYTES_MAX, RECORD_BYTES_MAX, create_missing, plans
from kafkacompat.security.cluster_address import ClusterAddress

LINE: Final = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (.*?) (\S+)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"\s*$'
MARK: Final = "\x01"
PARTS: Final = (
    *("client", "user", "time", "method", "path", "protocol", "status", "bytes", "referrer", "user_agent"),
)
TABLE: Final = "table"
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
VALUES: Final = {"logs": LOGS_TABLE, "activity": ACTIVITY_TABLE, "metrics": METRICS_TABLE}
LOGS_ROWS: Final = replace(LOGS, sinks=(Table("logs/events", every_line, is_deduplicated=False),))


def capped(records: DataFrame) -> DataFrame:
    """No record arrives after the batch's time. In a lambda, because that time in generated code would have it compiled for each
    batch, which no program by hand would see."""
    times = F.transform(F.array("timestamp"), lambda time: F.least(time, F.current_timestamp()))
    return records.withColumn("timestamp", F.get(times, F.lit(0)))


def _checked(found: DataFrame, bytes_max: int, moment: Column, wrong: Column) -> DataFrame:
    """Adds `reason`, which is null for what is right, and `event_time`, which is not after the arrival."""
    received = F.col("timestamp")
    reason = F.coalesce(
        F.when(F.length("value") > bytes_max, "oversized record"),
        wrong,
        F.when(moment.isNull(), "no time"),
        F.when(moment > received + F.expr("interval 10 minutes"), "future timestamp"),
        F.when(moment < received - F.expr("interval 7 days"), "ancient timestamp"),
    )
    return found.withColumns({"reason": reason, "moment": moment, "event_time": F.least(moment, received)})


def lines(records: DataFrame) -> DataFrame:
    """Lines of combined logs as columns, each matched once."""
    header = "filter(headers, header -> header.key = '{}')[0].value"
    file, position, source = (
        F.expr(header.format(name)).cast("string") for name in ("file", "position", "source")
    )
    text = F.make_valid_utf8(F.col("value").cast("string"))
    groups = MARK.join(f"${number}" for number in range(1, len(PARTS) + 1))
    parts = F.split(F.regexp_replace(text, LINE, groups), MARK)
    found = records.select(
        "*",
        F.concat(file, F.lit("@"), position).alias("event_id"),
        F.coalesce(source, F.col("key").cast("string")).alias("source"),
        parts.alias("parts"),
    ).withColumn("parts", F.when(F.size("parts") == len(PARTS), F.col("parts")))
    named = [F.get("parts", F.lit(number)).alias(name) for number, name in enumerate(PARTS)]
    moment = F.try_to_timestamp("time", F.lit(TIME))
    wrong = F.when(F.col("client").isNull(), "malformed line")
    return _checked(found.select("*", *named), LINE_BYTES_MAX, moment, wrong)


def events(records: DataFrame, fields: str, is_whole: Column) -> DataFrame:
    """JSON objects as columns. A number is taken for a text, and what follows the object is ignored."""
    text = F.try_validate_utf8(F.col("value").cast("string"))
    options = {"columnNameOfCorruptRecord": "_corrupt"}
    event = F.from_json(text, f"{fields}, _corrupt string", options).alias("event")
    found = records.select("*", event).select("*", "event.*")
    is_bad = F.col("_corrupt").isNotNull() | F.col("event_id").isNull() | ~F.coalesce(is_whole, F.lit(False))
    wrong = F.when(is_bad, "malformed event")
    return _checked(found, RECORD_BYTES_MAX, F.timestamp_millis("event_time_ms"), wrong)


def parsed(job: str, records: DataFrame) -> DataFrame:
    """The columns of a job's events, right and wrong ones."""
    records = capped(records)
    if job == "logs":
        return lines(records)
    if job == "activity":
        is_search = (F.col("query").isNotNull()) & (F.col("results") >= 0)
        of_topic = F.when(F.col("topic") == "activity.searches", is_search).otherwise(
            F.col("page").isNotNull()
        )
        return events(
            records, ACTIVITY_FIELDS, (F.col("event_id") != "") & (F.col("user_id") != "") & of_topic
        )
    is_whole = (F.col("event_id") != "") & (F.col("service") != "") & F.col("host").isNotNull()
    is_whole &= F.col("error").isNotNull() & F.col("latency_ms").between(0, 24 * 3600 * 1000)
    is_whole &= F.col("cpu_percent").between(0, 100_000) & F.col("memory_bytes").between(0, 1 << 50)
    return events(
        records, METRICS_FIELDS, is_whole & F.coalesce(F.col("cpu_cores").between(1, 1 << 16), F.lit(True))
    )


def _given(name: str) -> Column:
    column = F.col(name)
    return F.when((column != "-") & (column != ""), column).alias(name)


def rows(job: str, found: DataFrame) -> DataFrame:
    """The rows of the job's table."""
    good = found.where(F.col("reason").isNull())
    if job != "logs":
        once = good.withWatermark("event_time", WATERMARK).dropDuplicatesWithinWatermark(["event_id"])
        made = (
            activity.visitor_rows(once, WINDOW_S)
            if job == "activity"
            else metrics.window_rows(once, WINDOW_S)
        )
        digest = F.sha2(F.to_json(F.struct("*")).cast("binary"), 256)
        return made.select(F.substring(digest, 1, 32).alias("event_id"), "*").repartition(1)
    once = good.withWatermark("timestamp", HORIZON).dropDuplicatesWithinWatermark(["event_id"])
    return once.select(
        "event_id",
        F.unix_millis("moment").alias("event_time_ms"),
        "source",
        "client",
        _given("user"),
        *("method", "path", "protocol"),
        F.col("status").try_cast("int").alias("status"),
        F.coalesce(F.col("bytes").try_cast("bigint"), F.lit(0)).alias("bytes"),
        _given("referrer"),
        F.regexp_replace(_given("user_agent"), r'\\(["\\])', "$1").alias("user_agent"),
        F.date_format("moment", "yyyy-MM-dd").alias("date"),
        F.date_format("moment", "HH").alias("hour"),
    ).repartition(1, "event_id")


def rejects(job: str, found: DataFrame) -> DataFrame:
    """The records that are no events, as records of a topic."""
    told = {
        "event_id": F.concat_ws("-", "topic", "partition", "offset"),
        "reason": F.col("reason"),
        "line": F.substring(F.make_valid_utf8(F.col("value").cast("string")), 1, 2048),
        "source": F.make_valid_utf8(F.col("key").cast("string")),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "received_ms": F.unix_millis("timestamp"),
    }
    value = F.to_json(
        F.struct(*(column.alias(name) for name, column in told.items())), {"ignoreNullFields": "false"}
    )
    bad = found.where(F.col("reason").isNotNull())
    return bad.select(F.lit(plain_topic(job)).alias("topic"), "key", value.alias("value"))


def plain_topic(job: str) -> str:
    """Where the program by hand writes what is wrong."""
    return f"plain.{job}.rejected"


def started(job: str, spark: SparkSession, options: RunOptions) -> list[StreamingQuery]:
    """Start the two queries, over all records that exist."""
    kafka = options.bootstrap.spark()

    def found() -> DataFrame:
        source = spark.readStream.format("kafka").options(**kafka, includeHeaders="true")
        source = source.option("kafka.isolation.level", options.isolation_level)
        source = source.options(subscribe=",".join(VALUES[job].inputs), startingOffsets="earliest")
        return parsed(job, source.option("maxOffsetsPerTrigger", str(options.records_per_batch_max)).load())

    def writer(frame: DataFrame, name: str) -> DataStreamWriter:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        checkpoint = f"{options.checkpoint}/{name}"
        named = frame.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return named.trigger(availableNow=True)

    partitions = ("date", "hour") if job == "logs" else ("date",)
    table = writer(rows(job, found()), TABLE).partitionBy(*partitions)
    rejected = writer(rejects(job, found()), "rejected").format("kafka").options(**kafka)
    return [table.start(f"{options.output}/{BY_HAND[job]}"), rejected.start()]


def plain(job: str, spark: SparkSession, options: RunOptions, progress: IO[str]) -> None:
    """Run the program by hand."""
    queries = started(job, spark, options)
    for query in queries:
        query.awaitTermination()
    for query in queries:
        for each in query.recentProgress:
            progress.write((each.json if isinstance(each.json, str) else json.dumps(each)) + "\n")


def of_job(job: str, spark: SparkSession, options: RunOptions, progress: IO[str]) -> None:
    """Run the job as `pipeline run` does, with its reports, its commits to groups and its progress."""
    commits = GroupCommits(options.bootstrap.spark(), options.group_prefix)
    reports = Reports(options.bootstrap, print)
    try:
        Run(spark, VALUES[job].queries, options, lambda _: None, progress, reports.tell, commits).run(
            StopRequest()
        )
    finally:
        reports.close()
        commits.close()


WAYS: Final = {"job": of_job, "plain": plain}


class Turn(NamedTuple):
    """One run over all records. CPU is that of the JVM and of this process."""

    cpu_s: float
    took_s: float
    """Of all batches with records, those of the table's query."""
    records: int
    """That the table's query has read."""


def turn(way: str, job: str, spark: SparkSession, options: RunOptions, folder: Path) -> Turn:
    """Run a way with a new checkpoint and a new table."""
    options = replace(options, checkpoint=str(folder / "checkpoint"), output=str(folder / "tables"))
    jvm: Any = spark.sparkContext._jvm
    pids = [os.getpid(), int(jvm.java.lang.ProcessHandle.current().pid())]
    jvm.System.gc()
    before_s = cpu_of(pids)
    with open(folder / "progress.jsonl", "w", encoding="utf-8") as progress:
        WAYS[way](job, spark, options, progress)
    cpu_s = cpu_of(pids) - before_s
    query = TABLE if way == "plain" else BY_HAND[job].replace("/", "-")
    batches = [each for each in batches_of(folder / "progress.jsonl") if each.query == query]
    return Turn(cpu_s, sum(each.took_ms for each in batches) / 1e3, sum(each.records for each in batches))


def require_same(job: str, spark: SparkSession, options: RunOptions, folders: dict[str, Path]) -> None:
    """Raise RuntimeError unless both ways have written the same rows, and have rejected the same records."""
    tables = [spark.read.parquet(str(folders[way] / "tables" / BY_HAND[job])) for way in WAYS]
    columns = [name for name in tables[1].columns if job == "logs" or name != "event_id"]
    one, other = (table.select(*columns) for table in tables)
    apart = (one.exceptAll(other).count(), other.exceptAll(one).count())
    bad = []
    for topic in (VALUES[job].rejected_topic, plain_topic(job)):
        read = (
            spark.read.format("kafka").options(**options.bootstrap.spark()).option("subscribe", topic).load()
        )
        told = F.from_json(F.col("value").cast("string"), "event_id string, line string, received_ms bigint")
        bad.append({tuple(row.told) for row in read.select(told.alias("told")).distinct().collect()})
    if apart != (0, 0) or bad[0] != bad[1]:
        raise RuntimeError(
            f"job {job}: {apart[0]} rows of the job alone, {apart[1]} by hand alone; "
            f"{len(bad[0])} and {len(bad[1])} records rejected"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=list(BY_HAND))
    for name in ("bootstrap", "folder", "master", "ivy"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("batch-records", "turns"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    job, folder = arguments.job, Path(arguments.folder)
    options = RunOptions(
        (job,),
        "",
        "",
        ClusterAddress(arguments.bootstrap),
        master=arguments.master,
        ivy=arguments.ivy,
        until_caught_up=True,
        window_s=WINDOW_S,
        records_per_batch_max=arguments.batch_records,
        log_format="combined",
    )
    builder = SparkSession.builder.master(arguments.master)
    for key, setting in settings(options).items():
        builder = builder.config(key, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    configs = {**VALUES[job].configs, plain_topic(job): EVENTS}
    create_missing(options.bootstrap, plans(list(configs), PARTITIONS, 1, configs))
    found: dict[str, list[Turn]] = {way: [] for way in WAYS}
    for number in range(arguments.turns):
        folders = {way: folder / f"{number}-{way}" for way in WAYS}
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            folders[way].mkdir()
            found[way].append(turn(way, job, spark, options, folders[way]))
            print(number, way, found[way][-1], file=sys.stderr, flush=True)
        if number == 0:
            require_same(job, spark, options, folders)
        for each in folders.values():
            shutil.rmtree(each)
    spark.stop()
    print(json.dumps({way: [each._asdict() for each in turns] for way, turns in found.items()}))


if __name__ == "__main__":
    main()
