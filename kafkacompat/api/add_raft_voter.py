"""AddRaftVoter (key 80, versions 0-1): a follower of the metadata log becomes a voter. KIP-853, KIP-1186."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.add_raft_voter_response import AddRaftVoterResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest


def handle(
    node: AnyNode, context: RequestContext, request: AddRaftVoterRequest
) -> Deferred[AddRaftVoterResponse]:
    return node.controller.add_raft_voter(request, context)


HANDLER = Handler(80, 0, 1, handle, top_level_error(AddRaftVoterResponse))
