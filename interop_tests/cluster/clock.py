"""A wall clock that can be set for one process: a small C library, preloaded, that adds an offset read from a file.

It is built by the machine's C compiler into the checkout's cache. Monotonic clocks are left alone, as when an
administrator or NTP sets a machine's time.
"""

from __future__ import annotations

from pathlib import Path

from interop_tests.harness.preload import preload_library

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """`environment` is for the process; `jump` takes effect on the next reading of its clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(preload_library(SOURCE)), "WALL_CLOCK_OFFSET_FILE": str(path)}

    def jump(self, seconds: int) -> None:
        """The process's clock shows so many seconds more, or less, than this machine's."""
        # In place and of fixed width: the library has the file mapped.
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
