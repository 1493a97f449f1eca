"""Backfill of Parquet tables on a model of the folder: killed before every step, beside a writer that makes its next compact
file at every pair of steps. A reader finds the rows before or after, and a last call leaves every row once."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from kafkacompat.pipeline._tests.table_model import (
    GRACE_MS,
    NEW,
    OLD,
    ModelFolder,
    Writer,
    beside_a_writer,
    decode_once,
    entry,
    steps_of,
    table,
    while_a_writer_starts,
)
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance import parquet
from kafkacompat.pipeline.maintenance.parquet import ROUNDS, Outcome, replace_files
from kafkacompat.pipeline.maintenance.rounds import Replacement, begun_replacing, replaced
from kafkacompat.pipeline.sink_log import Entry
from kafkacompat.pipeline.sink_log import decode as decode_log
from kafkacompat.pipeline.sink_log import encode as encode_log

EMPTY = "date=2026-11-03"
"""A date without a file, to which a late record belongs."""

LATE = {OLD: 77, EMPTY: 78}
BATCH_9 = 9
"""A batch after the backfill that also has rows of OLD, whose records were read after those of the compact file."""


@pytest.fixture(autouse=True)
def texts_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "decode_log", decode_once)


class Job:
    """Computes OLD and EMPTY again as they are at a batch."""

    def __init__(self, folder: ModelFolder, writer: Writer) -> None:
        self.folder, self.writer = folder, writer
        self.calls = 0

    def __call__(self, number: int, entries: list[Entry]) -> Replacement:
        self.calls += 1
        taken: list[Entry] = []
        made: list[tuple[str, str]] = []
        for day in (OLD, EMPTY):
            files = [each for each in entries if each.folder == day]
            present = sorted(row for each in files for row in self.folder.rows[each.place])
            own = self.writer.old if day == OLD else set()
            wanted = sorted([*(batch for batch in own if batch <= number), LATE[day]])
            if present != wanted:
                taken += files
                aside = f"aside-{self.calls}/{day}"
                self.folder.aside[aside] = tuple(wanted)
                made.append((aside, f"{day}/backfilled-{self.calls}-{len(made)}"))
        return Replacement(tuple(taken), tuple(made))


def begin(batches: int = 9) -> tuple[ModelFolder, Writer, Job]:
    folder, writer = table(0)
    writer.old = {1, 2, BATCH_9}
    writer.write_to(batches)
    return folder, writer, Job(folder, writer)


def run(folder: ModelFolder, job: Job) -> Outcome:
    return replace_files(folder, job, GRACE_MS, f"b{job.calls}-{folder.now_ms}", lambda: folder.now_ms)


def steps_of_a_round() -> int:
    folder, _, job = begin()
    return steps_of(folder, lambda: run(folder, job))


STEPS = steps_of_a_round()


def both(writer: Writer) -> tuple[list[int], list[int]]:
    """The rows of the table without what was late, and with it."""
    return sorted(writer.rows), sorted([*writer.rows, *LATE.values()])


def settle(folder: ModelFolder, job: Job) -> None:
    """Call until nothing is left to do, long after the last reader."""
    folder.has_writer = False
    for _ in range(3):
        folder.now_ms += 2 * GRACE_MS
        run(folder, job)
    assert run(folder, job) == Outcome()
    assert not folder.names_in(ROUNDS)
    assert set(folder.rows) == {each.place for each in folder.listed()}
    assert folder.read_all() == both(job.writer)[1]


def test_late_records_come_into_a_table_without_a_writer_at_once_and_once() -> None:
    folder, writer, job = begin()
    outcome = run(folder, job)
    assert (outcome.merged, outcome.made, outcome.is_open) == (2, 2, False)
    assert folder.read_all() == both(writer)[1]
    again = run(folder, job)
    assert (again.merged, again.made) == (0, 0)
    assert folder.read_all() == both(writer)[1]
    assert f"{OLD}/part-1" in folder.rows
    writer.write_to(15)
    assert folder.read_all() == both(writer)[1]
    settle(folder, job)


def test_a_table_without_a_compact_file_is_refused() -> None:
    folder, _, job = begin(3)
    with pytest.raises(PipelineFailed, match="no compact file"):
        run(folder, job)
    assert job.calls == 0
    assert not folder.names_in(ROUNDS)


def test_nothing_is_computed_while_a_round_is_open() -> None:
    folder, writer, job = begin()
    folder.has_writer = True
    assert run(folder, job).is_open
    assert run(folder, job).is_open
    assert job.calls == 1
    writer.write_to(10)
    assert not run(folder, job).is_open
    assert job.calls == 2
    settle(folder, job)


def test_what_a_writer_overwrites_is_computed_again() -> None:
    folder, writer, job = begin()
    folder.has_writer = True
    writer.prepare()
    run(folder, job)
    writer.publish()
    assert folder.read_all() == both(writer)[0]
    run(folder, job)
    assert folder.read_all() == both(writer)[1]
    settle(folder, job)


# What is at STEPS + 1 comes after the round.
@pytest.mark.parametrize("read_at", range(1, STEPS + 2))
def test_a_backfill_may_be_killed_at_each_step_beside_a_writer_that_compacts_at_any(read_at: int) -> None:
    for publish_at, kill_at in itertools.product(range(read_at, STEPS + 2), range(1, STEPS + 2)):
        folder, writer, job = begin()
        call, rows = partial(run, folder, job), partial(both, writer)
        beside_a_writer(folder, writer, call, rows, STEPS, read_at, publish_at, kill_at)
        settle(folder, job)


def test_a_backfill_may_be_killed_at_each_step_while_a_writer_starts() -> None:
    for start_at, kill_at in itertools.product(range(1, STEPS + 2), repeat=2):
        folder, writer, job = begin()
        while_a_writer_starts(
            folder, writer, partial(run, folder, job), partial(both, writer), start_at, kill_at
        )
        settle(folder, job)


def test_a_list_that_somebody_else_has_changed_is_left_as_it_is() -> None:
    folder, _, job = begin()
    other = [each for each in folder.listed() if each.place != f"{OLD}/part-1"]

    def change() -> None:
        if job.calls:
            folder.texts["_spark_metadata/4.compact"] = encode_log(other[:2])

    folder.before = change
    assert run(folder, job).is_disturbed
    folder.before = lambda: None
    assert folder.listed()[:2] == other[:2]
    assert not [place for place in folder.rows if "backfilled-" in place]


def test_a_replacement_has_the_entries_of_its_own_folders() -> None:
    files = [entry(f"{NEW}/part-0", 10), entry(f"{OLD}/hour=01/part-1", 10)]
    wanted = Replacement((files[1],), (("x", f"{EMPTY}/a b"), ("y", f"{OLD}/hour=02/c")))
    made = {place: (33, 7) for _, place in wanted.made}
    listed = replaced(files, wanted, made) or []
    assert [each.place for each in listed] == [f"{NEW}/part-0", f"{EMPTY}/a b", f"{OLD}/hour=02/c"]
    assert listed[1].told["path"] == f"file:///t/shop/orders/{EMPTY}/a%20b"
    assert listed[2].told == entry(f"{OLD}/hour=02/c", 33).told | {"modificationTime": 7}
    assert decode_log(encode_log(listed)) == listed
    assert replaced(files[:1], wanted, made) is None
    assert replaced([], Replacement((), wanted.made), made) is None
    kept = begun_replacing(wanted, "b")
    assert (kept.made, kept.replaced) == (tuple(made), (files[1].place,))
