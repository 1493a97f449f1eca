"""Jobs in copies of this process."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkacompat.testing import copies
from kafkacompat.testing.copies import CopyFailed, carried_out, may_copy

needs_copies = pytest.mark.skipif(not may_copy(), reason="no process can be copied here")


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
def test_results_are_in_the_order_of_the_jobs(processes: int) -> None:
    jobs: list[Callable[[], int]] = [partial(pow, number, 2) for number in range(7)]
    assert carried_out(jobs, processes=processes, threads=2) == [0, 1, 4, 9, 16, 25, 36]


@needs_copies
def test_a_copy_ends_after_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "JOBS_MAX", 2)
    pids = carried_out([os.getpid] * 12, processes=2, threads=1)
    assert sorted(Counter(pids).values()) == [2] * 6


def test_without_jobs_there_are_no_results() -> None:
    assert carried_out([], processes=2, threads=2) == []


@needs_copies
def test_copies_are_other_processes_and_one_is_this_one() -> None:
    assert os.getpid() not in carried_out([os.getpid] * 4, processes=2, threads=2)
    assert carried_out([os.getpid] * 4, processes=1, threads=2) == [os.getpid()] * 4


@needs_copies
def test_what_a_job_raises_is_told() -> None:
    with pytest.raises(CopyFailed, match="ZeroDivisionError"):
        carried_out([lambda: 1, lambda: 1 // 0], processes=2, threads=1)


@needs_copies
def test_a_copy_that_is_killed_is_told_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    make = copies._copy

    def noted(*arguments: Any) -> tuple[int, int]:
        pid, reading = make(*arguments)
        pids.append(pid)
        return pid, reading

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(copies, "_copy", noted)
    with pytest.raises(CopyFailed, match="-9"):
        carried_out([end, lambda: None], processes=2, threads=1)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@needs_copies
def test_locks_of_other_threads_hold_up_no_copy() -> None:
    lock, locked, over = threading.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    try:
        assert carried_out([lambda: 1, lambda: 2], processes=2, threads=1) == [1, 2]
    finally:
        over.set()
        holder.join()
