"""What the quorum core is told (events) and what it asks for (effects). The order of effects is quorum.py's contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.messages import Batch, FetchResponse, FetchSnapshotResponse, Request, Response
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """`wake_ms` has come."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    request_id: int
    """The shell's name for it; exactly one Reply will carry it."""
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    correlation_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer will come: disconnected, or the peer does not know the API (UNSUPPORTED_VERSION)."""

    correlation_id: int
    error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """A peer's connection was closed and a new one refused: its process is gone. A close alone never counts."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Propose:
    """The state machine's records, one atomic batch."""

    proposal_id: int
    epoch: int
    """The epoch its author leads; another one is refused."""
    payload: Any
    record_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The fsync that the last Sync asked for is done. A failed one halts the node instead."""


@dataclass(frozen=True, slots=True)
class SnapshotFrozen:
    """The state machine's snapshot, at or below the high watermark, is durable under its name."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """The shell let the log start at this snapshot's end and dropped older snapshots."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """InstallSnapshot is done: durable, and the log is empty behind it."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    voters: VoterSet | None
    kraft_version: int


@dataclass(frozen=True, slots=True)
class SnapshotBroken:
    """InstallSnapshot found that the bytes are no snapshot: the log stays as it was, the part file is gone."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Resign:
    """Hand leadership on; the node stays."""


@dataclass(frozen=True, slots=True)
class RaiseKraftVersion:
    """Make the static quorum a dynamic one: kraft.version 0 to 1. AppendVoters or RefuseProposal carries the id."""

    proposal_id: int


@dataclass(frozen=True, slots=True)
class VoterProbed:
    """The answer to ProbeVoter: the kraft.version range of a node that asks to be a voter, None when it did not answer."""

    voter: ReplicaKey
    supported: tuple[int, int] | None


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
    | RaiseKraftVersion
    | VoterProbed
)


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Make the election state durable before any later effect is carried out."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendEpochStart:
    """Append the epoch's first control batch: LeaderChange, and with `voters` also KRaftVersion and Voters."""

    base_offset: int
    end_offset: int
    epoch: int
    leader_id: int
    voter_ids: tuple[int, ...]
    granting_ids: tuple[int, ...]
    voters: VoterSet | None
    kraft_version: int


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a control batch with one Voters record, with a KRaftVersion record before it where end_offset leaves room for two."""

    base_offset: int
    end_offset: int
    epoch: int
    voters: VoterSet
    kraft_version: int
    proposal_id: int = -1


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append a proposal as one batch."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: Any
    proposal_id: int


@dataclass(frozen=True, slots=True)
class RefuseProposal:
    """Not appended: this node does not lead that epoch (any more)."""

    proposal_id: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the leader's batches as they came."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log so that it ends at offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Sync:
    """fsync everything appended so far, then say Synced. At most one is under way."""


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write at position of the snapshot's part file; position 0 begins it anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The part file is whole: freeze it, truncate the log fully to it, then say SnapshotInstalled or SnapshotBroken."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Send:
    """A request for a node; every answer or failure comes back with the correlation id."""

    node_id: int
    endpoints: Endpoints
    correlation_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    request_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithRecords:
    """Fill `records` from offset: whole batches up to max_bytes, at least one."""

    request_id: int
    response: FetchResponse
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """Fill `data` with up to max_bytes of the snapshot from the response's position."""

    request_id: int
    response: FetchSnapshotResponse
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below offset is committed: apply it."""

    offset: int


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """Leadership of an epoch begins; the state machine may propose once the high watermark reaches the epoch's start."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Epoch or leader changed. A former leader's uncommitted proposals have an unknown outcome from here on."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class ProbeVoter:
    """Ask a node that wants to vote for its kraft.version range (ApiVersions on its default listener), then say VoterProbed."""

    voter: ReplicaKey
    endpoints: Endpoints


Effect = (
    PersistElection
    | AppendEpochStart
    | AppendVoters
    | AppendRecords
    | RefuseProposal
    | AppendFetched
    | Truncate
    | Sync
    | WriteSnapshotChunk
    | InstallSnapshot
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | AdvanceHighWatermark
    | BecameLeader
    | LeaderChanged
    | ProbeVoter
)
