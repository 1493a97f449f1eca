"""Maintenance of Parquet tables on a model of the folder: killed before every step, beside a writer that makes its next
compact file at every pair of steps, with readers in between. No row is lost or doubled, and no file that a reader may
still need is deleted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
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
from kafkacompat.pipeline.maintenance import parquet
from kafkacompat.pipeline.maintenance.parquet import ROUNDS, maintain
from kafkacompat.pipeline.maintenance.rounds import (
    Limits,
    Round,
    begun,
    date_of,
    decided,
    decode,
    encode,
    plan,
    rewritten,
)
from kafkacompat.pipeline.sink_log import LOG, NONE, newest_compact
from kafkacompat.pipeline.sink_log import decode as decode_log
from kafkacompat.pipeline.sink_log import encode as encode_log

LIMITS = Limits(small_bytes=100, target_bytes=120, oldest=date(2026, 11, 1))


@pytest.fixture(autouse=True)
def texts_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of maintenances read the same few texts."""
    monkeypatch.setattr(parquet, "decode_log", decode_once)


def run(folder: ModelFolder, limits: Limits = LIMITS, number: int = 0) -> None:
    maintain(folder, limits, GRACE_MS, f"r{number}", lambda: folder.now_ms)


def numbered(folder: ModelFolder) -> Callable[[], None]:
    """Maintains the folder, each time by a round of another name."""
    numbers = itertools.count()
    return lambda: run(folder, number=next(numbers))


def steps_of_a_round() -> int:
    folder, _ = table()
    return steps_of(folder, numbered(folder))


STEPS = steps_of_a_round()


def settle(folder: ModelFolder) -> None:
    """Maintain until nothing is left to do, long after the last reader."""
    folder.has_writer = False
    for number in range(100, 103):
        folder.now_ms += 2 * GRACE_MS
        run(folder, number=number)
    assert not folder.names_in(ROUNDS)
    assert set(folder.rows) == {each.place for each in folder.listed()}


def expired(rows: list[int]) -> list[int]:
    return [row for row in rows if row not in (1, 2)]


def with_and_without_old(writer: Writer) -> tuple[list[int], list[int]]:
    return writer.rows, expired(writer.rows)


def test_a_table_without_a_writer_is_merged_at_once() -> None:
    folder, writer = table()
    run(folder)
    places = [each.place for each in folder.listed()]
    # What is in the fifth batch's compact file is merged. The four batches after it wait for the next one.
    assert len([each for each in places if "merged-" in each]) == 1
    assert len([each for each in places if "part-" in each]) == 4 + 1
    assert folder.read_all() == expired(writer.rows)
    folder.now_ms = GRACE_MS - 1
    run(folder, number=1)
    assert f"{NEW}/part-0" in folder.rows
    settle(folder)
    assert folder.read_all() == expired(writer.rows)


def test_files_are_deleted_beside_a_writer_after_its_next_compact_file() -> None:
    folder, writer = table()
    folder.has_writer = True
    run(folder)
    folder.now_ms += 100 * GRACE_MS
    # A file that is not known to stay is not merged with others.
    limits = replace(LIMITS, small_bytes=1000, target_bytes=5000)
    outcome = maintain(folder, limits, GRACE_MS, "r1", lambda: folder.now_ms)
    assert outcome.is_open
    assert outcome.merged == 0
    assert f"{NEW}/part-0" in folder.rows
    writer.write_to(10)
    run(folder, number=2)
    folder.now_ms += GRACE_MS
    run(folder, number=3)
    assert f"{NEW}/part-0" not in folder.rows
    assert folder.read_all() == expired(writer.rows)


def test_files_that_a_writer_lists_again_unseen_are_kept() -> None:
    # The lock of the writer is not seen, and it publishes what it had read before the round.
    folder, writer = table()
    writer.prepare()
    run(folder)
    writer.publish()
    folder.now_ms += 10 * GRACE_MS
    run(folder, number=1)
    assert folder.read_all() in (writer.rows, expired(writer.rows))
    settle(folder)
    assert folder.read_all() == expired(writer.rows)


def test_a_round_that_the_writer_overwrites_is_undone() -> None:
    folder, writer = table()
    folder.has_writer = True
    writer.prepare()
    run(folder)
    writer.publish()
    assert not [each for each in folder.listed() if "merged-" in each.place]
    settle(folder)
    assert folder.read_all() == expired(writer.rows)


# What is at STEPS + 1 comes after the round.
@pytest.mark.parametrize("read_at", range(1, STEPS + 2))
def test_a_maintenance_may_be_killed_at_each_step_beside_a_writer_that_compacts_at_any(read_at: int) -> None:
    for publish_at, kill_at in itertools.product(range(read_at, STEPS + 2), range(1, STEPS + 2)):
        folder, writer = table()
        rows = partial(with_and_without_old, writer)
        beside_a_writer(folder, writer, numbered(folder), rows, STEPS, read_at, publish_at, kill_at)
        settle(folder)
        assert folder.read_all() == expired(writer.rows), (read_at, publish_at, kill_at)


def test_a_maintenance_may_be_killed_at_each_step_while_a_writer_starts() -> None:
    for start_at, kill_at in itertools.product(range(1, STEPS + 2), repeat=2):
        folder, writer = table()
        rows = partial(with_and_without_old, writer)
        while_a_writer_starts(folder, writer, numbered(folder), rows, start_at, kill_at)
        settle(folder)
        assert folder.read_all() == expired(writer.rows), (start_at, kill_at)


def test_a_list_that_somebody_else_has_changed_is_left_as_it_is() -> None:
    folder, _ = table()
    other = [each for each in folder.listed() if each.place != f"{NEW}/part-0"]

    def change() -> None:
        if any("merged-" in place for place in folder.rows):
            folder.texts[f"{LOG}/4.compact"] = encode_log(other[:2])

    folder.before = change
    outcome = maintain(folder, LIMITS, GRACE_MS, "r0", lambda: folder.now_ms)
    assert outcome.is_disturbed
    folder.before = lambda: None
    assert folder.listed()[:2] == other[:2]
    assert not [place for place in folder.rows if "merged-" in place]
    assert not folder.names_in(ROUNDS)
    # Files that this maintenance has not replaced are not its to delete.
    assert f"{NEW}/part-0" in folder.rows


def test_small_files_of_a_folder_become_files_of_about_the_target() -> None:
    files = [entry(f"{NEW}/part-{number}", size) for number, size in enumerate((90, 90, 90, 500, 90, 90, 90))]
    limits = replace(LIMITS, target_bytes=250)
    planned = plan([*files, entry("date=2026-11-21/part-9", 1)], limits, "r")
    assert [[each.size for each in merge.sources] for merge in planned.merges] == [
        [90, 90],
        [90, 90],
        [90, 90],
    ]
    assert planned.merges[0].place == f"{NEW}/merged-r-0.snappy.parquet"
    assert planned.expired == ()


def test_rows_without_a_date_are_kept() -> None:
    assert date_of("date=__HIVE_DEFAULT_PARTITION__/hour=1") is None
    assert date_of("") is None
    assert date_of("date=2026-10-31/hour=01") == date(2026, 10, 31)
    files = [entry(f"{OLD}/hour=01/part-0", 500), entry("date=__HIVE_DEFAULT_PARTITION__/part-1", 500)]
    assert plan(files, LIMITS, "r").expired == (files[0],)
    assert plan(files, replace(LIMITS, oldest=None), "r").expired == ()


def test_a_merged_file_has_the_entry_of_its_sources_with_its_own_name_and_size() -> None:
    files = [entry(f"{NEW}/part-{number}", 10) for number in range(3)]
    planned = plan(files, LIMITS, "r")
    place = f"{NEW}/merged-r-0.snappy.parquet"
    (made,) = rewritten(files, planned, {place: (33, 7)}) or []
    assert made.told == entry(place, 33).told | {"modificationTime": 7}
    assert decode_log(encode_log([made])) == [made]
    assert rewritten(files[1:], planned, {place: (33, 7)}) is None


def test_a_round_is_kept_and_read_again() -> None:
    kept = begun(plan([entry(f"{NEW}/a", 1), entry(f"{NEW}/b", 1)], LIMITS, "r"), "r")
    assert kept.replaced == (f"{NEW}/a", f"{NEW}/b")
    for each in (kept, replace(kept, compact=19), replace(kept, deleted=("x",), after_ms=7)):
        assert decode(encode(each)) == each
    with pytest.raises(ValueError, match="unknown format"):
        decode(json.dumps({**json.loads(encode(kept)), "format": 2}))


def test_a_table_that_is_made_anew_keeps_its_files() -> None:
    # The folder was emptied but for the round, and a new run has other files and numbers.
    old = Round("r", ("m",), ("a", "b"), compact=99)
    assert decided(old, 9, {"c"}, False, 0, 5) == replace(old, deleted=("m", "a", "b"), after_ms=5)


def test_merged_files_that_nobody_has_seen_are_deleted_at_once() -> None:
    # The maintenance died before it replaced the compact file.
    old = Round("r", ("m",), ("a", "b"), compact=9)
    assert decided(old, 9, {"a", "b"}, False, 3, 5) == replace(old, deleted=("m",), after_ms=3)
    assert decided(old, 9, {"m"}, False, 3, 5) == old
    assert decided(old, 9, {"m"}, True, 3, 5) == replace(old, deleted=("a", "b"), after_ms=8)


def test_a_round_without_a_number_was_not_published() -> None:
    old = Round("r", ("m",), ("a", "b"))
    assert old.compact == NONE
    assert decided(old, 9, {"a"}, False, 3, 5) == replace(old, deleted=("m",), after_ms=3)


def test_the_newest_compact_file_has_the_highest_number() -> None:
    assert newest_compact(["9.compact", "19.compact", "21", ".29.compact.crc", ".29.compact.x.tmp"]) == 19
    assert newest_compact(["3", ".9.compact.crc"]) == NONE
