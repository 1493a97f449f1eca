"""What ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe have in common: what the sender may see of the
groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import ASKED_A_STEP, RightToTopics, access_of, group_operations
from kafkacompat.api.handler import Slices
from kafkacompat.api.long_requests import is_cut
from kafkacompat.security.acl import AclOperation
from kafkacompat.tasks import TURN_COST, Pace, Work, in_turns
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.access import Access
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred

GROUPS_TOGETHER = 20
SLICES = Slices(
    "group_ids",
    "groups",
    GROUPS_TOGETHER,
    str,
    at_once=lambda request: not is_cut(request.group_ids, GROUPS_TOGETHER),
)
"""Kafka answers a group as often as it is named. Here so does a request of one slice. In a longer one a name of a few bytes
would cost as much memory as all members of its group, half a million times."""


def as_sender_sees(
    node: Node,
    context: RequestContext,
    request: Any,
    answer: Deferred[Any],
    described_group: Callable[..., Any],
    topics_of: Callable[[Any], Iterable[str]],
    reason: str = "The group has described topic(s) that the client is not authorized to describe.",
) -> Awaitable[Any]:
    """The answer with the sender's rights to each group, if the request asks for them. A group with a topic that the
    sender may not describe is replaced by an error. `topics_of` returns the names in a group."""
    access = access_of(node, context)
    if access is None and not request.include_authorized_operations:
        return answer

    def hidden(group_id: str) -> Any:
        return described_group(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=reason,
        )

    return _as_seen(access, request.include_authorized_operations, answer, hidden, topics_of)


async def _as_seen(
    access: Access | None,
    tells_operations: bool,
    answer: Deferred[Any],
    hidden: Callable[[str], Any],
    topics_of: Callable[[Any], Iterable[str]],
) -> Any:
    response = await answer
    if tells_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = group_operations(access, group.group_id)
    if access is not None:
        rights = RightToTopics(access, AclOperation.DESCRIBE)
        response.groups = await in_turns(_visible(response.groups, rights, hidden, topics_of))
    return response


def _visible(
    groups: Iterable[Any],
    rights: RightToTopics,
    hidden: Callable[[str], Any],
    topics_of: Callable[[Any], Iterable[str]],
) -> Work[list[Any]]:
    pace = Pace(ASKED_A_STEP)
    seen = []
    for group in groups:
        shown = group
        for name in topics_of(group):
            if not rights.holds(name):
                shown = hidden(group.group_id)
                break
            if pace.is_over():
                yield TURN_COST
        seen.append(shown)
    return seen
