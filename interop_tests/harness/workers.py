"""Runs the suite in several processes (pytest-xdist's workers): distributes the tests, longest first.

The tests of a file stay together, because they share fixtures that take long to create.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

SUITE = Path(__file__).resolve().parents[1]
DURATIONS = SUITE / "durations.tsv"
UNKNOWN_S = 30.0
"""The seconds of a file without a line in the table, which a new file need not have. So it does not start last."""

# These run one after the other in one process, with one JVM of Spark or one Chromium. Three of the pipeline compare with the same
# run of all jobs, which takes longest.
TOGETHER = {
    **dict.fromkeys(
        (
            "interop_tests/pipeline/test_declarative.py",
            "interop_tests/pipeline/test_exactly_once.py",
            "interop_tests/pipeline/test_jobs.py",
            "interop_tests/pipeline/test_log_sources.py",
            "interop_tests/pipeline/test_schema_registry.py",
            "interop_tests/pipeline/test_spark_cluster.py",
        ),
        "spark",
    ),
    "interop_tests/spark": "spark",
    "interop_tests/console": "console",
}
"""The unit of a file, or of all files of a folder."""


def unit_of(nodeid: str) -> str:
    """The unit that a worker gets as a whole: a file, or files that belong together."""
    file = nodeid.partition("::")[0]
    return TOGETHER.get(file) or TOGETHER.get(file.rpartition("/")[0], file)


def durations() -> dict[str, float]:
    """Seconds that each unit took when it was measured. This is only a hint."""
    found: dict[str, float] = {}
    with open(DURATIONS, encoding="utf-8") as table:
        for file, seconds in csv.reader(table, delimiter="\t"):
            unit = unit_of(file)
            found[unit] = found.get(unit, 0.0) + float(seconds)
    return found


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Units in the order of distribution. The last ones are short, so that all workers finish at about the same time."""
    seconds = durations()

    def place(item: pytest.Item) -> tuple[float, str]:
        unit = unit_of(item.nodeid)
        return -seconds.get(unit, UNKNOWN_S), unit

    return sorted(items, key=place)


class Units(LoadScopeScheduling):
    """Distributes units in the order of the collection."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
