"""Checks a simulated quorum after every event. Each method is called at the moment that it checks, and raises Breach.

The oracles know all nodes at once and everything that was ever committed. They share no code with the rules that they
check.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Mapping
from typing import Protocol

from kafkacompat.ids import NO_LEADER, OffsetAndEpoch
from kafkacompat.raft import effects as effect
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.messages import (
    Batch,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_state import Member
from kafkacompat.raft.roles import Role
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.counters import QuorumCounters
from kafkacompat.sim.quorum_disk import QuorumDisk, Snapshot
from kafkacompat.wire.errors import ErrorCode


class ObservedNode(Protocol):
    """What the oracles look at in a node."""

    id: int
    member: Member
    disk: QuorumDisk
    core: QuorumCore | None
    applied: int
    """Set by `commits`."""


class QuorumOracles:
    def __init__(self, nodes: Mapping[int, ObservedNode], counters: QuorumCounters) -> None:
        self._nodes = nodes
        self._counters = counters
        self._leaders: dict[int, int] = {}
        """Epoch -> its leader."""
        self._votes: dict[tuple[int, int], int] = {}
        """(voter, epoch) -> candidate."""
        self._epochs: dict[int, int] = {}
        """Node -> highest epoch, over all its lives."""
        self._started_epochs = {0}
        """Epochs with a candidate, or that were started without a leader on purpose."""
        self._high_watermarks: dict[int, int] = {}
        """Node -> high watermark in its current life."""
        self._appended: dict[tuple[int, int], Batch] = {}
        """(epoch, base offset) -> the batch that a leader appended there."""
        self.committed: list[Batch] = []
        self._commit_epochs: list[int] = []
        """The epoch in which each batch was committed."""
        self._committed_index: dict[int, int] = {}
        self._chain: dict[int, int] = {0: 0}
        """End offset -> checksum of everything committed below it."""
        self.committed_end = 0
        self._snapshots: dict[OffsetAndEpoch, Snapshot] = {}

    # Elections.

    def leads(self, node: ObservedNode, epoch: int) -> None:
        self._one_leader(epoch, node.id)
        self._counters.elections += 1
        disk = node.disk
        if self.committed_end <= disk.start:
            return
        first = self._committed_index.get(disk.start, 0 if disk.start == 0 else None)
        if first is None:
            raise Breach("snapshots", f"node {node.id}'s log starts at {disk.start}, inside a batch")
        # A candidate of an older epoch may still win that epoch late. It needs only what was committed before that
        # epoch.
        needed = bisect_left(self._commit_epochs, epoch)
        expected = self.committed[first:needed]
        if disk.batches[: len(expected)] != expected:
            raise Breach(
                "leader completeness",
                f"node {node.id} leads epoch {epoch} without all that was committed before",
            )

    def names_leader(self, node: ObservedNode, epoch: int, leader_id: int) -> None:
        if leader_id != NO_LEADER:
            self._one_leader(epoch, leader_id)

    def _one_leader(self, epoch: int, leader_id: int) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise Breach("one leader an epoch", f"epoch {epoch} has leaders {known} and {leader_id}")

    def persists(self, node: ObservedNode, state: ElectionState) -> None:
        stored = node.disk.election
        if stored is not None and state.leader_epoch < stored.leader_epoch:
            raise Breach(
                "epochs never retreat",
                f"node {node.id} stores epoch {state.leader_epoch} after {stored.leader_epoch}",
            )
        epoch = state.leader_epoch
        if epoch not in self._started_epochs:
            left = stored is not None and (stored.leader_id, stored.leader_epoch + 1) == (node.id, epoch)
            if state.voted_id != node.id and not left:
                raise Breach(
                    "epochs begin with a candidate",
                    f"node {node.id} moves to {epoch}, for which nobody stood",
                )
            self._started_epochs.add(epoch)

    def _is_stored(self, node: ObservedNode, epoch: int) -> None:
        stored = node.disk.election
        if (stored.leader_epoch if stored is not None else 0) != epoch:
            raise Breach(
                "durable before visible", f"node {node.id} speaks of epoch {epoch}, stored: {stored}"
            )

    def _votes_for(self, node: ObservedNode, epoch: int, candidate: int) -> None:
        stored = node.disk.election
        if stored is None or (stored.leader_epoch, stored.voted_id) != (epoch, candidate):
            raise Breach(
                "votes on disk before replies",
                f"node {node.id} votes for {candidate} in epoch {epoch}, stored: {stored}",
            )
        known = self._votes.setdefault((node.id, epoch), candidate)
        if known != candidate:
            raise Breach(
                "one vote an epoch", f"node {node.id} votes for {known} and {candidate} in epoch {epoch}"
            )

    # Messages.

    def sends(self, node: ObservedNode, sent: effect.Send) -> None:
        request = sent.request
        kind = type(request)
        if kind is FetchRequest:
            self._is_stored(node, request.epoch)  # type: ignore[union-attr]
            disk = node.disk
            if node.member.can_vote and request.fetch_offset > disk.durable_end:  # type: ignore[union-attr]
                raise Breach(
                    "synced before acknowledged",
                    f"node {node.id} fetches at {request.fetch_offset}, durable is {disk.durable_end}",  # type: ignore[union-attr]
                )
        elif kind is VoteRequest:
            self._is_stored(node, request.epoch)  # type: ignore[union-attr]
            if not request.pre_vote:  # type: ignore[union-attr]
                self._votes_for(node, request.epoch, node.id)  # type: ignore[union-attr]

    def replies(self, node: ObservedNode, request: Request, response: Response) -> None:
        kind = type(response)
        if kind is FetchResponse:
            if response.error is ErrorCode.NONE:
                epoch = response.epoch
                if self._leaders.get(epoch) != node.id or request.epoch != epoch:  # type: ignore[union-attr]
                    raise Breach(
                        "only the leader answers",
                        f"node {node.id} answers a fetch of epoch {request.epoch} in {epoch}",  # type: ignore[union-attr]
                    )
                self._is_stored(node, epoch)
        elif kind is VoteResponse:
            self._is_stored(node, response.epoch)
            if response.granted and not request.pre_vote:  # type: ignore[union-attr]
                self._votes_for(node, request.epoch, request.candidate.id)  # type: ignore[union-attr]

    # The log.

    def leader_appends(self, node: ObservedNode, batch: Batch) -> None:
        self._is_stored(node, batch.epoch)
        if self._leaders.get(batch.epoch) != node.id:
            raise Breach("only the leader appends", f"node {node.id} writes in epoch {batch.epoch}")
        known = self._appended.setdefault((batch.epoch, batch.base_offset), batch)
        if known is not batch:
            raise Breach(
                "log matching",
                f"epoch {batch.epoch} has two batches at {batch.base_offset}: {known.payload} and {batch.payload}",
            )

    def truncates(self, node: ObservedNode, offset: int) -> None:
        if offset < node.applied:
            raise Breach(
                "nothing committed disappears", f"node {node.id} cuts at {offset}, applied is {node.applied}"
            )

    def commits(self, node: ObservedNode, offset: int) -> None:
        """Check that the node applies the same batches as all others, and that newly committed ones are on a majority's disks."""
        disk = node.disk
        core = node.core
        if core is None or offset > disk.end:
            raise Breach("high watermark", f"node {node.id} commits to {offset}, its log ends at {disk.end}")
        leads = core.leader is not None
        counters = self._counters
        index = disk.index_of(node.applied)
        reached = node.applied
        while reached < offset:
            batch = disk.batches[index]
            if batch.base_offset != reached:
                raise Breach("high watermark", f"node {node.id} commits to {reached}, inside a batch")
            reached = batch.end_offset
            index += 1
            known = self._committed_index.get(batch.base_offset)
            if known is not None:
                if self.committed[known] is not batch:
                    raise Breach(
                        "committed prefixes agree",
                        f"node {node.id} commits {batch.payload} of epoch {batch.epoch} at {batch.base_offset}, "
                        f"another {self.committed[known].payload} of {self.committed[known].epoch}",
                    )
            else:
                self._commit_new(node, batch)
            if leads and batch.epoch == core.epoch and type(batch.payload) is int:
                counters.acknowledged += 1
        if reached != offset:
            raise Breach("high watermark", f"node {node.id} commits to {offset}, inside a batch")
        if leads:
            self._on_majority(core, disk.batches[index - 1])
        node.applied = offset

    def _commit_new(self, node: ObservedNode, batch: Batch) -> None:
        if batch.base_offset != self.committed_end:
            raise Breach(
                "committed prefixes agree",
                f"node {node.id} commits {batch.payload} at {batch.base_offset}, inside what others committed",
            )
        self._committed_index[batch.base_offset] = len(self.committed)
        self.committed.append(batch)
        assert node.core is not None
        self._commit_epochs.append(
            max(node.core.epoch, self._commit_epochs[-1] if self._commit_epochs else 0)
        )
        before = self._chain[self.committed_end]
        self.committed_end = batch.end_offset
        self._chain[batch.end_offset] = zlib.crc32(repr((batch.epoch, batch.payload)).encode(), before)

    def _on_majority(self, core: QuorumCore, batch: Batch) -> None:
        voters = core.voters.latest
        nodes = self._nodes
        holders = [voter for voter in voters.ids if nodes[voter].disk.holds(batch)]
        if len(holders) * 2 <= len(voters):
            raise Breach(
                "durable on a majority",
                f"{batch.payload} at {batch.base_offset} is committed, but only {holders} of {voters} hold it",
            )

    # Snapshots: the state machine's state is the checksum of everything it has applied.

    def snapshot_of(self, node: ObservedNode, core: QuorumCore) -> tuple[OffsetAndEpoch, Snapshot]:
        end = node.applied
        snapshot_id = OffsetAndEpoch(end, core.log.epoch_before(end))
        voters, kraft_version = core.voters.at(end)
        head = b"%d %d " % (end, self._chain[end])
        padding = 80 + end * 37 % 4000
        snapshot = Snapshot(head.ljust(padding, b"."), voters if kraft_version else None, kraft_version)
        known = self._snapshots.setdefault(snapshot_id, snapshot)
        if known.data != snapshot.data or known.voters != snapshot.voters:
            raise Breach("snapshots", f"two snapshots at {snapshot_id} differ")
        return snapshot_id, snapshot

    def read_snapshot(self, node: ObservedNode, snapshot_id: OffsetAndEpoch, data: bytes) -> Snapshot:
        known = self._snapshots.get(snapshot_id)
        if known is None or known.data != data:
            raise Breach("snapshots", f"node {node.id} fetched a snapshot {snapshot_id} that nobody made")
        return known

    # After every event.

    def started(self, node: ObservedNode, core: QuorumCore) -> None:
        self._high_watermarks[node.id] = core.high_watermark

    def stepped(self, node: ObservedNode, core: QuorumCore) -> None:
        node_id = node.id
        epoch = core.election.leader_epoch
        highest = self._epochs.get(node_id, 0)
        if epoch != highest:
            self._epoch_moved(node, core, highest)
        if core.high_watermark < self._high_watermarks[node_id]:
            raise Breach(
                "high watermarks never retreat",
                f"node {node_id}: {self._high_watermarks[node_id]}, then {core.high_watermark}",
            )
        self._high_watermarks[node_id] = core.high_watermark
        disk = node.disk
        stored = disk.election
        if stored is not core.election and stored != core.election and (stored or epoch):
            raise Breach("durable before visible", f"node {node_id} is in {core.election}, stored: {stored}")
        log = core.log
        if log.end != disk.end or log.start != disk.start or log.last_epoch != disk.last_epoch:
            raise Breach("log shape", f"node {node_id}'s core believes in a log of {log.start}..{log.end}")
        if log.durable_end > disk.durable_end:
            raise Breach("log shape", f"node {node_id}'s core believes {log.durable_end} durable")
        if core.high_watermark > max(node.applied, 0):
            raise Breach("high watermark", f"node {node_id} reached {core.high_watermark} without saying so")
        if core.role is Role.LEADER and self._leaders.get(epoch) != node_id:
            raise Breach(
                "one leader an epoch", f"node {node_id} leads {epoch} besides {self._leaders[epoch]}"
            )

    def _epoch_moved(self, node: ObservedNode, core: QuorumCore, highest: int) -> None:
        epoch = core.election.leader_epoch
        if epoch < highest:
            raise Breach("epochs never retreat", f"node {node.id} was in {highest}, is in {epoch}")
        self._epochs[node.id] = epoch
