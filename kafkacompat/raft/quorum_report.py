"""What a leader knows of its quorum at one instant: a value for whoever describes it.

Pure. Apart from describe.py so that who only makes a report needs no wire message.
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
    """One replica as its leader sees it; -1 for what is not known. Times are wall time in ms."""

    id: int
    directory_id: Uuid
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    listeners: Endpoints = ()
    """Of voters only."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """A leader whose high watermark is known."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaReport, ...]
    observers: tuple[ReplicaReport, ...] = ()


def leader_report(core: QuorumCore, now_ms: int, monotonic_ms: int) -> QuorumReport | None:
    """None where the core does not lead, or nothing of its epoch is committed yet."""
    leader = core.leader
    if leader is None or leader.high_watermark == NO_OFFSET:
        return None

    def wall(instant_ms: int) -> int:
        """The core's clock is the monotonic one."""
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
        # A leader that was removed, until its removal is committed.
        observers.append(replica(core.node_id, core.member.directory_id, None, ()))
    return QuorumReport(core.node_id, core.epoch, leader.high_watermark, voters, tuple(observers))
