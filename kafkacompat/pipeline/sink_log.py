"""The list of a Parquet table's files, which Spark's file sink keeps in `_spark_metadata`. No Spark.

A batch N adds the file N, with the data files that it has written. Every tenth batch writes `N.compact` in its place,
with all data files of the table until then. Each file has a line `v1`, and then a line of JSON for each data file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.tables import COMMITS, PARQUET, format_in

LOG: Final = COMMITS[PARQUET]
VERSION: Final = "v1"
COMPACT: Final = ".compact"
ADD: Final = "add"
TRIES: Final = 10
"""A file of the log may be deleted while it is read, after the next compact one is there. That takes minutes."""

NONE: Final = -1


class LogUnreadable(ValueError):
    """The text is no file of the log, or has what Spark does not write."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One data file. place: its path below the table's folder. told: what its line says."""

    place: str
    size: int
    told: dict[str, Any]

    @property
    def folder(self) -> str:
        """The folders of its partition, such as date=2026-11-20."""
        return self.place.rpartition("/")[0]

    def replaced_by(self, name: str, size: int, modified_ms: int) -> Entry:
        """Return the entry of a new file of this name in the same folder."""
        path = f"{self.told['path'].rpartition('/')[0]}/{quote(name)}"
        told = {**self.told, "path": path, "size": size, "modificationTime": modified_ms}
        return Entry(f"{self.folder}/{name}" if self.folder else name, size, told)

    def beside(self, place: str, size: int, modified_ms: int) -> Entry:
        """Return the entry of a new file at another place of the same table."""
        root = self.told["path"].rsplit("/", self.place.count("/") + 1)[0]
        path = f"{root}/{quote(place, safe='/=')}"
        return Entry(place, size, {**self.told, "path": path, "size": size, "modificationTime": modified_ms})


def number_of(name: str) -> int:
    """Return the batch number in a name of the log, or NONE. Temporary files and checksums start with a dot."""
    number = name.removesuffix(COMPACT)
    return int(number) if number.isascii() and number.isdigit() else NONE


def newest_compact(names: Iterable[str]) -> int:
    """Return the number of the newest compact file, or NONE."""
    return max((number_of(name) for name in names if name.endswith(COMPACT)), default=NONE)


def compact_name(number: int) -> str:
    """Return the name of the compact file of this batch."""
    return f"{number}{COMPACT}"


def decode(text: str) -> list[Entry]:
    """Parse a file of the log. Raises LogUnreadable."""
    version, *lines = text.split("\n")
    if version != VERSION:
        raise LogUnreadable(f"its version is {version[:20]!r}, known is {VERSION}")
    try:
        return [_entry(json.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, LogUnreadable):
            raise
        raise LogUnreadable("a line of it is no entry of a file") from None


def encode(entries: Iterable[Entry]) -> str:
    """Return the text of a file of the log, as Spark writes it."""
    return "\n".join([VERSION, *(json.dumps(entry.told, separators=(",", ":")) for entry in entries)])


def listed(names: Iterable[str], read: Callable[[str], str | None]) -> list[Entry] | None:
    """Return the data files of a table: those of the newest compact file, and of the batches after it.

    None if a file is gone, because a newer compact one has replaced it: the names must be listed again.
    """
    found = list(names)
    compact = newest_compact(found)
    wanted = [] if compact == NONE else [compact_name(compact)]
    wanted += sorted((name for name in found if number_of(name) > compact), key=number_of)
    entries: list[Entry] = []
    for name in wanted:
        text = read(name)
        if text is None:
            return None
        entries += decode(text)
    return entries


def files(table: str | Path) -> list[str]:
    """Return the paths of the data files of a Parquet table in a local folder, for readers other than Spark.

    Only these have each row once: the folder may also have files of a batch that has not ended, or that were merged.
    Raises PipelineFailed.
    """
    folder = Path(table)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if format_in(names) != PARQUET:
        raise PipelineFailed(f"{folder} is no table of format {PARQUET}: it has no folder {LOG}")

    def read(name: str) -> str | None:
        try:
            return (folder / LOG / name).read_text()
        except FileNotFoundError:
            return None

    for _ in range(TRIES):
        try:
            entries = listed([path.name for path in (folder / LOG).iterdir()], read)
        except LogUnreadable as problem:
            raise PipelineFailed(f"{folder / LOG} cannot be read: {problem}") from None
        if entries is not None:
            return [str(folder / entry.place) for entry in entries]
    raise PipelineFailed(f"{folder / LOG} cannot be read: its files disappear")


def _entry(told: dict[str, Any]) -> Entry:
    if told["action"] != ADD or told["isDir"]:
        raise LogUnreadable(f"it has an entry with action {told['action']}, known is {ADD}")
    *folders, name = unquote(told["path"]).split("/")
    place = [name]
    while folders and "=" in folders[-1]:
        place.insert(0, folders.pop())
    if name in ("", ".", ".."):
        raise LogUnreadable(f"it has the path {told['path']}")
    return Entry("/".join(place), int(told["size"]), told)
