"""DescribeShareGroupOffsets (key 90): start offsets of share groups, and from version 1 on their lag."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import SLICES_PATIENCE_MS, Handler, Slices
from kafkacompat.api.pieces import PIECE, cut, named_in
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import NO_OFFSET, ZERO_UUID, Uuid
from kafkacompat.security.acl import AclOperation
from kafkacompat.tasks import pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext

Described = DescribeShareGroupOffsetsResponseGroup
GROUPS_AT_ONCE = 10
"""Groups of one step."""
GROUPS_TOGETHER = 100
"""Groups that are asked for before the first of them is told: each may take half a minute while a share coordinator is
looked for, and what is told of each is in memory until then."""

TOLD_US = 20
"""Of one piece in the response."""


def describe_share_group_offsets(
    node: Node, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Awaitable[Any]:
    rights = RightToTopics(access_of(node, context), AclOperation.DESCRIBE)
    named = sum([named_in(group.topics) for group in request.groups if group.topics])
    if named > PIECE or len(request.groups) > GROUPS_AT_ONCE:
        return _in_pieces(node, context, request, rights)
    return gather([_described(node, context, group, rights) for group in request.groups]).then(
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups)
    )


async def _in_pieces(
    node: Node, context: RequestContext, request: DescribeShareGroupOffsetsRequest, rights: RightToTopics
) -> DescribeShareGroupOffsetsResponse:
    """Like many small requests. A group that is told for all its topics is one of them.

    No piece waits for the answer to another one: each may take half a minute while a share coordinator is looked for.
    """
    asked: list[list[Deferred[Described]]] = []
    for group in request.groups:
        pieces: Iterable[Any] = cut(group.topics) if group.topics else [group.topics]
        of_group: list[Deferred[Described]] = []
        for piece in pieces:
            part = DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=piece)
            answer = _described(node, context, part, rights)
            of_group.append(answer)
            await pause()
            if answer.done and answer.result().error_code:
                of_group = [answer]
                break
        asked.append(of_group)
    groups = []
    for group, of_group in zip(request.groups, asked, strict=True):
        told = _Told(group.group_id, rights)
        for answer in of_group:
            described: Described = await answer
            told.add(described)
            await pause(TOLD_US)
        groups.append(told.done())
    return DescribeShareGroupOffsetsResponse(groups=groups)


class _Told:
    """The answer for a group from those of its pieces, with its topics in the order of one answer."""

    def __init__(self, group_id: str, rights: RightToTopics) -> None:
        self.whole = Described(group_id=group_id)
        self._rights = rights
        self._present: dict[Uuid, DescribeShareGroupOffsetsResponseTopic] = {}
        self._absent: list[DescribeShareGroupOffsetsResponseTopic] = []
        self._hidden: list[DescribeShareGroupOffsetsResponseTopic] = []

    def add(self, described: Described) -> None:
        if described.error_code:
            self.whole = described
            return
        for topic in described.topics:
            if topic.topic_id != ZERO_UUID:
                known = self._present.setdefault(topic.topic_id, topic)
                if known is not topic:
                    known.partitions += topic.partitions
                continue
            others = self._absent if self._rights.holds(topic.topic_name) else self._hidden
            if others and others[-1].topic_name == topic.topic_name:
                others[-1].partitions += topic.partitions
            else:
                others.append(topic)

    def done(self) -> Described:
        if not self.whole.error_code:
            self.whole.topics = [*self._present.values(), *self._absent, *self._hidden]
        return self.whole


def _described(
    node: Node,
    context: RequestContext,
    group: DescribeShareGroupOffsetsRequestGroup,
    rights: RightToTopics,
) -> Deferred[Described]:
    """Topics that the sender may not see are refused, and left out if all are asked for."""
    if group.topics is None:
        return _asked(node, context, group).then(partial(_visible, rights=rights))
    if not group.topics:
        return Deferred.of(Described(group_id=group.group_id))
    hidden = [topic for topic in group.topics if not rights.holds(topic.topic_name)]
    if hidden:
        seen = [topic for topic in group.topics if rights.holds(topic.topic_name)]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=seen)

    def merged(described: Described) -> Described:
        if not described.error_code:
            described.topics = [*described.topics, *map(_refused, hidden)]
        return described

    return _asked(node, context, group).then(merged)


def _asked(
    node: Node, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> Deferred[Described]:
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    answer: Deferred[DescribeShareGroupOffsetsResponse] = node.groups.share_offsets.describe(request, context)
    return answer.then(lambda response: response.groups[0])


def _visible(described: Described, rights: RightToTopics) -> Described:
    described.topics = [topic for topic in described.topics if rights.holds(topic.topic_name)]
    return described


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NO_OFFSET,
                error_code=code,
                error_message=error_text(code),
            )
            for index in topic.partitions
        ],
    )


def _error_response(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[Described(group_id=group.group_id, error_code=code) for group in request.groups]
    )


def _identity(group: DescribeShareGroupOffsetsRequestGroup) -> object:
    """Kafka answers a group as often as it is named. In a long request, one that is asked for all its topics is answered once:
    its name of a few bytes would cost as much memory as all its partitions, half a million times."""
    return group.group_id if group.topics is None else object()


HANDLER = Handler(
    is_served=serves_share_groups,
    function=describe_share_group_offsets,
    error_response=_error_response,
    slices=Slices(
        "groups",
        "groups",
        GROUPS_TOGETHER,
        _identity,
        at_once=lambda request: len(request.groups) <= GROUPS_AT_ONCE,
        patience_ms=SLICES_PATIENCE_MS,
    ),
    asks_coordinators=True,
)
