"""What a node's driver can be asked about the quorum, as of now. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import NO_LEADER
from kafkacompat.raft.membership import kraft_version_refusal
from kafkacompat.raft.quorum_report import QuorumReport, leader_report
from kafkacompat.raft.roles import Role

if TYPE_CHECKING:
    from kafkacompat.ports import Clock
    from kafkacompat.raft.applier import Applier
    from kafkacompat.raft.event_pump import EventPump
    from kafkacompat.raft.quorum import QuorumCore
    from kafkacompat.raft.quorum_files import QuorumFiles
    from kafkacompat.raft.voter_set import Endpoints, VoterSet
    from kafkacompat.wire.errors import ErrorCode


class QuorumView:
    """Base of QuorumDriver."""

    _clock: Clock
    _core: QuorumCore
    _applier: Applier
    _files: QuorumFiles
    _pump: EventPump

    @property
    def is_leader(self) -> bool:
        return self._core.leader is not None and not self._pump.is_closed

    @property
    def next_offset(self) -> int:
        return self._core.log.end

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """-1 when unknown."""
        return NO_LEADER if self._core.role is Role.RESIGNED else self._core.election.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        """() when unknown."""
        return () if self._core.role is Role.RESIGNED else self._core.leader_endpoints

    @property
    def high_watermark(self) -> int:
        """-1 when unknown."""
        return self._core.high_watermark

    @property
    def applied_offset(self) -> int:
        """Everything below has gone to the state machine."""
        return self._applier.applied

    @property
    def is_all_committed(self) -> bool:
        return self._core.high_watermark >= self._core.log.end

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not."""
        return self._core.voters.latest

    @property
    def kraft_version(self) -> int:
        return self._core.voters.kraft_version

    @property
    def kraft_version_refusal(self) -> ErrorCode:
        """Why kraft.version cannot be raised now; NONE when it can."""
        return kraft_version_refusal(self._core)

    @property
    def bytes_since_snapshot(self) -> int:
        return self._files.bytes_since_snapshot

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it; None where this node does not lead or nothing of its epoch is committed yet."""
        return leader_report(self._core, self._clock.now_ms(), self._clock.monotonic_ms())
