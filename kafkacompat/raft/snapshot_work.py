"""The long parts of writing a snapshot and of installing the leader's: in steps or in a worker.

It builds the file's bytes one part per step, and writes and syncs them in a worker. It reads a fetched file in a
worker and parses it in steps. It decides nothing and changes no log. At most one write and one installation are in
progress. What is lacking for a moment (descriptors, memory, threads) is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import SyncFailed, passes
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, SnapshotFormat, parse_in_steps
from kafkacompat.stepping.stepped import Stepper

if TYPE_CHECKING:
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.ports import Clock, Timers, Workers
    from kafkacompat.raft.snapshot_store import SnapshotStore
    from kafkacompat.raft.voter_set import VoterSet

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
        timers: Timers,
        note: Callable[[str], None],
    ) -> None:
        """`workers` run what blocks."""
        self._store = store
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._note = note
        self._is_closed = False
        self._parsing = Stepper(timers)
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
        store = self._store
        store.close_part()

        def again(error: Exception, act: Callable[[], None]) -> None:
            if not passes(error):
                failed(error)
                return
            self._note(f"the snapshot {snapshot_id} is installed later: {error!r}")
            self._timers.call_after(LACK_AGAIN_MS, lambda: None if self._is_closed else act())

        def work(job: Callable[[], T], then: Callable[[T], None]) -> None:
            def ended(done: Deferred[T]) -> None:
                try:
                    value = done.result()
                except Exception as error:
                    again(error, lambda: work(job, then))
                else:
                    then(value)

            self._workers.submit(job).on_done(ended)

        def parse(data: bytes) -> None:
            self._parsing.run(parse_in_steps(data), lambda outcome: judged(data, outcome))

        def judged(data: bytes, outcome: Callable[[], SnapshotContent]) -> None:
            try:
                content = outcome()
            except BrokenSnapshot as broken:
                result = broken
                work(lambda: store.drop_part(snapshot_id), lambda _: parsed(result))
            except Exception as error:
                again(error, lambda: parse(data))
            else:
                work(lambda: freeze(data), lambda _: parsed(content))

        def freeze(data: bytes) -> None:
            store.freeze(snapshot_id, [data])
            store.drop_part(snapshot_id)

        work(lambda: store.read_part(snapshot_id), parse)

    def close(self) -> None:
        self._is_closed = True
        self._parsing.cancel()
