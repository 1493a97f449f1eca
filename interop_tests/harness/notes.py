"""Lines that a run prints at its end, under headings. Those of pytest-xdist's workers are passed to the process that
prints."""

from __future__ import annotations

import pytest

NOTES = pytest.StashKey[dict[str, list[str]]]()
"""By heading, in the order of arrival."""


def note(config: pytest.Config, heading: str, line: str) -> None:
    config.stash.setdefault(NOTES, {}).setdefault(heading, []).append(line)


def is_worker(config: pytest.Config) -> bool:
    """Whether another process started this one and prints its notes."""
    return hasattr(config, "workerinput")
