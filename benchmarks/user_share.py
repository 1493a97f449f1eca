"""Which part of the CPU of some processes is user time.

Linux knows a process's CPU to the nanosecond, but splits it by what runs at its ticks: some hundreds in a round. A broker
that sleeps and wakes with its client runs in step with them, so that all of its CPU may count as user time. The samples of
perf are four times as many, at times of their own.
"""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

SAMPLES_PER_S = 997
"""Of each processor. A sample takes a few microseconds of what runs, so this is less than 1 % of its CPU."""
ATTACHED_WITHIN_S = 10.0
TIMEOUT_S = 60.0


# Of all processes: an event of each thread makes every switch between threads dearer, which is half of a JVM's CPU again.
RECORD = ("perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S))


@functools.cache
def is_sampled() -> bool:
    """Whether perf is on this machine, and may watch all processes."""
    if shutil.which("perf") is None:
        return False
    with TemporaryDirectory() as folder:
        command = [*RECORD, "-o", str(Path(folder) / "samples"), "true"]
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S).returncode == 0


@contextmanager
def user_share(pids: Sequence[int]) -> Iterator[Callable[[], float]]:
    """Gives a function that tells, after the block, the part of the block's CPU that was user time: 0 to 1. It is told by
    samples where perf can be used, otherwise by ticks."""
    if not is_sampled():
        with by_ticks(pids) as share:
            yield share
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "samples"
        with subprocess.Popen(
            [*RECORD, "-o", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as perf:
            try:
                deadline_s = time.monotonic() + ATTACHED_WITHIN_S
                while not file.exists() and perf.poll() is None and time.monotonic() < deadline_s:
                    time.sleep(0.01)
                shares: list[float] = []
                yield lambda: shares[0]
            finally:
                perf.send_signal(signal.SIGINT)
                perf.wait(TIMEOUT_S)
        shares.append(share_of(file, pids))


def share_of(file: Path, pids: Sequence[int]) -> float:
    """Of the samples of these processes, those whose instruction lies in user space: the lower half of the addresses."""
    told = subprocess.run(
        ["perf", "script", "-i", str(file), "-F", "pid,ip"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    samples = (line.split() for line in told.stdout.splitlines())
    addresses = [int(address, 16) for pid, address in samples if int(pid) in pids]
    assert addresses, f"perf has no samples of {pids}: {told.stderr[-1000:]}"
    return sum(address < 1 << 63 for address in addresses) / len(addresses)


@contextmanager
def by_ticks(pids: Sequence[int]) -> Iterator[Callable[[], float]]:
    """The same by Linux's own split."""

    def split() -> tuple[float, float]:
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return sum(each.user for each in times), sum(each.system for each in times)

    before = split()
    shares: list[float] = []
    yield lambda: shares[0]
    user, system = (now - then for now, then in zip(split(), before, strict=True))
    shares.append(user / (user + system) if user + system else 0.0)
