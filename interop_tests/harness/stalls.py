"""The stalls that the watchdogs of the nodes' event loops have logged, by test.

A stall in which the loop computed is a bug of kafkacompat and fails the test. A stall in which the loop waited for a
busy machine is only reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

COMPUTING_MS_MAX = 250
"""How long a loop may compute in one piece in these tests. Other processes share the machine's caches and make steps
slower."""
STALL = "the event loop stood still"
"""How `_log_stall` of net/watchdog begins. net/_tests/test_watchdog holds this module's reading against what it logs."""
_ENTRY = re.compile(STALL.encode() + rb" for (\d+) ms, computing for (\d+) ms of it, in:\n((?:[^\[\n].*\n)*)")
CHUNK_MAX = 16 << 20


@dataclass(frozen=True)
class Stall:
    wall_ms: int
    computing_ms: int
    stack: str
    log: Path

    @property
    def is_ours(self) -> bool:
        return self.computing_ms > COMPUTING_MS_MAX

    def __str__(self) -> str:
        return f"{self.wall_ms} ms, computing for {self.computing_ms} ms, {self.log}\n{self.stack}"


class Stalls:
    """The logs of all nodes. Each is read up to its end at the time of the call."""

    def __init__(self) -> None:
        self.seen: list[Stall] = []
        self._read: dict[Path, int] = {}

    @property
    def logs(self) -> list[Path]:
        return list(self._read)

    def watch(self, log: Path) -> None:
        """Watch a log from its present end, unless it is watched already."""
        self._read.setdefault(log, log.stat().st_size if log.exists() else 0)

    def new(self) -> list[Stall]:
        """The stalls since the last call."""
        found = [stall for log in list(self._read) for stall in self._new_of(log)]
        self.seen += found
        return found

    def _new_of(self, log: Path) -> list[Stall]:
        try:
            with open(log, "rb") as file:
                file.seek(self._read[log])
                text = file.read(CHUNK_MAX)
        except FileNotFoundError:
            del self._read[log]
            return []
        # An incomplete line is read next time.
        text = text[: text.rfind(b"\n") + 1]
        self._read[log] += len(text)
        return [
            Stall(int(match[1]), int(match[2]), match[3].decode(errors="replace"), log)
            for match in _ENTRY.finditer(text)
        ]


STALLS = Stalls()
"""The logs of the nodes that this run has started."""
