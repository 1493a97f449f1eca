"""What a leader knows of its replicas: how far each is, whether a majority still listens, what is committed, who waits.

Pure. Decides no role. Follows KIP-595 (high watermark only past the epoch's start), KIP-853 (observers by key) and KIP-996's
check-quorum at one and a half fetch timeouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_OFFSET
from kafkacompat.raft.messages import FetchRequest
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet

if TYPE_CHECKING:
    from kafkacompat.raft.voters import Voter

OBSERVER_MEMORY_MS = 300_000
MAX_OBSERVERS = 10_000
"""The observer that was heard of longest ago is forgotten beyond it."""


class Progress:
    __slots__ = ("caught_up_ms", "directory_id", "end_offset", "fetched_ms")

    def __init__(self, directory_id: bytes) -> None:
        self.directory_id = directory_id
        self.end_offset = NO_OFFSET
        self.fetched_ms = -1
        self.caught_up_ms = -1


@dataclass(slots=True)
class ParkedFetch:
    request_id: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """The change of the voters that is under way."""

    request_id: int | None
    """None once it has been answered."""
    voter: Voter
    deadline_ms: int
    ack_when_committed: bool = True
    end_offset: int = NO_OFFSET
    """Log end behind its Voters record; -1 while the new voter is being probed."""


class LeaderState:
    __slots__ = (
        "begin_at_ms",
        "change",
        "check_quorum_at_ms",
        "epoch_start",
        "fetched",
        "granting",
        "high_watermark",
        "node_id",
        "observers",
        "parked",
        "reported",
        "voters",
    )

    def __init__(self, node_id: int, epoch_start: int, voters: VoterSet, granting: tuple[int, ...]) -> None:
        self.node_id = node_id
        self.epoch_start = epoch_start
        self.granting = granting
        self.high_watermark = NO_OFFSET
        """-1 until the epoch's first batch is on a majority."""
        self.voters: dict[int, Progress] = {}
        """By id, the leader's own left out."""
        self.observers: dict[ReplicaKey, Progress] = {}
        self.fetched: set[int] = set()
        """Voters heard since check-quorum was last met; only counted, never walked."""
        self.check_quorum_at_ms = 0
        self.begin_at_ms = 0
        self.parked: dict[ReplicaKey, ParkedFetch] = {}
        """One a replica: a newer fetch takes the place of an older one."""
        self.change: VoterChange | None = None
        """The one change of the voter set that is under way."""
        self.reported: dict[int, Voter] = {}
        """Under kraft.version 0: what voters said of themselves by UpdateRaftVoter."""
        self.voters_changed(voters)

    def voters_changed(self, voters: VoterSet) -> None:
        """Progress moves along with a replica that becomes voter or observer."""
        for node_id in sorted(self.voters):
            voter = voters.get(node_id)
            progress = self.voters[node_id]
            if voter is None or not voters.contains(ReplicaKey(node_id, progress.directory_id)):
                del self.voters[node_id]
                self.fetched.discard(node_id)
                self.observers[ReplicaKey(node_id, progress.directory_id)] = progress
        for node_id in voters.ids:
            if node_id != self.node_id and node_id not in self.voters:
                key = voters.key(node_id)
                progress = self.observers.pop(key) if key in self.observers else Progress(key.directory_id)
                self.voters[node_id] = progress

    def progress_of(self, key: ReplicaKey, voters: VoterSet, now_ms: int) -> Progress:
        if voters.contains(key):
            return self.voters[key.id]
        if key in self.observers:
            progress = self.observers.pop(key)
        else:
            progress = Progress(key.directory_id)
            self._forget_observers(now_ms)
        self.observers[key] = progress
        return progress

    def observers_heard(self, now_ms: int) -> dict[ReplicaKey, Progress]:
        """Those that are still told of: one that has gone is for OBSERVER_MEMORY_MS more."""
        return {
            key: progress
            for key, progress in self.observers.items()
            if progress.fetched_ms >= 0 and now_ms - progress.fetched_ms < OBSERVER_MEMORY_MS
        }

    def _forget_observers(self, now_ms: int) -> None:
        for key, progress in list(self.observers.items()):
            # Insertion order is the order of last fetches: progress_of moves a key to the end.
            if progress.fetched_ms + OBSERVER_MEMORY_MS > now_ms and len(self.observers) < MAX_OBSERVERS:
                break
            del self.observers[key]

    def fetched_by(self, key: ReplicaKey, voters: VoterSet, offset: int, end: int, now_ms: int) -> bool:
        """A valid fetch says that everything below offset is durable there; True when a voter's end moved."""
        progress = self.progress_of(key, voters, now_ms)
        progress.fetched_ms = now_ms
        if offset >= end:
            progress.caught_up_ms = now_ms
        moved = progress.end_offset != offset
        progress.end_offset = offset
        return moved and voters.contains(key)

    def heard_from(self, key: ReplicaKey, voters: VoterSet, timeout_ms: int, now_ms: int) -> None:
        """Check-quorum: the timer starts anew each time a majority, this node aside, was heard."""
        if key.id == self.node_id or not voters.contains(key):
            return
        self.fetched.add(key.id)
        needed = voters.majority - (1 if self.node_id in voters.ids else 0)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_at_ms = now_ms + timeout_ms

    def majority_end(self, voters: VoterSet, own_durable_end: int) -> int:
        """The largest offset that a majority of the voters holds durably; a leader that is no voter does not count."""
        ends = [progress.end_offset for progress in self.voters.values()]
        if voters.get(self.node_id) is not None:
            ends.append(own_durable_end)
        ends.sort(reverse=True)
        return ends[len(ends) // 2]

    def maybe_advance(self, voters: VoterSet, own_durable_end: int) -> bool:
        end = self.majority_end(voters, own_durable_end)
        if end > self.epoch_start and end > self.high_watermark:
            self.high_watermark = end
            return True
        return False

    def by_descending_end(self, voters: VoterSet) -> tuple[ReplicaKey, ...]:
        """Voters but this node, those with most of the log first."""
        order = sorted(self.voters, key=lambda node_id: (-self.voters[node_id].end_offset, node_id))
        return tuple(voters.key(node_id) for node_id in order)
