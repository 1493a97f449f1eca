"""The partition columns of the jobs' tables. Their values name the folders of a table's files. No Spark."""

from __future__ import annotations

from typing import Final

BY_DATE: Final = ("date",)
PARTITIONED_BY: Final = {"logs/events": (*BY_DATE, "hour")}
"""The tables with other partition columns than BY_DATE."""

PARTITION_COLUMNS: Final = frozenset(BY_DATE).union(*PARTITIONED_BY.values())
"""All of them. They follow from a row's times, so they are not part of its content."""


def partitioned_by(table: str) -> tuple[str, ...]:
    """Return the partition columns of a table, the outer folder first."""
    return PARTITIONED_BY.get(table, BY_DATE)
