"""The tables' formats and partition columns, whose values name the folders of a table's files. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BY_DATE: Final = ("date",)
PARTITIONED_BY: Final = {"logs/events": (*BY_DATE, "hour")}
"""The tables with other partition columns than BY_DATE."""

PARTITION_COLUMNS: Final = frozenset(BY_DATE).union(*PARTITIONED_BY.values())
"""All of them. They follow from a row's times, so they are not part of its content."""

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"

COMMITS: Final = {PARQUET: "_spark_metadata", DELTA: "_delta_log", ICEBERG: "metadata"}
"""The folder in which a table of each format lists what is committed."""

FORMATS: Final = tuple(COMMITS)


def partitioned_by(table: str) -> tuple[str, ...]:
    """Return the partition columns of a table, the outer folder first."""
    return PARTITIONED_BY.get(table, BY_DATE)


def format_in(names: Iterable[str]) -> str | None:
    """Return the format of the table whose folder has entries of these names, or None if no table is there."""
    found = set(names)
    return next((name for name, folder in COMMITS.items() if folder in found), None)
