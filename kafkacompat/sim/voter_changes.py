"""Changes the voters of a simulated cluster's metadata quorum (KIP-853) during the run.

A voter is removed, its node continues as an observer, and is added again. At the end every controller is a voter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import TIMEOUT_MS, Client
from kafkacompat.sim.links import CLUSTER_ID, Links
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from kafkacompat.raft.voter_node import VoterNode

FIRST_CHANGE_MS = 1_500
PAUSE_MS = 1_500
AGAIN_MS = 300


class VoterChanges(Client):
    def __init__(self, links: Links, client_id: int, voters: Sequence[VoterNode]) -> None:
        super().__init__(links, client_id)
        self._voters = voters

    def start(self) -> None:
        self.call_after(FIRST_CHANGE_MS, self._remove_one)

    def _pause(self, call: Callable[[], None]) -> None:
        self.call_after(1 + self.chance.randrange(PAUSE_MS), call)

    def _remove_one(self) -> None:
        voters = self._voters
        self._remove(voters[self.chance.randrange(len(voters))])

    def _remove(self, voter: VoterNode) -> None:
        if self.env.is_over_for_producers:
            self._take_in(voter)
            return
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=voter.id, voter_directory_id=voter.directory_id
        )
        self._ask(
            request,
            ErrorCode.VOTER_NOT_FOUND,
            lambda: self._pause(lambda: self._take_in(voter)),
            lambda: self._remove(voter),
        )

    def _take_in(self, voter: VoterNode) -> None:
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=TIMEOUT_MS,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        )
        self._ask(
            request, ErrorCode.DUPLICATE_VOTER, lambda: self._go_on(voter), lambda: self._take_in(voter)
        )

    def _go_on(self, voter: VoterNode) -> None:
        """A late removal may have removed another voter. So at the end each voter is added once more."""
        if not self.env.is_over_for_producers:
            self._pause(self._remove_one)
            return
        voters = self._voters
        following = voters[(voters.index(voter) + 1) % len(voters)]
        self.call_after(AGAIN_MS, lambda: self._take_in(following))

    def _ask(
        self, request: Any, is_so_already: ErrorCode, then: Callable[[], None], again: Callable[[], None]
    ) -> None:
        def answered(done: Deferred[Any]) -> None:
            try:
                error = done.result().error_code
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in (ErrorCode.NONE, is_so_already):
                self.env.counters.voter_changes += error == ErrorCode.NONE
                then()
            else:
                self.later(again, AGAIN_MS)

        self.ask(self.any_broker(), request, "voters").on_done(answered)
