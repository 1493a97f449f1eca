"""A member of the metadata quorum at work: the quorum core's effects carried out on log, disk, workers and transport.

Skeleton: signatures are agreed, the bodies follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ports import Clock, Disk, Random, Timers, Workers
from kafkacompat.raft.contracts import MetadataLog, QuorumTransport, StateMachine
from kafkacompat.raft.quorum_report import QuorumReport
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.voter_set import Endpoints, VoterSet
from kafkacompat.raft.voters import Voter


class QuorumDriver:
    """One node's part in the quorum. `start` once; everything in the loop's thread."""

    def __init__(
        self,
        *,
        member: Member,
        settings: QuorumSettings,
        listener_name: str,
        directory: str,
        log: MetadataLog,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        random: Random,
        static_voters: Sequence[Voter],
        transport: QuorumTransport,
        fail: Callable[[BaseException], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`directory` is `<metadata.log.dir>/__cluster_metadata-0`; `listener_name` the default controller listener; `fail`
        halts the node."""

    def start(self, machine: StateMachine) -> None:
        """Load what is on disk, take up the stored role, set the timer. Raises MetadataLogProblem.

        The machine gets the newest snapshot before this returns; batches follow as they are known to be committed.
        """
        raise NotImplementedError

    def handle(self, message: Any, api_version: int) -> Deferred[Any]:
        """Answer Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata topic, Add-, Remove- and
        UpdateRaftVoter, as wire messages, with Kafka's errors."""
        raise NotImplementedError

    def propose(
        self, values: Sequence[bytes], committed: Callable[[], None], lost: Callable[[], None]
    ) -> int:
        """Append framed values as one atomic batch; returns the first offset. Exactly one of the two is called, in order.

        NotLeader when this node does not lead, MetadataLogProblem when they do not fit one batch; OSError passes through and
        nothing has changed.
        """
        raise NotImplementedError

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        """Call once everything appended so far is committed, after the calls that wait already; at once if it is.

        `lost` instead when leadership ends before; at once where this node does not lead.
        """
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    @property
    def next_offset(self) -> int:
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    @property
    def leader_id(self) -> int:
        """-1 when unknown."""
        raise NotImplementedError

    @property
    def leader_endpoints(self) -> Endpoints:
        """() when unknown."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """-1 when unknown."""
        raise NotImplementedError

    @property
    def applied_offset(self) -> int:
        """Everything below has gone to the state machine."""
        raise NotImplementedError

    @property
    def is_all_committed(self) -> bool:
        raise NotImplementedError

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not."""
        raise NotImplementedError

    @property
    def kraft_version(self) -> int:
        raise NotImplementedError

    @property
    def bytes_since_snapshot(self) -> int:
        raise NotImplementedError

    def write_snapshot(self, values: Sequence[bytes], end_offset: int, epoch: int) -> None:
        """A snapshot of everything below end_offset, which is applied and at a batch boundary; older log and snapshots may go.

        Any role. OSError passes through and nothing has changed.
        """
        raise NotImplementedError

    def upgrade_kraft_version(self, done: Callable[[int], None]) -> None:
        """kraft.version 0 to 1. `done` gets an ErrorCode once it is committed or refused (KIP-853)."""
        raise NotImplementedError

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it; None where this node does not lead or nothing of its epoch is committed yet."""
        raise NotImplementedError

    def resign(self) -> None:
        """Hand leadership on, and stay."""
        raise NotImplementedError

    def shut_down(self, timeout_ms: int) -> Deferred[None]:
        """Leave gracefully: a leader resigns and tells every voter. Resolves when they know, or in time. `close` follows."""
        raise NotImplementedError

    def flush_now(self) -> None:
        """Make everything in the log durable before returning (and with it committed, for a sole voter). Blocks on the disk."""
        raise NotImplementedError

    def close(self) -> None:
        """No timer, event or answer any more. The log stays open for its owner."""
        raise NotImplementedError
