"""DescribeQuorum (key 55, versions 0-2): the state of the metadata quorum, told by its leader. KIP-595, KIP-836, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.describe_quorum_response import DescribeQuorumResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest


def handle(
    node: AnyNode, context: RequestContext, request: DescribeQuorumRequest
) -> Deferred[DescribeQuorumResponse]:
    return node.controller.describe_quorum(request, context)


HANDLER = Handler(55, 0, 2, handle, top_level_error(DescribeQuorumResponse))
