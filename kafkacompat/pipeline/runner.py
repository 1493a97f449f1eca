"""Runs queries in parallel: starts them, reports their progress, stops them on request, and names a query that failed.

This module knows how a query is read and written (queries.py says what), but not its content.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from kafkacompat.pipeline.checkpoint_validation import (
    checkpoint_of,
    format_of,
    require_matching_table,
    table_has_last_batch,
    table_of,
)
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.groups import GroupCommits, finished_by, finished_in, starting_offsets
from kafkacompat.pipeline.job import Query
from kafkacompat.pipeline.jobs.validation import cap_timestamps
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.maintenance.schedule import Schedule
from kafkacompat.pipeline.maintenance.table import (
    DEFAULT_KEEP_REPLACED_HOURS,
    DEFAULT_SMALL_MIB,
    DEFAULT_TARGET_MIB,
    HOUR_MS,
    MIB,
    maintain_table,
    oldest_date,
)
from kafkacompat.pipeline.options import FROM_GROUP, RunOptions
from kafkacompat.pipeline.progress import (
    FAILED,
    RUNNING,
    STOPPED,
    Totals,
    line_of,
    report_of,
    summary_of,
)
from kafkacompat.pipeline.session import is_jvm_gone, local_path
from kafkacompat.pipeline.spark_failures import reason_of
from kafkacompat.pipeline.table_formats import TABLE_FORMATS
from kafkacompat.pipeline.tables import PARQUET, format_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_INTERVAL_S = 0.5
AWAIT_S = 1
MAINTENANCE: Final = "maintenance"
MAINTENANCE_END_S = 20.0
REPORT_INTERVAL_S = 10.0
"""A query that has no new batch is reported this often, so that readers can tell an idle run from a dead one."""


class StopRequest:
    """Set by SIGINT, SIGTERM and `ask`. A second signal of the same kind has the effect it had before `listen`."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def listen(self) -> None:
        """From now on the two signals request a stop. Call it in the main thread only. It replaces Spark's handler."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def ask(self) -> None:
        """Request a stop without a signal."""
        self._asked.set()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.ask()
        signal.signal(number, signal.SIG_DFL)

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._asked.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request. Return whether there is one."""
        return self._asked.wait(timeout_s)


def source_options(query: Query, options: RunOptions) -> dict[str, str]:
    """Return the options of Spark's Kafka source.

    Without a bound, each batch ends at the end offsets of all partitions at one moment, so only late events are late.
    maxOffsetsPerTrigger is divided in proportion to the partitions' backlogs. The watermark then follows the partition
    that is ahead in time, and events of the others become late.
    """
    given = {
        **options.bootstrap.spark(),
        "subscribe": ",".join(query.reads),
        "kafka.isolation.level": options.isolation_level,
        "startingOffsets": _starting(query, options),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "includeHeaders": "true",
    }
    if options.records_per_batch_max is not None:
        given["maxOffsetsPerTrigger"] = str(options.records_per_batch_max)
    return given


def _starting(query: Query, options: RunOptions) -> str:
    if options.starting != FROM_GROUP:
        return options.starting
    return starting_offsets(options.bootstrap.spark(), options.group_prefix + query.name, query.reads)


def source(session: SparkSession, query: Query, options: RunOptions) -> DataFrame:
    """Return the records of the query's topics. No timestamp is in the future."""
    return cap_timestamps(session.readStream.format("kafka").options(**source_options(query, options)).load())


def trigger_of(query: Query, options: RunOptions) -> float:
    """Return the interval between the batches of a query in seconds."""
    return options.trigger_s if query.table is None else options.table_trigger_s


def _writer(session: SparkSession, query: Query, options: RunOptions) -> DataStreamWriter:
    """Return the writer of a query with its checkpoint and its scheduling pool, without a sink."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
    rows = query.build(source(session, query, options), options)
    writer = rows.writeStream.queryName(query.name).outputMode(query.output_mode)
    return writer.option("checkpointLocation", checkpoint_of(query, options))


def repeat(session: SparkSession, query: Query, options: RunOptions) -> StreamingQuery:
    """Start the last planned batch again, which the table already contains. Its rows go nowhere, and the query ends with it.

    Spark's file sink and Delta's skip such a batch without running it. The watermark would stay behind the events of the batch, so
    that events that were late before the driver died would be kept after it.
    """
    writer = _writer(session, query, options).foreachBatch(_run_only)
    return writer.trigger(once=True).start()


def _run_only(rows: DataFrame, batch: int) -> None:
    rows.write.format("noop").mode("append").save()


def start(session: SparkSession, query: Query, options: RunOptions) -> StreamingQuery:
    """Start one query."""
    writer = _writer(session, query, options)
    if query.writer is not None:
        writer = writer.foreachBatch(query.writer(checkpoint_of(query, options), options))
    elif query.table is None:
        writer = writer.format("kafka").options(**options.bootstrap.spark())
    if options.until_caught_up:
        writer = writer.trigger(availableNow=True)
    else:
        milliseconds = round(trigger_of(query, options) * 1000)
        writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
    place = table_of(query, options)
    if query.writer is not None or query.table is None or place is None:
        return writer.start()
    return TABLE_FORMATS[format_of(query, options)].start(writer, query.table, place)


def maintain(session: SparkSession, query: Query, options: RunOptions, paused: StreamingQuery | None) -> str:
    """Maintain the table of a query in this thread. paused: the query, which is stopped before. Return what was done."""
    if paused is not None:
        _stop(paused)
        while paused.isActive:
            time.sleep(POLL_INTERVAL_S)
    output = local_path(options.output)
    assert output is not None, options.output
    assert query.table is not None, query.name
    table, output = query.table, output.absolute()
    if not (output / table).is_dir() or format_in(os.listdir(output / table)) is None:
        return "there is no table yet"
    session.sparkContext.setJobGroup(MAINTENANCE, f"maintenance of {table}", interruptOnCancel=True)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", MAINTENANCE)
    own = session.newSession()
    own.conf.set("spark.sql.files.maxRecordsPerFile", "0")
    limits = Limits(DEFAULT_SMALL_MIB * MIB, DEFAULT_TARGET_MIB * MIB, oldest_date(options.keep_days))
    grace_ms = DEFAULT_KEEP_REPLACED_HOURS * HOUR_MS
    form = format_of(query, options)
    return maintain_table(output, table, form, limits, grace_ms, lambda: own, is_alone=paused is not None)


class Task(threading.Thread):
    """Work in a thread that does not keep the program from ending."""

    def __init__(self, work: Callable[[], str]) -> None:
        super().__init__(name=MAINTENANCE, daemon=True)
        self._work = work
        self.said = ""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.said = self._work()
        except Exception as failure:
            self.failure = failure


@dataclass(frozen=True, slots=True)
class Maintained:
    """The maintenance that is at work: the query whose table it is, and the streaming query if it is stopped for that."""

    query: Query
    paused: StreamingQuery | None
    task: Task


def failure_of(query: StreamingQuery) -> str | None:
    """Return in one line why a query ended. None if it runs or was stopped."""
    error = query.exception()
    if error is None:
        return None
    return reason_of(error)


class Run:
    """Several queries that run in parallel, and what they have reported."""

    def __init__(
        self,
        session: SparkSession,
        queries: Sequence[Query],
        options: RunOptions,
        say: Callable[[str], None] = print,
        progress: IO[str] | None = None,
        report: Callable[[Mapping[str, Any]], None] = lambda report: None,
        commits: GroupCommits | None = None,
    ) -> None:
        """`say` gets the lines for a person. `progress` gets Spark's StreamingQueryProgress as JSON lines. `report` gets the
        state of a query, for the console. `commits` gets what queries have finished."""
        self._session = session
        self._queries = queries
        self._options = options
        self._say = say
        self._progress = progress
        self._is_progress_lost = False
        self._report = report
        self._commits = commits
        self._reported_s: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._running: list[StreamingQuery] = []
        self._totals = {query.name: Totals() for query in queries}
        self._schedule = _schedule_of(queries, options)
        self._maintained: Maintained | None = None

    def run(self, stop: StopRequest) -> None:
        """Run until a stop is requested, or all queries have caught up. PipelineFailed names the first query that fails."""
        try:
            self._run(stop)
        except Exception as error:
            if is_jvm_gone(error):
                self._failures = {query.name: "Spark's JVM has ended" for query in self._queries}
            raise
        finally:
            for query in self._queries:
                self._report_state(query, FAILED if query.name in self._failures else STOPPED)

    def _run(self, stop: StopRequest) -> None:
        try:
            self._start_all(stop)
            while not stop.wait(POLL_INTERVAL_S):
                running = self._poll()
                self._maintain(stop)
                if self._options.until_caught_up and not running:
                    break
        except Exception:
            # A signal to the whole process group, as service managers send it, also ends Spark's JVM.
            if not stop.is_set:
                raise
        finally:
            self._end_maintenance()
            self._stop_all()
        self._tell_the_rest()
        self._say(summary_of(self._totals))

    def _start_all(self, stop: StopRequest) -> None:
        """Check all queries before the first one starts: if one must not continue, none may write."""
        for act in (self._look_at, partial(self._repeat, stop), self._start):
            for query in self._queries:
                if stop.is_set:
                    return
                self._done(act, query)

    def _done(self, act: Callable[[Query], None], query: Query) -> None:
        try:
            act(query)
        except Exception as error:
            if is_jvm_gone(error):
                raise
            self._failures[query.name] = f"cannot start: {reason_of(error)}"
            raise PipelineFailed(f"query {query.name} {self._failures[query.name]}") from error

    def _look_at(self, query: Query) -> None:
        require_matching_table(self._session, query, self._options)

    def _repeat(self, stop: StopRequest, query: Query) -> None:
        if not table_has_last_batch(self._session, query, self._options):
            return
        repeated = repeat(self._session, query, self._options)
        try:
            self._report_due()
            while not stop.is_set and not repeated.awaitTermination(AWAIT_S):
                self._report_due()
            self._tell(repeated)
        finally:
            _stop(repeated)

    def _start(self, query: Query) -> None:
        if self._commits is not None:
            # A run that was killed may have ended a batch without committing it.
            finished = finished_in(self._session, checkpoint_of(query, self._options), query.name)
            if finished is not None:
                self._commits.commit(finished)
        self._running.append(start(self._session, query, self._options))
        self._report_state(query, RUNNING)

    def _poll(self) -> bool:
        """Report new progress. Return whether any query still runs."""
        running = False
        for query in self._running:
            # Read this before the progress, so that the last batch of an ended query is reported.
            active = query.isActive
            self._tell(query)
            if active:
                running = True
                continue
            failure = failure_of(query)
            if failure is not None:
                self._failures[query.name] = f"failed: {failure}"
            elif not self._options.until_caught_up:
                self._failures[query.name] = "was stopped from outside"
            if query.name in self._failures:
                raise PipelineFailed(f"query {query.name} {self._failures[query.name]}")
        self._report_due()
        return running

    def _maintain(self, stop: StopRequest) -> None:
        """Begin the next maintenance, or go on after one that has ended."""
        if self._schedule is None:
            return
        now_s = time.monotonic()
        ended = self._maintained
        if ended is None:
            table = self._schedule.due(now_s)
            if table is not None:
                self._begin_maintenance(table, now_s)
            return
        if ended.task.is_alive():
            return
        table, failure = str(ended.query.table), ended.task.failure
        if failure is not None and is_jvm_gone(failure):
            raise failure
        self._maintained = None
        self._schedule.ended(table, now_s)
        if failure is None:
            self._say(f"{table}: {ended.task.said}")
        else:
            self._say(f"{table} was not maintained: {reason_of(failure)}")
        if ended.paused is None:
            return
        self._tell(ended.paused)
        why = failure_of(ended.paused)
        if why is not None:
            self._failures[ended.query.name] = f"failed: {why}"
            raise PipelineFailed(f"query {ended.query.name} failed: {why}")
        # As at the start of a run: the batch in which it was stopped may be in the table.
        for act in (self._look_at, partial(self._repeat, stop), self._start):
            if not stop.is_set:
                self._done(act, ended.query)

    def _begin_maintenance(self, table: str, now_s: float) -> None:
        assert self._schedule is not None
        query = next(each for each in self._queries if each.table == table)
        paused = None
        if format_of(query, self._options) != PARQUET:
            # Only one process may commit to such a table, and only one at a time.
            paused = next(each for each in self._running if each.name == query.name)
            if paused.status["isTriggerActive"] and not self._schedule.must_not_wait(table, now_s):
                return
        task = Task(partial(maintain, self._session, query, self._options, paused))
        try:
            task.start()
        except RuntimeError as error:
            # The system gives no thread now.
            self._schedule.ended(table, now_s)
            self._say(f"{table} was not maintained: {error}")
            return
        if paused is not None:
            self._running.remove(paused)
        self._maintained = Maintained(query, paused, task)

    def _end_maintenance(self) -> None:
        """End the one that is at work. It may be ended at any step, and the next one goes on."""
        if self._maintained is None:
            return
        task, end_s = self._maintained.task, time.monotonic() + MAINTENANCE_END_S
        while task.is_alive() and time.monotonic() < end_s:
            try:
                self._session.sparkContext.cancelJobGroup(MAINTENANCE)
            except Exception as error:
                if not is_jvm_gone(error):
                    raise
            task.join(POLL_INTERVAL_S)

    def _report_due(self) -> None:
        """Report the queries that have ended a batch, and those that were not reported for some time."""
        now_s = time.monotonic()
        for query in self._queries:
            if now_s - self._reported_s.get(query.name, float("-inf")) >= REPORT_INTERVAL_S:
                self._report_state(query, RUNNING)
                if self._commits is not None:
                    self._commits.renew()

    def _report_state(self, query: Query, state: str) -> None:
        name = query.name
        self._reported_s[name] = time.monotonic()
        trigger_s = trigger_of(query, self._options)
        now_ms = time.time_ns() // 1_000_000
        reason = self._failures.get(name)
        self._report(report_of(name, query.reads, trigger_s, self._totals[name], state, reason, now_ms))

    def _tell(self, query: StreamingQuery) -> None:
        name = query.name
        totals = self._totals[name]
        for said in _untold(query, totals):
            totals.add(said)
            self._say(line_of(name, said, totals))
            self._write_progress(said)
            if self._commits is not None and (finished := finished_by(said)) is not None:
                self._commits.commit(finished)
            self._reported_s.pop(name, None)

    def _write_progress(self, said: dict[str, Any]) -> None:
        """Add a batch to the file of --progress. What passes, such as a full disk, does not end the run."""
        if self._progress is None:
            return
        try:
            self._progress.write(json.dumps(said, separators=(",", ":")) + "\n")
            self._progress.flush()
            self._is_progress_lost = False
        except OSError as error:
            if not self._is_progress_lost:
                why = f"progress file {self._options.progress} cannot be written: {error.strerror}"
                self._say(f"{why}; the run goes on")
            self._is_progress_lost = True

    def _tell_the_rest(self) -> None:
        """Report the batches that ended after the last poll or during the stop. Nothing is available if the JVM has
        already ended."""
        try:
            for query in self._running:
                self._tell(query)
            if self._maintained is not None and self._maintained.paused is not None:
                self._tell(self._maintained.paused)
        except Exception as error:
            if not is_jvm_gone(error):
                raise

    def _stop_all(self) -> None:
        """Stop all queries in parallel: a query inside a batch takes seconds, and the user waits for all of them."""
        if self._running:
            with ThreadPoolExecutor(len(self._running)) as stopping:
                list(stopping.map(_stop, self._running))


def _schedule_of(queries: Iterable[Query], options: RunOptions) -> Schedule | None:
    if options.maintain_every_s is None:
        return None
    tables = [query.table for query in queries if query.table is not None]
    return Schedule(tables, options.maintain_every_s, time.monotonic())


def _untold(query: StreamingQuery, totals: Totals) -> list[dict[str, Any]]:
    """Return the batches that ended since the last poll, oldest first.

    This reads Spark's objects, newest first. PySpark's `recentProgress` would ask the JVM for each number of each of
    the last 100 batches at every poll, with one call per number.
    """
    jvm_query: Any = query._jsq
    recent = jvm_query.recentProgress()
    found = []
    for index in range(len(recent) - 1, -1, -1):
        if not totals.is_new(recent[index].batchId(), recent[index].timestamp()):
            break
        found.append(json.loads(recent[index].json()))
    return found[::-1]


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as error:
        # A query that does not stop in time must not prevent the stop of the others.
        if not is_jvm_gone(error):
            said = str(error).partition("\n")[0]
            print(f"kafkacompat: query {query.name} did not stop: {said}", file=sys.stderr)
