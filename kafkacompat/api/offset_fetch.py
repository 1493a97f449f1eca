"""OffsetFetch (key 9, versions 1-10): one group before version 8, many since (KIP-709); topic ids from version 10.

A group's error stands at the top in versions 2-7, with the group since 8, and with every partition in version 1, which has
no other place for it (T35).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.stepping import Steps

KEY = 9
FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 2
FIRST_BATCHED_VERSION = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
AT_ONCE = 1000
"""Partitions."""

Unknown = list[list[OffsetFetchResponseTopics]]
"""By group: topics whose id nobody knows, answered here."""


def offset_fetch(node: Node, context: RequestContext, request: OffsetFetchRequest) -> Deferred[Any]:
    version = context.api_version
    image = node.image
    groups = request.groups if version >= FIRST_BATCHED_VERSION else [_batched(request)]
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    groups = list({group.group_id: group for group in groups}.values())
    for group in groups:
        _drop_repeats(group, by_id)
    unknown = [_resolve(image, group, by_id) for group in groups]
    batched = OffsetFetchRequest(groups=groups, require_stable=request.require_stable)
    answer = node.groups.offset_fetch(batched, context)
    if version < FIRST_BATCHED_VERSION:
        return answer.then(lambda response: _single(response.groups[0], groups[0], version))
    return answer.then(lambda response: _named(response, groups, unknown, image, by_id))


def in_steps(node: Node, context: RequestContext, request: OffsetFetchRequest) -> Steps[Deferred[Any]]:
    """The coordinator has steps of its own; so the answer is encoded in steps as well."""
    yield None
    return offset_fetch(node, context, request)


def _size(node: Node, request: OffsetFetchRequest) -> int:
    """Partitions that are named. Of a request few bytes are as many numbers, so that it is not large itself."""
    asked = [request.topics, *(group.topics for group in request.groups)]
    return sum([len(topic.partition_indexes) for topics in asked for topic in topics or ()])


def _drop_repeats(group: OffsetFetchRequestGroup, by_id: bool) -> None:
    """Who is named twice is answered once, as with Kafka's clients, which keep the answers in a map."""
    if group.topics is None:
        return
    if len(group.topics) > 1:
        merged: dict[Any, OffsetFetchRequestTopics] = {}
        for topic in group.topics:
            first = merged.setdefault(topic.topic_id if by_id else topic.name, topic)
            if first is not topic:
                first.partition_indexes += topic.partition_indexes
        group.topics = list(merged.values())
    for topic in group.topics:
        if len(topic.partition_indexes) > 1:
            topic.partition_indexes = list(dict.fromkeys(topic.partition_indexes))


def _batched(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _resolve(
    image: MetadataImage, group: OffsetFetchRequestGroup, by_id: bool
) -> list[OffsetFetchResponseTopics]:
    """Give every topic its name and id; ids that nobody knows leave the request and are answered."""
    if group.topics is None:
        return []
    known, unknown = [], []
    for topic in group.topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if found is not None:
            topic.name, topic.topic_id = found.name, found.id
            known.append(topic)
        elif by_id:
            partitions = [
                _without_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
            ]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        else:
            known.append(topic)
    group.topics = known
    return unknown


def _without_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
    )


def _named(
    response: OffsetFetchResponse,
    groups: list[OffsetFetchRequestGroup],
    unknown: Unknown,
    image: MetadataImage,
    by_id: bool,
) -> OffsetFetchResponse:
    """Topics by name or by id, as the version has them; of all topics asked for by id, those without one are left out."""
    for group, asked, missing in zip(response.groups, groups, unknown, strict=True):
        if group.error_code:
            continue
        if not by_id:
            for topic in group.topics:
                topic.topic_id = bytes(16)
            continue
        if asked.topics is None:
            present = [topic for topic in group.topics if topic.name in image.topics]
            for topic in present:
                topic.topic_id = image.topics[topic.name].id
            group.topics = present
        for topic in group.topics:
            topic.name = ""
        group.topics += missing
    return response


def _single(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    if group.error_code:
        if version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
            return OffsetFetchResponse(error_code=group.error_code)
        error = ErrorCode(group.error_code)
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_without_offset(index, error) for index in topic.partition_indexes],
            )
            for topic in asked.topics or []
        ]
    else:
        topics = group.topics
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _error_response(request: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    if version >= FIRST_BATCHED_VERSION:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
            ]
        )
    group = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    return _single(group, _batched(request), version)


HANDLER = Handler(
    key=KEY,
    min_version=1,
    max_version=10,
    function=offset_fetch,
    error_response=_error_response,
    long=LongHandling(_size, AT_ONCE, in_steps),
)
