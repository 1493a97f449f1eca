"""Processes that the demo starts and ends. Knows how to end each with all that it started, and nothing of what it does."""

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
"""For a child to end by itself after SIGTERM; Spark needs longest."""

TAIL_BYTES: Final = 16 * 1024
POLL_S: Final = 0.05
PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> Callable[[], None] | None:
    """What a child runs before its program, so that it is told to end if the demo is killed with -9; None where that is unknown."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One process in a group of its own: Ctrl-C at the terminal reaches the demo, which ends its children in order."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """Start it; what it prints is appended to log, and what it leaves where it runs (Spark does) lies beside that."""
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
        """The exit status; None while it runs. Below 0 a signal."""
        return self._process.poll()

    def said(self) -> list[str]:
        """The last lines it printed since it was started."""
        with open(self.log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()

    def stop(self, hurry: Callable[[], bool]) -> bool:
        """SIGTERM, then wait; whether it ended by itself in time. hurry() true ends it at once."""
        if self.status() is None:
            self._process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while self.status() is None and time.monotonic() < deadline_s and not hurry():
            time.sleep(POLL_S)
        ended = self.status() is not None
        # What it started and left behind goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return ended


def why(child: Child) -> str:
    """How a child ended and what it said last, in a line."""
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
