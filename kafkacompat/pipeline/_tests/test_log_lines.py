"""log_lines.json: lines of each format, as the documents of their programs have them, and what is read from them.

An entry without `event` and without `reason` tells only about its file. Plain Python and Spark are held to the same table.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from kafkacompat.pipeline.formats.envelopes import ENVELOPES
from kafkacompat.pipeline.formats.patterns import FormatProblem, LineFormat
from kafkacompat.pipeline.formats.reading import Reading, read_line
from kafkacompat.pipeline.formats.registry import LOG_FORMATS, log_format
from kafkacompat.pipeline.formats.w3c import fields_after
from kafkacompat.pipeline.topics import FIELDS_HEADER, LINE_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
LINES: Final[list[dict[str, Any]]] = json.loads((Path(__file__).parent / "log_lines.json").read_text("utf-8"))
KINDS_MIN: Final = 56
FORMATS_AT_ONCE: Final = 6


def form_of(entry: dict[str, Any]) -> tuple[str, bytes]:
    """Return the format of the line, and the fields that its file gives for it."""
    return entry["format"], entry.get("fields", "").encode()


def expected(entry: dict[str, Any]) -> Reading:
    return Reading(entry.get("event"), entry.get("reason"), entry.get("column"))


@pytest.mark.parametrize("entry", LINES, ids=[entry["kind"] for entry in LINES])
def test_a_line_is_read_as_its_document_says(entry: dict[str, Any]) -> None:
    form, fields = form_of(entry)
    assert read_line(log_format(form), entry["line"].encode(), fields) == expected(entry)


def test_every_format_has_good_and_refused_lines() -> None:
    assert len({entry["kind"] for entry in LINES}) == len(LINES) > KINDS_MIN
    used = {entry["format"] for entry in LINES}
    assert set(LOG_FORMATS) <= {form.rpartition("+")[2] for form in used}
    assert set(ENVELOPES) <= {name for form in used for name in form.split("+")}
    for name in (*LOG_FORMATS, *ENVELOPES):
        own = [entry for entry in LINES if name in entry["format"].split("+")]
        assert any("event" in entry for entry in own), name
        assert any("reason" in entry for entry in own) or name in SERVERS_OWN, name


SERVERS_OWN: Final = ("auto", "vhost_combined", "main", "upstreaminfo")
"""Formats whose refused lines test_log_formats.py has."""


_NAMES: Final = sorted(set(map(form_of, LINES)))
_AT_ONCE: Final = [
    tuple(_NAMES[start : start + FORMATS_AT_ONCE]) for start in range(0, len(_NAMES), FORMATS_AT_ONCE)
]


@pytest.mark.parametrize("forms", _AT_ONCE, ids=range(len(_AT_ONCE)))
def test_spark_reads_lines_of_many_topics_as_python_does(
    records: Records, forms: tuple[tuple[str, bytes], ...]
) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import ANCIENT, FUTURE

    topics = {form: f"topic-{number}" for number, form in enumerate(forms)}
    lines = {
        form: [
            line
            for entry in LINES
            if form_of(entry) == form
            for line in (entry["line"].encode(), *changed(entry["line"].encode()))
        ]
        for form in forms
    }
    frames = [records(topics[form], *lines[form], headers=_headers(form[1])) for form in forms]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.union(other)
    validated = logs.validate(frame, {topic: log_format(form) for (form, _), topic in topics.items()})
    found = {(row["topic"], row["offset"]): row.asDict(recursive=True) for row in validated.collect()}
    for form in forms:
        made = log_format(form[0])
        for offset, line in enumerate(lines[form]):
            told = read_line(made, line, form[1])
            row = found.get((topics[form], offset))
            if row is not None and row["reason"] in (FUTURE, ANCIENT):
                # Only the job knows when the line arrived.
                assert told.event is not None
                continue
            assert _reading(row) == told, (form, line)


def _headers(fields: bytes) -> list[tuple[str, bytes]] | None:
    return [(FIELDS_HEADER, fields)] if fields else None


CHANGES: Final = 20
ODD: Final = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"=",
    b"-",
    b" ",
    b"\t",
    b"0",
    b"#",
    b"%",
    b"\x01",
    b"\xff",
    b"\xc3\xa9",
)


def changed(line: bytes) -> list[bytes]:
    """Return the line with something else, more or less in it, as a seed has it."""
    chance = random.Random(line)
    found = []
    for _ in range(CHANGES):
        start = chance.randrange(len(line) + 1)
        end = min(start + chance.choice((0, 1, 1, 1, 5, len(line))), len(line))
        found.append(line[:start] + chance.choice((b"", *ODD)) + line[end:])
    return found


def read_columns() -> list[str]:
    """The columns of the table logs/events that a line has. Its record has the others."""
    from kafkacompat.pipeline.jobs.logs import EVENT_COLUMNS, OF_THE_RECORD

    return [name for name in EVENT_COLUMNS if name not in OF_THE_RECORD]


def test_each_column_of_the_events_is_read_from_a_line() -> None:
    """So Spark and Python are compared in a new column too."""
    pytest.importorskip("pyspark")
    assert {name for entry in LINES for name in entry.get("event", ())} == set(read_columns())


def _reading(row: dict[str, Any] | None) -> Reading:
    """Return what Spark made of a line, in the form of `read_line`."""
    if row is None:
        return Reading()
    if row["reason"] is not None:
        return Reading(reason=row["reason"], column=row["column"])
    columns = {name: row[name] for name in read_columns()}
    return Reading({name: value for name, value in columns.items() if value is not None})


HOSTILE: Final = [
    b"{" * 60_000,
    b"[" * 60_000,
    b'{"a":' * 30_000,
    b'a="' * 30_000,
    b"a=1 " * 30_000 + b'"',
    b'a="' + b'\\"' * 30_000,
    b'<1>1 - - - - - [a b="' + b'\\"' * 30_000,
    b"<1>1 - - - - - " + b'[a b="c"]' * 10_000,
    b"<1>Sep 21 14:13:20 " + b"a:" * 30_000,
    b"2026-09-21T14:13:20Z stdout F " + b" " * 60_000,
    b"\0" * 60_000,
    b"\xff" * 60_000,
    b" " * 60_000,
    b"a" * (LINE_BYTES_MAX + 1),
]


IN_ENVELOPES: Final = [f"{name}+logfmt" for name in ENVELOPES]
OWN: Final = "pattern:{time:iso} {a:text} {b:text}|{status}"


@pytest.mark.parametrize("form", [*LOG_FORMATS, *IN_ENVELOPES, OWN])
def test_a_hostile_line_is_refused_in_one_pass(form: str) -> None:
    """With backtracking the test would run for minutes, so it only has to end."""
    made = log_format(form)
    for line in HOSTILE:
        assert read_line(made, line).reason is not None


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (b"2026-09-21 14:13:20 200", b"before"),
        (b"#Software: Microsoft Internet Information Services 10.0", b"before"),
        (b"#Fields: date time sc-status\r", b"date time sc-status"),
        (b"#Fields:date\ttime", b"date\ttime"),
        (b"\0\0#Fields: date", b"date"),
        (b"#Fields:", b""),
        (b"#Fields: date date", b""),
        (b"#Fields: date \x1b[2J", b""),
        (b"#Fields: date \xc3\xa9", b""),
        (b"#Fields: one\ntwo", b""),
        (b"#Fields: " + b" ".join(b"f%d" % number for number in range(40)), None),
        (b"#Fields: " + b" ".join(b"f%d" % number for number in range(41)), b""),
        (b"#Fields: " + b"f" * 2000, None),
        (b"#Fields: " + b"f" * 2001, b""),
        (b"#Fields: " + b"f " * 250_000 + b"f\n", b""),
    ],
)
def test_a_fields_line_counts_if_its_names_can_be_used(line: bytes, after: bytes | None) -> None:
    """after: None for the names as they stand in the line."""
    assert fields_after(line, b"before") == (line[len("#Fields: ") :] if after is None else after)


def test_the_fields_of_a_file_are_read_as_a_format_of_that_text() -> None:
    """The lines of a format with its `#Fields` line are the same events by their fields."""
    compared = 0
    for entry in LINES:
        form = log_format(entry["format"])
        if "event" not in entry or not isinstance(form, LineFormat) or form.fields_line is None:
            continue
        fields = form.fields_line.encode()
        assert read_line(log_format("w3c"), entry["line"].encode(), fields) == expected(entry)
        compared += 1
    assert compared >= 4


FIELDS: Final = b"date time sc-status"


def test_fields_of_a_file_make_no_hostile_line_slow() -> None:
    for line in HOSTILE:
        assert read_line(log_format("w3c"), line, FIELDS).reason is not None


def test_spark_refuses_hostile_lines_too(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs

    names = {"one": "docker+nginx-json", "two": "syslog5424+logfmt", "three": "syslog3164+haproxy"}
    forms = {topic: log_format(name) for topic, name in names.items()}
    for topic, form in forms.items():
        rows = logs.validate(records(topic, *HOSTILE), form).collect()
        found = [Reading(reason=row["reason"], column=row["column"]) for row in rows]
        assert found == [read_line(form, line) for line in HOSTILE], topic
    own = log_format("w3c")
    rows = logs.validate(records("four", *HOSTILE, headers=_headers(FIELDS)), {"four": own}).collect()
    found = [Reading(reason=row["reason"], column=row["column"]) for row in rows]
    assert found == [read_line(own, line, FIELDS) for line in HOSTILE]


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("docker", "docker is around lines of a format: write docker+FORMAT"),
        ("docker+cri+syslog3164+syslog5424+combined", "it has 4 envelopes, more than 3"),
        ("cri+nothing", "'nothing' is neither one of auto, common"),
        ("syslog3164+$status", "it has no time, which every event needs"),
        ("docker+$remote_addr", "it has no status, which every event needs"),
        ("json status=s", "it has no time, which every event needs"),
        ("json time=t:iso", "it has no status, which every event needs"),
        ("json time=t status=s", "time=t needs a kind at its end"),
        ("json time=t:never status=s", "time=t:never needs a kind at its end"),
        ("json time=t:iso status=s status=u", "status appears in it twice"),
        ("json time=t:iso status", "'status' is not PART=PATH"),
        ("json time=t:iso status=a..b", "status=a..b: it is no path at character 2"),
        ("json time=t:iso status=[0]", "status=[0]: it is no path at character 1"),
        ("json time=t:iso status=a.b.c.d.e.f.g.h.i", "the path has 9 steps"),
        ("json time=t:iso status=" + "|".join("abcdefghi"), "status has 9 places, more than 8"),
        (
            "json time=t:iso status=s " + " ".join(f"f{n}=f{n}" for n in range(39)),
            "it has 41 fields, more than 40",
        ),
        ("json time=t:iso status=" + "s" * 2000, "more than 2000"),
        ("logfmt time=t:iso status=a=b", "status=a=b: 'a=b' is no key"),
        ("pattern:{time} {status}", "{time} needs a kind"),
        ("pattern:{time:iso} {status:digits}", "the kind digits is none of word, text"),
        ("pattern:{time:iso}{status}", "there is no separator between time and status"),
        ("pattern:{time:iso} {status} }", "there is a single } at character 21"),
        ("pattern:{time:iso} {st atus}", "{st atus} is not {NAME} or {NAME:KIND}"),
        ("pattern:no field", "has no field"),
        ("pattern:{time:iso} {status}\n{a}", "it has more than one line"),
        ("pattern:" + "x" * 2001, "it has 2001 characters, more than 2000"),
        ("#Fields: time date sc-status", "date and time must stand side by side"),
        ("docker+w3c", "w3c is for lines as they stand in their file"),
        ("#Fields: date time", "it has no status"),
        ("#Fields: date time sc-status sc-status", "sc-status appears in it twice"),
    ],
)
def test_a_text_that_is_no_format_is_refused_with_the_reason(form: str, why: str) -> None:
    with pytest.raises(FormatProblem, match=re.escape(why)):
        log_format(form)
