"""JoinGroup (key 11): only converts the shapes. The group coordinator decides what a join means.

KIP-62, KIP-345, KIP-394, KIP-559.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, describable
from kafkacompat.api.handler import Handler
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7


def join_group(node: Node, context: RequestContext, request: JoinGroupRequest) -> Deferred[Any]:
    version = context.api_version
    if version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    may_describe = describable(access_of(node, context))
    return node.groups.join_group(request, context, may_describe).then(
        lambda response: _shaped(response, version)
    )


def _shaped(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if not response.protocol_name:
        response.protocol_name = None if version >= FIRST_VERSION_WITH_NULL_PROTOCOL_NAME else ""
    return response


def _error_response(request: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    # Kafka's error response has no member id either.
    return _shaped(JoinGroupResponse(error_code=code, protocol_name=None), version)


HANDLER = Handler(
    function=join_group,
    error_response=_error_response,
    waits_at_will=True,
    asks_coordinators=True,
)
