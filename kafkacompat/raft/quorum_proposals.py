"""What a leader proposes: batches that are in the log before the core counts them, and whom to tell what becomes of them.

A full disk refuses a proposal and changes nothing. The core answers each proposal with an effect, which is carried out here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ports import LogRefused, SyncFailed
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.applier import Own
from kafkacompat.raft.contracts import MetadataLogProblem, NotLeader
from kafkacompat.raft.quorum_view import QuorumView
from kafkacompat.raft.roles import QuorumViolation
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.raft.packing import PackedValues


class QuorumProposals(QuorumView):
    """Base of QuorumDriver."""

    def __init__(self) -> None:
        self._proposals: dict[int, Own] = {}
        self._next_proposal_id = 0
        self._refused_error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def propose(self, values: PackedValues, committed: Callable[[], None], lost: Callable[[], None]) -> int:
        """Append framed values as one atomic batch. Returns the first offset. Calls one of the two callbacks, in log order.

        Raises NotLeader, or MetadataLogProblem if the values do not fit one batch. On OSError nothing has changed.
        """
        core = self._core
        if not self.is_leader:
            raise NotLeader(f"node {core.node_id} does not lead the quorum")
        if self._pump.is_held:
            raise OSError(errno.ENOSPC, "the metadata log waits for room")
        first, epoch = core.log.end, core.epoch
        # Append before the core counts the batch, so that a full disk refuses a proposal and does not halt the node.
        try:
            own = self._files.append_proposal(values, first, epoch)
        except Exception as problem:
            refused = isinstance(problem, (OSError, LogRefused, MetadataLogProblem))
            if not refused or isinstance(problem, SyncFailed):
                self._pump.halt(problem)
            raise
        own.committed, own.lost = self._files.timed(committed), lost
        self._pump.enter(events.Propose(self._remember(own), epoch, None, values.count, own.size_bytes))
        return first

    def _remember(self, own: Own) -> int:
        proposal_id = self._next_proposal_id
        self._next_proposal_id += 1
        self._proposals[proposal_id] = own
        return proposal_id

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        """Call it once everything appended so far is committed, after earlier calls; at once if it already is.

        `lost` is called instead if the leadership ends first, and at once if this node does not lead.
        """
        if not self.is_leader:
            lost()
        elif self.is_all_committed and not self._applier.is_waiting:
            call()
        else:
            end = self.next_offset
            self._applier.appended(Own(end, end, self.epoch, committed=call, lost=lost))

    def upgrade_kraft_version(self, done: Callable[[ErrorCode], None]) -> None:
        """Raise kraft.version from 0 to 1. `done` gets NONE once it is committed, otherwise the error (KIP-853)."""
        own = Own(0, 0, self.epoch)
        own.committed = partial(done, ErrorCode.NONE)
        own.lost = lambda: done(self._refused_error)
        self._refused_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._pump.enter(events.RaiseKraftVersion(self._remember(own)))

    # The core's answers.

    def _append_voters(self, each: effect.AppendVoters) -> None:
        own = self._files.append_voters(each)
        waiting = self._proposals.pop(each.proposal_id, None)
        if waiting is not None:
            own.committed, own.lost = waiting.committed, waiting.lost
        self._applier.appended(own)

    def _append_records(self, each: effect.AppendRecords) -> None:
        own = self._proposals.pop(each.proposal_id)
        if own.base_offset != each.base_offset or own.end_offset != each.end_offset:
            raise QuorumViolation(f"a proposal at {own.base_offset} was to be appended at {each.base_offset}")
        self._applier.appended(own)

    def _refuse(self, each: effect.RefuseProposal) -> None:
        waiting = self._proposals.pop(each.proposal_id)
        if waiting.lost is None:
            raise QuorumViolation("a proposal of the leader itself was refused")
        self._refused_error = each.error
        self._pump.later(waiting.lost)
