"""Replays recorded events: access logs in the combined format, and click streams as CSV. Reads files only.

All recorded times are shifted by the same amount, so that the last event arrives at a given time. Nothing else is
changed. A click stream has the columns `user_id`, `event` and `timestamp` (`YYYY-MM-DD hh:mm:ss[.ffffff]`, UTC unless
it has an offset). `event` is the page.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from typing import IO, Final, NamedTuple, cast

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.generator.access_lines import line_time
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event, encoded
from kafkacompat.pipeline.topics import ACTIVITY_PAGE_VIEWS

RETENTIONEERING: Final = "retentioneering"
"""The name of a package and data set: 32 thousand clicks of 3751 visitors of a shop in half a year."""

RETENTIONEERING_FILES: Final = ("simple-onlineshop.csv", "ecom.csv.gz")
"""The file names in releases 3 and 5."""

COLUMNS: Final = frozenset({"user_id", "event", "timestamp"})
LINE_TIME: Final = re.compile(rb"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]")
MAX_EVENTS: Final = 5_000_000
"""The times are held in memory to sort the events: 8 bytes and an object each."""


class Recorded(NamedTuple):
    """A data set as it was recorded."""

    path: str
    events: int
    span_ms: int


class DataSet:
    """The events of one file in order of time. Raises PipelineFailed if there is nothing to replay."""

    def __init__(self, name: str) -> None:
        """name: a file (also `.gz`), or RETENTIONEERING."""
        self._path = packaged() if name == RETENTIONEERING else name
        self._clicks = self._path.removesuffix(".gz").endswith(".csv")
        self._rows: list[tuple[int, bytes, str]] = []
        self.without_time = 0
        """Lines whose time cannot be parsed. They are sent together with the line before."""
        self.left_out = 0
        """Lines before the first one with a time. Their arrival time is unknown."""
        try:
            with opened(self._path) as file:
                self._rows.extend(self._read_clicks(file) if self._clicks else self._read_lines(file))
        except (OSError, EOFError, csv.Error, UnicodeDecodeError, zlib.error) as error:
            raise PipelineFailed(f"the data set {self._path} cannot be read: {error}") from None
        if not self._rows:
            raise PipelineFailed(f"the data set {self._path} holds no events")
        self._rows.sort(key=lambda row: row[0])

    @property
    def recorded(self) -> Recorded:
        """Return the data set's properties."""
        return Recorded(self._path, len(self._rows), self._rows[-1][0] - self._rows[0][0])

    def events(self, end_ms: int) -> Iterator[Event]:
        """Yield all events, shifted so that the last one arrives at end_ms."""
        moved_ms = end_ms - self._rows[-1][0]
        for number, (time_ms, data, user) in enumerate(self._rows):
            if self._clicks:
                fields = {
                    "event_id": f"data-set-{number}",
                    "user_id": user,
                    "event_time_ms": time_ms + moved_ms,
                    "page": "/" + data.decode(),
                    "referrer": "",
                    "device": "",
                }
                yield Event(time_ms + moved_ms, ACTIVITY_PAGE_VIEWS, user, encoded(fields))
            else:
                fresh = f"[{line_time(time_ms + moved_ms)}]".encode()
                yield Event(time_ms + moved_ms, ACCESS_LINES, user, LINE_TIME.sub(fresh, data, count=1))

    def _read_clicks(self, file: IO[bytes]) -> Iterator[tuple[int, bytes, str]]:
        rows = csv.DictReader(line.decode() for line in file)
        if not COLUMNS.issubset(rows.fieldnames or ()):
            raise PipelineFailed(f"the data set {self._path} lacks the columns {', '.join(sorted(COLUMNS))}")
        for number, row in enumerate(rows):
            self._bounded(number)
            lacking = [column for column in sorted(COLUMNS) if row[column] is None]
            if lacking:
                raise PipelineFailed(
                    f"the data set {self._path} lacks {', '.join(lacking)} in row {number + 1}"
                )
            try:
                time = datetime.fromisoformat(row["timestamp"])
            except ValueError:
                raise PipelineFailed(
                    f"the data set {self._path} has no time in row {number + 1}: {row['timestamp']!r}"
                ) from None
            if time.tzinfo is None:
                time = time.replace(tzinfo=UTC)
            yield int(time.timestamp() * 1000), row["event"].encode(), row["user_id"]

    def _read_lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes, str]]:
        time_ms: int | None = None
        for number, line in enumerate(file):
            self._bounded(number)
            found = LINE_TIME.search(line)
            if found is not None:
                try:
                    time = datetime.strptime(found.group(1).decode(), "%d/%b/%Y:%H:%M:%S %z")
                    time_ms = int(time.timestamp() * 1000)
                except ValueError:
                    found = None
            if time_ms is None:
                self.left_out += 1
            else:
                self.without_time += found is None
                yield time_ms, line.rstrip(b"\n"), "data-set"

    def _bounded(self, number: int) -> None:
        if number >= MAX_EVENTS:
            raise PipelineFailed(f"the data set {self._path} has more than {MAX_EVENTS:,} events")


def opened(path: str) -> IO[bytes]:
    """Open the file and decompress it."""
    return cast(IO[bytes], gzip.open(path)) if path.endswith(".gz") else open(path, "rb")


def packaged() -> str:
    """Return the path of the click stream in the installed package. The package's code is not run."""
    try:
        files = metadata.files(RETENTIONEERING) or []
    except metadata.PackageNotFoundError:
        raise PipelineFailed(
            f"{RETENTIONEERING} is not installed; only its data is needed: "
            f"pip install --no-deps {RETENTIONEERING}==3.3.0"
        ) from None
    for wanted in RETENTIONEERING_FILES:
        for file in files:
            if file.name == wanted:
                return str(file.locate())
    raise PipelineFailed(f"the installed {RETENTIONEERING} has none of {', '.join(RETENTIONEERING_FILES)}")
