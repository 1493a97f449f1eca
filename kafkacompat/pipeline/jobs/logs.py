"""Log collection: lines of web-server access logs become typed events and a summary per minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.jobs.log_formats import (
    AUTO,
    EVENT_PARTS,
    MALFORMED_LINE,
    Escapes,
    LineFormat,
    Time,
    line_format,
)
from kafkacompat.pipeline.jobs.validation import (
    ENVELOPE_KEPT,
    OVERSIZED,
    date_of,
    envelope,
    first_reason,
    time_checks,
    with_optimization_barrier,
    with_window_bounds,
)
from kafkacompat.pipeline.topics import (
    CUT_HEADER,
    FILE_HEADER,
    LINE_BYTES_MAX,
    POSITION_HEADER,
    SOURCE_HEADER,
)

SUMMARY_WINDOW_S: Final = 60
PART_MARK: Final = "\u0001"
AUTO_FORMAT: Final = line_format(AUTO)
REQUEST_PATTERN: Final = r"(?s)^([^ ]*+) ([^ ]*|.*(?= [A-Z]{1,9}/[0-9][0-9.]{0,9}$)) ([^ ]*+)$"
"""Method, path and protocol. Some clients do not escape the blanks in a path."""

ESCAPED: Final = (
    ('"', "%22"),
    ("n", "%0A"),
    ("t", "%09"),
    ("r", "%0D"),
    ("b", "%08"),
    ("f", "%0C"),
    ("v", "%0B"),
    ("/", "%2F"),
)
"""The other escapes of Apache httpd and JSON, and the codes of their characters."""

MARKED: Final = f"{MALFORMED_LINE}: it contains the character U+0001"
NO_TIME: Final = f"{MALFORMED_LINE}: time: there is no such date or time of day"
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


def unescaped(text: Column) -> Column:
    """Return the text with the characters for which the server wrote an escape: those of nginx, Apache httpd and JSON.

    The bytes of one character may have an escape each, so percent-encoding puts them together. Bytes that are not
    UTF-8 become U+FFFD.
    """
    made = F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("+"), F.lit("%2B"))
    made = F.replace(made, F.lit("\\\\"), F.lit("%5C"))
    made = F.regexp_replace(made, r"\\(?:x|u00)([0-9A-Fa-f]{2})", "%$1")
    for letter, code in ESCAPED:
        made = F.replace(made, F.lit("\\" + letter), F.lit(code))
    return F.when(F.contains(text, F.lit("\\")), F.coalesce(F.try_url_decode(made), text)).otherwise(text)


def moment(text: Column, time: Time) -> Column:
    """Return the milliseconds since 1970 of a time as the format writes it. Null if there is no such time."""
    match time:
        case Time.LOCAL:
            form = "dd/MMM/yyyy:HH:mm:ss[.SSSSSSSSS] Z"
            return F.unix_millis(F.try_to_timestamp(text, F.lit(form)))
        case Time.ISO:
            return F.unix_millis(text.try_cast("timestamp"))
        case Time.SECONDS:
            return (text.try_cast("decimal(20,6)") * 1000).try_cast("bigint")
        case Time.MILLISECONDS:
            return text.try_cast("bigint")
        case Time.MICROSECONDS:
            return F.floor(text.try_cast("decimal(20,0)") / 1000).try_cast("bigint")


def _extra(parts: dict[str, Column], names: Sequence[str]) -> Column:
    if not names:
        return F.lit(None).cast("map<string,string>")
    kept = F.filter(
        F.array(*(F.struct(F.lit(name).alias("name"), F.trim(parts[name]).alias("text")) for name in names)),
        lambda one: (one["text"] != "") & (one["text"] != "-"),
    )
    return F.when(F.size(kept) > 0, F.map_from_entries(kept))


def _groups(text: Column, pattern: str, count: int) -> Column:
    """Return the groups of a pattern, separated by PART_MARK. One replacement instead of one regexp_extract for each
    group: the text is matched once. A text that does not match stays as it is."""
    template = PART_MARK.join(f"${group}" for group in range(1, count + 1))
    return F.regexp_replace(text, pattern, template)


def _refusal(text: Column, form: LineFormat) -> Column:
    """Return the reason for a line that does not have the format."""
    groups = F.split(_groups(text, form.reached, len(form.refusals) - 1), PART_MARK)
    reached = F.size(F.array_remove(groups, ""))
    return F.get(F.array(*map(F.lit, form.refusals)), reached)


def validate(records: DataFrame, form: LineFormat = AUTO_FORMAT) -> DataFrame:
    """Turn records of logs.raw (with headers) into the envelope, the columns of an event, and `reason`, which is null
    for valid lines.

    The event's id is file@position if the collector set those headers, otherwise topic-partition-offset.
    """
    lines = envelope(records).withColumn("text", F.make_valid_utf8(F.col("value").cast("string")))
    text = F.col("text")
    # A line that already contains the mark could look like a matched one.
    marked = F.locate(PART_MARK, text) > 0
    readable = (F.col("size_bytes") <= LINE_BYTES_MAX) & ~marked
    matched = F.when(readable, F.split(_groups(text, form.pattern, len(form.parts)), PART_MARK))
    position = F.concat(_header(FILE_HEADER), F.lit("@"), _header(POSITION_HEADER))
    lines = with_optimization_barrier(
        lines,
        [
            F.when(readable, text).alias("text"),
            matched.alias("parts"),
            F.coalesce(marked, F.lit(False)).alias("marked"),
            F.coalesce(position, F.concat_ws("-", "topic", "partition", "offset")).alias("event_id"),
            F.coalesce(_header(SOURCE_HEADER), F.col("source")).alias("source"),
            _header(CUT_HEADER).isNotNull().alias("cut"),
        ],
        [name for name in (*ENVELOPE_KEPT, "size_bytes") if name != "source"],
    )
    whole = F.coalesce(F.size("parts") == len(form.parts), F.lit(False))
    parts = F.when(whole, F.col("parts"))
    words = F.lit(None).cast("array<string>")
    if "request" in form.parts:
        words = F.split(_groups(parts[form.parts.index("request")], REQUEST_PATTERN, 3), PART_MARK)
    if form.escapes is Escapes.BACKSLASH:
        escaped = F.contains("text", F.lit("\\"))
        parts = F.when(escaped, F.transform(parts, unescaped)).otherwise(parts)
        words = F.when(escaped, F.transform(words, unescaped)).otherwise(words)
    kept = [*ENVELOPE_KEPT, "size_bytes", "event_id", "cut", "marked", "refused"]
    refused = F.when(~whole, _refusal(F.col("text"), form)).alias("refused")
    lines = lines.select("*", refused).withColumns({"parts": parts, "words": words})
    part = dict.fromkeys(EVENT_PARTS, F.lit(None).cast("string")) | {
        name: F.get("parts", F.lit(index)) for index, name in enumerate(form.parts)
    }
    proper = F.size("words") == 3
    user = _absent_as_null(part["user"])
    columns = [
        moment(part["time"], form.time).alias("event_time_ms"),
        part["client"].alias("client"),
        # Apache httpd writes an empty name as two quotes.
        F.when(user != '""', user).alias("user"),
        F.coalesce(part["method"], F.when(proper, F.get("words", F.lit(0)))).alias("method"),
        F.coalesce(part["path"], F.when(proper, F.get("words", F.lit(1))).otherwise(part["request"])).alias(
            "path"
        ),
        F.coalesce(part["protocol"], F.when(proper, F.get("words", F.lit(2)))).alias("protocol"),
        part["status"].try_cast("int").alias("status"),
        F.coalesce(part["bytes"].try_cast("bigint"), F.lit(0)).alias("bytes"),
        _absent_as_null(part["referrer"]).alias("referrer"),
        _absent_as_null(part["user_agent"]).alias("user_agent"),
        _absent_as_null(part["virtual_host"]).alias("virtual_host"),
        _extra(part, form.extra).alias("extra"),
    ]
    validated = with_optimization_barrier(lines, columns, kept)
    checks: list[tuple[Column, str | Column]] = [
        ((F.col("size_bytes") > LINE_BYTES_MAX) | F.col("cut"), OVERSIZED),
        (F.col("marked"), MARKED),
        (F.col("refused").isNotNull(), F.col("refused")),
        (F.col("event_time_ms").isNull(), NO_TIME),
        *time_checks(F.col("event_time_ms"), F.col("received_ms")),
    ]
    wanted = [name for name in validated.columns if name not in ("size_bytes", "cut", "marked", "refused")]
    return validated.select(*wanted, first_reason(checks).alias("reason"))


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
