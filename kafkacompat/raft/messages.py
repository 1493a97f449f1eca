"""The messages between voters and observers, independent of protocol versions.

Each class is one message: Vote v2, BeginQuorumEpoch v1, EndQuorumEpoch v1, Fetch v18 and FetchSnapshot v1 of the
metadata partition, AddRaftVoter v1, RemoveRaftVoter v0, UpdateRaftVoter v0. The codec handles topic names, session
fields and tags. Offsets are absolute, ends exclusive; -1 and () mean none. A message does not change once sent, except
that a shell fills in `records` and `data` of a response.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_LEADER, NO_OFFSET, OffsetAndEpoch
from kafkacompat.raft.log_shape import BOOTSTRAP_SNAPSHOT
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode

NO_HIGH_WATERMARK_HINT = (1 << 63) - 1
"""For Fetch below version 18: do not answer early because of the high watermark."""


@dataclass(slots=True)
class Batch:
    """One atomic batch of the log. `payload` belongs to the shell; the core uses only the rest."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: Any
    size_bytes: int
    voters: VoterSet | None = None
    """Set, together with `kraft_version`, if a control record in the batch has the voters."""
    kraft_version: int = 0


@dataclass(slots=True)
class VoteRequest:
    candidate: ReplicaKey
    voter: ReplicaKey | None
    """The voter that the request is for. None if the request does not name one."""
    epoch: int
    last_epoch: int
    last_offset: int
    """The candidate's log end offset."""
    pre_vote: bool
    cluster_id: str | None = None


@dataclass(slots=True)
class VoteResponse:
    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool
    leader_endpoints: Endpoints = ()
    top_level_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    leader_endpoints: Endpoints
    cluster_id: str | None = None


@dataclass(slots=True)
class EndQuorumEpochRequest:
    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: Endpoints
    cluster_id: str | None = None


@dataclass(slots=True)
class QuorumEpochResponse:
    """Answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints = ()
    top_level_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class FetchRequest:
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int
    high_watermark: int = NO_HIGH_WATERMARK_HINT
    cluster_id: str | None = None


@dataclass(slots=True)
class FetchResponse:
    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints = ()
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: tuple[Batch, ...] = ()
    top_level_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class FetchSnapshotRequest:
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int
    cluster_id: str | None = None


@dataclass(slots=True)
class FetchSnapshotResponse:
    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints = ()
    snapshot_id: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""
    top_level_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class AddRaftVoterRequest:
    voter: VoterNode
    timeout_ms: int
    ack_when_committed: bool = True
    cluster_id: str | None = None


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    voter: ReplicaKey
    cluster_id: str | None = None


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    epoch: int
    voter: VoterNode
    cluster_id: str | None = None


@dataclass(slots=True)
class RaftVoterResponse:
    """Answer to the three changes of the voter set. The leader fields are for UpdateRaftVoter."""

    error: ErrorCode
    message: str | None = None
    epoch: int = -1
    leader_id: int = NO_LEADER
    leader_endpoints: Endpoints = ()


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
)
Response = VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | RaftVoterResponse
