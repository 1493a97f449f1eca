"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates, and no others. KIP-518, KIP-848."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest


def list_groups(node: Node, context: RequestContext, request: ListGroupsRequest) -> Steps[Any]:
    """Many are told in steps of the coordinator's, and so the answer is encoded in steps as well."""
    answer = node.groups.list_groups(request, context)
    return answer.result() if answer.done else (yield answer)


HANDLER = Handler(
    function=list_groups,
    error_response=top_level_error(ListGroupsResponse),
)
