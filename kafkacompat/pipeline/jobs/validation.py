"""The part that all jobs share: records of Spark's Kafka source are validated, and invalid ones get a reason.

A record is checked against its Kafka timestamp, so a replay has the same result. Only a timestamp in the future is
replaced by the batch's time (`cap_timestamps`). Every expression here is total: it uses `try_` functions and comparisons that
cannot overflow. An exception on an executor ends the query, and a single record must not cause that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.jobs.schema_records import REASON, SchemaDecoder
from kafkacompat.pipeline.results import quoted
from kafkacompat.pipeline.topics import OVERSIZED, RECORD_BYTES_MAX

REJECTED_TEXT_CHARACTERS_MAX: Final = 2048
"""Maximum number of characters of an invalid record's text in the rejected topic, and of its key."""

FUTURE_TOLERANCE_MS: Final = 10 * 60 * 1000
ANCIENT_TOLERANCE_MS: Final = 7 * 24 * 3600 * 1000

CORRUPT: Final = "_corrupt"
PARSING: Final = {
    "columnNameOfCorruptRecord": CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}

MALFORMED_JSON: Final = "malformed JSON"
FUTURE: Final = "future timestamp"
ANCIENT: Final = "ancient timestamp"


def concerning(field: Field, check: Column) -> Column:
    """Return the check. It is false for records of topics whose events lack the field."""
    return check if field.topic is None else (F.col("topic") == field.topic) & check


def envelope(records: DataFrame) -> DataFrame:
    """Convert the source's columns to the form that jobs use.

    source (text of the key), value, size_bytes, topic, partition, offset, received (timestamp of the record),
    received_ms. Headers are kept if the source has them.
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


def cap_timestamps(records: DataFrame) -> DataFrame:
    """Limit the records' timestamps to the batch's time.

    Watermarks and checks of event times use the records' timestamps. If one sending host's clock is ahead, the events
    of all other hosts would be late. A repeated batch has the time of its first run.

    The batch's time is a constant of its plan. Spark writes such a constant into the code that it generates, so that each
    batch would be compiled again, by Spark and by the JVM. It does not generate code for a lambda.
    """
    capped = F.transform(F.array("timestamp"), lambda timestamp: F.least(timestamp, F.current_timestamp()))
    return records.withColumn("timestamp", F.get(capped, F.lit(0)))


def first_reason(checks: Sequence[tuple[Column, str | Column]]) -> Column:
    """Return the reason of the first check that is true, or null. A reason may be a column."""
    reasons = [F.when(is_bad, F.lit(reason)) for is_bad, reason in checks]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def time_checks(event_time_ms: Column, received_ms: Column) -> list[tuple[Column, str]]:
    """Check that an event time is near the record's timestamp."""
    return [
        (event_time_ms > received_ms + FUTURE_TOLERANCE_MS, FUTURE),
        (event_time_ms < received_ms - ANCIENT_TOLERANCE_MS, ANCIENT),
    ]


def with_optimization_barrier(frame: DataFrame, columns: Sequence[Column], kept: Sequence[str]) -> DataFrame:
    """Select `kept` and these columns. Each column is computed once per record.

    The optimizer pushes a filter through a projection and repeats the projection's expressions in it, field by field.
    Each record would be parsed a dozen times. It does not push filters through a generator, even one that returns one
    row per row. The columns are made below the generator, because Spark interprets a generator's expressions and
    computes what several of them share once for each.
    """
    projected = frame.select(*kept, F.struct(*columns).alias("computed"))
    generated = projected.select(*kept, F.explode(F.array("computed")).alias("computed"))
    return generated.select(*kept, "computed.*")


ENVELOPE_KEPT: Final = (
    "source",
    "value",
    "topic",
    "partition",
    "offset",
    "received",
    "received_ms",
)
"""The columns of `envelope` that validated records keep. All but `received` are in the rows of `rejected`, `value` as the
text `line`."""

OWN_COLUMNS: Final = frozenset((*ENVELOPE_KEPT, "first_reason", "reason", "column", "event_time"))
"""The columns that records and events have beside their fields, so that no field can have these names. `column`: rows of
`rejected` have it if validated records do."""


def validate_json(
    records: DataFrame, fields: Sequence[Field], decoder: SchemaDecoder | None = None
) -> DataFrame:
    """Parse records with JSON objects into ENVELOPE_KEPT, the fields as typed columns, and `reason`, which is null for
    valid events. decoder: reads the records of its topics, which have another format.

    `event_id` and `event_time_ms` must be among the fields. A field of one topic may be anything in the others, and is
    null there. Records are first parsed with their schema, which is fast. Only if that leaves a doubt, they are parsed
    as a variant, which preserves all types. Both parsers stop after the first value and ignore the rest. So _is_plain
    and _closed make sure that nothing follows the object. Fields with a path are always read from the variant.
    """
    has_paths = any(field.path for field in fields)
    small = F.when(F.col("size_bytes") <= RECORD_BYTES_MAX, F.col("value"))
    is_json = F.lit(True) if decoder is None else ~F.col("topic").isin(decoder.topics)
    text = F.try_validate_utf8(F.when(is_json, small).cast("string"))
    columns = [F.col("text")]
    kept = [*ENVELOPE_KEPT, "size_bytes"]
    found: list[str] = []
    if not has_paths:
        columns.append(F.from_json("text", _schema(fields), PARSING).alias("typed"))
        found.append("typed")
    if decoder is not None:
        columns.append(decoder.column(F.when(~is_json, F.col("topic")), small).alias("decoded"))
        found.append("decoded")
    read = with_optimization_barrier(envelope(records).withColumn("text", text), columns, kept)
    plain = F.lit(False) if has_paths else F.coalesce(_is_plain(fields), F.lit(False))
    reparsed = with_optimization_barrier(
        read.withColumn("plain", plain), [F.col("plain"), F.col("text")], [*kept, *found]
    )
    parsed = F.when(~F.col("plain"), F.try_parse_json(closed_json(F.col("text")))).alias("parsed")
    mark = F.when(~F.col("plain"), json_mark(F.col("text"))).alias("mark")
    reparsed = with_optimization_barrier(reparsed, [parsed, mark], [*kept, *found, "plain"])
    json_reason = F.when(~F.col("plain"), first_reason(_json_checks(fields, has_paths=has_paths)))
    reason = json_reason if decoder is None else F.when(is_json, json_reason).otherwise(_decoded_reason())
    columns = [reason.alias("first_reason")]
    if has_paths:
        columns.append(F.struct(*map(_at_path, fields)).alias("typed"))
    validated = with_optimization_barrier(
        reparsed,
        columns,
        [*ENVELOPE_KEPT, *([] if has_paths else ["typed"]), *(["decoded"] if decoder else [])],
    )
    validated = validated.select(
        *ENVELOPE_KEPT, "first_reason", *(_column(field, is_json, decoder) for field in fields)
    )
    value_checks = _value_checks(fields) + time_checks(F.col("event_time_ms"), F.col("received_ms"))
    final = F.coalesce(F.col("first_reason"), first_reason(value_checks)).alias("reason")
    return validated.select(*ENVELOPE_KEPT, *(field.name for field in fields), final)


def _column(field: Field, is_json: Column, decoder: SchemaDecoder | None) -> Column:
    typed = F.col("typed")[field.name]
    if decoder is not None:
        typed = F.when(is_json, typed).otherwise(F.col("decoded")[field.name])
    if field.default is not None:
        typed = F.coalesce(typed, F.lit(field.default).cast(field.kind.column_type))
    here = typed if field.topic is None else F.when(F.col("topic") == field.topic, typed)
    return here.alias(field.name)


def _decoded_reason() -> Column:
    return F.when(F.col("size_bytes") > RECORD_BYTES_MAX, OVERSIZED).otherwise(F.col("decoded")[REASON])


def _variant_path(field: Field) -> str:
    return f"$[0]{field.place.json_path}" if field.path else f"$[0].{field.name}"


def _at_path(field: Field) -> Column:
    return F.try_variant_get("parsed", _variant_path(field), field.kind.column_type).alias(field.name)


def _schema(fields: Sequence[Field]) -> str:
    columns = [f"`{field.name}` {field.kind.column_type}" for field in fields]
    return ", ".join([*columns, f"{CORRUPT} string"])


def closed_json(text: Column) -> Column:
    """Return the text as the first of two values of an array. The second value is its `mark`.

    If the parsed array has the mark as its second value, the text is exactly one value. A constant second value would
    not be safe: the text could contain it, close the array and continue.
    """
    return F.concat(F.lit("["), text, F.lit(","), json_mark(text).cast("string"), F.lit("]"))


def json_mark(text: Column) -> Column:
    return F.xxhash64(text)


def _is_plain(fields: Sequence[Field]) -> Column:
    """Whether the result of from_json is reliable.

    from_json converts any value to text, so the check looks for the quotes of a text. An inner object could show the
    quotes of another field, and from_json does not read past the end of the object. So the only closing brace must be
    at the end. One expression does both, because each pass walks the text.
    """
    typed = F.col("typed")
    text = F.col("text")
    conditions = [typed[CORRUPT].isNull(), text.rlike(r"^\{[^{}]*+\}[ \t\r\n]*+\z")]
    for field in fields:
        absent = typed[field.name].isNull()
        if field.kind is Kind.TEXT:
            unseen = ~text.rlike(rf'"{field.name}"\s*:\s*"')
            conditions.append(~concerning(field, unseen if field.is_needed else unseen & ~absent))
        elif field.is_needed:
            conditions.append(~concerning(field, absent))
    return reduce(lambda one, other: one & other, conditions)


def _json_checks(fields: Sequence[Field], *, has_paths: bool) -> list[tuple[Column, str]]:
    parsed = F.col("parsed")
    checks = [
        (F.col("size_bytes") > RECORD_BYTES_MAX, OVERSIZED),
        (parsed.isNull(), MALFORMED_JSON),
        (~F.try_variant_get(parsed, "$[1]", "bigint").eqNullSafe(F.col("mark")), MALFORMED_JSON),
        (
            ~F.schema_of_variant(F.try_variant_get(parsed, "$[0]", "variant")).startswith("OBJECT"),
            MALFORMED_JSON,
        ),
    ]
    for field in fields:
        found = F.schema_of_variant(F.try_variant_get(parsed, _variant_path(field), "variant"))
        absent = found.isNull() | (found == "VOID")
        if field.is_needed:
            checks.append((concerning(field, absent), f"missing field: {field.name}"))
        wrong = ~absent & ~found.rlike(field.kind.variant_type)
        checks.append((concerning(field, wrong), f"wrong type: {field.name}"))
    if has_paths:
        return checks
    # Cases that the two parsers read differently, such as a repeated name.
    required = [concerning(field, F.col("typed")[field.name].isNull()) for field in fields if field.is_needed]
    checks.append((reduce(lambda one, other: one | other, required), MALFORMED_JSON))
    return checks


def _value_checks(fields: Sequence[Field]) -> list[tuple[Column, str]]:
    checks = []
    for field in fields:
        if field.names:
            checks.append((concerning(field, F.col(field.name) == ""), f"empty field: {field.name}"))
        bounds = [F.col(field.name) < field.least] if field.least is not None else []
        if field.most is not None:
            bounds.append(F.col(field.name) > field.most)
        if bounds:
            outside = reduce(lambda one, other: one | other, bounds)
            checks.append((concerning(field, outside), f"out of range: {field.name}"))
    return checks


def valid_events(validated: DataFrame) -> DataFrame:
    """Return the valid events, with `event_time` as a timestamp for watermarks, windows and sessions.

    An event has happened by the time it arrives. If its time is later, a clock is ahead, and the event counts at its
    arrival. So no event moves the watermark past the present, where it would make the events of all others late.
    `event_time_ms` stays what the event says.
    """
    kept = validated.where(F.col("reason").isNull()).drop("reason", "value")
    return kept.withColumn("event_time", F.timestamp_millis(F.least("event_time_ms", "received_ms")))


def event_order() -> Column:
    """Order valid events by the time at which they count. It is a number, as in the state of earlier checkpoints."""
    return F.struct(F.unix_millis("event_time").alias("event_time_ms"), "event_id")


def rejected(validated: DataFrame) -> DataFrame:
    """Return the invalid records as rows of a rejected topic (docs/reference/pipeline.md). `source` is the key.

    All texts have bounds, so that a record with them is none that Kafka refuses. That would end the query.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    return validated.where(F.col("reason").isNotNull()).select(
        F.concat_ws("-", "topic", "partition", "offset").alias("event_id"),
        "reason",
        F.substring(text, 1, REJECTED_TEXT_CHARACTERS_MAX).alias("line"),
        *(["column"] if "column" in validated.columns else []),
        F.substring("source", 1, REJECTED_TEXT_CHARACTERS_MAX).alias("source"),
        "topic",
        "partition",
        "offset",
        "received_ms",
    )


def deduplicate(events: DataFrame, watermark_s: int, time: str = "event_time") -> DataFrame:
    """Drop events whose event_id occurred before, as far back as the watermark on the column `time` reaches.

    Events behind the watermark are dropped here. Spark counts them in numRowsDroppedByWatermark. A batch query has no
    watermark: all its rows are searched, and no event is late.
    """
    if not events.isStreaming:
        return events.dropDuplicates(["event_id"])
    return events.withWatermark(time, f"{watermark_s} seconds").dropDuplicatesWithinWatermark(["event_id"])


def nullable(rows: DataFrame) -> DataFrame:
    """Return the rows with columns, and fields in them, that may be null. In Parquet, one that may not be null cannot be read
    beside older files without it. Spark's optimizer takes the condition away again."""

    def made(each: StructField) -> Column:
        column, wanted = F.col(quoted(each.name)), _nullable(each.dataType)
        if wanted != each.dataType:
            column = column.cast(wanted)
        return (column if each.nullable else F.when(column.isNotNull(), column)).alias(each.name)

    return rows.select(*map(made, rows.schema))


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        fields = [
            StructField(each.name, _nullable(each.dataType), metadata=each.metadata) for each in kind.fields
        ]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    return kind


def with_window_bounds(frame: DataFrame) -> DataFrame:
    """Replace the column `window` by window_start_ms and window_end_ms."""
    return (
        frame.withColumn("window_start_ms", F.unix_millis("window.start"))
        .withColumn("window_end_ms", F.unix_millis("window.end"))
        .drop("window")
    )


def date_of(milliseconds: str) -> Column:
    """Return the UTC date of a column of milliseconds, as YYYY-MM-DD."""
    return F.date_format(F.timestamp_millis(milliseconds), "yyyy-MM-dd")
