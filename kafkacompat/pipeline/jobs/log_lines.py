"""Formats of log lines as Spark expressions: opens envelopes, and finds the fields of a line.

Several formats in one run have one plan. Each expression is chosen by the record's topic, so a line costs only its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.formats.envelopes import (
    DOCKER_MALFORMED,
    DOCKER_PART,
    ENVELOPES_MAX,
    TIME,
    Envelope,
)
from kafkacompat.pipeline.formats.named_fields import (
    ADDRESS_WITH_PORT,
    PAIR,
    PAIRS,
    PAIRS_BEGUN,
    SIZE_SHAPE,
    STATUS_SHAPE,
    TWICE,
    FieldsFormat,
    Place,
    Syntax,
)
from kafkacompat.pipeline.formats.patterns import (
    ESCAPED,
    FIELDS_MAX,
    FORMAT_CHARACTERS_MAX,
    MARK,
    Escapes,
    LineFormat,
    Time,
)
from kafkacompat.pipeline.formats.registry import Body, Enveloped, LogFormat
from kafkacompat.pipeline.formats.w3c import (
    BEGINNING,
    DATE_AND_TIME,
    EDGE,
    NAMES,
    NO_FIELDS,
    OTHER_FIELDS,
    TRAILING,
)
from kafkacompat.pipeline.jobs.validation import (
    closed_json,
    first_reason,
    json_mark,
    with_optimization_barrier,
)
from kafkacompat.pipeline.topics import FIELDS_HEADER, LINE_BYTES_MAX

Formats = Mapping[str, LogFormat]
"""The format of the lines of each topic. A single one is for all topics."""

_NAMED: Final = "array<struct<name: string, text: string>>"
_REFUSAL: Final = "struct<reason: string, column: int>"


def body_of(form: LogFormat) -> Body:
    """Return the format of the line in its envelopes."""
    return form.body if isinstance(form, Enveloped) else form


def has_outer_time(form: LogFormat) -> bool:
    """Return whether what is around the line has a time."""
    return isinstance(form, Enveloped) and form.has_time


def by_topic(forms: Formats, make: Callable[[LogFormat], Column]) -> Column:
    """Return the expression for the format of the record's topic."""
    if len(set(forms.values())) == 1:
        return make(next(iter(forms.values())))
    chosen: Column | None = None
    for topic, form in forms.items():
        condition = F.col("topic") == topic
        chosen = F.when(condition, make(form)) if chosen is None else chosen.when(condition, make(form))
    assert chosen is not None
    return chosen


def header_of(name: str) -> Column:
    """Return the text of a record's first header of this name, or null."""
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.make_valid_utf8(F.get(found, F.lit(0))["value"].cast("string"))


def unescaped(text: Column) -> Column:
    """Return the text with the characters for which the server wrote an escape: those of nginx, Apache httpd and JSON.

    The bytes of one character may have an escape each, so percent-encoding puts them together. Bytes that are not
    UTF-8 become U+FFFD.
    """
    made = F.replace(_kept_percent(text), F.lit("\\\\"), F.lit("%5C"))
    made = F.regexp_replace(made, r"\\(?:x|u00)([0-9A-Fa-f]{2})", "%$1")
    for letter, code in ESCAPED:
        made = F.replace(made, F.lit("\\" + letter), F.lit(code))
    return F.when(F.contains(text, F.lit("\\")), F.coalesce(F.try_url_decode(made), text)).otherwise(text)


def without_hashes(text: Column) -> Column:
    """Return the text with the characters for which HAProxy wrote `#HH`."""
    made = F.regexp_replace(_kept_percent(text), "#([0-9A-Fa-f]{2})", "%$1")
    return F.when(F.contains(text, F.lit("#")), F.coalesce(F.try_url_decode(made), text)).otherwise(text)


def _kept_percent(text: Column) -> Column:
    return F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("+"), F.lit("%2B"))


def user_agent(text: Column, escapes: Escapes) -> Column:
    """Return the user agent as the client sent it."""
    if escapes is Escapes.PLUS:
        return F.replace(text, F.lit("+"), F.lit(" "))
    if escapes is Escapes.PERCENT:
        return F.coalesce(F.try_url_decode(F.replace(text, F.lit("+"), F.lit("%2B"))), text)
    return text


def user_agent_of_its_file(text: Column) -> Column:
    """Return the user agent of a line in the W3C format as the client sent it."""
    is_of_edge = _is_of_edge(F.col("keys"))
    return F.when(is_of_edge, user_agent(text, Escapes.PERCENT)).otherwise(user_agent(text, Escapes.PLUS))


def moment(text: Column, time: Time) -> Column:
    """Return the milliseconds since 1970 of a time as the format writes it. Null if there is no such time."""
    match time:
        case Time.LOCAL | Time.UNZONED:
            form = "dd/MMM/yyyy:HH:mm:ss[.SSSSSSSSS] Z"
            zoned = text if time is Time.LOCAL else F.concat(text, F.lit(" +0000"))
            return F.unix_millis(F.try_to_timestamp(zoned, F.lit(form)))
        case Time.ISO:
            return F.unix_millis(text.try_cast("timestamp"))
        case Time.UTC:
            return F.unix_millis(F.concat(F.translate(text, "\t,", " ."), F.lit("Z")).try_cast("timestamp"))
        case Time.SECONDS:
            return (text.try_cast("decimal(20,6)") * 1000).try_cast("bigint")
        case Time.MILLISECONDS:
            return text.try_cast("bigint")
        case Time.MICROSECONDS:
            return F.floor(text.try_cast("decimal(20,0)") / 1000).try_cast("bigint")


def groups(text: Column, pattern: str, count: int) -> Column:
    """Return the groups of a pattern, separated by MARK. One replacement instead of one regexp_extract for each
    group: the text is matched once. A text that does not match stays as it is."""
    template = MARK.join(f"${group}" for group in range(1, count + 1))
    return F.regexp_replace(text, pattern, template)


def _refusal(reason: Column | str, column: Column | None = None) -> Column:
    told = F.lit(reason) if isinstance(reason, str) else reason
    at = F.lit(None) if column is None else column
    return F.struct(told.alias("reason"), at.cast("int").alias("column")).cast(_REFUSAL)


def _where(text: Column, reached_and_rest: str, refusals: Sequence[str], length: Column) -> Column:
    """Return the refusal of a line that does not have a pattern. length: of the text in which the column counts, of
    which `text` is the end."""
    found = F.split(groups(text, reached_and_rest, len(refusals)), MARK)

    def of(found: Column) -> Column:
        fields = F.array_remove(F.slice(found, 1, len(refusals) - 1), "")
        reason = F.get(F.array(*map(F.lit, refusals)), F.size(fields))
        return _refusal(reason, length - F.length(F.get(found, F.lit(len(refusals) - 1))) + 1)

    return F.get(F.transform(F.array(found), of), F.lit(0))


# Lines about the fields of a file.


def without_directives(lines: DataFrame, forms: Formats) -> DataFrame:
    """Drop the lines that tell about a file of the W3C format. A `#Fields` line stays if it is not the format's."""
    made = {form: _is_directive(form) for form in forms.values()}
    if all(is_directive is None for is_directive in made.values()):
        return lines

    def is_directive(form: LogFormat) -> Column:
        found = made[form]
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return lines.where(~by_topic(forms, is_directive))


def _is_directive(form: LogFormat) -> Column | None:
    body, text = body_of(form), F.col("text")
    if isinstance(body, FieldsFormat):
        if body.syntax is not Syntax.W3C:
            return None
        text = _without_hole(text)
        is_known = _names().isNotNull() | ~F.startswith(text, F.lit(BEGINNING))
    elif body.fields_line is None:
        return None
    else:
        told = F.trim(F.regexp_replace(F.substring(text, len(BEGINNING) + 1, LINE_BYTES_MAX), r"\s++", " "))
        is_known = ~F.startswith(text, F.lit(BEGINNING)) | (told == body.fields_line)
    return F.startswith(text, F.lit("#")) & is_known


def _names() -> Column:
    """Return the names of a record's fields by the `#Fields` line of its file. Null if there are none that can be used."""
    told = header_of(FIELDS_HEADER)
    short = F.when(F.length(told) <= FORMAT_CHARACTERS_MAX, told)
    names = F.split(F.when(short.rlike(NAMES), short), "[ \t]++")
    return F.when((F.size(names) <= FIELDS_MAX) & (F.size(names) == F.size(F.array_distinct(names))), names)


def _without_hole(text: Column) -> Column:
    return F.ltrim(text, F.lit("\0"))


# Envelopes.


def opened(lines: DataFrame, forms: Formats) -> DataFrame:
    """Replace `text` by the line in its envelopes. Add `outer_time` (milliseconds), `outer` (the envelopes' fields by
    name), `outer_refused`, and `counted` (the length of the text in which columns count)."""
    depth = max(len(form.envelopes) if isinstance(form, Enveloped) else 0 for form in forms.values())
    assert depth <= ENVELOPES_MAX
    if depth == 0:
        return lines
    lines = lines.withColumns(
        {
            "outer_time": F.lit(None).cast("bigint"),
            "outer": F.array().cast(_NAMED),
            "outer_refused": F.lit(None).cast(_REFUSAL),
            "counted": F.length("text"),
        }
    )
    kept = [
        name
        for name in lines.columns
        if name not in ("text", "outer_time", "outer", "outer_refused", "counted")
    ]
    names = ("text", "outer_time", "outer", "outer_refused", "counted")
    for level in range(depth):
        found = with_optimization_barrier(
            lines,
            [
                by_topic(forms, partial(_found, level=level)).alias("found"),
                *map(F.col, names),
            ],
            kept,
        )
        lines = with_optimization_barrier(
            found,
            [by_topic(forms, partial(_after, level=level, name=name)).alias(name) for name in names],
            kept,
        )
    return lines


def _envelope(form: LogFormat, level: int) -> Envelope | None:
    if not isinstance(form, Enveloped) or level >= len(form.envelopes):
        return None
    return form.envelopes[level]


def _found(form: LogFormat, level: int) -> Column:
    """Return the parts of the envelope, and null if the text does not have it."""
    envelope = _envelope(form, level)
    text = F.when(_is_readable(), F.col("text"))
    if envelope is None:
        return F.lit(None).cast("array<string>")
    if envelope.pattern:
        parts = F.split(groups(text, envelope.pattern, len(envelope.parts)), MARK)
        return F.when(F.size(parts) == len(envelope.parts), parts)
    tree = F.try_parse_json(closed_json(text))
    of = [F.try_variant_get(tree, f'$[0]["{name}"]', "string") for name in ("time", "stream", "log")]
    return F.when(_is_one_object(tree, text), F.array(*of))


def _is_readable() -> Column:
    return (F.col("size_bytes") <= LINE_BYTES_MAX) & (F.locate(MARK, F.col("text")) == 0)


def _after(form: LogFormat, level: int, name: str) -> Column:
    """Return the column of this name after the envelope."""
    envelope, before, found = _envelope(form, level), F.col(name), F.col("found")
    if envelope is None:
        return before
    line = F.get(found, F.lit(len(envelope.parts) - 1))
    if not envelope.pattern:
        line = F.when(F.endswith(line, F.lit("\n")), F.substr(line, F.lit(1), F.length(line) - 1))
    match name:
        case "text":
            # A text with the mark stays, and is refused for it.
            return F.when(_is_readable(), line).otherwise(before)
        case "outer_time":
            if TIME not in envelope.parts:
                return before
            return F.coalesce(moment(F.get(found, F.lit(envelope.parts.index(TIME))), Time.ISO), before)
        case "outer":
            named = [
                F.struct(
                    F.lit(part).alias("name"), F.get(found, F.lit(envelope.parts.index(part))).alias("text")
                )
                for part in envelope.kept
            ]
            return F.concat(before, F.array(*named).cast(_NAMED))
        case "counted":
            return before if envelope.pattern else F.length(line)
        case _:
            if envelope.pattern:
                where = _where(F.col("text"), envelope.reached_and_rest, envelope.refusals, F.col("counted"))
            else:
                where = _refusal(F.when(found.isNull(), DOCKER_MALFORMED).otherwise(DOCKER_PART))
            return F.coalesce(before, F.when(_is_readable() & line.isNull(), where))


# Named fields.


def with_named_fields(lines: DataFrame, forms: Formats) -> DataFrame:
    """Add `tree` for formats of JSON, and `keys` and `texts` for logfmt."""
    syntaxes = {body.syntax for form in forms.values() if isinstance(body := body_of(form), FieldsFormat)}
    columns = []
    text = F.when(_is_readable(), F.col("text"))

    def each(made: Mapping[Syntax, Column], column_type: str) -> Column:
        def of(form: LogFormat) -> Column:
            body = body_of(form)
            found = made.get(body.syntax) if isinstance(body, FieldsFormat) else None
            return F.lit(None).cast(column_type) if found is None else found

        return by_topic(forms, of)

    if Syntax.JSON in syntaxes:
        tree = F.try_parse_json(closed_json(text))
        columns.append(each({Syntax.JSON: tree}, "variant").alias("tree"))
    if syntaxes & {Syntax.LOGFMT, Syntax.W3C}:
        whole = F.when(text.rlike(PAIRS), text)
        keys, texts = (F.regexp_extract_all(whole, F.lit(PAIR), F.lit(group)) for group in (1, 2))
        own = {Syntax.LOGFMT: (keys, texts)}
        if Syntax.W3C in syntaxes:
            own[Syntax.W3C] = (_names(), _values(text))
        columns += [
            each({syntax: found[number] for syntax, found in own.items()}, "array<string>").alias(name)
            for number, name in enumerate(("keys", "texts"))
        ]
    if not columns:
        return lines
    return with_optimization_barrier(lines, columns, lines.columns)


def _values(text: Column) -> Column:
    """Return the values of a line in the W3C format. Of too many values the last one has all that are beyond."""
    told = header_of(FIELDS_HEADER)
    has_tabs = F.contains(told, F.lit("\t")) | _is_of_edge(_names())
    return F.split(
        F.rtrim(_without_hole(text), F.lit(TRAILING)),
        F.when(has_tabs, F.lit("\t")).otherwise(F.lit(" ")),
        FIELDS_MAX + 1,
    )


def _is_of_edge(names: Column) -> Column:
    return F.exists(names, lambda name: F.startswith(name, F.lit(EDGE)))


def _is_one_object(tree: Column, text: Column) -> Column:
    is_one = F.try_variant_get(tree, "$[1]", "bigint").eqNullSafe(json_mark(text))
    return is_one & text.rlike(r"^\s*+\{")


def _value(form: FieldsFormat, place: Place) -> Column:
    if form.syntax is Syntax.JSON:
        return F.try_variant_get("tree", f"$[0]{place.json_path}", "string")
    if form.syntax is Syntax.W3C:
        if place.steps[0] != DATE_AND_TIME:
            return _text_at(place.steps[0])
        return F.concat(_text_at("date"), F.lit(" "), _text_at("time"))
    text = _text_at(place.steps[0])
    return F.when(F.startswith(text, F.lit('"')), unescaped(_in_quotes(text))).otherwise(text)


def _text_at(key: str | int) -> Column:
    # A position of 0 stands for none.
    return F.get(F.col("texts"), F.array_position("keys", key).cast("int") - 1)


def _in_quotes(text: Column) -> Column:
    return F.substr(text, F.lit(2), F.length(text) - 2)


def named_parts(form: FieldsFormat) -> Column:
    """Return the values of the parts, and after them for each place of the time the text there, if it is such a time.
    Null if the line does not have the syntax."""
    values = []
    for part, places in zip(form.parts, form.places, strict=True):
        values.append(F.coalesce(*(_value(form, place) for place in places), F.lit(None).cast("string")))
        if part == "client":
            values[-1] = F.regexp_replace(values[-1], ADDRESS_WITH_PORT, "$1$2")
    for place in form.places_of("time"):
        assert place.time is not None
        text = _value(form, place)
        values.append(F.when(text.rlike(f"^(?:{place.time.value})$"), text))
    text = F.col("text")
    if form.syntax is Syntax.JSON:
        is_whole = _is_one_object(F.col("tree"), text)
    elif form.syntax is Syntax.W3C:
        is_whole = F.size("keys") == F.size("texts")
    else:
        is_whole = F.size("keys") == F.size(F.array_distinct("keys"))
    return F.when(is_whole, F.array(*values))


def named_refusal(form: FieldsFormat, parts: Column, counted: Column, *, has_time: bool) -> Column:
    """Return the refusal of a line, or null. counted: the length of the text in which columns count. has_time: what is
    around the line has a time."""
    of = {part: F.get(parts, F.lit(number)) for number, part in enumerate(form.parts)}
    if form.syntax is Syntax.JSON:
        malformed = F.when(parts.isNull(), _refusal(form.malformed))
    elif form.syntax is Syntax.W3C:
        malformed = F.when(F.col("keys").isNull(), _refusal(NO_FIELDS))
        malformed = malformed.when(parts.isNull(), _refusal(form.malformed))
    else:
        rest = F.regexp_replace(F.col("text"), PAIRS_BEGUN, "$1")
        at = counted - F.length(rest) + 1
        malformed = F.when(F.col("keys").isNull(), _refusal(form.malformed, at))
        malformed = malformed.when(parts.isNull(), _refusal(TWICE))
    checks: list[tuple[Column, str | Column]] = []
    if "time" in form.parts:
        places = range(len(form.parts), len(form.parts) + len(form.places_of("time")))
        shaped = F.coalesce(*(F.get(parts, F.lit(number)) for number in places))
        is_wrong = shaped.isNull() & of["time"].isNotNull() if has_time else shaped.isNull()
        checks.append((is_wrong, form.wanted("time")))
    checks.append((~F.coalesce(of["status"].rlike(STATUS_SHAPE), F.lit(False)), form.wanted("status")))
    if "bytes" in form.parts:
        checks.append((~F.coalesce(of["bytes"].rlike(SIZE_SHAPE), F.lit(True)), form.wanted("bytes")))
    reason = first_reason(checks)
    return F.coalesce(malformed, F.when(reason.isNotNull(), _refusal(reason)))


def named_time(form: FieldsFormat, parts: Column) -> list[Column]:
    """Return the milliseconds since 1970 of each place of the time."""
    return [
        moment(F.get(parts, F.lit(number)), place.time)
        for number, place in enumerate(form.places_of("time"), len(form.parts))
        if place.time is not None
    ]


def named_rest(form: FieldsFormat, not_kept: Sequence[str]) -> Column:
    """Return the other fields of the line by name, without those of these names."""
    left_out = [*form.used, *not_kept]
    if form.syntax is Syntax.JSON:
        fields = F.map_entries(F.try_variant_get("tree", "$[0]", "map<string,string>"))
        named = F.transform(
            fields, lambda one: F.struct(one["key"].alias("name"), one["value"].alias("text"))
        )
    elif form.syntax is Syntax.W3C:
        counted = [F.lit("date"), F.lit("time")]
        for places in form.places:
            held = [
                F.when(F.array_contains("keys", place.steps[0]), F.lit(place.steps[0])) for place in places
            ]
            counted.append(F.coalesce(*held, F.lit("")))
        rest = F.filter(
            F.arrays_zip(F.col("keys").alias("name"), F.col("texts").alias("text")),
            lambda one: ~F.array_contains(F.array(*counted), one["name"]),
        )
        return F.coalesce(rest.cast(_NAMED), F.array().cast(_NAMED))
    else:
        named = F.zip_with(
            "keys",
            "texts",
            lambda key, text: F.struct(
                key.alias("name"),
                F.when(F.startswith(text, F.lit('"')), unescaped(_in_quotes(text)))
                .otherwise(text)
                .alias("text"),
            ),
        )
    return F.coalesce(
        F.filter(named, lambda one: ~one["name"].isin(left_out)).cast(_NAMED), F.array().cast(_NAMED)
    )


# Patterns.


def pattern_parts(form: LineFormat, text: Column) -> Column:
    """Return the parts of a line. Their number is another one if the line does not have the format."""
    return F.split(groups(text, form.pattern, len(form.parts)), MARK)


def pattern_refusal(form: LineFormat, counted: Column) -> Column:
    """Return the refusal of a line that does not have the format."""
    where = _where(F.col("text"), form.reached_and_rest, form.refusals, counted)
    if form.fields_line is None:
        return where
    return F.when(F.startswith(F.col("text"), F.lit(BEGINNING)), _refusal(OTHER_FIELDS, F.lit(1))).otherwise(
        where
    )


def named(parts: Mapping[str, Column], names: Sequence[str]) -> list[Column]:
    """Return parts as elements of `extra`."""
    return [F.struct(F.lit(name).alias("name"), F.trim(parts[name]).alias("text")) for name in names]


def concatenated(columns: Sequence[Column]) -> Column:
    """Return the arrays as one."""
    return reduce(F.concat, columns)
