"""Vote (key 52, versions 0-2): a candidate, or one that would be, asks a voter. KIP-595, KIP-853, KIP-996 (pre-vote)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.vote_response import VoteResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.vote_request import VoteRequest


def handle(node: ControllerNode, context: RequestContext, request: VoteRequest) -> Deferred[VoteResponse]:
    return node.quorum.handle(request, context.api_version)


HANDLER = Handler(52, 0, 2, handle, top_level_error(VoteResponse))
