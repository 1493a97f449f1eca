"""OffsetFetch (key 9): one group before version 8, many from version 8 on (KIP-709). Topic ids from
version 10.

A group's error is at the top of the response in versions 2-7, and in the group from version 8 on. Version 1 has no
place for it, so each partition has it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import Access, access_of, seen_of
from kafkacompat.api.handler import Handler
from kafkacompat.ids import ZERO_UUID
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage

FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 2
FIRST_BATCHED_VERSION = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
STEP = 4000
"""Units of work per step. One takes about a microsecond."""
GROUP_UNITS = 20
CHARACTERS_A_UNIT = 16
"""Characters of a group's name that cost one unit. The name is hashed."""
INDEXES_AT_ONCE = 500


async def offset_fetch(node: Node, context: RequestContext, request: OffsetFetchRequest) -> Any:
    """The coordinator returns large results in steps."""
    version = context.api_version
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    access = access_of(node, context)
    pace = Pace(STEP)
    if version >= FIRST_BATCHED_VERSION:
        groups = await in_turns(_each_once(request.groups, pace))
    else:
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]  # type: ignore[arg-type]  # both have a name and partitions
    answers: list[OffsetFetchResponseGroup] = []
    for group in groups:
        if pace.is_over(GROUP_UNITS + len(group.group_id) // CHARACTERS_A_UNIT):
            await pause()
        is_hidden = access is not None and not access.allows(
            AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id
        )
        # Of now: the group before may have waited.
        asked, refused = await in_turns(_asked(node.image, group, by_id, pace, None if is_hidden else access))
        if is_hidden:
            told = OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        else:
            part = OffsetFetchRequest(groups=[asked], require_stable=request.require_stable)
            answer = node.groups.offset_fetch(part, context)
            (told,) = (await answer).groups
        if told.error_code == ErrorCode.NONE:
            if access is not None and asked.topics is None:
                told.topics = await in_turns(
                    seen_of(access, ResourceType.TOPIC, told.topics, attrgetter("name"))
                )
            await in_turns(_name(told, by_id))
            told.topics += refused
        if version < FIRST_BATCHED_VERSION:
            return await in_turns(_single(told, asked, version))
        answers.append(told)
    return OffsetFetchResponse(groups=answers)


def _each_once(
    groups: Sequence[OffsetFetchRequestGroup], pace: Pace
) -> Work[Iterable[OffsetFetchRequestGroup]]:
    """Return each group once, even if the request repeats it. Kafka's clients keep the answers in a map."""
    found: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        found[group.group_id] = group
        if pace.is_over():
            yield TURN_COST
    return found.values()


def _asked(
    image: MetadataImage, group: OffsetFetchRequestGroup, by_id: bool, pace: Pace, access: Access | None
) -> Work[tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]]:
    """Return the request to the coordinator, and the topics that are answered here.

    The request has every topic once, with name and id, and every partition once. Topics with an unknown id, and topics
    that the sender may not describe, are answered here.
    """
    if group.topics is None:
        return group, []
    indexes: dict[str | bytes, dict[int, None]] = {}
    for topic in group.topics:
        of_topic = indexes.setdefault(topic.topic_id if by_id else topic.name, {})
        for start in range(0, len(topic.partition_indexes), STEP):
            some = topic.partition_indexes[start : start + STEP]
            of_topic.update(dict.fromkeys(some))
            if pace.is_over(len(some)):
                yield TURN_COST
        if pace.is_over(2):
            yield TURN_COST
    known: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    for key, of_topic in indexes.items():
        found = image.topics_by_id.get(key) if by_id else image.topics.get(key)  # type: ignore[arg-type]  # an id, or a name
        if found is not None or not by_id:
            name, topic_id = (str(key), ZERO_UUID) if found is None else (found.name, found.id)
            if access is None or access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                known.append(
                    OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(of_topic))
                )
            else:
                partitions = yield from _refused(list(of_topic), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                hidden = OffsetFetchResponseTopics(name="" if by_id else name, partitions=partitions)
                if by_id:
                    hidden.topic_id = topic_id
                refused.append(hidden)
        else:
            partitions = yield from _refused(list(of_topic), ErrorCode.UNKNOWN_TOPIC_ID)
            refused.append(OffsetFetchResponseTopics(topic_id=bytes(key), partitions=partitions))  # type: ignore[arg-type]  # an id
        if pace.is_over(3):
            yield TURN_COST
    asked = OffsetFetchRequestGroup(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=known,
    )
    return asked, refused


def _refused(indexes: list[int], error: ErrorCode) -> Work[list[OffsetFetchResponsePartitions]]:
    partitions: list[OffsetFetchResponsePartitions] = []
    for start in range(0, len(indexes), INDEXES_AT_ONCE):
        if start:
            yield TURN_COST
        for index in indexes[start : start + INDEXES_AT_ONCE]:
            partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=-1,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=error,
                )
            )
    return partitions


def _name(group: OffsetFetchResponseGroup, by_id: bool) -> Work[None]:
    """Leave the topics' names or ids, as the version requires. By id, topics that do not exist are left out."""
    named: list[OffsetFetchResponseTopics] = []
    for topic in group.topics:
        if not by_id:
            topic.topic_id = ZERO_UUID
        elif topic.topic_id == ZERO_UUID:
            continue
        else:
            topic.name = ""
        named.append(topic)
        if len(named) % STEP == 0:
            yield TURN_COST
    group.topics = named


def _single(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> Work[OffsetFetchResponse]:
    topics = group.topics
    if group.error_code:
        if version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
            return OffsetFetchResponse(error_code=group.error_code)
        topics = []
        for topic in asked.topics or []:
            partitions = yield from _refused(topic.partition_indexes, ErrorCode(group.error_code))
            topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
            if len(topics) % INDEXES_AT_ONCE == 0:
                yield TURN_COST
    return OffsetFetchResponse(topics=topics)  # type: ignore[arg-type]  # the same without an id


def _error_response(request: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    if version >= FIRST_BATCHED_VERSION:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
            ]
        )
    group = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)  # type: ignore[arg-type]  # as above
    return at_once(_single(group, asked, version))


HANDLER = Handler(function=offset_fetch, error_response=_error_response, asks_coordinators=True)
