"""A wall clock that can be set for one process: a small C library, preloaded, that adds an offset read from a file.

It is built by the machine's C compiler into the checkout's cache. Monotonic clocks are left alone, as when an
administrator or NTP sets a machine's time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT, MissingTool, require_program

SOURCE = Path(__file__).with_name("wall_clock.c")
BUILD_TIMEOUT_S = 60.0


class WallClock:
    """`environment` is for the process; `jump` takes effect on the next reading of its clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(_library()), "WALL_CLOCK_OFFSET_FILE": str(path)}

    def jump(self, seconds: int) -> None:
        """The process's clock shows so many seconds more, or less, than this machine's."""
        # In place and of fixed width: the library has the file mapped.
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


def _library() -> Path:
    source = SOURCE.read_bytes()
    folder = CHECKOUT / ".cache" / "others"
    built = folder / f"wall_clock-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = built.with_suffix(f".{os.getpid()}")
        command = [require_program("cc"), "-shared", "-fPIC", "-O1", "-o", str(part), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        if done.returncode != 0:
            raise MissingTool(f"the C compiler refuses {SOURCE.name}: {done.stderr}")
        part.rename(built)
    return built
