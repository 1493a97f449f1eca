"""A leader's knowledge of its replicas: their end offsets, whether a majority still fetches, the high watermark,
waiting requests.

Pure; it decides no role. Follows KIP-595 (the high watermark only past the epoch's start), KIP-853 (observers by key)
and KIP-996's check-quorum at one and a half fetch timeouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_OFFSET, ZERO_UUID
from kafkacompat.raft.messages import FetchRequest
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet

if TYPE_CHECKING:
    from kafkacompat.raft.voter_node import VoterNode

OBSERVER_MEMORY_MS = 300_000
MAX_OBSERVERS = 10_000
"""Beyond this the observer with the oldest fetch is forgotten."""


class ReplicaState:
    __slots__ = ("directory_id", "end_offset", "last_caught_up_ms", "last_fetch_end", "last_fetch_ms")

    def __init__(self, directory_id: bytes) -> None:
        self.directory_id = directory_id
        self.end_offset = NO_OFFSET
        self.last_fetch_ms = -1
        self.last_fetch_end = -1
        """The leader's end at the last fetch."""
        self.last_caught_up_ms = -1


@dataclass(slots=True)
class ParkedFetch:
    request_id: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """The change of the voters in progress."""

    request_id: int | None
    """None once it is answered."""
    voter: VoterNode
    deadline_ms: int
    ack_when_committed: bool = True
    end_offset: int = NO_OFFSET
    """The log end after its Voters record. -1 while the new voter is being probed."""


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
        """-1 until a majority has the epoch's first batch."""
        self.voters: dict[int, ReplicaState] = {}
        """By id, without the leader itself."""
        self.observers: dict[ReplicaKey, ReplicaState] = {}
        self.fetched: set[int] = set()
        """Voters that have fetched since check-quorum was last met."""
        self.check_quorum_at_ms = 0
        self.begin_at_ms = 0
        self.parked: dict[ReplicaKey, ParkedFetch] = {}
        """One per replica: a newer fetch replaces an older one."""
        self.change: VoterChange | None = None
        """The only change of the voter set in progress."""
        self.reported: dict[int, VoterNode] = {}
        """With kraft.version 0: what voters have reported with UpdateRaftVoter."""
        self.update_voter_and_observer_states(voters)

    def update_voter_and_observer_states(self, voters: VoterSet) -> None:
        """Move the ReplicaState of each replica that becomes voter or observer."""
        for node_id in sorted(self.voters):
            voter = voters.get(node_id)
            replica = self.voters[node_id]
            if voter is None or not voters.contains(ReplicaKey(node_id, replica.directory_id)):
                del self.voters[node_id]
                self.fetched.discard(node_id)
                if voter is None or replica.directory_id != ZERO_UUID:
                    self.observers[ReplicaKey(node_id, replica.directory_id)] = replica
                # Otherwise its directory becomes known. The next fetch shows whether that is the one that has fetched.
        for node_id in voters.ids:
            if node_id != self.node_id and node_id not in self.voters:
                key = voters.key(node_id)
                replica = self.observers.pop(key) if key in self.observers else ReplicaState(key.directory_id)
                self.voters[node_id] = replica

    def get_or_create_replica_state(self, key: ReplicaKey, voters: VoterSet, now_ms: int) -> ReplicaState:
        if voters.contains(key):
            return self.voters[key.id]
        if key in self.observers:
            replica = self.observers.pop(key)
        else:
            replica = ReplicaState(key.directory_id)
            self._clear_inactive_observers(now_ms)
        self.observers[key] = replica
        return replica

    def observer_states(self, now_ms: int) -> dict[ReplicaKey, ReplicaState]:
        """The observers to report. One that has gone is reported for OBSERVER_MEMORY_MS."""
        return {
            key: replica
            for key, replica in self.observers.items()
            if replica.last_fetch_ms >= 0 and now_ms - replica.last_fetch_ms < OBSERVER_MEMORY_MS
        }

    def _clear_inactive_observers(self, now_ms: int) -> None:
        while self.observers:
            # Insertion order is the order of the last fetches: get_or_create_replica_state moves a key to the end.
            key, replica = next(iter(self.observers.items()))
            if replica.last_fetch_ms + OBSERVER_MEMORY_MS > now_ms and len(self.observers) < MAX_OBSERVERS:
                break
            del self.observers[key]

    def update_replica_state(
        self, key: ReplicaKey, voters: VoterSet, offset: int, end: int, now_ms: int
    ) -> bool:
        """A valid fetch shows that everything below `offset` is durable there. Returns whether a voter's end moved."""
        replica = self.get_or_create_replica_state(key, voters, now_ms)
        if offset >= end:
            replica.last_caught_up_ms = now_ms
        elif 0 <= replica.last_fetch_end <= offset:
            # It has what there was at its last fetch. In a log that always grows no replica has more.
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.last_fetch_ms = now_ms
        replica.last_fetch_end = end
        moved = replica.end_offset != offset
        replica.end_offset = offset
        return moved and voters.contains(key)

    def update_check_quorum_for_following_voter(
        self, key: ReplicaKey, voters: VoterSet, timeout_ms: int, now_ms: int
    ) -> None:
        """Check-quorum: the timer restarts each time a majority, without this node, has fetched."""
        if key.id == self.node_id or not voters.contains(key):
            return
        self.fetched.add(key.id)
        needed = voters.majority - (1 if self.node_id in voters.ids else 0)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_at_ms = now_ms + timeout_ms

    def majority_end(self, voters: VoterSet, own_durable_end: int) -> int:
        """The largest offset that a majority of the voters has durably. A leader that is not a voter does not count."""
        ends = [replica.end_offset for replica in self.voters.values()]
        if voters.get(self.node_id) is not None:
            ends.append(own_durable_end)
        ends.sort(reverse=True)
        return ends[len(ends) // 2]

    def maybe_update_high_watermark(self, voters: VoterSet, own_durable_end: int) -> bool:
        end = self.majority_end(voters, own_durable_end)
        if end > self.epoch_start and end > self.high_watermark:
            self.high_watermark = end
            return True
        return False

    def non_leader_voters_by_descending_fetch_offset(self, voters: VoterSet) -> tuple[ReplicaKey, ...]:
        """The voters except this node, those with the longest log first."""
        order = sorted(self.voters, key=lambda node_id: (-self.voters[node_id].end_offset, node_id))
        return tuple(voters.key(node_id) for node_id in order)
