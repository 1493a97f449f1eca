"""What ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe have in common: what the sender may see of the
groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of, group_operations
from kafkacompat.api.handler import Slices
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred

SLICES = Slices("group_ids", "groups", 20, lambda _: object())
"""Kafka answers a group as often as it is named."""


def as_sender_sees(
    node: Node,
    context: RequestContext,
    request: Any,
    answer: Deferred[Any],
    described_group: Callable[..., Any],
    topics_of: Callable[[Any], Iterable[str]],
) -> Deferred[Any]:
    """The answer with the sender's rights to each group, if the request asks for them. A group with a topic that the
    sender may not describe is replaced by an error. `topics_of` returns the names in a group."""
    access = access_of(node, context)
    if access is None and not request.include_authorized_operations:
        return answer

    def seen(response: Any) -> Any:
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = group_operations(access, group.group_id)
        rights = RightToTopics(access, AclOperation.DESCRIBE)
        response.groups = [
            group if is_visible(group, rights) else hidden(group.group_id) for group in response.groups
        ]
        return response

    def is_visible(group: Any, rights: RightToTopics) -> bool:
        return all(map(rights.holds, topics_of(group)))

    def hidden(group_id: str) -> Any:
        return described_group(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )

    return answer.then(seen)
