"""Jobs that copies of this process carry out, each with some threads, so that Python code uses every core.

A copy has the thread that made it, and no other one. What it keeps in memory ends with it.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import sleep
from typing import TypeVar

T = TypeVar("T")
JOBS_MAX = 48
"""Of one copy. What jobs have left behind, such as threads that hang, ends with it."""
PARENT_LOOK_S = 1.0
_copying = threading.Lock()
"""No copy may get the end of another one's pipe at which that one writes."""


class CopyFailed(RuntimeError):
    """A copy has ended before its jobs were done, or a job has raised. The text says how."""


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def may_copy() -> bool:
    """Elsewhere the libraries of the system do not outlive a copy."""
    return sys.platform == "linux"


def carried_out(jobs: Sequence[Callable[[], T]], *, processes: int, threads: int) -> list[T]:
    """What the jobs return, in their order. `threads` are those of a process. With one process, or where no process can be copied,
    this one carries them out. Raises CopyFailed."""
    if min(processes, len(jobs)) <= 1 or not may_copy():
        return _in_threads(jobs, threads)
    count = max(min(processes, len(jobs)), -(-len(jobs) // JOBS_MAX))
    with ThreadPoolExecutor(processes) as pool:  # all of them are carried out, also if the first one fails
        outcomes: list[list[T] | CopyFailed] = list(
            pool.map(lambda first: _outcome(*_copy(jobs[first::count], threads)), range(count))
        )
    results: dict[int, T] = {}
    for first, outcome in enumerate(outcomes):
        if isinstance(outcome, CopyFailed):
            raise outcome
        results.update(zip(range(first, len(jobs), count), outcome, strict=True))
    return [results[index] for index in range(len(jobs))]


def _in_threads(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda job: job(), jobs))


def _copy(jobs: Sequence[Callable[[], T]], threads: int) -> tuple[int, int]:
    """The id of a process, and where its results come."""
    parent = os.getpid()
    with _copying, warnings.catch_warnings():
        # Python warns of locks that threads of the parent hold. A copy uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
    code = 1
    try:
        gc.freeze()  # what the parent's threads hold is not freed here: a client would wait for its threads
        os.close(reading)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        try:
            told = pickle.dumps((True, _in_threads(jobs, threads)))
        except BaseException:
            told = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writing, "wb") as file:
            file.write(told)
        code = 0
    finally:
        os._exit(code)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        sleep(PARENT_LOOK_S)
    os._exit(1)


def _outcome(pid: int, reading: int) -> list[T] | CopyFailed:
    data = b""
    try:
        with os.fdopen(reading, "rb") as file, suppress(OSError):
            data = file.read()
    finally:
        _, status = os.waitpid(pid, 0)
    if not data:
        return CopyFailed(f"a copy of this process has ended with {os.waitstatus_to_exitcode(status)}")
    has_ended_well, told = pickle.loads(data)  # noqa: S301  # of a copy of this process
    return told if has_ended_well else CopyFailed(told)
