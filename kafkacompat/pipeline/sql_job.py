"""A job as a file of SQL: a header of comments with its topics, fields and sinks, and one SELECT from `events`.

    -- job: orders
    -- input: orders.raw
    -- field: event_id text names
    -- field: event_time_ms integer
    -- field: shop text names
    -- table: windows key=shop,window_start_ms
    SELECT window, shop, count(*) AS orders FROM events GROUP BY window(event_time, '1 minute'), shop

Each problem is said with its line in the file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.fields import Field, Kind, Value
from kafkacompat.pipeline.job import APPEND, UPDATE, Job, JobProblem, RunOptions, Table, Topic
from kafkacompat.pipeline.schemas.reading import Format
from kafkacompat.pipeline.tables import FORMATS, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW: Final = "events"
TABLE_WORDS: Final = {"key": True, "format": True}
TOPIC_WORDS: Final = {"key": True, "mode": True, "exactly-once": False}
"""The words after the name of a table or a topic, and whether each has a value."""
FIELD_WORDS: Final = {
    "optional": False,
    "names": False,
    **dict.fromkeys(("least", "most", "topic", "path", "default"), True),
}
"""The same after the kind of a field."""
FILE_BYTES_MAX: Final = 1024 * 1024
SAID_CHARACTERS_MAX: Final = 400

_COMMENT: Final = re.compile(r"\s*--")
_ENTRY: Final = re.compile(r"\s*--\s*([a-z][a-z-]*):(?:\s+(.*?))?\s*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_WHERE: Final = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
_KINDS: Final = {kind.name.lower(): kind for kind in Kind}
_KEYS: Final = ("job", "input", "field", "table", "topic", "state-version", "continues-from")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the header."""

    line: int
    key: str
    words: tuple[str, ...]


@dataclass(slots=True)
class _Told:
    """What the header has told. `line_of`: where each thing is."""

    name: str = ""
    inputs: list[str] = field(default_factory=list)
    formats: dict[str, Format] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    sinks: list[Table | Topic] = field(default_factory=list)
    state_version: int = 1
    continues_from: int | None = None
    line_of: dict[str, int] = field(default_factory=dict)


class SqlProblem(ValueError):
    """What is wrong, and in which line of the file."""

    def __init__(self, line: int, said: str) -> None:
        super().__init__(f"line {line}: {said}")


def load_sql(path: Path) -> Job:
    """Return the job in a file. PipelineFailed."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise PipelineFailed(f"{path} has {size:,} bytes, more than {FILE_BYTES_MAX:,}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineFailed(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PipelineFailed(f"{path}: line {line}: it is not UTF-8") from None
    try:
        return job_of(text, str(path))
    except SqlProblem as problem:
        raise PipelineFailed(f"{path}: {problem}") from None


def job_of(text: str, path: str) -> Job:
    """Return the job of a text. path: of the file, for problems that Spark finds later. SqlProblem."""
    lines = text.split("\n")
    told = _Told()
    begin = next((n for n, line in enumerate(lines) if line.strip() and not _COMMENT.match(line)), None)
    if begin is None:
        raise SqlProblem(len(lines), "there is no SELECT after the header")
    select = _Select(text, path)
    for entry in _header(lines[:begin]):
        _READ[entry.key](told, entry, select)
    for key, is_there in (("job", told.name), ("input", told.inputs), ("field", told.fields)):
        if not is_there:
            raise SqlProblem(begin + 1, f"before it there must be a line -- {key}: ...")
    if not told.sinks:
        raise SqlProblem(begin + 1, "before it there must be a line -- table: ... or -- topic: ...")
    for name, kind in (("event_id", "text"), ("event_time_ms", "integer")):
        if not any(each.name == name and each.kind is _KINDS[kind] for each in told.fields):
            line = told.line_of.get(f"field {name}", begin + 1)
            raise SqlProblem(line, f"every event needs a line -- field: {name} {kind}")
    for each in told.fields:
        if each.topic is not None and each.topic not in told.inputs:
            raise SqlProblem(told.line_of[f"field {each.name}"], f"{each.topic} is none of the inputs")
    try:
        return Job(
            name=told.name,
            inputs=tuple(told.inputs),
            formats=told.formats,
            fields=tuple(told.fields),
            sinks=tuple(told.sinks),
            # The lengths of windows are in the SELECT.
            settings=(),
            state_version=told.state_version,
            continues_from=told.continues_from,
        )
    except JobProblem as problem:
        raise SqlProblem(told.line_of["job"], str(problem)) from None


def _header(lines: list[str]) -> Iterator[_Entry]:
    for number, line in enumerate(lines, 1):
        match = _ENTRY.fullmatch(line)
        if match is None:
            # A comment for people.
            continue
        key, rest = match[1], match[2] or ""
        if key not in _KEYS:
            raise SqlProblem(number, f"{key} is none of {', '.join(_KEYS)}")
        try:
            words = tuple(shlex.split(rest))
        except ValueError as error:
            raise SqlProblem(number, str(error)) from None
        if not words:
            raise SqlProblem(number, f"there is nothing after {key}:")
        yield _Entry(number, key, words)


def _options(entry: _Entry, known: Mapping[str, bool]) -> dict[str, str]:
    """Return the words after the first by name. known: the names, and whether each has a value, NAME=VALUE."""
    found: dict[str, str] = {}
    for word in entry.words[1:]:
        name, mark, value = word.partition("=")
        if name not in known or known[name] != bool(mark):
            possible = ", ".join(f"{name}=..." if has_value else name for name, has_value in known.items())
            raise SqlProblem(entry.line, f"{word!r} is none of {possible or 'nothing: one word is expected'}")
        if name in found:
            raise SqlProblem(entry.line, f"{name} is there twice")
        found[name] = value
    return found


def _once(told: _Told, entry: _Entry, what: str) -> None:
    before = told.line_of.setdefault(what, entry.line)
    if before != entry.line:
        raise SqlProblem(entry.line, f"{what} is in line {before} already")


def _job(told: _Told, entry: _Entry, select: _Select) -> None:
    _once(told, entry, "job")
    _options(entry, {})
    told.name = entry.words[0]
    if re.fullmatch(r"[a-z][a-z0-9_]{0,63}", told.name) is None:
        raise SqlProblem(
            entry.line, f"{told.name!r} is not a lower-case letter and then letters, digits and underscores"
        )


def _input(told: _Told, entry: _Entry, select: _Select) -> None:
    topic = entry.words[0]
    _once(told, entry, f"input {topic}")
    given = _options(entry, {"format": True})
    if _TOPIC.fullmatch(topic) is None:
        raise SqlProblem(entry.line, f"{topic!r} is no name of a topic")
    told.inputs.append(topic)
    if "format" in given:
        form = next((each for each in Format if each.value == given["format"]), None)
        if form is None:
            names = ", ".join(each.value for each in Format)
            raise SqlProblem(entry.line, f"the format {given['format']!r} is none of {names}")
        told.formats[topic] = form


def _field(told: _Told, entry: _Entry, select: _Select) -> None:
    name = entry.words[0]
    _once(told, entry, f"field {name}")
    if _NAME.fullmatch(name) is None:
        raise SqlProblem(entry.line, f"{name!r} is no name of a column")
    kind = _KINDS.get(entry.words[1]) if len(entry.words) > 1 else None
    if kind is None:
        raise SqlProblem(entry.line, f"after {name} there must be one of {', '.join(_KINDS)}")
    given = _options(_Entry(entry.line, entry.key, entry.words[1:]), FIELD_WORDS)
    if "names" in given and kind is not Kind.TEXT:
        raise SqlProblem(entry.line, "names is for text")
    bounds: dict[str, float] = {}
    for bound in ("least", "most"):
        if bound in given:
            if not kind.is_number:
                raise SqlProblem(entry.line, f"{bound} is for numbers")
            bounds[bound] = _number(entry, given[bound])
    made = Field(
        name,
        kind,
        required="optional" not in given,
        names="names" in given,
        topic=given.get("topic"),
        path=given.get("path", ""),
        default=_default(entry, kind, given["default"]) if "default" in given else None,
        **bounds,
    )
    if made.path_problem is not None:
        raise SqlProblem(entry.line, f"its path: {made.path_problem}")
    told.fields.append(made)


def _number(entry: _Entry, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise SqlProblem(entry.line, f"{text!r} is no number") from None
    if not float("-inf") < number < float("inf"):
        raise SqlProblem(entry.line, f"{text!r} is no number")
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else number


def _default(entry: _Entry, kind: Kind, text: str) -> Value:
    value: Any = text
    if kind is Kind.BOOLEAN:
        value = {"true": True, "false": False}.get(text)
    elif kind.is_number:
        value = _number(entry, text)
    if not kind.takes(value):
        raise SqlProblem(entry.line, f"the default {text!r} is not {kind.text}")
    found: Value = value
    return found


def _table(told: _Told, entry: _Entry, select: _Select) -> None:
    name, given = _sink(told, entry, "/", TABLE_WORDS)
    form = given.get("format", PARQUET)
    if form not in FORMATS:
        raise SqlProblem(entry.line, f"the format {form!r} is none of {', '.join(FORMATS)}")
    told.sinks.append(Table(name, select, _key(entry, given), format=form))


def _topic(told: _Told, entry: _Entry, select: _Select) -> None:
    name, given = _sink(told, entry, ".", TOPIC_WORDS)
    mode = given.get("mode", UPDATE)
    if mode not in (UPDATE, APPEND):
        raise SqlProblem(entry.line, f"the mode {mode!r} is none of {UPDATE}, {APPEND}")
    if "key" not in given:
        raise SqlProblem(entry.line, "a topic needs key=COLUMN or key=COLUMN,COLUMN")
    once = "exactly-once" in given
    told.sinks.append(Topic(name, select, _key(entry, given), mode, is_exactly_once=once))


def _sink(told: _Told, entry: _Entry, mark: str, known: Mapping[str, bool]) -> tuple[str, dict[str, str]]:
    if not told.name:
        raise SqlProblem(entry.line, "before it there must be a line -- job: ...")
    short = entry.words[0]
    _once(told, entry, f"{entry.key} {short}")
    if re.fullmatch(r"[a-z0-9_-]{1,100}", short) is None:
        raise SqlProblem(entry.line, f"{short!r} is not lower-case letters, digits, underscores and hyphens")
    return f"{told.name}{mark}{short}", _options(entry, known)


def _key(entry: _Entry, given: Mapping[str, str]) -> tuple[str, ...]:
    if "key" not in given:
        return ()
    names = tuple(given["key"].split(","))
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise SqlProblem(entry.line, f"{name!r} is no name of a column")
    return names


def _state_version(told: _Told, entry: _Entry, select: _Select) -> None:
    told.state_version = _version(told, entry)


def _continues_from(told: _Told, entry: _Entry, select: _Select) -> None:
    told.continues_from = _version(told, entry)


def _version(told: _Told, entry: _Entry) -> int:
    _once(told, entry, entry.key)
    _options(entry, {})
    if re.fullmatch(r"[1-9][0-9]{0,8}", entry.words[0]) is None:
        raise SqlProblem(entry.line, f"{entry.words[0]!r} is no whole number from 1")
    return int(entry.words[0])


_READ: Final = {
    "job": _job,
    "input": _input,
    "field": _field,
    "table": _table,
    "topic": _topic,
    "state-version": _state_version,
    "continues-from": _continues_from,
}


class _Select:
    """The rows of the SELECT. The header stays in the text, as comments, so that Spark counts the file's lines."""

    def __init__(self, text: str, path: str) -> None:
        self._text = re.sub(r";\s*\Z", "", text)
        self._path = path

    def __call__(self, events: DataFrame, options: RunOptions) -> DataFrame:
        from pyspark.errors import PySparkException

        session: Any = events.sparkSession
        events.createOrReplaceTempView(VIEW)
        try:
            # `sql` would carry out any other statement at once.
            session._jsparkSession.sessionState().sqlParser().parseQuery(self._text)
            rows: DataFrame = session.sql(self._text)
            return rows
        except PySparkException as error:
            raise PipelineFailed(self._said(str(error).strip())) from None
        finally:
            session.catalog.dropTempView(VIEW)

    def _said(self, text: str) -> str:
        where = _WHERE.search(text)
        what = text.partition("\n")[0] if where is None else text[: where.start()]
        what = " ".join(what.split())[:SAID_CHARACTERS_MAX].rstrip(" ;")
        line = "" if where is None else f"line {where[1] or where[2]}: "
        return f"{self._path}: {line}{what}"
