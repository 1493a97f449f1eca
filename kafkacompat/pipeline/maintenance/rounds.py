"""Decides which files of a Parquet table are merged or removed, and when the files that are replaced may be deleted. Pure.

The list of the table's files is its newest compact file. A round replaces that file, in one rename, by one with other
data files and the same rows. The writer may have read the old one just before, and then writes the next compact file
from it. So a round that was published may be lost. Which happened shows in a newer compact file, as the writer makes
each from the one before. Until then no file may be deleted. If no writer runs, there is nothing to wait for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Final

from kafkacompat.pipeline.sink_log import NONE, Entry

FORMAT: Final = 1
MERGED: Final = "merged-"
"""The beginning of the name of a file that is made from others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a round changes. Dates before `oldest` are removed. Files below small_bytes are merged, up to about target_bytes.

    No field has a default, so that `pipeline maintain` and a run that maintains its tables itself both give each."""

    small_bytes: int
    target_bytes: int
    oldest: date | None


@dataclass(frozen=True, slots=True)
class Merge:
    """The files of one folder that become the file `made`."""

    sources: tuple[Entry, ...]
    made: str

    @property
    def place(self) -> str:
        """The path of the new file below the table's folder."""
        folder = self.sources[0].folder
        return f"{folder}/{self.made}" if folder else self.made


@dataclass(frozen=True, slots=True)
class Plan:
    """One round's merges, and the files whose rows are removed."""

    merges: tuple[Merge, ...]
    expired: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files that are taken out of the table, and what comes in their place: each file written aside, and its place."""

    taken: tuple[Entry, ...]
    made: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Round:
    """What is kept of a round in the table's folder until its last file is deleted. Paths are below the table's folder.

    compact: the number of the compact file that it replaces, NONE before. made, replaced: the files. deleted, after_ms:
    set when it is decided which of both are deleted, and when.
    """

    id: str
    made: tuple[str, ...]
    replaced: tuple[str, ...]
    compact: int = NONE
    deleted: tuple[str, ...] | None = None
    after_ms: int = 0


def plan(entries: Iterable[Entry], limits: Limits, round_id: str) -> Plan:
    """Return what a round does with these files: two or more small ones of a folder become one."""
    expired: list[Entry] = []
    folders: dict[str, list[Entry]] = {}
    for entry in entries:
        if limits.oldest is not None and (day := date_of(entry.folder)) is not None and day < limits.oldest:
            expired.append(entry)
        elif entry.size < limits.small_bytes:
            folders.setdefault(entry.folder, []).append(entry)
    groups: list[list[Entry]] = []
    for folder in sorted(folders):
        group: list[Entry] = []
        for entry in folders[folder]:
            if group and sum(each.size for each in group) + entry.size > limits.target_bytes:
                groups.append(group)
                group = []
            group.append(entry)
        groups.append(group)
    merges = [
        Merge(tuple(group), f"{MERGED}{round_id}-{number}.snappy.parquet")
        for number, group in enumerate(each for each in groups if len(each) > 1)
    ]
    return Plan(tuple(merges), tuple(expired))


def date_of(folder: str) -> date | None:
    """Return the date of a partition's folders, or None if they have none."""
    for part in folder.split("/"):
        name, _, value = part.partition("=")
        if name == "date":
            try:
                return date.fromisoformat(value)
            except ValueError:
                return None
    return None


def begun(planned: Plan, round_id: str) -> Round:
    """Return the round of a plan."""
    replaced = [each.place for merge in planned.merges for each in merge.sources]
    return Round(
        round_id,
        tuple(merge.place for merge in planned.merges),
        (*replaced, *(each.place for each in planned.expired)),
    )


def rewritten(
    entries: Iterable[Entry], planned: Plan, made: dict[str, tuple[int, int]]
) -> list[Entry] | None:
    """Return the list of files after the round. made: size and modification time of each merged file, by its place.

    None if a file that is replaced is not in the list: somebody else has changed the table.
    """
    kept = {entry.place: entry for entry in entries}
    for merge in planned.merges:
        if any(kept.pop(source.place, None) is None for source in merge.sources):
            return None
        entry = merge.sources[0].replaced_by(merge.made, *made[merge.place])
        kept[entry.place] = entry
    for entry in planned.expired:
        if kept.pop(entry.place, None) is None:
            return None
    return list(kept.values())


def begun_replacing(replacement: Replacement, round_id: str) -> Round:
    """Return the round of a replacement."""
    made = tuple(place for _, place in replacement.made)
    return Round(round_id, made, tuple(each.place for each in replacement.taken))


def replaced(
    entries: Iterable[Entry], replacement: Replacement, made: dict[str, tuple[int, int]]
) -> list[Entry] | None:
    """Return the list of files after the round of a replacement. made: as in `rewritten`.

    None if a file that is taken out is not in the list: somebody else has changed the table.
    """
    kept = {entry.place: entry for entry in entries}
    pattern = next(iter(kept.values()), None)
    for entry in replacement.taken:
        if kept.pop(entry.place, None) is None:
            return None
    for place, (size, modified_ms) in made.items():
        if pattern is None:
            return None
        kept[place] = pattern.beside(place, size, modified_ms)
    return list(kept.values())


def decided(
    round_: Round, compact: int, listed: Collection[str], is_alone: bool, now_ms: int, grace_ms: int
) -> Round:
    """Return the round, with the files to delete if that can be known.

    compact, listed: the number of the newest compact file, and the places in it. is_alone: no writer runs, or can start
    before this is written. Readers that know a list with these files have grace_ms to end.
    """
    if round_.deleted is not None:
        return round_
    # Of a round that was not published, nobody has seen the merged files.
    if round_.compact == NONE:
        return _deleting(round_, round_.made, now_ms)
    if compact == round_.compact:
        is_published = any(place in listed for place in round_.made) or not all(
            place in listed for place in round_.replaced
        )
        if not is_published:
            return _deleting(round_, round_.made, now_ms)
        if not is_alone:
            return round_
    unlisted = [place for place in (*round_.made, *round_.replaced) if place not in listed]
    return _deleting(round_, unlisted, now_ms + grace_ms)


def _deleting(round_: Round, places: Iterable[str], after_ms: int) -> Round:
    return Round(round_.id, round_.made, round_.replaced, round_.compact, tuple(places), after_ms)


def encode(round_: Round) -> str:
    """Return the text of the file that is kept of a round."""
    return json.dumps({"format": FORMAT, **asdict(round_)}, indent=1) + "\n"


def decode(text: str) -> Round:
    """Parse what `encode` has returned. Raises ValueError."""
    told = json.loads(text)
    if told.pop("format") != FORMAT:
        raise ValueError("unknown format")
    deleted = told.pop("deleted")
    made, replaced = tuple(told.pop("made")), tuple(told.pop("replaced"))
    return Round(made=made, replaced=replaced, deleted=None if deleted is None else tuple(deleted), **told)
