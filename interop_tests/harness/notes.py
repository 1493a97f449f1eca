"""Lines that a run prints at its end, under headings. Those of pytest-xdist's workers reach the process that prints."""

from __future__ import annotations

import pytest

NOTES = pytest.StashKey[dict[str, list[str]]]()
"""By heading, in the order in which they came."""


def note(config: pytest.Config, heading: str, line: str) -> None:
    config.stash.setdefault(NOTES, {}).setdefault(heading, []).append(line)


def is_worker(config: pytest.Config) -> bool:
    """Whether another process started this one and prints for it."""
    return hasattr(config, "workerinput")
