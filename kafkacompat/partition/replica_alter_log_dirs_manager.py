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
from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.partition.following import (
    BATCHES_AT_ONCE,
    append_fetched,
    divergence,
    take_watermarks,
    truncate_to_divergence,
)
from kafkacompat.partition.replication_quota_manager import ByteRate
from kafkacompat.ports import FileSlice, LogRefused, WorkersBusy
from kafkacompat.records.batch import BatchCorrupt, end_of_some
from kafkacompat.tasks import in_turns
from kafkacompat.wire.messages.fetch_response import EpochEndOffset

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.partition.following import Copy
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Buffer, Log, Plan, Workers
    from kafkacompat.tasks import Started, Work

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
"""Bytes read and appended in one piece."""
AT_ONCE_BYTES = 1 << 18
"""Up to this many cached bytes are read in the loop's thread. Otherwise new appends would always be ahead of the
worker's answer."""
THROTTLED_MS = 100
ASSIGNED_POLL_MS = 100
"""How often new appends are copied while the controller is being told."""
PASSING = (LogRefused, BatchCorrupt, MemoryError, WorkersBusy)
"""What delays a move and is no bug: indexes are rebuilt meanwhile, and damage may be cleaned away or be repaired."""

Assign = Callable[["Uuid", int, "Uuid", "Callable[[], None] | None"], None]
"""(topic id, partition, directory, callback for when the controller has recorded it)."""


class MoveState(Enum):
    COPYING = "copying"
    ASSIGNING = "the controller is being told"
    ASSIGNED = "the metadata name the new directory"


class Move:
    """One replica being moved. `log` is its future log."""

    __slots__ = ("core", "is_synced", "log", "origin_id", "state", "target_id", "task", "topic_partition")

    def __init__(self, core: Partition, log: UnifiedLog, origin_id: Uuid, target_id: Uuid) -> None:
        self.core = core
        self.log = log
        self.topic_partition = core.topic_partition
        self.origin_id = origin_id
        self.target_id = target_id
        self.state = MoveState.COPYING
        self.task: Started | None = None
        """None while it waits for others to end."""
        self.is_synced = False

    @property
    def is_being_told(self) -> bool:
        """Whether the controller knows the new directory, or is being told."""
        return self.state is not MoveState.COPYING


class ReplicaAlterLogDirsManager:
    """The moves of a node. Bounded by its partitions."""

    def __init__(
        self,
        services: PartitionServices,
        assign: Assign,
        *,
        failed: Callable[[Partition, OSError], None],
        moved: Callable[[Partition], None],
    ) -> None:
        """`failed` is called if the current log could not be read, `moved` if the core has its new log."""
        self._logs = services.logs
        self._clock = services.clock
        self._tasks = services.tasks
        self._workers = services.workers
        self._settings = settings = services.settings
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
            "Moving partition %s from log directory %s to %s, initial offset %d",
            name,
            home.path,
            target.path,
            log.log_end_offset,
        )
        self._start_some()

    def end(self, name: TopicPartition) -> None:
        """End a move that is cancelled or cannot be done. If the controller was told, tell it the old directory again."""
        move = self._moves.pop(name, None)
        if move is None:
            return
        if move.task is not None:
            move.task.cancel()
        if move.state is not MoveState.COPYING:
            logger.info("Reverting reassignment for canceled future replica %s", name)
            self._assign(move.core.topic_id, name.partition, move.origin_id, None)
        self._start_some()

    def close(self) -> None:
        self._closed = True
        for move in self._moves.values():
            if move.task is not None:
                move.task.cancel()
        self._moves.clear()

    def _start_some(self) -> None:
        for move in list(
            islice(self._moves.values(), self._settings.get_int("num.replica.alter.log.dirs.threads"))
        ):
            if move.task is None or move.task.done:
                move.task = self._tasks.start(f"moving {move.topic_partition}", self._run(move))

    async def _run(self, move: Move) -> None:
        delay_ms = 0
        while True:
            await self._tasks.sleep(delay_ms)
            if self._is_over(move):
                return
            try:
                delay_ms = await self._step(move)
            except Exception as problem:
                # Only what ends the replica ends its move.
                logger.warning(
                    "Error while copying %s at offset %d, retrying: %s: %s",
                    move.topic_partition,
                    move.log.log_end_offset,
                    type(problem).__name__,
                    problem,
                )
                if not isinstance(problem, PASSING):
                    report(f"moving {move.topic_partition}", problem)
                delay_ms = self._backoff_ms()

    def _is_over(self, move: Move) -> bool:
        """Whether the move has ended, or its future log is gone with its directory."""
        name = move.topic_partition
        if self._closed or self._moves.get(name) is not move:
            return True
        if self._logs.futures.logs.get(name) is move.log:
            return False
        self.end(name)
        return True

    def _backoff_ms(self) -> int:
        return self._settings.get_int("replica.fetch.backoff.ms")

    async def _step(self, move: Move) -> int:
        """Copy the next piece, or take the next step if everything is copied. Returns the delay before the next step, in
        ms. Raises what only delays the move: a refusal by either log, damaged data, a lack of workers or of memory."""
        limit = self._settings.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        if self._rate.bytes_per_second(self._clock.monotonic_ms()) > limit:
            return THROTTLED_MS
        current, future = move.core.log, move.log
        try:
            note = await in_turns(settle(move, current, lambda: not self._is_over(move)))
        except OSError as error:
            return self._future_failed(move, error)
        if self._is_over(move):
            return 0
        if note is not None:
            logger.info("Future replica of %s: %s", move.topic_partition, note)
        # The future log may have been truncated, now or before the disk refused the rest. Later appends count only
        # when no checkpoint offset is too high for it.
        told = self._logs.when_true(future)
        if not told.done:
            await told
            return 0
        if not current.local_log_start_offset <= future.log_end_offset <= current.log_end_offset:
            return 0  # a very long log is truncated in several steps
        if future.log_end_offset == current.log_end_offset:
            return await self._caught_up(move)
        return await self._copy(move)

    async def _copy(self, move: Move) -> int:
        current, future = move.core.log, move.log
        offset = future.log_end_offset
        try:
            records = current.read(offset, COPY_BYTES, current.log_end_offset, True).records
            if not isinstance(records, FileSlice):
                return self._backoff_ms()
            at_once = records.length <= AT_ONCE_BYTES
            data = records.file.try_read(records.position, records.length) if at_once else None
            if data is None:
                data = await self._workers.reads.submit(records.read)
        except OSError as error:
            self._failed(move.core, error)
            return self._backoff_ms()
        if self._is_over(move) or future.log_end_offset != offset:
            return 0
        # The bytes beyond one piece are read again.
        data = data[: end_of_some(data, 0, BATCHES_AT_ONCE)[0]]
        try:
            copy_records(move, current, data)
        except OSError as error:
            return self._future_failed(move, error)
        self._rate.record(len(data), self._clock.monotonic_ms())
        if future.log_end_offset == offset:
            return self._backoff_ms()
        if future.log_end_offset == move.core.log.log_end_offset:
            return await self._caught_up(move)  # now, before more is appended
        return 0

    async def _caught_up(self, move: Move) -> int:
        take_over_watermarks(move, move.core.log)
        if not move.is_synced:
            return await self._sync(move)
        if move.state is MoveState.ASSIGNED:
            current, future = move.core.log, move.log
            future.config = current.config
            try:
                future.take_remote_part_of(current)  # while nothing has changed yet: the disk may be full
            except OSError as error:
                return self._future_failed(move, error)
            self._change_places(move)
            return 0
        if move.state is MoveState.COPYING:
            self._set_state(move, MoveState.ASSIGNING)
            core = move.core
            self._assign(
                core.topic_id, core.topic_partition.partition, move.target_id, partial(self._assigned, move)
            )
        return ASSIGNED_POLL_MS

    async def _sync(self, move: Move) -> int:
        """The current log may be synced long ago, and will be deleted."""
        try:
            flush = move.log.begin_flush()
            await self._syncs_of(move.log).submit(flush.run)
        except OSError as error:
            return self._future_failed(move, error)
        if self._is_over(move):
            return 0
        move.log.finish_flush(flush)
        move.is_synced = True
        return await self._step(move)

    def _future_failed(self, move: Move, error: OSError) -> int:
        self._logs.future_failed(move.topic_partition, error)
        return self._backoff_ms()

    def _syncs_of(self, log: UnifiedLog) -> Workers:
        return self._workers.log_sync.at(posixpath.dirname(log.directory))

    def _assigned(self, move: Move) -> None:
        """The controller has recorded the directory. The next step swaps the logs."""
        if not self._is_over(move):
            self._set_state(move, MoveState.ASSIGNED)

    def _set_state(self, move: Move, state: MoveState) -> None:
        move.state = state
        logger.info("Updating future replica %s reassignment state to %s", move.topic_partition, state.name)

    def _change_places(self, move: Move) -> None:
        """Swap the logs in one step of the loop. So the partition is never without a log, and its log end does not
        change."""
        core, name = move.core, move.topic_partition
        log = core.log = self._logs.promote_future(name)
        if core.is_leader and not core.is_read_only and log.latest_epoch() < core.leader_epoch:
            # The log has no record of this epoch yet. That of a mirror never has one.
            log.assign_epoch_start(core.leader_epoch, log.log_end_offset)
        del self._moves[name]
        logger.info("Future replica promotion: %s is in %s now", name, log.directory)
        self._moved(core)
        self._tasks.start(f"retiring the old log of {name}", self._retire_when_durable(log))
        self._start_some()

    async def _retire_when_durable(self, log: UnifiedLog) -> None:
        """The old log keeps its place until the new one would survive a power loss."""
        while not self._closed and self._logs.predecessors.is_before(log):
            try:
                flush = log.begin_flush()
                await self._syncs_of(log).submit(flush.run)
            except OSError as error:
                self._logs.log_failed(log, error)
            except Exception as problem:  # it is tried again: until then the partition cannot move
                logger.warning("%s is not synced in its new directory: %r", log.topic_partition, problem)
                if not isinstance(problem, PASSING):
                    report(f"retiring the old log of {log.topic_partition}", problem)
            else:
                log.finish_flush(flush)
                if self._closed:
                    return
                origin = self._logs.predecessors.home(log.topic_partition)
                plan = self._logs.retire_predecessor(log)
                if plan is not None and origin is not None:
                    await self._remove(plan, origin.path)
                    return
                # Otherwise the directory takes no writes at the moment.
            if self._logs.predecessors.is_before(log):
                await self._tasks.sleep(self._backoff_ms())

    async def _remove(self, plan: Plan, place: str) -> None:
        try:
            await self._workers.log_sync.at(place).submit(plan.run)
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("what a moved log has left is not removed before the next start: %s", error)
        else:
            plan.finish()


# How the future log follows the current one: pure functions over the two.

ANY_EPOCH = 2**31 - 1
"""An epoch limit that accepts everything in the current log."""


def settle(copy: Copy, current: Log, is_wanted: Callable[[], bool]) -> Work[str | None]:
    """Truncate the copy to what the current log has, unless it is not wanted any more. Returns a line for the node's log if
    something was dropped. Raises OSError."""
    log = copy.log
    before = log.log_end_offset
    if before < current.local_log_start_offset:
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
        diverging = EpochEndOffset(epoch=ours.epoch, end_offset=min(ours.offset, current.log_end_offset))
        producers = yield from log.producers_as_of(divergence(log, diverging))
        if not is_wanted():
            return note
        note = truncate_to_divergence(copy, diverging, producers)
        if (log.log_end_offset, log.latest_epoch()) == known:
            break
    end = current.log_end_offset
    if log.log_end_offset > end:
        producers = yield from log.producers_as_of(end)
        if not is_wanted():
            return note
        log.truncate_to(end, producers=producers)
        note = f"truncated from {before} to {log.log_end_offset}, where the current log ends"
    return note


def _begin_at_start(copy: Copy, current: Log) -> str:
    start = current.local_log_start_offset
    copy.log.config = current.config  # of a future log that a start has found they are not known
    copy.log.truncate_fully_and_start_at(start)
    # Now, and not only when it takes the other's place: that one's directory may fail before.
    copy.log.take_remote_part_of(current)
    return f"begins anew at {start}, where the current log begins"


def copy_records(copy: Copy, current: Log, records: Buffer) -> None:
    """Append whole batches of the current log from the copy's end. Raises OSError or LogRefused."""
    append_fetched(copy, records, ANY_EPOCH)
    take_over_watermarks(copy, current)


def take_over_watermarks(copy: Copy, current: Log) -> None:
    take_watermarks(copy, current.high_watermark, current.log_start_offset)
