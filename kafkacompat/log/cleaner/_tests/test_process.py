"""Cleaning in a separate process: it writes the same files, and both ends notice the end of the other."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import open_log
from kafkacompat.log.cleaner import __main__ as process_main
from kafkacompat.log.cleaner import log_cleaner as cleaner_module
from kafkacompat.log.cleaner import process
from kafkacompat.log.cleaner._tests.cleaning import (
    COMPACT,
    LIMITS,
    NAME,
    NOW_MS,
    Manager,
    append,
    batches,
    carry_out,
    last_values,
)
from kafkacompat.log.cleaner.cleaner import Cleaner, CleaningStopped, Pace
from kafkacompat.log.cleaner.job import SegmentFile, job_from_json, job_to_json
from kafkacompat.log.cleaner.log_cleaner import (
    IN_THREAD_BYTES,
    LEAST_MAP_BYTES,
    PROCESS_REST_MS,
    Cleaning,
    LogCleaner,
)
from kafkacompat.log.cleaner.process import COMMAND, Child, Children, CleaningProcess, child_environment
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import SyncFailed
from kafkacompat.records.compression import ZSTD


class Clock:
    ms = 0


def filled(path: Path) -> UnifiedLog:
    log = open_log(RealDisk(), COMPACT, directory=str(path / "t-0"))
    for number in range(120):
        append(log, [(b"%d" % (number % 5), b"v%d" % number * 20), (b"gone", None)], compression=number % 5)
    return log


def cleaner_for(
    log: UnifiedLog, *, own: bool, pace: Pace = lambda size: None
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


def asked(lines: bytes) -> subprocess.CompletedProcess[bytes]:
    """A cleaner's process that gets only this input."""
    return subprocess.run(
        COMMAND, input=lines, capture_output=True, timeout=30, check=False, env=child_environment()
    )


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
        stats, meter = cleaning.stats, cleaner.meter
        assert 0 < stats.map_utilization < 1
        assert meter.buffer_utilization == stats.map_utilization
        assert meter.recopied == stats.bytes_written / stats.bytes_read
        found.append(
            (
                [data for _, data in batches(log)],
                stats.bytes_read,
                stats.bytes_written,
                stats.map_utilization,
            )
        )
    assert found[0] == found[1]
    assert moved


@pytest.mark.parametrize("own", [False, True])
def test_segments_that_lie_elsewhere_are_cleaned_one_at_a_time(tmp_path: Path, own: bool) -> None:
    """Each is put into its place when it is read, in its turn, and with the size that it has there."""
    cleaner, _ = cleaner_for(filled(tmp_path), own=own)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    job = cleaning._work._job
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    staged: list[Path] = []

    def stage(segment: SegmentFile) -> SegmentFile:
        for path in staged:
            path.unlink(missing_ok=True)
        source = tmp_path / "t-0" / f"{segment.base_offset:020}.log"
        staged.append(elsewhere / source.name)
        staged[-1].write_bytes(source.read_bytes())
        return segment._replace(size=source.stat().st_size)

    segments = [
        each._replace(stem=str(elsewhere / f"{each.base_offset:020}"), size=1) for each in job.segments
    ]
    work = cleaner.work_on_staged(
        job._replace(directory=str(elsewhere), segments=segments, is_staged=True), lambda size: None, stage
    )
    assert isinstance(work, CleaningProcess) is own
    work.build_map()
    work_here = Cleaner(RealDisk(), job, lambda size: None)
    work_here.build_map()
    assert len(work.groups) == 1  # by the sizes that were told before
    bases = [group[0].base_offset for group in work_here.groups]
    found = b""
    for group in work.groups:
        assert ".log" in work.clean_group(group)
        found += (elsewhere / f"{group[0].base_offset:020}.log.cleaned").read_bytes()
    expected = b""
    for group, base_offset in zip(work_here.groups, bases, strict=True):
        work_here.clean_group(group)
        expected += (tmp_path / "t-0" / f"{base_offset:020}.log.cleaned").read_bytes()
    work.finish()
    assert found == expected
    cleaner.close()


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
    assert set(cleaner.uncleanable) == {NAME}
    assert len(notes) == 1


def killed(cleaning: Cleaning) -> None:
    """Kill the process that has built the map, as the kernel does when memory is short, and let the cleaning notice."""
    child = cleaning._work._child  # type: ignore[union-attr]
    assert child is not None
    child._process.kill()
    child._process.wait()
    carry_out(cleaning, NOW_MS)


def test_a_large_log_whose_process_is_killed_is_never_cleaned_in_the_broker(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    clock = Clock()
    cleaner._monotonic_ms = lambda: clock.ms
    maps: list[int] = []
    for number in range(8):
        cleaning = cleaner.begin(NOW_MS)
        assert cleaning is not None
        assert isinstance(cleaning._work, CleaningProcess)
        maps.append(cleaning._work._job.limits.map_bytes)
        cleaning.run()
        cleaning.finish(NOW_MS)
        killed(cleaning)
        rest_s = min(60 << number, 3600)
        assert notes[-1] == (
            f"cleaning {NAME} has failed: the cleaner's process was killed by SIGKILL, as by the kernel when memory is short; "
            f"it is tried again with smaller buffers in {rest_s} s"
        )
        clock.ms += rest_s * 1000 - 1
        assert cleaner.begin(NOW_MS) is None
        clock.ms += 1
    assert maps == [max(LIMITS.map_bytes >> number, LEAST_MAP_BYTES) for number in range(8)]
    assert log.cleaned_to == -1
    cleaning, _ = begun(log, cleaner)
    carry_out(cleaning, NOW_MS)
    assert log.cleaned_to == log.segments[-1].base_offset
    assert not [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]
    log.cleaned_to = -1
    again = cleaner.begin(NOW_MS)
    assert again is not None
    assert isinstance(again._work, CleaningProcess)
    assert again._work._job.limits == LIMITS, "what went well has all its memory again"
    cleaner.close()


def test_where_no_process_can_be_started_the_log_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)

    def none() -> Child:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(process, "Child", none)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    carry_out(cleaning, NOW_MS)
    assert len(notes) == 1
    assert "no process for it" in notes[0]
    assert cleaner.begin(NOW_MS) is None
    assert cleaner._manager.failed == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_process", [True, False])
def test_without_memory_a_log_rests_and_is_cleaned_in_a_process_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: bool
) -> None:
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaner._own_process_bytes = 0 if in_process else 1 << 40
    clock = Clock()
    cleaner._monotonic_ms = lambda: clock.ms
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    assert cleaning.has_own_process is in_process

    def no_memory() -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cleaning._work, "build_map", no_memory)
        carry_out(cleaning, NOW_MS)
    assert notes == [
        f"cleaning {NAME} has failed: no memory; it is tried again with smaller buffers in 60 s",
    ]
    clock.ms += 60_000
    again = cleaner.begin(NOW_MS)
    assert again is not None
    assert again.has_own_process
    carry_out(again, NOW_MS)
    assert log.cleaned_to == log.segments[-1].base_offset
    cleaner.close()


def test_a_process_without_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    def no_memory() -> None:
        raise MemoryError

    monkeypatch.setattr(process_main, "serve", no_memory)
    monkeypatch.setattr(process_main, "tell", told.append)
    monkeypatch.setattr(process_main, "be_the_first_to_go", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    assert process_main.main() == 1
    assert isinstance(process._error_of(told[0]), MemoryError)


def test_small_logs_are_cleaned_while_no_process_is_begun(tmp_path: Path) -> None:
    """A shortage of memory may have another cause than the log whose process was killed."""
    log, small = filled(tmp_path), open_log(RealDisk(), COMPACT, directory=str(tmp_path / "s-0"))
    cleaner, _ = cleaner_for(log, own=True)
    cleaner._own_process_bytes = sum(segment.size for segment in log.segments)
    clock = Clock()
    cleaner._monotonic_ms = lambda: clock.ms
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    assert not cleaning.has_own_process, "its active segment is not read"
    cleaner._own_process_bytes = sum(segment.size for segment in log.segments[:-1])
    cleaning.abandon()
    carry_out(cleaning, NOW_MS)
    cleaning, _ = begun(log, cleaner)
    killed(cleaning)
    other = TopicPartition("s", 0)
    small.topic_partition = other
    cleaner._manager.logs[other] = small  # type: ignore[index]
    for number in range(60):
        append(small, [(b"%d" % (number % 5), b"v" * 20)])
    found = cleaner.begin(NOW_MS)
    assert found is not None
    assert found.log is small
    assert not found.has_own_process
    carry_out(found, NOW_MS)
    cleaner._own_process_bytes = 0
    for number in range(60):
        append(small, [(b"%d" % (number % 5), b"v" * 20)])
    clock.ms = PROCESS_REST_MS - 1
    assert cleaner.begin(NOW_MS) is None, "it would take a process"
    clock.ms += 1
    found = cleaner.begin(NOW_MS)
    assert found is not None
    assert found.has_own_process
    carry_out(found, NOW_MS)
    cleaner.close()


def test_a_small_log_of_many_offsets_is_cleaned_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expanded size of its batches is unknown before they are opened."""
    log = filled(tmp_path)
    cleaner, _ = cleaner_for(log, own=True)
    cleaner._own_process_bytes = 1 << 40
    offsets = log.segments[-1].base_offset - log.segments[0].base_offset
    for most, in_process in ((offsets + 1, False), (offsets, True)):
        monkeypatch.setattr(cleaner_module, "OWN_PROCESS_OFFSETS", most)
        cleaning = cleaner.begin(NOW_MS)
        assert cleaning is not None
        assert cleaning.has_own_process is in_process
        cleaning.abandon()
        carry_out(cleaning, NOW_MS)


def test_a_batch_that_unfolds_to_much_is_opened_in_a_process(tmp_path: Path) -> None:
    """The log has few bytes and few offsets, but searching its batch would block the loop."""
    log = filled(tmp_path)
    append(log, [(b"large", bytes(IN_THREAD_BYTES))], compression=ZSTD)
    for number in range(60):
        append(log, [(b"%d" % (number % 5), b"v" * 20)])
    before = last_values(log)
    cleaner, notes = cleaner_for(log, own=True)
    cleaner._own_process_bytes = 1 << 40
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    assert not cleaning.has_own_process
    carry_out(cleaning, NOW_MS)
    assert notes == []
    again = cleaner.begin(NOW_MS)
    assert again is not None
    assert again.has_own_process
    carry_out(again, NOW_MS)
    assert again.summary
    assert last_values(log) == before
    cleaner.close()


def test_another_log_of_the_name_starts_afresh(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cleaner, _ = cleaner_for(log, own=True)
    cleaning, _ = begun(log, cleaner)
    killed(cleaning)
    cleaner.uncleanable[NAME] = log
    (tmp_path / "again").mkdir()
    cleaner._manager.logs[NAME] = filled(tmp_path / "again")  # type: ignore[index]
    cleaner._monotonic_ms = lambda: 1 << 40
    found = cleaner.begin(NOW_MS)
    assert found is not None
    assert found.has_own_process
    assert found._work._job.limits == LIMITS  # type: ignore[union-attr]


def test_the_cleaners_process_goes_before_the_broker() -> None:
    """When memory is short the kernel kills the process with the highest score."""
    child = Child()
    try:
        path = Path(f"/proc/{child.pid}/oom_score_adj")
        if not path.exists():
            pytest.skip("a system without it")
        # The process answers even an invalid request once it has started.
        child.exchange({})
        assert path.read_text() == "1000\n"
    finally:
        child.kill()


def test_a_stop_ends_a_process_that_does_nothing(tmp_path: Path) -> None:
    """A process stopped by a signal answers nothing, like one on a hanging disk. The thread that reads from it is
    released."""
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning, child = begun(log, cleaner)
    os.kill(child.pid, signal.SIGSTOP)
    reading = threading.Thread(target=cleaning.run)
    reading.start()
    cleaner.interrupt()
    reading.join(30)
    assert not reading.is_alive()
    cleaning.finish(NOW_MS)
    assert cleaning.done
    assert child.ended()
    assert notes == []
    late = Children()
    late.interrupt()
    with pytest.raises(CleaningStopped):
        late.start()
    assert late.take() is None


def test_called_off_while_it_runs_the_process_ends(tmp_path: Path) -> None:
    log = filled(tmp_path)

    cleaner, notes = cleaner_for(log, own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    child = cleaning._work._child  # type: ignore[union-attr]
    assert child is not None
    cleaning.abandon()
    assert not cleaning.done
    carry_out(cleaning, NOW_MS)
    assert child.ended()
    assert notes == []
    assert cleaner.begin(NOW_MS) is not None


def test_the_process_ends_when_nobody_asks() -> None:
    done = asked(b"")
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
    assert cleaning._work._child is None  # type: ignore[union-attr]
    assert notes == []


@pytest.mark.parametrize("request_line", [b"{}\n", b"not json\n"])
def test_nonsense_is_answered_by_an_error(request_line: bytes) -> None:
    done = asked(request_line)
    assert done.returncode == 1
    assert b'"error": "bug"' in done.stdout


def begun(log: UnifiedLog, cleaner: LogCleaner) -> tuple[Cleaning, Child]:
    """A cleaning that has built its map, and its process."""
    log.cleaned_to = -1
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    cleaning.run()
    cleaning.finish(NOW_MS)
    assert isinstance(cleaning._work, CleaningProcess)
    child = cleaning._work._child
    assert child is not None
    return cleaning, child


def test_the_next_log_is_cleaned_by_the_same_process(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning, first = begun(log, cleaner)
    carry_out(cleaning, NOW_MS)
    cleaning, second = begun(log, cleaner)
    assert second is first
    carry_out(cleaning, NOW_MS)
    assert log.cleaned_to == log.segments[-1].base_offset
    assert not first.ended()
    cleaner.close()
    assert first.ended()
    assert notes == []


def test_a_process_that_has_ended_meanwhile_is_replaced(tmp_path: Path) -> None:
    """The system has already reported the end, or only the pipes show it."""
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning, first = begun(log, cleaner)
    carry_out(cleaning, NOW_MS)
    os.kill(first.pid, signal.SIGALRM)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    cleaning, second = begun(log, cleaner)
    assert second is not first
    carry_out(cleaning, NOW_MS)
    first.ended = second.ended = lambda: False  # type: ignore[method-assign]
    os.kill(second.pid, signal.SIGALRM)
    os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
    cleaning, third = begun(log, cleaner)
    assert third is not second
    carry_out(cleaning, NOW_MS)
    cleaner.close()
    assert notes == []


def test_what_failed_ahead_of_its_turn_is_told_though_the_process_has_ended(tmp_path: Path) -> None:
    """The process works ahead: the group whose file is missing was not requested yet."""
    log = filled(tmp_path)
    cleaner, notes = cleaner_for(log, own=True)
    cleaning, child = begun(log, cleaner)
    second = cleaning._work.groups[1][0]
    os.remove(second.stem + ".log")
    cleaning.run()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    cleaning.finish(NOW_MS)
    carry_out(cleaning, NOW_MS)
    assert [type(error) for error in cleaner._manager.failed] == [FileNotFoundError]  # type: ignore[attr-defined]
    assert notes == []
    assert cleaner._own_process_bytes == 0


def test_one_process_waits_at_most_and_a_look_lets_go_of_it_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A process of the cleaner that has no job takes the rest for one, and ends.
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-S", "-c", "import sys; sys.stdin.read()"))
    children = Children()
    one, two = children.start(), children.start()
    children.put(one)
    children.put(two)
    assert two.ended()
    children.reap()
    assert children.take() is one
    children.put(one)
    one._process.kill()
    one._process.wait()
    children.reap()
    assert children.take() is None
    children.close()


def lines_of_a_cleaning(path: Path) -> list[dict[str, Any]]:
    """The requests to a process from a job to its end."""
    log = filled(path)
    cleaner, _ = cleaner_for(log, own=True)
    cleaning = cleaner.begin(NOW_MS)
    assert cleaning is not None
    assert isinstance(cleaning._work, CleaningProcess)
    job = cleaning._work._job
    work = Cleaner(RealDisk(), job, lambda size: None)
    work.build_map()
    assert len(work.groups) > 2
    return [job_to_json(job), *({"group": group[0].base_offset} for group in work.groups), {"rest": True}]


def gone() -> dict[str, Any]:
    raise process_main.Gone


@pytest.mark.parametrize("rests", [True, False])
def test_a_process_waits_for_the_next_job_for_so_long_and_if_it_holds_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rests: bool
) -> None:
    lines = lines_of_a_cleaning(tmp_path)
    alarms: list[int] = []
    monkeypatch.setattr(process_main, "resident_bytes", lambda: process_main.REST_MOST_BYTES + (not rests))
    monkeypatch.setattr(signal, "alarm", alarms.append)
    monkeypatch.setattr(process_main, "ask", lambda: lines.pop(0) if lines else gone())
    monkeypatch.setattr(process_main, "tell", lambda answer: None)
    if rests:
        with pytest.raises(process_main.Gone):
            process_main.serve()
    else:
        process_main.serve()
    assert lines == []
    assert alarms == ([process_main.REST_S] if rests else [])


def test_leave_is_asked_for_one_step_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that arrives before the permission is kept for later."""
    step = process_main.ASK_EVERY_BYTES
    told: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = [{"group": 7}, {}, {}, {"group": 8}]
    monkeypatch.setattr(process_main, "ask", lambda: lines.pop(0))
    monkeypatch.setattr(process_main, "tell", told.append)
    broker = process_main.Broker()
    broker(step - 1)
    assert told == []
    broker(2)
    assert told == [{"moves": step + 1}]
    assert len(lines) == 4
    broker(step)
    assert len(lines) == 2
    assert broker.request() == {"group": 7}
    assert broker.request() == {"group": 8}
    assert told == [{"moves": step + 1}, {"moves": step}]


@pytest.mark.parametrize("wrong", [1, -1])
def test_a_process_does_nothing_that_it_was_not_meant_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    lines = lines_of_a_cleaning(tmp_path)
    lines[wrong] = {"group": 123_456}
    monkeypatch.setattr(process_main, "ask", lambda: lines.pop(0))
    monkeypatch.setattr(process_main, "tell", lambda answer: None)
    with pytest.raises(ValueError, match="asked for"):
        process_main.serve()


def test_given_up_neither_this_groups_files_nor_the_next_ones_stay(tmp_path: Path) -> None:
    """The process has begun the second group while the first one was being swapped in."""
    log = filled(tmp_path)
    cleaner, _ = cleaner_for(log, own=True)
    cleaning, child = begun(log, cleaner)
    cleaning.run()
    assert isinstance(cleaning._work, CleaningProcess)
    bases = [group[0].base_offset for group in cleaning._work.groups[:2]]
    # The answer for the second group is sent once its files are written. The test does not read it.
    assert child.exchange({"group": bases[1]}) is not None
    written = {name for name in os.listdir(log.directory) if name.endswith(".log.cleaned")}
    assert {f"{base:020d}.log.cleaned" for base in bases} <= written
    log.truncated = True
    cleaning.finish(NOW_MS)
    carry_out(cleaning, NOW_MS)
    left = [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    assert [name for name in left if name.startswith(tuple(f"{base:020d}" for base in bases))] == []


def test_a_failed_sync_is_one_on_the_other_side_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk that refuses a write is tolerated. One that loses written data is not."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    for error in (SyncFailed(errno.ENOSPC, "lost"), OSError(errno.ENOSPC, "full")):

        def fail(error: OSError = error) -> None:
            raise error

        monkeypatch.setattr(process_main, "serve", fail)
        monkeypatch.setattr(process_main, "tell", told.append)
        assert process_main.main() == 1
    assert [(type(error), getattr(error, "errno", None)) for error in map(process._error_of, told)] == [
        (SyncFailed, errno.ENOSPC),
        (OSError, errno.ENOSPC),
    ]
