"""Processes that the demo starts and ends, together with everything they started. Independent of what they do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 90.0
"""How long a child may take to end after SIGTERM. Spark needs the longest."""

TAIL_BYTES: Final = 16 * 1024
POLL_S: Final = 0.05
PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function that a child runs first, so that it gets a signal if the demo is killed with -9. None where
    unsupported."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class ChildProcess:
    """One process in a separate process group. Ctrl-C then reaches only the demo, which ends its children in order."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """Start the process. Its output is appended to `log`. Its working directory, where Spark leaves files, is the
        log's folder."""
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._begin = log.stat().st_size if log.exists() else 0
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """The exit status, or None while it runs. A negative status is a signal."""
        return self._process.poll()

    def said(self) -> list[str]:
        """Return the last lines that it printed since its start."""
        with open(self.log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()

    def stop(self, hurry: Callable[[], bool]) -> bool:
        """Send SIGTERM and wait. Return whether it ended in time. If hurry() is true, kill it at once."""
        if self.status() is None:
            self._process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while self.status() is None and time.monotonic() < deadline_s and not hurry():
            time.sleep(POLL_S)
        ended = self.status() is not None
        # Also end the processes that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return ended


def exit_reason(child: ChildProcess) -> str:
    """Describe in one line how a child ended and its last output."""
    status = child.status()
    how = (
        f"was ended by signal {-status}"
        if status is not None and status < 0
        else f"ended with status {status}"
    )
    lines = [line.strip() for line in child.said() if line.strip()]
    said = next(
        (line for line in reversed(lines) if line.startswith("kafkacompat: ")),
        lines[-1] if lines else "nothing",
    )
    return f"the {child.name} {how}, and said: {said}"
