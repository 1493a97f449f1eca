"""The user's data folder, for data that must survive a reboot and must not depend on the working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_data(environment: Mapping[str, str] = os.environ) -> Path:
    """Return `kafkacompat` in $XDG_DATA_HOME. The default is ~/.local/share, also if the variable is not an absolute
    path (XDG base directories)."""
    home = environment.get("XDG_DATA_HOME", "")
    base = (
        Path(home)
        if os.path.isabs(home)
        else Path(environment.get("HOME") or "~").expanduser() / ".local" / "share"
    )
    return base / "kafkacompat"
