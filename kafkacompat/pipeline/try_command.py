"""`kafkacompat pipeline try`: shows how the lines of a file, or a record of Avro or Protobuf, are read, without a broker and
without Spark."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO, Final

from kafkacompat.pipeline.argument_types import whole
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.formats.patterns import FormatProblem
from kafkacompat.pipeline.formats.reading import Reading, read_line
from kafkacompat.pipeline.formats.registry import log_format
from kafkacompat.pipeline.formats.w3c import fields_after
from kafkacompat.pipeline.options import add_registry, registry_of
from kafkacompat.pipeline.schemas.client import registry_at
from kafkacompat.pipeline.schemas.reading import READERS, Format, Record, Schemas
from kafkacompat.pipeline.schemas.wire_format import Malformed, NotRead
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import LINE_BYTES_MAX, OVERSIZED, RECORD_BYTES_MAX

DEFAULT_SHOWN: Final = 5
DEFAULT_LINES: Final = 100_000
BEFORE_CHARACTERS: Final = 60
AFTER_CHARACTERS: Final = 40
"""How much of a refused line is shown before and after the character from which it is refused."""

STDIN: Final = "-"
REGISTERED: Final = tuple(form.value for form in READERS)
"""The formats whose schemas are in a registry."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "format",
        metavar="FORMAT",
        help="as for `kafkacompat pipeline run --log-format`: a name, or a format's text. avro or protobuf: the file is the "
        "value of one record, whose schema is in --registry",
    )
    parser.add_argument("file", metavar="FILE", help=f"a log file, or {STDIN} for standard input")
    add_registry(parser)
    parser.add_argument(
        "--show",
        type=whole,
        default=DEFAULT_SHOWN,
        metavar="N",
        help="how many events, and how many refused lines, are shown (%(default)s)",
    )
    parser.add_argument(
        "--lines",
        type=whole,
        default=DEFAULT_LINES,
        metavar="N",
        help="read at most this many lines (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the lines, or the record. Return 0 if none is refused, and otherwise 1."""
    if arguments.format in REGISTERED:
        return _try_record(arguments, Format(arguments.format))
    if arguments.registry is not None or arguments.registry_config is not None:
        raise PipelineFailed(f"--registry is for {' and '.join(REGISTERED)}, whose schemas are in a registry")
    try:
        form = log_format(arguments.format)
    except FormatProblem as problem:
        raise PipelineFailed(f"this is no format: {problem}") from None
    is_read = True

    def gone() -> None:
        nonlocal is_read
        is_read = False

    say = Terminal(gone).say
    events = silent = 0
    refused: Counter[str] = Counter()
    fields = b""
    with _opened(arguments.file) as file:
        for number, line in enumerate(_lines(file, arguments.lines), 1):
            if not is_read:
                break
            fields = fields_after(line, fields)
            reading = read_line(form, line, fields)
            if reading.event is not None:
                events += 1
                if events <= arguments.show:
                    say(f"line {number}:")
                    for name, value in reading.event.items():
                        say(f"  {name:14} {_shown(name, value)}")
            elif reading.reason is not None:
                refused[reading.reason] += 1
                if refused.total() <= arguments.show:
                    for text in _refused(number, line, reading):
                        say(text)
            else:
                silent += 1
    told = [f"lines {events + refused.total() + silent:,}: events {events:,}, refused {refused.total():,}"]
    if silent:
        told.append(f"about the file {silent:,}")
    say(", ".join(told))
    for reason, count in refused.most_common(arguments.show):
        say(f"{count:8,}  {reason}")
    return 1 if refused else 0


def _try_record(arguments: argparse.Namespace, form: Format) -> int:
    settings = registry_of(arguments)
    if settings is None:
        raise PipelineFailed(
            f"the schemas of {form.value} are in a registry: give its address with --registry URL"
        )
    require_extra("registry", READERS[form].module)
    registry = registry_at(settings, patience_s=0)
    registry.check()
    with _opened(arguments.file) as file:
        value = file.read(RECORD_BYTES_MAX + 2)  # kafkacompat consume puts a newline after it
    terminal = Terminal(lambda: None)
    reason = None
    try:
        if len(value.removesuffix(b"\n")) > RECORD_BYTES_MAX:
            raise Malformed(OVERSIZED)
        record = _record(Schemas(registry), form, value)
        terminal.say(f"record: schema id {record.schema_id}, {record.schema.name}")
        for name, content in record.shown().items():
            terminal.say(f"  {_printable(name):14} {_printable(json.dumps(content, ensure_ascii=False))}")
    except NotRead as problem:
        reason = str(problem)
        terminal.say(f"{problem.told}: {_printable(reason)}")
    return 0 if reason is None else 1


def _record(schemas: Schemas, form: Format, value: bytes) -> Record:
    """Return the record. `kafkacompat consume` has put a newline after it."""
    try:
        return schemas.read(form, value)
    except Malformed:
        if not value.endswith(b"\n"):
            raise
        return schemas.read(form, value.removesuffix(b"\n"))


def _opened(path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    if path == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise PipelineFailed(f"{path} cannot be read: {error.strerror}") from None


def _lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Return lines without their newline. Of a line beyond LINE_BYTES_MAX only the beginning is kept, one byte too long."""
    for _ in range(most):
        line = file.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX)
        yield line.removesuffix(b"\n")


def _shown(name: str, value: object) -> str:
    if name == "event_time_ms" and isinstance(value, int):
        seconds, milliseconds = divmod(value, 1000)
        try:
            moment = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError):
            return str(value)
        return f"{value} ({moment:%Y-%m-%d %H:%M:%S}.{milliseconds:03} UTC)"
    if isinstance(value, dict):
        return _printable(json.dumps(value, ensure_ascii=False))
    return _printable(str(value))


def _printable(text: str) -> str:
    """Return the text with one character for each. A terminal must not obey a line."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _refused(number: int, line: bytes, reading: Reading) -> Iterator[str]:
    """Return the lines that say why a line is refused, and show where."""
    text = line.decode("utf-8", errors="replace")
    if reading.column is None:
        yield f"line {number} is refused: {reading.reason}"
        yield f"  {_printable(text[: BEFORE_CHARACTERS + AFTER_CHARACTERS])}"
        return
    yield f"line {number} is refused at character {reading.column}: {reading.reason}"
    at = reading.column - 1
    start = max(at - BEFORE_CHARACTERS, 0)
    before = ("..." if start else "") + _printable(text[start:at])
    after = _printable(text[at : at + AFTER_CHARACTERS])
    yield f"  {before}{after}{'...' if len(text) > at + AFTER_CHARACTERS else ''}"
    yield f"  {' ' * len(before)}^"
