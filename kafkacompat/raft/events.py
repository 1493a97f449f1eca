"""The inputs of the quorum core: time, messages, the results of its effects, and requests of this node."""

from __future__ import annotations

from typing import Any

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.messages import Request, Response
from kafkacompat.raft.step import Step
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode


class Tick(Step):
    """The time `wake_ms` has been reached."""

    __slots__ = ()


class RequestReceived(Step):
    __slots__ = ("request", "request_id")

    def __init__(self, request_id: int, request: Request) -> None:
        self.request_id = request_id
        """Chosen by the shell. Exactly one Reply has it."""
        self.request = request


class ResponseReceived(Step):
    __slots__ = ("correlation_id", "response")

    def __init__(self, correlation_id: int, response: Response) -> None:
        self.correlation_id = correlation_id
        self.response = response


class RequestFailed(Step):
    """No answer will come: the connection is lost, or the peer does not support the API (UNSUPPORTED_VERSION)."""

    __slots__ = ("correlation_id", "error")

    def __init__(self, correlation_id: int, error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE) -> None:
        self.correlation_id = correlation_id
        self.error = error


class PeerRefused(Step):
    """A peer's connection was closed and a new one was refused: its process has ended. A close alone never counts."""

    __slots__ = ("node_id",)

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Propose(Step):
    """Records of the state machine, in one atomic batch."""

    __slots__ = ("epoch", "payload", "proposal_id", "record_count", "size_bytes")

    def __init__(
        self, proposal_id: int, epoch: int, payload: Any, record_count: int, size_bytes: int
    ) -> None:
        self.proposal_id = proposal_id
        self.epoch = epoch
        """The epoch that the proposer leads. A proposal for another epoch is refused."""
        self.payload = payload
        self.record_count = record_count
        self.size_bytes = size_bytes


class Synced(Step):
    """The fsync of the last Sync is done. A failed one halts the node instead."""

    __slots__ = ()


class SnapshotFrozen(Step):
    """The state machine's snapshot, at or below the high watermark, is durable under its name."""

    __slots__ = ("size_bytes", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch, size_bytes: int) -> None:
        self.snapshot_id = snapshot_id
        self.size_bytes = size_bytes


class LogTrimmed(Step):
    """The shell has moved the log's start to this snapshot's end and deleted older snapshots."""

    __slots__ = ("snapshot_id",)

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id


class SnapshotInstalled(Step):
    """InstallSnapshot is done: the snapshot is durable, and the log after it is empty."""

    __slots__ = ("kraft_version", "size_bytes", "snapshot_id", "voters")

    def __init__(
        self, snapshot_id: OffsetAndEpoch, size_bytes: int, voters: VoterSet | None, kraft_version: int
    ) -> None:
        self.snapshot_id = snapshot_id
        self.size_bytes = size_bytes
        self.voters = voters
        self.kraft_version = kraft_version


class SnapshotBroken(Step):
    """InstallSnapshot found that the bytes are not a snapshot. The log is unchanged, the part file is deleted."""

    __slots__ = ("snapshot_id",)

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id


class Resign(Step):
    """Give up the leadership; the node stays. `until_room`: it stands for no election before RoomFound."""

    __slots__ = ("until_room",)

    def __init__(self, until_room: bool = False) -> None:
        self.until_room = until_room


class RoomFound(Step):
    """The disk accepts records again."""

    __slots__ = ()


class RaiseKraftVersion(Step):
    """Change the static quorum to a dynamic one: kraft.version 0 to 1. AppendVoters or RefuseProposal has the id."""

    __slots__ = ("proposal_id",)

    def __init__(self, proposal_id: int) -> None:
        self.proposal_id = proposal_id


class VoterProbed(Step):
    """The result of ProbeVoter: the kraft.version range of a node that asks to be a voter. None if it did not answer."""

    __slots__ = ("supported", "voter")

    def __init__(self, voter: ReplicaKey, supported: tuple[int, int] | None) -> None:
        self.voter = voter
        self.supported = supported


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | PeerRefused
    | Propose
    | Synced
    | SnapshotFrozen
    | LogTrimmed
    | SnapshotInstalled
    | SnapshotBroken
    | Resign
    | RoomFound
    | RaiseKraftVersion
    | VoterProbed
)
