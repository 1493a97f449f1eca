"""Moves of replicas between this node's directories: copying to future logs, then swapping the logs (KIP-113,
KIP-858).

For each move, whole batches are copied until the future log has everything. It is then synced, and the controller is
told the new directory. Only after that the logs are swapped, and the old log is deleted once the new one is durable.
A future log follows the current one as a follower follows its leader (following.py). Both logs are at hand, so before
each piece the epochs of both show where they diverge. Only a failed directory, a cancellation and the end of the
replica end a move: any other problem delays it. Imported when something moves. Settings:
num.replica.alter.log.dirs.threads (concurrent moves), replica.alter.log.dirs.io.max.bytes.per.second,
alter.log.dirs.replication.quota.window.num and .size.seconds, replica.fetch.backoff.ms.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from kafkacompat.partition.following import (
    BATCHES_AT_ONCE,
    append_fetched,
    take_watermarks,
    truncate_to_divergence,
)
from kafkacompat.partition.replication_quota_manager import ByteRate
from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.records.batch import BatchCorrupt, end_of_some
from kafkacompat.wire.messages.fetch_response import EpochEndOffset

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.log.flush import LogFlush
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.partition.following import Copy
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Buffer, Clock, Log, Plan, Timers, WorkerPools, Workers

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
"""Bytes read and appended in one piece."""
AT_ONCE_BYTES = 1 << 18
"""Up to this many cached bytes are read in the loop's thread. Otherwise new appends would always be ahead of the
worker's answer."""
THROTTLED_MS = 100
ASSIGNED_POLL_MS = 100
"""How often new appends are copied while the controller is being told."""

Assign = Callable[["Uuid", int, "Uuid", "Callable[[], None] | None"], None]
"""(topic id, partition, directory, callback for when the controller has recorded it)."""


class Settings(Protocol):
    """The settings in force."""

    def get_int(self, name: str) -> int: ...


class MoveState(Enum):
    COPYING = "copying"
    ASSIGNING = "the controller is being told"
    ASSIGNED = "the metadata name the new directory"


class Move:
    """One replica being moved. `log` is its future log."""

    __slots__ = ("busy", "core", "is_synced", "log", "origin_id", "state", "target_id", "topic_partition")

    def __init__(self, core: Partition, log: UnifiedLog, origin_id: Uuid, target_id: Uuid) -> None:
        self.core = core
        self.log = log
        self.topic_partition = core.topic_partition
        self.origin_id = origin_id
        self.target_id = target_id
        self.state = MoveState.COPYING
        self.busy = False
        """A worker reads or syncs for this move, or a timer will continue it."""
        self.is_synced = False

    @property
    def is_being_told(self) -> bool:
        """Whether the controller knows the new directory, or is being told."""
        return self.state is not MoveState.COPYING


class ReplicaAlterLogDirsManager:
    """The moves of a node. Bounded by its partitions."""

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        timers: Timers,
        workers: WorkerPools,
        settings: Settings,
        assign: Assign,
        *,
        failed: Callable[[Partition, OSError], None],
        moved: Callable[[Partition], None],
    ) -> None:
        """`failed` is called if the current log could not be read, `moved` if the core has its new log."""
        self._logs = logs
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._settings = settings
        self._assign = assign
        self._failed = failed
        self._moved = moved
        self._moves: dict[TopicPartition, Move] = {}
        """In the order of the requests. The first ones are in progress."""
        self._rate = ByteRate(
            settings.get_int("alter.log.dirs.replication.quota.window.num"),
            1000 * settings.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        self._closed = False

    def get(self, name: TopicPartition) -> Move | None:
        return self._moves.get(name)

    def bytes_per_second(self) -> float:
        """What all moves copy."""
        return self._rate.bytes_per_second(self._clock.monotonic_ms())

    def max_lag(self) -> int:
        """The most committed offsets that a future log does not have yet."""
        return max(
            (move.core.log.high_watermark - move.log.log_end_offset for move in self._moves.values()),
            default=0,
        )

    def begin(self, core: Partition) -> None:
        """Begin a move. The future log must exist, empty or left from an earlier start."""
        name = core.topic_partition
        home, target = self._logs.directory_of(name), self._logs.futures.home(name)
        assert home is not None
        assert target is not None
        log = self._logs.futures.logs[name]
        self._moves[name] = Move(core, log, home.directory_id, target.directory_id)
        logger.info(
            "moving %s from %s to %s, from offset %d on", name, home.path, target.path, log.log_end_offset
        )
        self._start_some()

    def end(self, name: TopicPartition) -> None:
        """End a move that is cancelled or cannot be done. If the controller was told, tell it the old directory again."""
        move = self._moves.pop(name, None)
        if move is None:
            return
        if move.state is not MoveState.COPYING:
            self._assign(move.core.topic_id, name.partition, move.origin_id, None)
        self._start_some()

    def close(self) -> None:
        self._closed = True
        self._moves.clear()

    def _start_some(self) -> None:
        for move in list(
            islice(self._moves.values(), self._settings.get_int("num.replica.alter.log.dirs.threads"))
        ):
            if not move.busy:
                self._later(move, 0)

    def _later(self, move: Move, delay_ms: int) -> None:
        move.busy = True
        self._timers.call_after(delay_ms, partial(self._go_on, move))

    def _is_over(self, move: Move) -> bool:
        """Whether the move has ended, or its future log is gone with its directory."""
        name = move.topic_partition
        if self._closed or self._moves.get(name) is not move:
            return True
        if self._logs.futures.logs.get(name) is move.log:
            return False
        self.end(name)
        return True

    def _back_off(self, move: Move) -> None:
        """Continue later after a failure."""
        if not self._is_over(move):
            self._later(move, self._settings.get_int("replica.fetch.backoff.ms"))

    def _go_on(self, move: Move) -> None:
        move.busy = False
        if not self._is_over(move):
            self._attempt(move, partial(self._step, move))

    def _attempt(self, move: Move, act: Callable[[], None]) -> None:
        """Do what is next. A refusal by either log, damaged data and a lack of memory delay the move: indexes are rebuilt
        meanwhile, and damage may be cleaned away or be repaired."""
        try:
            act()
        except (LogRefused, BatchCorrupt, MemoryError) as problem:
            logger.warning(
                "the copy of %s stops at %d for now: %s",
                move.topic_partition,
                move.log.log_end_offset,
                problem or "no memory",
            )
            self._back_off(move)

    def _step(self, move: Move) -> None:
        """Copy the next piece, or take the next step if everything is copied."""
        limit = self._settings.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        if self._rate.bytes_per_second(self._clock.monotonic_ms()) > limit:
            self._later(move, THROTTLED_MS)
            return
        current, future = move.core.log, move.log
        try:
            note = settle(move, current)
        except OSError as error:
            self._logs.future_failed(move.topic_partition, error)
            self._back_off(move)
            return
        if note is not None:
            logger.info("the copy of %s: %s", move.topic_partition, note)
        # The future log may have been truncated, now or before the disk refused the rest. Later appends count only
        # when no checkpoint offset is too high for it.
        told = self._logs.when_true(future)
        if not told.done:
            move.busy = True
            told.on_done(lambda _: self._later(move, 0))
            return
        if not current.log_start_offset <= future.log_end_offset <= current.log_end_offset:
            # A very long log is truncated in several steps.
            self._later(move, 0)
            return
        if future.log_end_offset == current.log_end_offset:
            self._caught_up(move)
            return
        try:
            records = current.read(future.log_end_offset, COPY_BYTES, current.log_end_offset, True).records
            if not isinstance(records, FileSlice):
                self._back_off(move)
                return
            at_once = records.length <= AT_ONCE_BYTES
            data = records.file.try_read(records.position, records.length) if at_once else None
        except OSError as error:
            self._failed(move.core, error)
            self._back_off(move)
            return
        if data is None:
            move.busy = True
            self._workers.reads.submit(records.read).on_done(
                partial(self._has_read, move, future.log_end_offset)
            )
        else:
            self._append(move, data)

    def _has_read(self, move: Move, offset: int, done: Deferred[bytes]) -> None:
        move.busy = False
        if self._is_over(move):
            return
        try:
            data = done.result()
        except OSError as error:
            self._failed(move.core, error)
            self._back_off(move)
            return
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("no worker read for the copy of %s: %s", move.topic_partition, error)
            self._back_off(move)
            return
        if move.log.log_end_offset == offset:
            self._attempt(move, partial(self._append, move, data))
        else:
            self._later(move, 0)

    def _append(self, move: Move, data: bytes) -> None:
        before = move.log.log_end_offset
        # The bytes beyond one step are read again.
        data = data[: end_of_some(data, 0, BATCHES_AT_ONCE)[0]]
        try:
            copy_records(move, move.core.log, data)
        except OSError as error:
            self._logs.future_failed(move.topic_partition, error)
            self._back_off(move)
            return
        self._rate.record(len(data), self._clock.monotonic_ms())
        if move.log.log_end_offset == before:
            self._back_off(move)
        elif move.log.log_end_offset == move.core.log.log_end_offset:
            # Now, before more is appended.
            self._caught_up(move)
        else:
            self._later(move, 0)

    def _caught_up(self, move: Move) -> None:
        take_over_watermarks(move, move.core.log)
        if not move.is_synced:
            # The current log may be synced long ago, and will be deleted.
            try:
                flush = move.log.begin_flush()
            except OSError as error:
                self._logs.future_failed(move.topic_partition, error)
                self._back_off(move)
                return
            move.busy = True
            self._syncs_of(move.log).submit(flush.run).on_done(partial(self._has_synced, move, flush))
        elif move.state is MoveState.COPYING:
            move.state = MoveState.ASSIGNING
            move.busy = True
            self._timers.call_after(ASSIGNED_POLL_MS, partial(self._go_on, move))
            core = move.core
            self._assign(
                core.topic_id, core.topic_partition.partition, move.target_id, partial(self._assigned, move)
            )
        elif move.state is MoveState.ASSIGNING:
            self._later(move, ASSIGNED_POLL_MS)
        else:
            self._change_places(move)

    def _has_synced(self, move: Move, flush: LogFlush, done: Deferred[None]) -> None:
        move.busy = False
        if self._is_over(move):
            return
        try:
            done.result()
        except OSError as error:
            self._logs.future_failed(move.topic_partition, error)
            self._back_off(move)
            return
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("no worker synced the copy of %s: %s", move.topic_partition, error)
            self._back_off(move)
            return
        move.log.finish_flush(flush)
        move.is_synced = True
        self._attempt(move, partial(self._step, move))

    def _syncs_of(self, log: UnifiedLog) -> Workers:
        return self._workers.log_sync.at(posixpath.dirname(log.directory))

    def _assigned(self, move: Move) -> None:
        """The controller has recorded the directory. The waiting timer continues the move."""
        if not self._is_over(move):
            move.state = MoveState.ASSIGNED

    def _change_places(self, move: Move) -> None:
        """Swap the logs in one step of the loop. So the partition is never without a log, and its log end does not
        change."""
        core, name = move.core, move.topic_partition
        config = core.log.config
        log = self._logs.promote_future(name)
        log.config = config
        core.log = log
        if core.is_leader and log.latest_epoch() < core.leader_epoch:
            # The log has no record of this epoch yet.
            log.assign_epoch_start(core.leader_epoch, log.log_end_offset)
        del self._moves[name]
        logger.info("%s lies in %s now", name, log.directory)
        self._moved(core)
        self._make_durable(log)
        self._start_some()

    # The old log keeps its place until the new one would survive a power loss.

    def _make_durable(self, log: UnifiedLog) -> None:
        if self._closed or not self._logs.predecessors.is_before(log):
            return
        try:
            flush = log.begin_flush()
        except OSError as error:
            self._logs.log_failed(log, error)
            self._make_durable_later(log)
            return
        self._syncs_of(log).submit(flush.run).on_done(partial(self._is_durable, log, flush))

    def _make_durable_later(self, log: UnifiedLog) -> None:
        delay_ms = self._settings.get_int("replica.fetch.backoff.ms")
        self._timers.call_after(delay_ms, partial(self._make_durable, log))

    def _is_durable(self, log: UnifiedLog, flush: LogFlush, done: Deferred[None]) -> None:
        try:
            done.result()
        except Exception as error:
            if isinstance(error, OSError):
                self._logs.log_failed(log, error)
            else:  # too many jobs, or a bug in kafkacompat
                logger.error("no worker synced %s in its new directory: %s", log.topic_partition, error)
            self._make_durable_later(log)
            return
        log.finish_flush(flush)
        if self._closed:
            return
        origin = self._logs.predecessors.home(log.topic_partition)
        plan = self._logs.retire_predecessor(log)
        if plan is not None and origin is not None:
            syncs = self._workers.log_sync.at(origin.path)
            syncs.submit(plan.run).on_done(partial(self._is_retired, plan))
        elif self._logs.predecessors.is_before(log):
            # The directory takes no writes at the moment.
            self._make_durable_later(log)

    def _is_retired(self, plan: Plan, done: Deferred[None]) -> None:
        try:
            done.result()
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("what a moved log has left is not removed before the next start: %s", error)
        else:
            plan.finish()


# How the future log follows the current one: pure functions over the two.

ANY_EPOCH = 2**31 - 1
"""An epoch limit that accepts everything in the current log."""


def settle(copy: Copy, current: Log) -> str | None:
    """Truncate the copy to what the current log has. Returns a line for the node's log if something was dropped.
    Raises OSError."""
    log = copy.log
    before = log.log_end_offset
    if before < current.log_start_offset:
        return _begin_at_start(copy, current)
    note = None
    while (epoch := log.latest_epoch()) >= 0:
        ours = current.end_offset_for_epoch(epoch)
        if ours.epoch == epoch and ours.offset >= log.log_end_offset:
            break
        if ours.epoch < 0:
            # Everything in the copy is older than the start of the current log.
            return _begin_at_start(copy, current)
        known = log.log_end_offset, epoch
        note = truncate_to_divergence(
            copy, EpochEndOffset(epoch=ours.epoch, end_offset=min(ours.offset, current.log_end_offset))
        )
        if (log.log_end_offset, log.latest_epoch()) == known:
            break
    if log.log_end_offset > current.log_end_offset:
        log.truncate_to(current.log_end_offset)
        note = f"truncated from {before} to {log.log_end_offset}, where the current log ends"
    return note


def _begin_at_start(copy: Copy, current: Log) -> str:
    copy.log.truncate_fully_and_start_at(current.log_start_offset)
    return f"begins anew at {current.log_start_offset}, where the current log begins"


def copy_records(copy: Copy, current: Log, records: Buffer) -> None:
    """Append whole batches of the current log from the copy's end. Raises OSError or LogRefused."""
    append_fetched(copy, records, ANY_EPOCH)
    take_over_watermarks(copy, current)


def take_over_watermarks(copy: Copy, current: Log) -> None:
    take_watermarks(copy, current.high_watermark, current.log_start_offset)
