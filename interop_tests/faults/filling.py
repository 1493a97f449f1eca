"""Takes all the room of a file system."""

from __future__ import annotations

import contextlib
from pathlib import Path


def fill(folder: Path) -> Path:
    """A file that takes all the room there is, `ballast` in the folder."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while file.write(b"\0" * 65536):
            pass
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
        while file.write(b"\0" * 64):
            pass
    return ballast
