"""What is common to all jobs: the record as Spark's Kafka source gives it, judged good or bad, and the bad ones told why.

A record is judged against its own Kafka timestamp, never against the clock: a replay judges the same. Every expression here is
total: `try_` functions and comparisons that cannot overflow, because an exception on an executor ends the query, and one record
must not be able to do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

RECORD_BYTES_MAX: Final = 64 * 1024
"""A longer record's value is rejected as `oversized record`."""

REJECTED_TEXT_CHARACTERS_MAX: Final = 2048
"""So much of a bad record's text is kept in the rejected topic."""

FUTURE_TOLERANCE_MS: Final = 10 * 60 * 1000
ANCIENT_TOLERANCE_MS: Final = 7 * 24 * 3600 * 1000

OVERSIZED: Final = "oversized record"
MALFORMED_JSON: Final = "malformed JSON"
MALFORMED_LINE: Final = "malformed line"
FUTURE: Final = "future timestamp"
ANCIENT: Final = "ancient timestamp"


class Kind(Enum):
    """The type of a field of a JSON event: what Spark's variant calls its JSON value, and the column type it becomes."""

    TEXT = ("string", "^STRING$")
    INTEGER = ("bigint", "^BIGINT$")
    NUMBER = ("double", "^(BIGINT|DOUBLE|DECIMAL.*)$")
    BOOLEAN = ("boolean", "^BOOLEAN$")

    @property
    def column_type(self) -> str:
        """The SQL type of the column."""
        return self.value[0]

    @property
    def variant_type(self) -> str:
        """A regular expression over what `schema_of_variant` says."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a JSON event. `least` and `most` bound a number, both inclusive."""

    name: str
    kind: Kind
    required: bool = True
    least: float | None = None
    most: float | None = None


def envelope(records: DataFrame) -> DataFrame:
    """The source's columns in the shape that jobs use.

    source (text of the key), value, size_bytes, topic, partition, offset, received (timestamp of the record), received_ms.
    Headers stay when the source brought them.
    """
    columns = [
        F.make_valid_utf8(F.col("key").cast("string")).alias("source"),
        F.col("value"),
        F.coalesce(F.length("value"), F.lit(0)).alias("size_bytes"),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.col("timestamp").alias("received"),
        F.unix_millis("timestamp").alias("received_ms"),
    ]
    if "headers" in records.columns:
        columns.append(F.col("headers"))
    return records.select(*columns)


def first_reason(checks: Sequence[tuple[Column, str]]) -> Column:
    """The reason of the first check that holds, or null."""
    reasons = [F.when(bad, F.lit(reason)) for bad, reason in checks]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def time_checks(event_time_ms: Column, received_ms: Column) -> list[tuple[Column, str]]:
    """An event time too far from the record's own."""
    return [
        (event_time_ms > received_ms + FUTURE_TOLERANCE_MS, FUTURE),
        (event_time_ms < received_ms - ANCIENT_TOLERANCE_MS, ANCIENT),
    ]


def behind_a_wall(frame: DataFrame, columns: Sequence[Column], kept: Sequence[str]) -> DataFrame:
    """`kept` and these columns, calculated once a record.

    The optimizer pushes a filter through a projection and repeats its expressions there, field by field; parsing would be done
    a dozen times over. It does not push through a generator, even one that gives one row for one.
    """
    judged = frame.select(*kept, F.explode(F.array(F.struct(*columns))).alias("judged"))
    return judged.select(*kept, "judged.*")


ENVELOPE_KEPT: Final = (
    "source",
    "value",
    "topic",
    "partition",
    "offset",
    "received",
    "received_ms",
)


def judge_json(records: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Records of JSON objects to ENVELOPE_KEPT, the fields as typed columns, and `reason`: null where the event is good.

    Fields must have `event_id` and `event_time_ms`.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    parsed = envelope(records).withColumn(
        "parsed", F.when(F.col("size_bytes") <= RECORD_BYTES_MAX, F.try_parse_json(text))
    )
    parsed = behind_a_wall(parsed, [F.col("parsed")], [*ENVELOPE_KEPT, "size_bytes"])
    typed = [
        F.try_variant_get("parsed", f"$.{field.name}", field.kind.column_type).alias(field.name)
        for field in fields
    ]
    reason = first_reason(_json_checks(fields)).alias("first_reason")
    judged = behind_a_wall(parsed, [*typed, reason], ENVELOPE_KEPT)
    late_checks = _bound_checks(fields) + time_checks(F.col("event_time_ms"), F.col("received_ms"))
    final = F.coalesce(F.col("first_reason"), first_reason(late_checks)).alias("reason")
    return judged.select(*ENVELOPE_KEPT, *(field.name for field in fields), final)


def _json_checks(fields: Sequence[Field]) -> list[tuple[Column, str]]:
    parsed = F.col("parsed")
    checks = [
        (F.col("size_bytes") > RECORD_BYTES_MAX, OVERSIZED),
        (parsed.isNull(), MALFORMED_JSON),
        (~F.schema_of_variant(parsed).startswith("OBJECT"), MALFORMED_JSON),
    ]
    for field in fields:
        found = F.schema_of_variant(F.try_variant_get(parsed, f"$.{field.name}", "variant"))
        absent = found.isNull() | (found == "VOID")
        if field.required:
            checks.append((absent, f"missing field: {field.name}"))
        checks.append((~absent & ~found.rlike(field.kind.variant_type), f"wrong type: {field.name}"))
    return checks


def _bound_checks(fields: Sequence[Field]) -> list[tuple[Column, str]]:
    checks = []
    for field in fields:
        bounds = [F.col(field.name) < field.least] if field.least is not None else []
        if field.most is not None:
            bounds.append(F.col(field.name) > field.most)
        if bounds:
            checks.append((reduce(lambda one, other: one | other, bounds), f"out of range: {field.name}"))
    return checks


def good(judged: DataFrame) -> DataFrame:
    """The events without fault, with `event_time` as a timestamp for watermarks and windows."""
    kept = judged.where(F.col("reason").isNull()).drop("reason", "value")
    return kept.withColumn("event_time", F.timestamp_millis("event_time_ms"))


def rejected(judged: DataFrame) -> DataFrame:
    """The bad ones as rows of a rejected topic (docs/pipeline.md), `source` being the key."""
    text = F.make_valid_utf8(F.col("value").cast("string"))
    return judged.where(F.col("reason").isNotNull()).select(
        F.concat_ws("-", "topic", "partition", "offset").alias("event_id"),
        "reason",
        F.substring(text, 1, REJECTED_TEXT_CHARACTERS_MAX).alias("line"),
        "source",
        "topic",
        "partition",
        "offset",
        "received_ms",
    )


def once(events: DataFrame, watermark_s: int, time: str = "event_time") -> DataFrame:
    """Without the events whose event_id came before, as far back as the watermark reaches on the column `time`.

    An event behind the watermark is dropped here; Spark counts it in numRowsDroppedByWatermark.
    """
    return events.withWatermark(time, f"{watermark_s} seconds").dropDuplicatesWithinWatermark(["event_id"])


def with_window_bounds(frame: DataFrame) -> DataFrame:
    """The column `window` replaced by window_start_ms and window_end_ms."""
    return (
        frame.withColumn("window_start_ms", F.unix_millis("window.start"))
        .withColumn("window_end_ms", F.unix_millis("window.end"))
        .drop("window")
    )


def date_of(milliseconds: str) -> Column:
    """The UTC date of a column of milliseconds, as YYYY-MM-DD."""
    return F.date_format(F.timestamp_millis(milliseconds), "yyyy-MM-dd")
