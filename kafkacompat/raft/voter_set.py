"""The voters: replica keys, a set of voters, and the sets in a log by offset.

Pure. Roles and files are unknown here. Follows KIP-853: a replica is its node id together with the directory id of its
metadata log. The newest set in the log counts at once, committed or not, and a truncation restores the former set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkacompat.ids import NO_OFFSET, ZERO_UUID, Uuid
from kafkacompat.raft.voter_node import VoterNode

Endpoints = tuple[tuple[str, str, int], ...]
LISTENERS_MAX = 100
"""Of one voter. They are looked at in one step, and stay in the log."""
"""(listener name, host, port), the default controller listener first. () if unknown."""


class ReplicaKey(NamedTuple):
    id: int
    directory_id: Uuid = ZERO_UUID
    """ZERO_UUID if unknown."""


class VoterSet:
    """An immutable set of voters, ordered by id."""

    __slots__ = ("_by_id", "ids", "majority", "voters")

    def __init__(self, voters: Iterable[VoterNode]) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.id))
        self._by_id = {voter.id: voter for voter in self.voters}
        if len(self._by_id) != len(self.voters):
            raise ValueError("two voters have the same id")
        self.ids = tuple(self._by_id)
        self.majority = len(self.voters) // 2 + 1

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(each) for each in self.ids)})"

    def get(self, node_id: int) -> VoterNode | None:
        return self._by_id.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        """Whether the id is a voter in this directory. A voter without directory id (static set) matches any
        directory."""
        voter = self._by_id.get(key.id)
        return voter is not None and voter.directory_id in (ZERO_UUID, key.directory_id)

    def endpoints(self, node_id: int) -> Endpoints:
        voter = self._by_id.get(node_id)
        return voter.listeners if voter is not None else ()

    def key(self, node_id: int) -> ReplicaKey:
        """Raises KeyError if it is not a voter's id."""
        return ReplicaKey(node_id, self._by_id[node_id].directory_id)

    def with_voter(self, voter: VoterNode) -> VoterSet:
        return VoterSet((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(voter for voter in self.voters if (voter.id, voter.directory_id) != key)

    def replacing(self, voter: VoterNode) -> VoterSet:
        return VoterSet(voter if each.id == voter.id else each for each in self.voters)

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Whether at most one replica was added or removed. Any two majorities then overlap."""
        mine = {(voter.id, voter.directory_id) for voter in self.voters}
        return len(mine ^ {(voter.id, voter.directory_id) for voter in other.voters}) <= 1


class VoterSetHistory:
    """The voter sets of a log by the offset of their record. Below all of them is the static set, or that of the 0-0
    snapshot."""

    __slots__ = ("_entries", "_static", "_static_version", "kraft_version", "latest", "latest_offset")

    def __init__(self, static: VoterSet, kraft_version: int = 0) -> None:
        self._static = static
        self._static_version = kraft_version
        self._entries: list[tuple[int, VoterSet, int]] = []
        self.latest = static
        self.latest_offset = NO_OFFSET
        """Offset of the record of `latest`. -1 if it is from no record."""
        self.kraft_version = kraft_version

    def add_at(self, offset: int, voters: VoterSet, kraft_version: int) -> None:
        if self._entries and offset <= self._entries[-1][0]:
            raise ValueError(f"voters at {offset} come after voters at {self._entries[-1][0]}")
        if self._entries and not voters.has_overlapping_majority(self._entries[-1][1]):
            raise ValueError(f"{voters} at {offset} changes more than one voter of {self._entries[-1][1]}")
        self._entries.append((offset, voters, kraft_version))
        self._refresh()

    def truncate_new_entries(self, end_offset: int) -> bool:
        """Drop the sets at or above end_offset. Returns whether the current set has changed."""
        before = self.latest_offset
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()
        self._refresh()
        return self.latest_offset != before

    @property
    def previous(self) -> VoterSet:
        """The set before the latest. The same one if the log has no other."""
        if not self._entries:
            return self.latest
        return self._entries[-2][1] if len(self._entries) > 1 else self._static

    def truncate_old_entries(self, start_offset: int) -> None:
        """Drop what a snapshot at start_offset has replaced. The newest set at or below it stays."""
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            self._entries.pop(0)

    def reset(self, offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """A snapshot whose last contained offset is `offset` has replaced the log. None: it has no voters."""
        self._entries.clear()
        if voters is not None:
            self._entries.append((offset, voters, kraft_version))
        self._refresh()

    def at(self, end_offset: int) -> tuple[VoterSet, int]:
        """The set and kraft.version of a log that ends at end_offset."""
        for offset, voters, kraft_version in reversed(self._entries):
            if offset < end_offset:
                return voters, kraft_version
        return self._static, self._static_version

    def _refresh(self) -> None:
        if self._entries:
            self.latest_offset, self.latest, self.kraft_version = self._entries[-1]
        else:
            self.latest_offset, self.latest = NO_OFFSET, self._static
            self.kraft_version = self._static_version
