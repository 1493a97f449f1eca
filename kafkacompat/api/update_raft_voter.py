"""UpdateRaftVoter (key 82, version 0): a voter says where it listens and which levels of kraft.version it knows. KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest


def handle(
    node: ControllerNode, context: RequestContext, request: UpdateRaftVoterRequest
) -> Deferred[UpdateRaftVoterResponse]:
    return node.quorum.handle(request, context.api_version)


HANDLER = Handler(82, 0, 0, handle, top_level_error(UpdateRaftVoterResponse))
