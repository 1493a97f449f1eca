"""ListGroups (key 16): the groups that this broker coordinates and that the sender may describe.
KIP-518, KIP-848."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, seen_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.tasks import in_turns
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest


DESCRIBE = AclOperation.DESCRIBE


async def list_groups(node: Node, context: RequestContext, request: ListGroupsRequest) -> Any:
    """The coordinator lists many groups in steps. Such an answer is also encoded in steps."""
    answer = node.groups.list_groups(request, context)
    response: ListGroupsResponse = await answer
    access = access_of(node, context)
    if access is not None and not access.allows(
        DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, logs_denied=False
    ):
        response.groups = await in_turns(
            seen_of(access, ResourceType.GROUP, response.groups, attrgetter("group_id"), logs_denied=False)
        )
    return response


HANDLER = Handler(
    function=list_groups,
    error_response=top_level_error(ListGroupsResponse),
    asks_coordinators=True,
)
