"""Damage of files, as a bad disk does it."""

from __future__ import annotations

from pathlib import Path


def change_byte(path: Path, position: int) -> None:
    """As a bad disk does. The same change once more mends it."""
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))
