"""The snapshots of a quorum member: its own, of the applied state, and the leader's, which replaces its log.

QuorumSnapshots carries out the core's decisions and reports the results to the core.

SnapshotWork has the long parts of writing a snapshot and of installing the leader's: in steps or in a worker. It builds the
file's bytes one part per step, and writes and syncs them in a worker. It reads a fetched file in a worker and parses it with
pauses. It decides nothing and changes no log. At most one write and one installation are in progress. What is lacking for a
moment (descriptors, memory, threads, and space for the leader's snapshot) is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import SyncFailed, is_full, passes
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, SnapshotFormat, parse_in_steps
from kafkacompat.raft.voter_set import VoterSet
from kafkacompat.tasks import Cancelled, in_turns

if TYPE_CHECKING:
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.ports import Clock, Workers
    from kafkacompat.raft.applier import Applier
    from kafkacompat.raft.event_pump import EventPump
    from kafkacompat.raft.quorum import QuorumCore
    from kafkacompat.raft.quorum_files import QuorumFiles
    from kafkacompat.raft.snapshot import SnapshotStore
    from kafkacompat.tasks import Task, Tasks

T = TypeVar("T")

AGAIN_MS = 60_000
"""Delay after a failed snapshot before the next one may begin."""
LACK_AGAIN_MS = 1_000
"""Delay before the next try of an installation, or of a sync, for which something was lacking."""


class SnapshotWriter:
    """Call `add` with the snapshot's values in order, then `finish`."""

    def __init__(
        self, built: SnapshotFormat, write: Callable[[Sequence[bytearray]], None], give_up: Callable[[], None]
    ) -> None:
        self.add = built.add
        self._built = built
        self._write = write
        self.give_up = give_up
        """Call it instead of `finish`."""

    def finish(self) -> None:
        try:
            parts = self._built.finish()
        except Exception:
            self.give_up()
            raise
        self._write(parts)


class SnapshotWork:
    def __init__(
        self,
        store: SnapshotStore,
        workers: Workers,
        clock: Clock,
        tasks: Tasks,
        note: Callable[[str], None],
    ) -> None:
        """`workers` run what blocks."""
        self._store = store
        self._workers = workers
        self._clock = clock
        self._tasks = tasks
        self._note = note
        self._installing: Task[SnapshotContent | BrokenSnapshot] | None = None
        self._is_writing = False
        self._not_before_ms = 0
        self._noted_again_ms = 0
        """When the log may tell again that an installation waits."""

    @property
    def may_begin(self) -> bool:
        return not self._is_writing and self._clock.monotonic_ms() >= self._not_before_ms

    def begin(
        self,
        snapshot_id: OffsetAndEpoch,
        timestamp_ms: int,
        voters: VoterSet,
        kraft_version: int,
        frozen: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> SnapshotWriter:
        """`frozen` is called with the size in bytes once the file is durable. Nothing depends on a snapshot that
        cannot be written: that is only logged. `failed` is called for a failed sync, after which the state of the
        directory is unknown, and for unexpected errors."""
        self._is_writing = True
        built = SnapshotFormat(
            snapshot_id.epoch, self._clock.now_ms(), timestamp_ms, kraft_version, voters.voters
        )

        def written(done: Deferred[int]) -> None:
            self._is_writing = False
            try:
                size = done.result()
            except Exception as error:
                if isinstance(error, SyncFailed) or not (isinstance(error, OSError) or passes(error)):
                    failed(error)
                    return
                self._not_before_ms = self._clock.monotonic_ms() + AGAIN_MS
                self._note(f"the snapshot {snapshot_id} is not written: {error}")
            else:
                frozen(size)

        def write(parts: Sequence[bytearray]) -> None:
            self._workers.submit(lambda: self._store.freeze(snapshot_id, parts)).on_done(written)

        def give_up() -> None:
            self._is_writing = False
            self._not_before_ms = self._clock.monotonic_ms() + AGAIN_MS

        return SnapshotWriter(built, write, give_up)

    def install(
        self,
        snapshot_id: OffsetAndEpoch,
        parsed: Callable[[SnapshotContent | BrokenSnapshot], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Parse the complete part file, make it durable under the snapshot's name, and call `parsed`. A broken one is
        deleted."""
        self._store.close_part()

        def installed(done: Deferred[SnapshotContent | BrokenSnapshot]) -> None:
            try:
                result = done.result()
            except Cancelled:
                return
            except Exception as error:
                failed(error)
                return
            parsed(result)

        self._installing = self._tasks.run("installing a snapshot", self._install(snapshot_id))
        self._installing.on_done(installed)

    async def _install(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent | BrokenSnapshot:
        store = self._store

        def freeze() -> None:
            store.freeze(snapshot_id, [data])
            store.drop_part(snapshot_id)

        data = await self._worked(snapshot_id, lambda: store.read_part(snapshot_id))
        while True:
            try:
                content = await in_turns(parse_in_steps(data))
                break
            except BrokenSnapshot as broken:
                result = broken
            except Exception as error:
                await self._wait_after(snapshot_id, error)
                continue
            await self._worked(snapshot_id, lambda: store.drop_part(snapshot_id))
            return result
        await self._worked(snapshot_id, freeze)
        return content

    async def _worked(self, snapshot_id: OffsetAndEpoch, job: Callable[[], T]) -> T:
        """The result of a worker's job, which is repeated while something is lacking, or the disk is full."""
        while True:
            try:
                return await self._workers.submit(job)
            except Exception as error:
                await self._wait_after(snapshot_id, error)

    async def _wait_after(self, snapshot_id: OffsetAndEpoch, error: Exception) -> None:
        if not (is_full(error) or passes(error)):
            raise error
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._noted_again_ms:
            self._noted_again_ms = now_ms + AGAIN_MS
            self._note(f"the snapshot {snapshot_id} is installed later: {error!r}")
        await self._tasks.sleep(LACK_AGAIN_MS)

    def close(self) -> None:
        if self._installing is not None:
            self._installing.cancel()


class QuorumSnapshots:
    def __init__(
        self, files: QuorumFiles, work: SnapshotWork, pump: EventPump, note: Callable[[str], None]
    ) -> None:
        self._files = files
        self._work = work
        self._pump = pump
        self._note = note
        self._core: QuorumCore
        self._applier: Applier

    def begins(self, core: QuorumCore, applier: Applier) -> None:
        """Called when the disk's contents are loaded."""
        self._core = core
        self._applier = applier

    def install(self, each: effect.InstallSnapshot) -> None:
        """Begin to install the leader's snapshot. Later effects and events wait until it is done."""

        def parsed(content: SnapshotContent | BrokenSnapshot) -> None:
            self._pump.go_on(lambda: self._installed(each, content))

        self._work.install(each.snapshot_id, parsed, self._pump.halt)

    def _installed(self, each: effect.InstallSnapshot, content: SnapshotContent | BrokenSnapshot) -> None:
        snapshot_id = each.snapshot_id
        if isinstance(content, BrokenSnapshot):
            self._note(f"the leader's snapshot {snapshot_id} is not taken: {content}")
            self._pump.enter_next(events.SnapshotBroken(snapshot_id))
            return
        self._files.installed(snapshot_id)
        self._pump.later(partial(self._applier.load, snapshot_id, content))
        voters = VoterSet(content.voters) if content.voters else None
        self._pump.enter_next(
            events.SnapshotInstalled(snapshot_id, each.size_bytes, voters, content.kraft_version)
        )

    def begin(self, snapshot_id: OffsetAndEpoch) -> SnapshotWriter | None:
        """None if the snapshot exists, another one is in progress, or one could not be written a moment ago."""
        log, voters = self._core.log, self._core.voters
        end_offset = snapshot_id.offset
        if end_offset > self._applier.applied:
            raise ValueError(
                f"a snapshot at {end_offset} is ahead of what is applied ({self._applier.applied})"
            )
        if snapshot_id in log.snapshots or end_offset <= log.start or not self._work.may_begin:
            return None
        counted = self._files.bytes_since_snapshot

        def frozen(size: int) -> None:
            self._pump.guarded(lambda: self._frozen(snapshot_id, size, counted))

        return self._work.begin(
            snapshot_id, self._applier.last_timestamp_ms, *voters.at(end_offset), frozen, self._pump.halt
        )

    def _frozen(self, snapshot_id: OffsetAndEpoch, size: int, counted: int) -> None:
        log = self._core.log
        if snapshot_id.offset <= log.start:
            # The leader's snapshot was installed meanwhile, and the log begins at or after this one.
            if snapshot_id not in log.snapshots:
                self._files.snapshots.remove(snapshot_id)
            return
        files = self._files
        files.bytes_since_snapshot = max(0, files.bytes_since_snapshot - counted)
        files.snapshot_written(size)
        previous = log.latest_snapshot
        self._pump.enter(events.SnapshotFrozen(snapshot_id, size))
        leader = self._core.leader
        alone = leader is not None and len(self._core.voters.latest) == 1 and not leader.observers
        # Other nodes may still fetch what the previous snapshot does not contain.
        keep = snapshot_id if alone else previous
        if keep is not None and log.start < keep.offset <= log.durable_end and not self._pump.is_held:
            files.trim(keep)
            self._pump.enter(events.LogTrimmed(keep))

    def close(self) -> None:
        self._work.close()
