"""The snapshots of a quorum member: its own, of the applied state, and the leader's, which replaces its log.

It carries out the core's decisions and reports the results to the core. snapshot_work has the long parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent
from kafkacompat.raft.voter_set import VoterSet

if TYPE_CHECKING:
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.raft.applier import Applier
    from kafkacompat.raft.event_pump import EventPump
    from kafkacompat.raft.quorum import QuorumCore
    from kafkacompat.raft.quorum_files import QuorumFiles
    from kafkacompat.raft.snapshot_work import SnapshotWork, SnapshotWriter


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
