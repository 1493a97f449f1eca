"""A leader's view of its quorum at one moment, as a value for DescribeQuorum.

Pure. It is separate from describe.py so that making a report does not load wire messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_OFFSET, Uuid
from kafkacompat.raft.voter_set import Endpoints

if TYPE_CHECKING:
    from kafkacompat.raft.leader_state import ReplicaState
    from kafkacompat.raft.quorum import QuorumCore


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica as its leader sees it. -1 means unknown. Times are wall time in ms."""

    id: int
    directory_id: Uuid
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    listeners: Endpoints = ()
    """For voters only."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """The report of a leader with a known high watermark."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaReport, ...]
    observers: tuple[ReplicaReport, ...] = ()


def leader_report(core: QuorumCore, now_ms: int, monotonic_ms: int) -> QuorumReport | None:
    """None if the core does not lead, or nothing of its epoch is committed yet."""
    leader = core.leader
    if leader is None or leader.high_watermark == NO_OFFSET:
        return None

    def wall(instant_ms: int) -> int:
        """Convert the core's monotonic time to wall time."""
        return -1 if instant_ms < 0 else now_ms - (monotonic_ms - instant_ms)

    def replica(
        node_id: int, directory_id: Uuid, known: ReplicaState | None, listeners: Endpoints
    ) -> ReplicaReport:
        if node_id == core.node_id:
            return ReplicaReport(node_id, directory_id, core.log.end, now_ms, now_ms, listeners)
        if known is None:
            return ReplicaReport(node_id, directory_id, listeners=listeners)
        return ReplicaReport(
            node_id,
            directory_id,
            known.end_offset,
            wall(known.last_fetch_ms),
            wall(known.last_caught_up_ms),
            listeners,
        )

    voters = tuple(
        replica(each.id, each.directory_id, leader.voters.get(each.id), each.listeners)
        for each in core.voters.latest.voters
    )
    observers = [
        replica(key.id, key.directory_id, each, ())
        for key, each in leader.observer_states(monotonic_ms).items()
    ]
    if not core.is_voter:
        # A leader that was removed is an observer until the removal is committed.
        observers.append(replica(core.node_id, core.member.directory_id, None, ()))
    return QuorumReport(core.node_id, core.epoch, leader.high_watermark, voters, tuple(observers))
