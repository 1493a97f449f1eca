"""Checks whether a run may continue from a checkpoint. Otherwise rows could be lost or mixed without any error.

The conditions: no other run uses the checkpoint, it was started with the same settings on the same topics, and its
tables match it. Spark's file sink skips every batch whose number is already in the table's `_spark_metadata`, and the
sinks of Delta and Iceberg do the same by the id of the checkpoint. A new
checkpoint counts from 0, so what it reads until it reaches the old number is not written to the table. A checkpoint
without its table continues after rows that are lost. Spark's file systems read the folders, so this also works for
HDFS and S3. Knows the layout of Spark 4.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import lock, names_in, read_text, write_text
from kafkacompat.pipeline.groups import logged_offsets
from kafkacompat.pipeline.job import Query
from kafkacompat.pipeline.manifest import (
    Manifest,
    ManifestUnreadable,
    decode,
    difference,
    encode,
    topics_made_anew,
    upgrade,
)
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.table_formats import NONE, TABLE_FORMATS, last_batch, written_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING: Final = "Use the same or, to start again, empty folders for --checkpoint and --output"
MANIFEST: Final = ".manifest.json"
"""How the names of manifests end. The job's name is before it."""


def checkpoint_of(query: Query, options: RunOptions) -> str:
    """Return the folder of the query's checkpoint."""
    return f"{_checkpoint(options)}/{query.name}"


def table_of(query: Query, options: RunOptions) -> str | None:
    """Return the folder of the query's table, or None if the query writes to topics."""
    return None if query.table is None else f"{options.output.rstrip('/')}/{query.table}"


def format_of(query: Query, options: RunOptions) -> str:
    """Return the format of the query's table."""
    return options.table_format or query.format


def mismatch(checkpoint: str, table: str, planned: int, ended: int, written: int) -> str | None:
    """Return the mismatch between a checkpoint (its last planned and ended batch) and a table (its last batch). None
    if they match.

    A batch is first planned, then written to the table, then ended. A driver may die after any of these steps.
    """
    if ended <= written <= planned:
        return None
    if written > planned:
        said = f"table {table} contains batches up to number {written}, which checkpoint {checkpoint} does not have"
        danger = "new batches up to that number would not be written to the table"
    else:
        said = f"checkpoint {checkpoint} has completed batch {ended}, which table {table} does not contain"
        danger = "earlier rows would be missing from the table"
    return f"{said}: {danger}. Use the --checkpoint and --output of the same run or, to start again, an empty folder for each"


def require_matching_table(session: SparkSession, query: Query, options: RunOptions) -> None:
    """Raise PipelineFailed with both folders unless the query's table, if it has one, matches its checkpoint."""
    table = table_of(query, options)
    if table is None:
        return
    checkpoint = checkpoint_of(query, options)
    planned = _planned(session, query, options)
    ended = last_batch(names_in(session, f"{checkpoint}/commits"))
    written = _written(session, query, options)
    found = mismatch(checkpoint, table, planned, ended, written)
    if found is not None:
        raise PipelineFailed(found)


def skips(planned: int, ended: int, written: int) -> bool:
    """Return whether Spark, when it starts again, skips a batch because the table contains it.

    Spark starts again with the last planned batch and with no other, unless that has ended. The table contains it if the
    driver died before the batch ended. If the table ends earlier, Spark writes the batch.
    """
    return ended < written == planned


def table_has_last_batch(session: SparkSession, query: Query, options: RunOptions) -> bool:
    """Return whether Spark skips a batch of this query, as in `skips`."""
    if query.table is None or not TABLE_FORMATS[format_of(query, options)].skips_without_running:
        return False
    return skips(
        _planned(session, query, options),
        last_batch(names_in(session, f"{checkpoint_of(query, options)}/commits")),
        _written(session, query, options),
    )


@contextlib.contextmanager
def jobs_locked(session: SparkSession, options: RunOptions, wait: Callable[[float], bool]) -> Iterator[None]:
    """Lock the checkpoints and tables of these jobs against other runs. Raises PipelineFailed if another run has them.

    Runs of different jobs may share both folders. `wait` is as in `file_systems.lock`.
    """
    checkpoint, output = options.checkpoint, options.output
    with contextlib.ExitStack() as held:
        for job in options.jobs:
            for place, what in (
                (f"{_checkpoint(options)}/{job}.lock", f"checkpoint {checkpoint} of job {job}"),
                (f"{output.rstrip('/')}/.{job}.lock", f"output {output} of job {job}"),
            ):
                found = lock(session, place, what, wait)
                if found is not None:
                    held.callback(found.release)
        yield


def require_same_job(session: SparkSession, now: Manifest, options: RunOptions) -> Manifest | None:
    """Return the manifest of the job's checkpoint, or None if it has none. Raises PipelineFailed unless it was started with
    these settings and on this cluster. The ids of topics are not compared, so the topics need not exist."""
    place = _manifest(now, options)
    text = read_text(session, place)
    if text is None:
        return None
    try:
        kept = decode(text)
    except ManifestUnreadable as error:
        raise PipelineFailed(f"manifest {place} cannot be read: {error}") from None
    found = difference(kept, now)
    if found is not None:
        raise PipelineFailed(
            f"checkpoint {options.checkpoint} of job {now.job} cannot be continued: {found}. {BEGINNING}"
        )
    return kept


def require_same_run(
    session: SparkSession,
    now: Manifest,
    queries: Iterable[Query],
    options: RunOptions,
    say: Callable[[str], None],
) -> None:
    """Raise PipelineFailed unless the job's checkpoint was started with these settings, on this cluster and these
    topics.

    A new checkpoint gets this manifest. With `--ignore-data-loss`, a topic that was deleted and created again is
    accepted, and that one of the checkpoint is not read any more. `queries`: with the topics that they read in this run.
    """
    queries = list(queries)
    kept = require_same_job(session, now, options)
    if kept is None:
        planned = [query.name for query in queries if _planned(session, query, options) != NONE]
        _require_own(session, planned, now, options)
        _require_topics(session, queries, options, say)
        if planned:
            older = f"checkpoint {options.checkpoint} of job {now.job} has no manifest"
            say(f"{older}; this run assumes that its settings, cluster and topics are the same")
    else:
        if (upgraded := upgrade(kept, now)) is not None:
            say(f"checkpoint {options.checkpoint} of job {now.job}: {upgraded}")
        _require_topics(session, queries, options, say)
        anew = topics_made_anew(kept, now)
        if anew and options.fail_on_data_loss:
            raise PipelineFailed(
                f"checkpoint {options.checkpoint} of job {now.job} has offsets of topics that were deleted and created again: "
                f"{', '.join(anew)}. Use --ignore-data-loss to continue at the same offsets, or empty folders for "
                "--checkpoint and --output"
            )
        if anew:
            say(
                f"topics {', '.join(anew)} were deleted and created again: records below the checkpoint's offsets are not read"
            )
        if kept == now:
            return
    write_text(session, _manifest(now, options), encode(now))


def _require_topics(
    session: SparkSession, queries: Iterable[Query], options: RunOptions, say: Callable[[str], None]
) -> None:
    """Raise PipelineFailed if a query has offsets of a topic that it does not read now. The manifest does not tell: a query may
    read fewer topics than its job, and Spark keeps the offsets until it has planned a batch without them."""
    for query in queries:
        number = _planned(session, query, options)
        place = f"{checkpoint_of(query, options)}/offsets/{number}"
        text = None if number == NONE else read_text(session, place)
        found = {topic for topic, _ in logged_offsets(text or "")}
        left_out = ", ".join(sorted(found.difference(query.reads)))
        if left_out and options.fail_on_data_loss:
            # Spark plans a batch without them, fails, and repeats this batch whatever the next run reads.
            raise PipelineFailed(
                f"query {query.name} of checkpoint {options.checkpoint} has offsets of topics that it does not read now: "
                f"{left_out}. Read them too, use --ignore-data-loss to go on without them, or empty folders for "
                "--checkpoint and --output"
            )
        if left_out:
            say(f"query {query.name} does not read topics {left_out} any more")


def _require_own(session: SparkSession, planned: Iterable[str], now: Manifest, options: RunOptions) -> None:
    """Raise PipelineFailed if one of these queries is of another job. Two jobs may have queries of one name, as a `-` in it stands
    for other characters of the names of job and sink."""
    found = names_in(session, _checkpoint(options))
    others = sorted(name.removesuffix(MANIFEST) for name in found if name.endswith(MANIFEST))
    for query in planned:
        for other in others:
            if query.startswith(f"{other.replace('_', '-')}-"):
                raise PipelineFailed(
                    f"checkpoint {options.checkpoint} has query {query} of job {other}, and job {now.job} has one of this name: "
                    "give each of both a --checkpoint and a --group-prefix of its own"
                )


def _written(session: SparkSession, query: Query, options: RunOptions) -> int:
    place = table_of(query, options)
    if query.table is None or place is None:
        return NONE
    form = format_of(query, options)
    return written_batch(session, form, query.table, place, checkpoint_of(query, options))


def _planned(session: SparkSession, query: Query, options: RunOptions) -> int:
    return last_batch(names_in(session, f"{checkpoint_of(query, options)}/offsets"))


def _manifest(now: Manifest, options: RunOptions) -> str:
    return f"{_checkpoint(options)}/{now.job}{MANIFEST}"


def _checkpoint(options: RunOptions) -> str:
    return options.checkpoint.rstrip("/")
