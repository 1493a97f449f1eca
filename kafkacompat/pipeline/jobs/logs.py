"""Log collection: lines of web-server access logs become typed events and a summary per minute."""

from __future__ import annotations

from collections.abc import Sequence
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
from kafkacompat.pipeline.jobs.log_formats import AUTO, EVENT_PARTS, LineFormat, line_format

SUMMARY_WINDOW_S: Final = 60
PART_MARK: Final = "\u0001"
STATUS_PATTERN: Final = r"^\d{3}$"
BYTES_PATTERN: Final = r"^(?:\d{1,12}|-?)$"
AUTO_FORMAT: Final = line_format(AUTO)
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
    "virtual_host",
    "extra",
)
"""The columns of the table logs/events. `extra` is a map by name of the line's fields without a column, or null if
there are none."""


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.make_valid_utf8(F.get(found, F.lit(0))["value"].cast("string"))


def _absent_as_null(column: Column) -> Column:
    return F.when((column != "-") & (column != ""), column)


def _extra(parts: dict[str, Column], names: Sequence[str]) -> Column:
    if not names:
        return F.lit(None).cast("map<string,string>")
    kept = F.filter(
        F.array(*(F.struct(F.lit(name).alias("name"), F.trim(parts[name]).alias("text")) for name in names)),
        lambda one: (one["text"] != "") & (one["text"] != "-"),
    )
    return F.when(F.size(kept) > 0, F.map_from_entries(kept))


def judge(records: DataFrame, form: LineFormat = AUTO_FORMAT) -> DataFrame:
    """Turn records of logs.raw (with headers) into the envelope, the columns of an event, and `reason`, which is null
    for good lines.

    The event's id is file@position if the collector set those headers, otherwise topic-partition-offset.
    """
    lines = envelope(records)
    text = F.make_valid_utf8(F.col("value").cast("string"))
    # One replacement instead of one regexp_extract per part: the line is matched once.
    template = PART_MARK.join(f"${group}" for group in range(1, len(form.parts) + 1))
    replaced = F.regexp_replace(text, form.pattern, template)
    # A line that already contains the mark could look like a matched one.
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
    whole = F.coalesce(F.size("parts") == len(form.parts), F.lit(False))
    absent = F.lit(None).cast("string")
    part = dict.fromkeys(EVENT_PARTS, absent) | {
        name: F.when(whole, F.get("parts", F.lit(index))) for index, name in enumerate(form.parts)
    }
    words = F.split(part["request"], " ")
    proper = F.size(words) == 3
    moment = F.try_to_timestamp(part["time"], F.lit(form.time_format))
    columns = [
        F.unix_millis(moment).alias("event_time_ms"),
        part["client"].alias("client"),
        _absent_as_null(part["user"]).alias("user"),
        F.coalesce(part["method"], F.when(proper, F.get(words, F.lit(0)))).alias("method"),
        F.coalesce(part["path"], F.when(proper, F.get(words, F.lit(1))).otherwise(part["request"])).alias(
            "path"
        ),
        F.coalesce(part["protocol"], F.when(proper, F.get(words, F.lit(2)))).alias("protocol"),
        F.when(part["status"].rlike(STATUS_PATTERN), part["status"].try_cast("int")).alias("status"),
        part["bytes"].alias("bytes_text"),
        _absent_as_null(part["referrer"]).alias("referrer"),
        _absent_as_null(part["user_agent"]).alias("user_agent"),
        _absent_as_null(part["virtual_host"]).alias("virtual_host"),
        _extra(part, form.extra).alias("extra"),
    ]
    judged = behind_a_wall(lines, columns, [*ENVELOPE_KEPT, "size_bytes", "event_id"])
    checks = [
        (F.col("size_bytes") > RECORD_BYTES_MAX, OVERSIZED),
        (F.col("event_time_ms").isNull() | F.col("status").isNull(), MALFORMED_LINE),
        (~F.coalesce(F.col("bytes_text"), F.lit("-")).rlike(BYTES_PATTERN), MALFORMED_LINE),
        *time_checks(F.col("event_time_ms"), F.col("received_ms")),
    ]
    sized = F.coalesce(F.col("bytes_text").try_cast("bigint"), F.lit(0)).alias("bytes")
    kept = [name for name in judged.columns if name not in ("size_bytes", "bytes_text")]
    return judged.select(*kept, sized, first_reason(checks).alias("reason"))


def event_rows(events: DataFrame) -> DataFrame:
    """Events as rows of the table logs/events, with the partition columns date and hour (UTC)."""
    return events.select(
        *EVENT_COLUMNS,
        date_of("event_time_ms").alias("date"),
        F.date_format(F.timestamp_millis("event_time_ms"), "HH").alias("hour"),
    )


def summary(events: DataFrame) -> DataFrame:
    """Requests, bytes and status classes per minute of event time."""
    classes = [
        F.count_if(F.floor(F.col("status") / 100) == digit).alias(f"status_{digit}xx")
        for digit in (2, 3, 4, 5)
    ]
    counted = events.groupBy(F.window("event_time", f"{SUMMARY_WINDOW_S} seconds")).agg(
        F.count("*").alias("requests"), F.try_sum("bytes").alias("bytes"), *classes
    )
    return with_window_bounds(counted)
