"""Log collection: lines of web-server access logs become typed events and a summary per minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.formats.named_fields import FieldsFormat, Syntax
from kafkacompat.pipeline.formats.patterns import (
    EVENT_PARTS,
    MARK,
    MARKED,
    NO_TIME,
    REQUEST_PATTERN,
    Escapes,
)
from kafkacompat.pipeline.formats.registry import Enveloped, LogFormat, log_format
from kafkacompat.pipeline.formats.server_formats import AUTO
from kafkacompat.pipeline.jobs.log_lines import (
    Formats,
    body_of,
    by_topic,
    concatenated,
    groups,
    has_outer_time,
    header_of,
    moment,
    named,
    named_parts,
    named_refusal,
    named_rest,
    named_time,
    opened,
    pattern_parts,
    pattern_refusal,
    unescaped,
    user_agent,
    user_agent_of_its_file,
    with_named_fields,
    without_directives,
    without_hashes,
)
from kafkacompat.pipeline.jobs.validation import (
    ENVELOPE_KEPT,
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
    LOGS_RAW,
    OVERSIZED,
    POSITION_HEADER,
    SOURCE_HEADER,
)

SUMMARY_WINDOW_S: Final = 60
AUTO_FORMAT: Final = log_format(AUTO)
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

OF_THE_RECORD: Final = ("event_id", "source")
"""Those that are not in the line: its record has them in its headers, or else its key and its place."""


OPENED: Final = ("outer_time", "outer", "outer_refused", "counted")
"""The columns that `opened` adds."""


def _absent_as_null(column: Column) -> Column:
    return F.when((column != "-") & (column != ""), column)


def _parts_count(form: LogFormat) -> int:
    """Return the number of texts that a line of the format is read as."""
    body = body_of(form)
    more = len(body.places_of("time")) if isinstance(body, FieldsFormat) else 0
    return len(body.parts) + more


def _is_whole(form: LogFormat) -> Column:
    return F.coalesce(F.size("parts") == _parts_count(form), F.lit(False))


def _words(form: LogFormat) -> Column:
    """Return method, path and protocol of the request."""
    body = body_of(form)
    if "request" not in body.parts:
        return F.lit(None).cast("array<string>")
    request = F.when(_is_whole(form), F.col("parts"))[body.parts.index("request")]
    if isinstance(body, FieldsFormat):
        # JSON may have any character in a text.
        request = F.when(F.locate(MARK, request) == 0, request)
    return F.split(groups(request, REQUEST_PATTERN, 3), MARK)


def _without_escapes(form: LogFormat, texts: Column) -> Column:
    body = body_of(form)
    if isinstance(body, FieldsFormat):
        return texts
    if body.escapes is Escapes.BACKSLASH:
        return F.when(F.contains("text", F.lit("\\")), F.transform(texts, unescaped)).otherwise(texts)
    if body.escapes is Escapes.HASH:
        return F.when(F.contains("text", F.lit("#")), F.transform(texts, without_hashes)).otherwise(texts)
    return texts


def _refused(form: LogFormat, counted: Column) -> Column:
    body = body_of(form)
    if isinstance(body, FieldsFormat):
        return named_refusal(body, F.col("parts"), counted, has_time=has_outer_time(form))
    return F.when(~_is_whole(form), pattern_refusal(body, counted))


def _event_columns(form: LogFormat) -> dict[str, Column]:
    """Return the columns of an event, of `parts` and `words` without escapes."""
    body = body_of(form)
    part = dict.fromkeys(EVENT_PARTS, F.lit(None).cast("string")) | {
        name: F.get("parts", F.lit(index)) for index, name in enumerate(body.parts)
    }
    times = [F.col("outer_time")] if has_outer_time(form) else []
    status = part["status"].try_cast("int")
    path, agent = part["path"], part["user_agent"]
    if isinstance(body, FieldsFormat):
        times = [*named_time(body, F.col("parts")), *times]
        # What is no time must not become the time of the envelope.
        status = F.when(status > 0, status)
        if body.syntax is Syntax.W3C:
            agent = user_agent_of_its_file(agent)
    else:
        agent = user_agent(agent, body.escapes)
        if body.time is not None:
            times = [moment(part["time"], body.time)]
        if body.status_may_be_absent:
            status = F.when(status > 0, status)
    if body.query is not None:
        query = _absent_as_null(part[body.query])
        asked = F.concat(F.coalesce(path, F.lit("")), F.lit("?"), query)
        path = F.when(query.isNotNull(), asked).otherwise(path)
    proper = F.size("words") == 3
    user = _absent_as_null(part["user"])
    client = part["client"] if not isinstance(body, FieldsFormat) else _absent_as_null(part["client"])
    return {
        "event_time_ms": F.coalesce(*times) if len(times) > 1 else times[0],
        "client": client,
        # Apache httpd writes an empty name as two quotes.
        "user": F.when(user != '""', user),
        "method": F.coalesce(part["method"], F.when(proper, F.get("words", F.lit(0)))),
        "path": F.coalesce(path, F.when(proper, F.get("words", F.lit(1))).otherwise(part["request"])),
        "protocol": F.coalesce(part["protocol"], F.when(proper, F.get("words", F.lit(2)))),
        "status": status,
        "bytes": F.coalesce(part["bytes"].try_cast("bigint"), F.lit(0)),
        "referrer": _absent_as_null(part["referrer"]),
        "user_agent": _absent_as_null(agent),
        "virtual_host": _absent_as_null(part["virtual_host"]),
        "extra": _extra(form, part),
    }


def _extra(form: LogFormat, part: dict[str, Column]) -> Column:
    body = body_of(form)
    own = [name for name in body.extra if name != body.query]
    arrays = [F.array(*named(part, own))] if own else []
    outer: list[str] = []
    if isinstance(form, Enveloped):
        outer = list(dict.fromkeys(name for envelope in form.envelopes for name in envelope.kept))
        # The line's own field counts if an envelope has one of the same name, and then that of the outer envelope.
        arrays += [F.array(_outermost(name)) for name in outer if name not in own]
    if isinstance(body, FieldsFormat):
        arrays.append(named_rest(body, outer))
    if not arrays:
        return F.lit(None).cast("map<string,string>")
    kept = F.filter(concatenated(arrays), _is_told)
    # Spark makes no map with a key twice: the query would end. A line of logfmt that has one is refused, and has no parts.
    return F.when(F.col("parts").isNotNull() & (F.size(kept) > 0), F.map_from_entries(kept))


def _outermost(name: str) -> Column:
    """Return the first element of `outer` with this name that has a text, or null."""
    return F.get(F.filter("outer", lambda one: (one["name"] == name) & _is_told(one)), F.lit(0))


def _is_told(one: Column) -> Column:
    return (one["text"] != "") & (one["text"] != "-")


def validate(records: DataFrame, form: LogFormat | Formats = AUTO_FORMAT) -> DataFrame:
    """Turn records of topics with lines (with headers) into the envelope, the columns of an event, `reason`, which is null
    for valid lines, and `column`, the character from which a line is refused, if that is known.

    form: the format of the lines, or of each topic. The event's id is file@position if the collector set those headers,
    otherwise topic-partition-offset.
    """
    forms: Formats = {LOGS_RAW: form} if isinstance(form, LogFormat) else form
    lines = envelope(records).withColumn("text", F.make_valid_utf8(F.col("value").cast("string")))
    lines = with_named_fields(opened(without_directives(lines, forms), forms), forms)
    added = [name for name in OPENED if name in lines.columns]
    counted = F.col("counted") if added else F.length("text")
    fields = [name for name in ("tree", "keys", "texts") if name in lines.columns]
    text = F.col("text")
    # A line that already contains the mark could look like a matched one.
    marked = F.locate(MARK, text) > 0
    readable = (F.col("size_bytes") <= LINE_BYTES_MAX) & ~marked

    def matched(form: LogFormat) -> Column:
        body = body_of(form)
        return named_parts(body) if isinstance(body, FieldsFormat) else pattern_parts(body, text)

    position = F.concat(header_of(FILE_HEADER), F.lit("@"), header_of(POSITION_HEADER))
    lines = with_optimization_barrier(
        lines,
        [
            F.when(readable, text).alias("text"),
            F.when(readable, by_topic(forms, matched)).alias("parts"),
            F.coalesce(marked, F.lit(False)).alias("marked"),
            F.coalesce(position, F.concat_ws("-", "topic", "partition", "offset")).alias("event_id"),
            F.coalesce(header_of(SOURCE_HEADER), F.col("source")).alias("source"),
            header_of(CUT_HEADER).isNotNull().alias("cut"),
        ],
        [*(name for name in (*ENVELOPE_KEPT, "size_bytes") if name != "source"), *added, *fields],
    )
    whole = by_topic(forms, _is_whole)
    parts = F.when(whole, F.col("parts"))
    kept = [*ENVELOPE_KEPT, "size_bytes", "event_id", "cut", "marked", "refused", *added]
    lines = lines.select(
        "*", by_topic(forms, lambda form: _refused(form, counted)).alias("refused")
    ).withColumns(
        {
            "parts": by_topic(forms, lambda form: _without_escapes(form, parts)),
            "words": by_topic(forms, lambda form: _without_escapes(form, _words(form))),
        }
    )
    of_form = {form: _event_columns(form) for form in forms.values()}

    def event_column(name: str) -> Column:
        return by_topic(forms, lambda form: of_form[form][name]).alias(name)

    columns = [event_column(name) for name in EVENT_COLUMNS if name not in OF_THE_RECORD]
    validated = with_optimization_barrier(lines, columns, kept)
    refused = F.coalesce(F.col("outer_refused"), F.col("refused")) if added else F.col("refused")
    checks: list[tuple[Column, str | Column]] = [
        ((F.col("size_bytes") > LINE_BYTES_MAX) | F.col("cut"), OVERSIZED),
        (F.col("marked"), MARKED),
        (refused.isNotNull(), refused["reason"]),
        (F.col("event_time_ms").isNull(), NO_TIME),
        *time_checks(F.col("event_time_ms"), F.col("received_ms")),
    ]
    wanted = [
        name for name in validated.columns if name not in ("size_bytes", "cut", "marked", "refused", *added)
    ]
    return validated.select(
        *wanted,
        first_reason(checks).alias("reason"),
        F.when(~F.col("marked"), refused["column"]).alias("column"),
    )


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
