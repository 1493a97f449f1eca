"""RemoveRaftVoter (key 81, version 0): a voter is one no more. KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest


def handle(
    node: AnyNode, context: RequestContext, request: RemoveRaftVoterRequest
) -> Deferred[RemoveRaftVoterResponse]:
    return node.controller.remove_raft_voter(request, context)


HANDLER = Handler(81, 0, 0, handle, top_level_error(RemoveRaftVoterResponse))
