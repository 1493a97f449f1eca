"""Carries out rounds on a Parquet table of Spark's file sink, one step after the other, so that it may be killed at any.

The steps of a round, each durable before the next:

1. The round is written to `_maintenance`, with the names of the files that it will make.
2. The merged files are written.
3. The round gets the number of the newest compact file.
4. The compact file is replaced.
5. When it is known which files are not listed any more, they are written to the round, with a time.
6. After that time they are deleted, and then the round.

A round that was killed is continued at 5 by the next maintenance. Two maintenances of a table exclude each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.rounds import (
    Limits,
    Replacement,
    Round,
    begun,
    begun_replacing,
    decided,
    decode,
    encode,
    plan,
    replaced,
    rewritten,
)
from kafkacompat.pipeline.sink_log import LOG, NONE, Entry, LogUnreadable, compact_name, newest_compact
from kafkacompat.pipeline.sink_log import decode as decode_log
from kafkacompat.pipeline.sink_log import encode as encode_log

ROUNDS: Final = "_maintenance"
"""Spark does not read folders whose names begin with an underscore."""

ROUND_SUFFIX: Final = ".json"

Rewrite = Callable[[list[Entry]], list[Entry] | None]
"""Returns the list of files after a round, or None if the table was changed by somebody else."""


class TableFolder(Protocol):
    """The folder of one table. Paths are below it."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder. Empty if it does not exist."""
        ...

    def read(self, path: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file durably, in one step. A file that exists is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def merge(self, sources: Sequence[str], made: str) -> tuple[int, int]:
        """Write the rows of these data files to a new one, durably. Return its size and modification time in ms."""
        ...

    def adopt(self, aside: str, place: str) -> tuple[int, int]:
        """Move a data file that was written aside to its place, durably. Return its size and modification time in ms."""
        ...

    def alone(self) -> contextlib.AbstractContextManager[bool]:
        """Keep the writer from starting, unless it runs. Gives whether it does not run."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a maintenance has done. merged: files that became `made` files. removed: files with rows of old dates.
    deleted: files. waiting: files that will be deleted. is_open: the round is not decided, as a writer runs."""

    merged: int = 0
    made: int = 0
    removed: int = 0
    deleted: int = 0
    waiting: int = 0
    is_open: bool = False
    is_disturbed: bool = False


def maintain(
    table: TableFolder, limits: Limits, grace_ms: int, round_id: str, now_ms: Callable[[], int]
) -> Outcome:
    """Continue the rounds that were begun, and do another unless one of them is not decided."""
    deleted = _continue(table, grace_ms, now_ms)
    rounds = _rounds(table)
    if any(each.deleted is None for each in rounds):
        return Outcome(deleted=deleted, waiting=_waiting(rounds), is_open=True)
    outcome = _round(table, limits, grace_ms, round_id, now_ms)
    deleted += _continue(table, grace_ms, now_ms)
    rounds = _rounds(table)
    return replace(
        outcome,
        deleted=deleted,
        waiting=_waiting(rounds),
        is_open=any(each.deleted is None for each in rounds),
    )


def _round(
    table: TableFolder, limits: Limits, grace_ms: int, round_id: str, now_ms: Callable[[], int]
) -> Outcome:
    found = _newest(table)
    if found is None:
        return Outcome()
    planned = plan(found[1], limits, round_id)
    if not planned.merges and not planned.expired:
        return Outcome()
    round_ = begun(planned, round_id)
    _keep(table, round_)
    made = {
        merge.place: table.merge([each.place for each in merge.sources], merge.place)
        for merge in planned.merges
    }
    if not _published(table, round_, lambda entries: rewritten(entries, planned, made), grace_ms, now_ms):
        return Outcome(is_disturbed=True)
    merged = sum(len(merge.sources) for merge in planned.merges)
    return Outcome(merged, len(planned.merges), len(planned.expired))


def replace_files(
    table: TableFolder,
    replacement: Callable[[int, list[Entry]], Replacement],
    grace_ms: int,
    round_id: str,
    now_ms: Callable[[], int],
) -> Outcome:
    """Continue the rounds that were begun, and replace files unless one of them is not decided.

    replacement: called with the number and the entries of the newest compact file. What it writes aside is moved.
    """
    deleted = _continue(table, grace_ms, now_ms)
    rounds = _rounds(table)
    if any(each.deleted is None for each in rounds):
        return Outcome(deleted=deleted, waiting=_waiting(rounds), is_open=True)
    found = _newest(table)
    if found is None:
        raise PipelineFailed(
            f"the table has no compact file in {LOG} yet, which the run writes every tenth batch"
        )
    wanted = replacement(*found)
    if not wanted.taken and not wanted.made:
        return Outcome(deleted=deleted, waiting=_waiting(rounds))
    round_ = begun_replacing(wanted, round_id)
    _keep(table, round_)
    made = {place: table.adopt(aside, place) for aside, place in wanted.made}
    is_done = _published(table, round_, lambda entries: replaced(entries, wanted, made), grace_ms, now_ms)
    deleted += _continue(table, grace_ms, now_ms)
    rounds = _rounds(table)
    return Outcome(
        merged=len(wanted.taken) if is_done else 0,
        made=len(wanted.made) if is_done else 0,
        deleted=deleted,
        waiting=_waiting(rounds),
        is_open=any(each.deleted is None for each in rounds),
        is_disturbed=not is_done,
    )


def _published(
    table: TableFolder, round_: Round, rewrite: Rewrite, grace_ms: int, now_ms: Callable[[], int]
) -> bool:
    with table.alone() as is_alone:
        if not _publish(table, round_, rewrite):
            return False
        if is_alone:
            # While the writer cannot start.
            _decide(table, _round_of(table, round_.id), True, grace_ms, now_ms)
    return True


def _publish(table: TableFolder, round_: Round, rewrite: Rewrite) -> bool:
    """Replace the newest compact file. The writer may have made another one meanwhile, with all files of the one before."""
    found = _newest(table)
    entries = None if found is None else rewrite(found[1])
    if found is None or entries is None:
        return False
    number = found[0]
    _keep(table, replace(round_, compact=number))
    name = compact_name(number)
    # Hadoop checks a file by the checksums beside it, and does not if there are none. Readers open the file before them.
    table.remove(f"{LOG}/.{name}.crc")
    table.write(f"{LOG}/{name}", encode_log(entries))
    return True


def _continue(table: TableFolder, grace_ms: int, now_ms: Callable[[], int]) -> int:
    """Decide rounds and delete files, as far as it is time. Return the number of files."""
    deleted = 0
    for round_ in _rounds(table):
        if round_.deleted is None:
            with table.alone() as is_alone:
                round_ = _decide(table, round_, is_alone, grace_ms, now_ms)
        if round_.deleted is None or now_ms() < round_.after_ms:
            continue
        if _lists_again(table, round_):
            continue
        for place in round_.deleted:
            folder, _, name = place.rpartition("/")
            table.remove(place)
            table.remove(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
        deleted += len(round_.deleted)
        table.remove(_path(round_.id))
    return deleted


def _decide(
    table: TableFolder, round_: Round, is_alone: bool, grace_ms: int, now_ms: Callable[[], int]
) -> Round:
    found = _newest(table)
    if found is None:
        return round_
    number, entries = found
    made = decided(round_, number, {each.place for each in entries}, is_alone, now_ms(), grace_ms)
    if made != round_:
        _keep(table, made)
    return made


def _lists_again(table: TableFolder, round_: Round) -> bool:
    """Return whether a file that the round would delete is listed, and if so make the round undecided.

    A writer whose lock is not seen here, as on some network file systems, may have read the list before the round.
    """
    found = _newest(table)
    if found is None:
        return True
    if {each.place for each in found[1]}.isdisjoint(round_.deleted or ()):
        return False
    _keep(table, replace(round_, deleted=None))
    return True


def _newest(table: TableFolder) -> tuple[int, list[Entry]] | None:
    """Return the number and the entries of the newest compact file. None if there is none."""
    number = newest_compact(table.names(LOG))
    text = None if number == NONE else table.read(f"{LOG}/{compact_name(number)}")
    if text is None:
        return None
    try:
        return number, decode_log(text)
    except LogUnreadable as problem:
        raise PipelineFailed(f"{LOG}/{compact_name(number)} cannot be read: {problem}") from None


def _rounds(table: TableFolder) -> list[Round]:
    names = sorted(name for name in table.names(ROUNDS) if name.endswith(ROUND_SUFFIX) and name[0] != ".")
    return [_round_of(table, name.removesuffix(ROUND_SUFFIX)) for name in names]


def _round_of(table: TableFolder, round_id: str) -> Round:
    text = table.read(_path(round_id))
    try:
        if text is None:
            raise ValueError("it is gone")
        return decode(text)
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineFailed(f"{_path(round_id)} cannot be read: {error}") from None


def _keep(table: TableFolder, round_: Round) -> None:
    table.write(_path(round_.id), encode(round_))


def _path(round_id: str) -> str:
    return f"{ROUNDS}/{round_id}{ROUND_SUFFIX}"


def _waiting(rounds: Sequence[Round]) -> int:
    return sum(len(each.deleted) for each in rounds if each.deleted is not None)
