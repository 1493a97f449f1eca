"""Fills a file system."""

from __future__ import annotations

import contextlib
from pathlib import Path


def fill(folder: Path) -> Path:
    """Create a file `ballast` in the folder that takes all free space."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while file.write(b"\0" * 65536):
            pass
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
        while file.write(b"\0" * 64):
            pass
    return ballast
