"""The outputs of the quorum core. The order of effects is quorum.py's contract."""

from __future__ import annotations

from typing import Any

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.messages import Batch, FetchResponse, FetchSnapshotResponse, Request, Response
from kafkacompat.raft.step import Step
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode


class PersistElection(Step):
    """Make the election state durable before any later effect is carried out."""

    __slots__ = ("state",)

    def __init__(self, state: ElectionState) -> None:
        self.state = state


class AppendEpochStart(Step):
    """Append the epoch's first control batch: LeaderChange and, with `voters`, also KRaftVersion and Voters."""

    __slots__ = (
        "base_offset",
        "end_offset",
        "epoch",
        "granting_ids",
        "kraft_version",
        "leader_id",
        "voter_ids",
        "voters",
    )

    def __init__(
        self,
        base_offset: int,
        end_offset: int,
        epoch: int,
        leader_id: int,
        voter_ids: tuple[int, ...],
        granting_ids: tuple[int, ...],
        voters: VoterSet | None,
        kraft_version: int,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.epoch = epoch
        self.leader_id = leader_id
        self.voter_ids = voter_ids
        self.granting_ids = granting_ids
        self.voters = voters
        self.kraft_version = kraft_version


class AppendVoters(Step):
    """Append a control batch with one Voters record. If end_offset leaves room for two, a KRaftVersion record comes
    first."""

    __slots__ = ("base_offset", "end_offset", "epoch", "kraft_version", "proposal_id", "voters")

    def __init__(
        self,
        base_offset: int,
        end_offset: int,
        epoch: int,
        voters: VoterSet,
        kraft_version: int,
        proposal_id: int = -1,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.epoch = epoch
        self.voters = voters
        self.kraft_version = kraft_version
        self.proposal_id = proposal_id


class AppendRecords(Step):
    """Append a proposal as one batch."""

    __slots__ = ("base_offset", "end_offset", "epoch", "payload", "proposal_id")

    def __init__(self, base_offset: int, end_offset: int, epoch: int, payload: Any, proposal_id: int) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.epoch = epoch
        self.payload = payload
        self.proposal_id = proposal_id


class RefuseProposal(Step):
    """The proposal was not appended: this node does not, or no longer, lead that epoch."""

    __slots__ = ("error", "proposal_id")

    def __init__(self, proposal_id: int, error: ErrorCode) -> None:
        self.proposal_id = proposal_id
        self.error = error


class AppendFetched(Step):
    """Append the leader's batches unchanged."""

    __slots__ = ("batches",)

    def __init__(self, batches: tuple[Batch, ...]) -> None:
        self.batches = batches


class Truncate(Step):
    """Cut the log so that it ends at offset."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class Sync(Step):
    """Fsync everything appended so far, then enter Synced. At most one sync is in progress."""

    __slots__ = ()


class WriteSnapshotChunk(Step):
    """Write at `position` of the snapshot's part file. Position 0 starts a new file."""

    __slots__ = ("data", "position", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        self.snapshot_id = snapshot_id
        self.position = position
        self.data = data


class InstallSnapshot(Step):
    """The part file is complete: freeze it, replace the whole log by it, then enter SnapshotInstalled or
    SnapshotBroken."""

    __slots__ = ("size_bytes", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch, size_bytes: int) -> None:
        self.snapshot_id = snapshot_id
        self.size_bytes = size_bytes


class Send(Step):
    """A request for a node. Every answer or failure returns with the correlation id."""

    __slots__ = ("correlation_id", "endpoints", "node_id", "request")

    def __init__(self, node_id: int, endpoints: Endpoints, correlation_id: int, request: Request) -> None:
        self.node_id = node_id
        self.endpoints = endpoints
        self.correlation_id = correlation_id
        self.request = request


class Reply(Step):
    __slots__ = ("request_id", "response")

    def __init__(self, request_id: int, response: Response) -> None:
        self.request_id = request_id
        self.response = response


class ReplyWithRecords(Step):
    """Fill `records` from offset: whole batches up to max_bytes, at least one."""

    __slots__ = ("max_bytes", "offset", "request_id", "response")

    def __init__(self, request_id: int, response: FetchResponse, offset: int, max_bytes: int) -> None:
        self.request_id = request_id
        self.response = response
        self.offset = offset
        self.max_bytes = max_bytes


class ReplyWithSnapshot(Step):
    """Fill `data` with up to max_bytes of the snapshot from the response's position."""

    __slots__ = ("max_bytes", "request_id", "response")

    def __init__(self, request_id: int, response: FetchSnapshotResponse, max_bytes: int) -> None:
        self.request_id = request_id
        self.response = response
        self.max_bytes = max_bytes


class AdvanceHighWatermark(Step):
    """Everything below offset is committed: apply it. `is_first`: a leader has told it for the first time."""

    __slots__ = ("is_first", "offset")

    def __init__(self, offset: int, *, is_first: bool = False) -> None:
        self.offset = offset
        self.is_first = is_first


class BecameLeader(Step):
    """Leadership of an epoch begins. The state machine may propose once the high watermark reaches the start of the
    epoch."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class LeaderChanged(Step):
    """The epoch or the leader has changed. From here on the outcome of a former leader's uncommitted proposals is
    unknown."""

    __slots__ = ("epoch", "leader_id")

    def __init__(self, epoch: int, leader_id: int) -> None:
        self.epoch = epoch
        self.leader_id = leader_id


class ProbeVoter(Step):
    """Ask a node that wants to be a voter for its kraft.version range (ApiVersions on its default listener), then
    enter VoterProbed."""

    __slots__ = ("endpoints", "voter")

    def __init__(self, voter: ReplicaKey, endpoints: Endpoints) -> None:
        self.voter = voter
        self.endpoints = endpoints


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
