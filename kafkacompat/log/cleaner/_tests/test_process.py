"""Cleaning in a process of its own: the same files come of it, and its end is noticed at both ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacompat.log._tests.logs import open_log
from kafkacompat.log.cleaner._tests.cleaning import (
    COMPACT,
    LIMITS,
    NAME,
    NOW_MS,
    Manager,
    append,
    batches,
    carry_out,
)
from kafkacompat.log.cleaner.cleaner import LogCleaner
from kafkacompat.log.cleaner.process import ARGUMENTS, CleaningProcess, job_from_json, job_to_json
from kafkacompat.log.cleaner.work import CleaningStopped, Pace
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.log import PartitionLog


def filled(path: Path) -> PartitionLog:
    log = open_log(RealDisk(), COMPACT, directory=str(path / "t-0"))
    for number in range(120):
        append(log, [(b"%d" % (number % 5), b"v%d" % number * 20), (b"gone", None)], compression=number % 5)
    return log


def cleaner_for(
    log: PartitionLog, *, own: bool, pace: Pace = lambda size: None
) -> tuple[LogCleaner, list[str]]:
    notes: list[str] = []
    manager = Manager(log)
    cleaner = LogCleaner(
        manager,  # type: ignore[arg-type]
        RealDisk(),
        lambda: LIMITS,
        lambda: pace,
        notes.append,
        own_process_bytes=0 if own else None,
    )
    return cleaner, notes


def test_the_process_writes_what_the_thread_writes(tmp_path: Path) -> None:
    found = []
    moved: list[int] = []
    for own in (False, True):
        (tmp_path / str(own)).mkdir()
        log = filled(tmp_path / str(own))
        cleaner, notes = cleaner_for(log, own=own, pace=moved.append)
        cleaning = cleaner.begin(NOW_MS)
        assert cleaning is not None
        carry_out(cleaning, NOW_MS)
        assert notes == []
        assert log.cleaned_to == log.segments[-1].base_offset
        found.append(
            ([data for _, data in batches(log)], cleaning.stats.bytes_read, cleaning.stats.bytes_written)
        )
    assert found[0] == found[1]
    assert moved


def test_a_job_crosses_whole(tmp_path: Path) -> None:
    cleaner, _ = cleaner_for(filled(tmp_path), own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    assert isinstance(cleaning._work, CleaningProcess)
    job = cleaning._work._job
    assert job_from_json(job_to_json(job)) == job


def test_a_damaged_batch_is_told_as_by_a_thread(tmp_path: Path) -> None:
    log = filled(tmp_path)
    stem = log.segments[1].stem
    with open(stem + ".log", "r+b") as file:
        file.seek(61)
        file.write(b"\xff" * 12)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    carry_out(cleaning, NOW_MS)
    assert cleaner.uncleanable == {NAME}
    assert len(notes) == 1


def test_a_process_that_is_killed_leaves_the_work_to_the_threads(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    process = cleaning._work._process  # type: ignore[union-attr]
    assert process is not None
    process.kill()
    process.wait()
    carry_out(cleaning, NOW_MS)
    assert "cleaned in this process" in notes[0]
    assert log.cleaned_to == -1
    again = cleaner.begin(NOW_MS)
    assert again is not None
    carry_out(again, NOW_MS)
    assert log.cleaned_to == log.segments[-1].base_offset
    assert not [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]


def test_called_off_while_it_runs_the_process_ends(tmp_path: Path) -> None:
    log = filled(tmp_path)

    cleaner, notes = cleaner_for(log, own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    process = cleaning._work._process  # type: ignore[union-attr]
    assert process is not None
    cleaning.abandon()
    assert process.poll() is not None
    assert notes == []
    assert cleaner.begin(NOW_MS) is not None


def test_the_process_ends_when_nobody_asks() -> None:
    done = subprocess.run(
        [sys.executable, *ARGUMENTS], input=b"", capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_stop_during_a_read_ends_the_cleaning(tmp_path: Path) -> None:
    log = open_log(RealDisk(), COMPACT, directory=str(tmp_path / "t-0"))
    for number in range(900):
        append(log, [(b"%d" % (number % 5), b"v" * 1000)])

    def stopped(size: int) -> None:
        raise CleaningStopped("stopped")

    cleaner, notes = cleaner_for(log, own=True, pace=stopped)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    assert cleaning.done
    assert cleaning._work._process is None  # type: ignore[union-attr]
    assert notes == []


@pytest.mark.parametrize("request_line", [b"{}\n", b"not json\n"])
def test_nonsense_is_answered_by_an_error(request_line: bytes) -> None:
    done = subprocess.run(
        [sys.executable, *ARGUMENTS], input=request_line, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert b'"error": "bug"' in done.stdout
