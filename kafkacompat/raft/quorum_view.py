"""The driver's present view of the quorum. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import NO_LEADER, NO_OFFSET
from kafkacompat.raft.membership import kraft_version_refusal
from kafkacompat.raft.quorum_report import QuorumReport, leader_report
from kafkacompat.raft.roles import Role

if TYPE_CHECKING:
    from kafkacompat.meters import RecentTimes
    from kafkacompat.ports import Clock
    from kafkacompat.quota.counted import Counted
    from kafkacompat.raft.applier import Applier
    from kafkacompat.raft.event_pump import EventPump
    from kafkacompat.raft.quorum import QuorumCore
    from kafkacompat.raft.quorum_files import QuorumFiles
    from kafkacompat.raft.voter_set import Endpoints, VoterSet
    from kafkacompat.wire.errors import ErrorCode


class QuorumView:
    """Base of QuorumProposals and QuorumDriver."""

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
        """-1 if unknown."""
        return NO_LEADER if self._core.role is Role.RESIGNED else self._core.election.leader_id

    @property
    def state_name(self) -> str:
        """The role's name in Kafka's metric current-state. The JMX exporter drops everything after a hyphen."""
        core = self._core
        if core.role is Role.FOLLOWER and not core.is_voter:
            return "observer"
        return "unattached" if core.role is Role.RESIGNED else core.role.value

    @property
    def voted_id(self) -> int:
        """The candidate this member voted for in the epoch. -1: none. A leader and a candidate vote for themselves."""
        core = self._core
        return core.node_id if core.role in (Role.LEADER, Role.CANDIDATE) else core.election.voted_id

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch in the log."""
        return self._core.log.last_epoch

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the last applied batch."""
        return self._applier.last_timestamp_ms

    @property
    def observer_count(self) -> int | None:
        """None if this node does not lead."""
        leader = self._core.leader
        return None if leader is None else len(leader.observer_states(self._clock.monotonic_ms()))

    @property
    def leader_endpoints(self) -> Endpoints:
        """() if unknown."""
        return () if self._core.role is Role.RESIGNED else self._core.leader_endpoints

    @property
    def high_watermark(self) -> int:
        """-1 if unknown."""
        return self._core.high_watermark

    @property
    def has_caught_up(self) -> bool:
        """Whether everything is applied that a leader has called committed when this node first heard of it. Older
        images come from this node's own disk, and others may know better."""
        return NO_OFFSET < self._core.first_high_watermark <= self._applier.applied

    @property
    def applied_offset(self) -> int:
        """Everything below was passed to the state machine."""
        return self._applier.applied

    @property
    def is_all_committed(self) -> bool:
        return self._core.high_watermark >= self._core.log.end

    @property
    def is_held(self) -> bool:
        """Whether a step waits until its effects can be carried out, for example written."""
        return self._pump.is_held

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not."""
        return self._core.voters.latest

    @property
    def kraft_version(self) -> int:
        return self._core.voters.kraft_version

    @property
    def kraft_version_refusal(self) -> ErrorCode:
        """The error that prevents raising kraft.version now. NONE if it can be raised."""
        return kraft_version_refusal(self._core)

    @property
    def bytes_since_snapshot(self) -> int:
        return self._files.bytes_since_snapshot

    @property
    def ms_since_snapshot(self) -> int:
        """Since this node has written one. Before that, since its start, and longer for what the start had to read."""
        return self._files.ms_since_snapshot

    @property
    def commit_times(self) -> RecentTimes:
        """From the append of a proposal until it is committed."""
        return self._files.commit_times

    @property
    def election_times(self) -> RecentTimes:
        """From when this node stood for election, the last time, until there was a leader."""
        return self._core.election_times

    @property
    def is_changing_voters(self) -> bool | None:
        """Whether a voter is being added or removed. None if this node does not lead."""
        leader = self._core.leader
        return None if leader is None else leader.change is not None

    @property
    def appended(self) -> Counted:
        """Records that this node has appended as the leader."""
        return self._files.appended

    @property
    def fetched(self) -> Counted:
        """Records that it has taken from a leader."""
        return self._files.fetched

    def snapshot_written_last(self) -> tuple[int, int]:
        """Size and age in ms of the last snapshot that this node has written since its start."""
        return self._files.snapshot_written_last()

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it. None if this node does not lead, or nothing of its epoch is committed yet."""
        return leader_report(self._core, self._clock.now_ms(), self._clock.monotonic_ms())
