"""`kafkacompat pipeline maintain`: merges small files of tables, and removes rows of old dates."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkacompat.pipeline.argument_types import whole
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.maintenance.table import (
    DEFAULT_KEEP_REPLACED_HOURS,
    DEFAULT_SMALL_MIB,
    DEFAULT_TARGET_MIB,
    HOUR_MS,
    MIB,
    maintain_table,
    oldest_date,
)
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.run_command import IN_USER_DATA, add_cache
from kafkacompat.pipeline.session import local_path, start_session, stop_session
from kafkacompat.pipeline.spark_failures import refusal_of
from kafkacompat.pipeline.tables import format_in
from kafkacompat.pipeline.user_data import user_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _hours(text: str) -> float:
    """Parse a number of hours."""
    found = float(text)
    if not 0 <= found <= 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of hours")
    return found


def add_keep_replaced(parser: argparse.ArgumentParser) -> None:
    """Add --keep-replaced."""
    parser.add_argument(
        "--keep-replaced",
        type=_hours,
        default=DEFAULT_KEEP_REPLACED_HOURS,
        metavar="HOURS",
        help="how long replaced files stay for readers that have begun (%(default)s)",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tables and what is done with them."""
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="JOB/NAME, or JOB for all of its tables (all in --output)"
    )
    parser.add_argument(
        "--output",
        default=str(user_data() / "pipeline" / "tables"),
        metavar="DIR",
        help=f"folder of the tables, on this machine's file system ({IN_USER_DATA}/tables)",
    )
    parser.add_argument(
        "--keep-days",
        type=whole,
        metavar="N",
        help="remove the rows whose date is more than N days before today, in UTC (default: keep all)",
    )
    add_keep_replaced(parser)
    parser.add_argument(
        "--small",
        type=whole,
        default=DEFAULT_SMALL_MIB,
        metavar="MIB",
        help="merge files that are smaller (%(default)s)",
    )
    parser.add_argument(
        "--target",
        type=whole,
        default=DEFAULT_TARGET_MIB,
        metavar="MIB",
        help="up to about this size (%(default)s)",
    )
    add_cache(parser)


class _Spark:
    """The session, started when it is first needed."""

    def __init__(self, options: RunOptions, formats: set[str]) -> None:
        self._options = options
        self._formats = formats
        self._session: SparkSession | None = None
        self._failure: PipelineFailed | None = None

    def __call__(self) -> SparkSession:
        if self._failure is not None:
            raise self._failure
        if self._session is None:
            try:
                self._session = start_session(self._options, self._formats)
            except PipelineFailed as failure:
                self._failure = failure
                raise
            # A merge is one task, and must leave its file where it is looked for.
            self._session.conf.set("spark.sql.files.maxRecordsPerFile", "0")
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            stop_session(self._session)


def tables_in(output: Path, wanted: list[str]) -> dict[str, str]:
    """Return the tables below a folder, JOB/NAME, with the format of each. PipelineFailed if one that is wanted is not there."""
    found: dict[str, str] = {}
    for place in sorted(output.glob("[!.]*/[!.]*")):
        form = format_in(path.name for path in place.iterdir()) if place.is_dir() else None
        if form is not None:
            found[f"{place.parent.name}/{place.name}"] = form
    for name in wanted:
        if name not in found and not any(table.startswith(f"{name}/") for table in found):
            raise PipelineFailed(f"there is no table {name} in {output}, but {', '.join(found) or 'none'}")
    chosen = {table for table in found if not wanted or {table, table.partition("/")[0]} & set(wanted)}
    return {table: form for table, form in found.items() if table in chosen}


def for_each_table(found: Mapping[str, str], work: Callable[[str, str], str], failed: str) -> int:
    """Call `work` with each table and its format, and say what it returns. The status is 1 if it has failed for one, which is said
    with the reason. The others go on."""
    status = 0
    for table, form in found.items():
        try:
            print(f"{table}: {work(table, form)}", flush=True)
            continue
        except Exception as error:
            refused = refusal_of(error)
        print(f"kafkacompat: {table} {failed}: {refused}", file=sys.stderr, flush=True)
        status = 1
    return status


def run(arguments: argparse.Namespace) -> int:
    """Maintain one table after the other. The status is 1 if one could not be maintained."""
    output = local_path(arguments.output)
    if output is None:
        raise PipelineFailed(f"{arguments.output} is not on this machine's file system")
    output = output.absolute()
    if arguments.target <= arguments.small:
        raise PipelineFailed(f"--target {arguments.target} is not above --small {arguments.small}")
    oldest = oldest_date(arguments.keep_days)
    limits = Limits(arguments.small * MIB, arguments.target * MIB, oldest)
    found = tables_in(output, arguments.tables)
    options = RunOptions(
        jobs=("maintenance",),
        checkpoint=str(output),
        output=str(output),
        ivy=arguments.ivy or os.environ.get("KAFKACOMPAT_IVY"),
        spark_conf=dict(arguments.conf),
    )
    spark = _Spark(options, set(found.values()))
    grace_ms = round(arguments.keep_replaced * HOUR_MS)
    try:
        return for_each_table(
            found,
            lambda table, form: maintain_table(output, table, form, limits, grace_ms, spark),
            "was not maintained",
        )
    finally:
        spark.stop()
