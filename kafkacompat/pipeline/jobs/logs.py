"""Log collection: lines of web-server access logs (common and combined log format) to typed events and a summary a minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.jobs.judging import (
    ENVELOPE_KEPT,
    MALFORMED_LINE,
    OVERSIZED,
    RECORD_BYTES_MAX,
    behind_a_wall,
    date_of,
    envelope,
    first_reason,
    time_checks,
    with_window_bounds,
)

SUMMARY_WINDOW_S: Final = 60
PART_MARK: Final = "\u0001"
QUOTED: Final = r'"((?:[^"\\]++|\\.)*+)"'
PARTS: Final = ("client", "user", "time", "request", "status", "bytes", "referrer", "user_agent")
# Possessive throughout: a hostile line costs one pass and no deep stack.
LINE_PATTERN: Final = (
    r"^(\S++) \S++ (\S++) \[([^\]]++)\] " + QUOTED + r" (\d{3}) (\d{1,12}|-)"
    rf"(?: {QUOTED} {QUOTED})?+\s*+$"
)
# One replacement instead of one regexp_extract a part: the line is matched once.
PARTS_TEMPLATE: Final = PART_MARK.join(f"${group}" for group in range(1, len(PARTS) + 1))
TIME_FORMAT: Final = "dd/MMM/yyyy:HH:mm:ss Z"

EVENT_COLUMNS: Final = (
    "event_id",
    "event_time_ms",
    "source",
    "client",
    "user",
    "method",
    "path",
    "protocol",
    "status",
    "bytes",
    "referrer",
    "user_agent",
)


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.make_valid_utf8(F.get(found, F.lit(0))["value"].cast("string"))


def _absent_as_null(column: Column) -> Column:
    return F.when((column != "-") & (column != ""), column)


def judge(records: DataFrame) -> DataFrame:
    """Records of logs.raw (with headers) to the envelope, the columns of an event, and `reason`: null where it is good.

    The event's id is file@position where the collector said them, else topic-partition-offset.
    """
    lines = envelope(records)
    text = F.make_valid_utf8(F.col("value").cast("string"))
    replaced = F.regexp_replace(text, LINE_PATTERN, PARTS_TEMPLATE)
    # A line that has the mark already could pass for one that was matched.
    unmarked = (F.col("size_bytes") <= RECORD_BYTES_MAX) & (F.locate(PART_MARK, text) == 0)
    matched = F.when(unmarked, F.split(replaced, PART_MARK))
    position = F.concat(_header("file"), F.lit("@"), _header("position"))
    lines = behind_a_wall(
        lines,
        [
            matched.alias("parts"),
            F.coalesce(position, F.concat_ws("-", "topic", "partition", "offset")).alias("event_id"),
            F.coalesce(_header("source"), F.col("source")).alias("source"),
        ],
        [name for name in (*ENVELOPE_KEPT, "size_bytes") if name != "source"],
    )
    whole = F.coalesce(F.size("parts") == len(PARTS), F.lit(False))
    part = {name: F.when(whole, F.get("parts", F.lit(index))) for index, name in enumerate(PARTS)}
    words = F.split(part["request"], " ")
    proper = F.size(words) == 3
    moment = F.try_to_timestamp(part["time"], F.lit(TIME_FORMAT))
    columns = [
        F.unix_millis(moment).alias("event_time_ms"),
        part["client"].alias("client"),
        _absent_as_null(part["user"]).alias("user"),
        F.when(proper, F.get(words, F.lit(0))).alias("method"),
        F.when(proper, F.get(words, F.lit(1))).otherwise(part["request"]).alias("path"),
        F.when(proper, F.get(words, F.lit(2))).alias("protocol"),
        part["status"].try_cast("int").alias("status"),
        F.coalesce(part["bytes"].try_cast("bigint"), F.lit(0)).alias("bytes"),
        _absent_as_null(part["referrer"]).alias("referrer"),
        _absent_as_null(part["user_agent"]).alias("user_agent"),
    ]
    judged = behind_a_wall(lines, columns, [*ENVELOPE_KEPT, "size_bytes", "event_id"])
    checks = [
        (F.col("size_bytes") > RECORD_BYTES_MAX, OVERSIZED),
        (F.col("event_time_ms").isNull() | F.col("status").isNull(), MALFORMED_LINE),
        *time_checks(F.col("event_time_ms"), F.col("received_ms")),
    ]
    return judged.withColumn("reason", first_reason(checks)).drop("size_bytes")


def event_rows(events: DataFrame) -> DataFrame:
    """Events as rows of the table logs/events, with the partition columns date and hour (UTC)."""
    return events.select(
        *EVENT_COLUMNS,
        date_of("event_time_ms").alias("date"),
        F.date_format(F.timestamp_millis("event_time_ms"), "HH").alias("hour"),
    )


def summary(events: DataFrame) -> DataFrame:
    """Requests, bytes and classes of status a minute of event time."""
    classes = [
        F.count_if(F.floor(F.col("status") / 100) == digit).alias(f"status_{digit}xx")
        for digit in (2, 3, 4, 5)
    ]
    counted = events.groupBy(F.window("event_time", f"{SUMMARY_WINDOW_S} seconds")).agg(
        F.count("*").alias("requests"), F.try_sum("bytes").alias("bytes"), *classes
    )
    return with_window_bounds(counted)
