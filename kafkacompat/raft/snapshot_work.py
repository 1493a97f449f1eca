"""A snapshot on its way to the disk, or from the leader into the log's place: what takes long, in steps or in a worker.

Build the file's bytes a part a step, write and sync them in a worker; read a fetched file in a worker and parse it in steps.
Decides nothing, changes no log. One of each is under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.ports import SyncFailed
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, SnapshotFormat, parse_in_steps
from kafkacompat.stepping.stepped import Stepper

if TYPE_CHECKING:
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.ports import Clock, Timers, Workers
    from kafkacompat.raft.snapshot_store import SnapshotStore
    from kafkacompat.raft.voter_set import VoterSet

AGAIN_MS = 60_000
"""After a snapshot that could not be written, until the next one is begun."""


class SnapshotWriter:
    """`add` what the snapshot holds, in order, then `finish`."""

    def __init__(
        self, built: SnapshotFormat, write: Callable[[Sequence[bytearray]], None], give_up: Callable[[], None]
    ) -> None:
        self.add = built.add
        self._built = built
        self._write = write
        self.give_up = give_up
        """Instead of `finish`."""

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
        """`workers`: for what blocks."""
        self._store = store
        self._workers = workers
        self._clock = clock
        self._note = note
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
        """`frozen` gets the size in bytes once the file is durable. Nothing rests on one that cannot be written: that is noted.
        `failed` is told when a sync has failed, after which nothing is known of the directory, and of what nobody expects."""
        self._is_writing = True
        built = SnapshotFormat(
            snapshot_id.epoch, self._clock.now_ms(), timestamp_ms, kraft_version, voters.voters
        )

        def written(done: Deferred[int]) -> None:
            self._is_writing = False
            try:
                size = done.result()
            except Exception as error:
                if isinstance(error, SyncFailed) or not isinstance(error, OSError):
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
        """The part file, whole: parsed, then durable under the snapshot's own name, and `parsed` is told. A broken one is gone."""
        store = self._store
        store.close_part()

        def read(done: Deferred[bytes]) -> None:
            try:
                data = done.result()
            except Exception as error:
                failed(error)
                return
            self._parsing.run(parse_in_steps(data), lambda outcome: judged(data, outcome))

        def judged(data: bytes, outcome: Callable[[], SnapshotContent]) -> None:
            try:
                content = outcome()
            except BrokenSnapshot as error:
                end(lambda: store.drop_part(snapshot_id), error)
            except Exception as error:
                failed(error)
            else:
                end(lambda: freeze(data), content)

        def freeze(data: bytes) -> None:
            store.freeze(snapshot_id, [data])
            store.drop_part(snapshot_id)

        def end(job: Callable[[], None], result: SnapshotContent | BrokenSnapshot) -> None:
            def ended(done: Deferred[None]) -> None:
                try:
                    done.result()
                except Exception as error:
                    failed(error)
                else:
                    parsed(result)

            self._workers.submit(job).on_done(ended)

        self._workers.submit(lambda: store.read_part(snapshot_id)).on_done(read)

    def close(self) -> None:
        self._parsing.cancel()
