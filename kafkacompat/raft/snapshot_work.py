"""The long parts of writing a snapshot and of installing the leader's: in steps or in a worker.

It builds the file's bytes one part per step, and writes and syncs them in a worker. It reads a fetched file in a
worker and parses it with pauses. It decides nothing and changes no log. At most one write and one installation are in
progress. What is lacking for a moment (descriptors, memory, threads) is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import SyncFailed, passes
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, SnapshotFormat, parse_in_steps
from kafkacompat.tasks import Cancelled, in_turns

if TYPE_CHECKING:
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.ports import Clock, Workers
    from kafkacompat.raft.snapshot_store import SnapshotStore
    from kafkacompat.raft.voter_set import VoterSet
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
        self._write(self._built.finish())


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
        """The result of a worker's job, which is repeated while something is lacking."""
        while True:
            try:
                return await self._workers.submit(job)
            except Exception as error:
                await self._wait_after(snapshot_id, error)

    async def _wait_after(self, snapshot_id: OffsetAndEpoch, error: Exception) -> None:
        if not passes(error):
            raise error
        self._note(f"the snapshot {snapshot_id} is installed later: {error!r}")
        await self._tasks.sleep(LACK_AGAIN_MS)

    def close(self) -> None:
        if self._installing is not None:
            self._installing.cancel()
