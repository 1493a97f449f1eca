"""Disk space for the metadata log: what waits on a full disk, and when this node may lead again.

It tells a full disk, and a process without descriptors or memory, from a broken disk. It logs that from time to time,
and checks whether there is space again. A leader that could not append has resigned and stands for no election until
then. It decides nothing else; roles are unknown here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ports import SyncFailed, passes
from kafkacompat.raft import effects as effect

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.raft.quorum_files import QuorumFiles

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
UNCHANGED_WHEN_REFUSED = frozenset(
    {
        effect.PersistElection,
        effect.AppendEpochStart,
        effect.AppendVoters,
        effect.AppendFetched,
        effect.WriteSnapshotChunk,
    }
)
"""Effects that have changed nothing when the disk refuses them, or only what a retry detects."""
UNCHANGED_WHEN_LACKING = UNCHANGED_WHEN_REFUSED | {
    effect.ReplyWithRecords,
    effect.ReplyWithSnapshot,
    effect.Sync,
    effect.Truncate,
}
"""The same for a lack of descriptors or memory. A truncation that has begun fails with HalfDone."""
LOOK_AGAIN_MS = 1_000
NOTE_AGAIN_MS = 60_000
LEAST_ROOM_BYTES = 64 * 1024
"""Less space than this does not count: the next one or two records would fill the disk again."""


class RoomWatch:
    def __init__(
        self,
        files: QuorumFiles,
        clock: Clock,
        timers: Timers,
        note: Callable[[str], None],
        found: Callable[[], None],
    ) -> None:
        """`found` is called when there is space again after `wait`."""
        self._files = files
        self._clock = clock
        self._timers = timers
        self._note = note
        self._found = found
        self._noted_ms: int | None = None
        self._wanted_bytes = 0
        """The size of the last refused append. 0 if nothing waits."""
        self.is_closed = False

    def holds(self, each: effect.Effect, error: OSError) -> bool:
        """Whether a refused effect must be retried."""
        if passes(error):
            is_held = type(each) in UNCHANGED_WHEN_LACKING
        else:
            is_full = error.errno in NO_ROOM and not isinstance(error, SyncFailed)
            is_held = is_full and type(each) in UNCHANGED_WHEN_REFUSED
        if not is_held:
            return False
        self._say(f"the quorum waits for the metadata log's directory: {error}")
        return True

    def wait(self, size_bytes: int, error: OSError) -> None:
        """A leader could not append this many bytes."""
        self._say(f"the metadata log takes no records, and this node leads no more: {error}")
        if not self._wanted_bytes:
            self._timers.call_after(LOOK_AGAIN_MS, self._look)
        self._wanted_bytes = max(size_bytes, LEAST_ROOM_BYTES)

    def _look(self) -> None:
        if self.is_closed:
            return
        try:
            self._files.try_room(self._wanted_bytes)
        except OSError:
            self._timers.call_after(LOOK_AGAIN_MS, self._look)
            return
        self._wanted_bytes = 0
        self._found()

    def _say(self, text: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._noted_ms is None or now_ms - self._noted_ms >= NOTE_AGAIN_MS:
            self._noted_ms = now_ms
            self._note(text)
