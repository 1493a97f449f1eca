"""A wall clock that can be set for one process: a small preloaded C library adds an offset that it reads from a file.

The machine's C compiler builds it into the checkout's cache. It does not change monotonic clocks, as when an
administrator or NTP sets a machine's time.
"""

from __future__ import annotations

from pathlib import Path

from interop_tests.harness.preload import preload_library

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """Start the process with `environment`. `jump` takes effect when the process next reads its clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(preload_library(SOURCE)), "WALL_CLOCK_OFFSET_FILE": str(path)}

    def jump(self, seconds: int) -> None:
        """The process's clock is this number of seconds ahead of this machine's, or behind it if negative."""
        # The file is changed in place and has a fixed width, because the library has it mapped.
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
