"""Maintains one table of a folder, whatever its format, and says what was done."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.local_folder import LocalFolder, locked
from kafkacompat.pipeline.maintenance.parquet import ROUNDS, Outcome, maintain
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.tables import PARQUET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DEFAULT_SMALL_MIB: Final = 32
DEFAULT_TARGET_MIB: Final = 128
DEFAULT_KEEP_REPLACED_HOURS: Final = 24


def oldest_date(keep_days: int | None) -> date | None:
    """Return the first date whose rows are kept. None: all are. PipelineFailed."""
    if keep_days is None:
        return None
    try:
        return datetime.now(UTC).date() - timedelta(days=keep_days)
    except OverflowError:
        raise PipelineFailed(f"--keep-days {keep_days} is before the first date") from None


def said(outcome: Outcome) -> str:
    """Return in a line what has been done with a table of format parquet."""
    parts = []
    if outcome.merged:
        parts.append(f"{outcome.merged} files merged into {outcome.made}")
    if outcome.removed:
        parts.append(f"{outcome.removed} files of old dates removed")
    if outcome.is_disturbed:
        parts.append("something else than its writer has changed it meanwhile, and nothing was merged")
    if outcome.deleted:
        parts.append(f"{outcome.deleted} old files deleted")
    if outcome.waiting:
        parts.append(f"{outcome.waiting} old files wait for their readers")
    if outcome.is_open:
        parts.append("the run that writes it decides with its next compact file which files are old")
    return "; ".join(parts) or "nothing to do"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def maintain_table(
    output: Path,
    table: str,
    form: str,
    limits: Limits,
    grace_ms: int,
    session: Callable[[], SparkSession],
    *,
    is_alone: bool = False,
) -> str:
    """Maintain the table JOB/NAME of this format below a folder. Return what has been done, for a person.

    is_alone: this run has the job's lock itself, and its query does not write now.
    """
    place, writers_lock = output / table, output / f".{table.partition('/')[0]}.lock"
    if form != PARQUET:
        alone = contextlib.nullcontext(True) if is_alone else locked(writers_lock)
        return _lake(output, table, form, alone, limits, grace_ms, session)
    (place / ROUNDS).mkdir(exist_ok=True)
    with locked(place / ROUNDS / "lock") as is_free:
        if not is_free:
            return "a backfill or another maintenance is at work"
        folder = LocalFolder(place, writers_lock, session)
        folder.clean()
        return said(maintain(folder, limits, grace_ms, uuid.uuid4().hex[:12], _now_ms))


def _lake(
    output: Path,
    table: str,
    form: str,
    alone: contextlib.AbstractContextManager[bool],
    limits: Limits,
    grace_ms: int,
    session: Callable[[], SparkSession],
) -> str:
    from kafkacompat.pipeline.table_formats import LAKES

    lake = LAKES[form]
    with alone as is_alone:
        if not is_alone:
            return (
                f"a run, a backfill or another maintenance of its job is at work, and only one process may commit to a table of "
                f"format {form}: stop the run first"
            )
        lake.use_output(session(), str(output))
        done = lake.maintain(session(), table, str(output / table), limits, grace_ms, _now_ms())
    return f"{done.merged} files merged into {done.made}" if done.merged else "no small files"
