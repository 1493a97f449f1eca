"""The folder of the user's own data, for what must outlive a restart of the machine and does not hang on where a command is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_data(environment: Mapping[str, str] = os.environ) -> Path:
    """`kafkacompat` in $XDG_DATA_HOME, which is ~/.local/share unless it is set to an absolute path (XDG base directories)."""
    home = environment.get("XDG_DATA_HOME", "")
    base = (
        Path(home)
        if os.path.isabs(home)
        else Path(environment.get("HOME") or "~").expanduser() / ".local" / "share"
    )
    return base / "kafkacompat"
