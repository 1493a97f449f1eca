"""DescribeTopicPartitions (key 75): partitions page by page, with the eligible leader replicas. KIP-966.

Topics are sorted by name. A page holds at most max.request.partition.size.limit partitions. The cursor names the first
partition of the next page.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from kafkacompat.api.access import NOT_ASKED, access_of, seen_of, topic_operations
from kafkacompat.api.handler import Handler
from kafkacompat.api.topics import is_legal_topic_name, leader_for, offline_replicas
from kafkacompat.ids import INTERNAL_TOPICS
from kafkacompat.security.acl import ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration
    from kafkacompat.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest

LIMIT = "max.request.partition.size.limit"
NAMED_A_STEP = 5_000
"""Topics that are sorted in one step. One takes a microsecond."""
DESCRIBED_A_STEP = 400
"""Topics and partitions that are described in one step. One takes up to 15 microseconds."""


def handle(
    node: Node, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Work[DescribeTopicPartitionsResponse]:
    image, cursor = node.image, request.cursor
    every = not request.topics
    left = max(min(request.response_partition_limit, node.dynamic.get_int(LIMIT)), 1)
    missing_left = node.dynamic.get_int(LIMIT)
    if cursor is not None and cursor.partition_index < 0:
        return (yield from _refused(request, ErrorCode.INVALID_REQUEST))
    begin = "" if cursor is None else cursor.topic_name
    is_named = every or cursor is None
    asked = list(image.topics) if every else request.topics
    access = access_of(node, context)
    hidden: list[str] = []
    names: list[str] = []
    for start in range(0, len(asked), NAMED_A_STEP):
        if start:
            yield TURN_COST
        some = {each if isinstance(each, str) else each.name for each in asked[start : start + NAMED_A_STEP]}
        is_named = is_named or begin in some
        if begin:
            some = {name for name in some if name >= begin}
        if access is not None:
            seen = set((yield from seen_of(access, ResourceType.TOPIC, sorted(some), str)))
            hidden += () if every else sorted(some - seen)
            some = seen
        # Each topic uses up at least one of the two limits, so a page has no more topics than their sum. One more name
        # is needed for the cursor.
        names = heapq.nsmallest(left + missing_left + 2, some.union(names))
    if not is_named:
        return (yield from _refused(request, ErrorCode.INVALID_REQUEST))
    first_partition = 0
    if cursor is not None and names and names[0] == begin:
        first_partition = cursor.partition_index
    response = DescribeTopicPartitionsResponse()
    pace = Pace(DESCRIBED_A_STEP)
    for name in names:
        if pace.is_over():
            yield TURN_COST
        topic = image.topics.get(name)
        # A request may name half a million unknown topics.
        if left <= 0 or (topic is None and missing_left <= 0):
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        if topic is None:
            response.topics.append(_missing(name, topic_operations(access, name)))
            missing_left -= 1
            first_partition = 0
            continue
        described = []
        for index in range(first_partition, min(first_partition + left, len(topic.partitions))):
            described.append(_partition(image, index, topic.partitions[index], context.listener_name))
            if pace.is_over():
                yield TURN_COST
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=described,
                topic_authorized_operations=topic_operations(access, name),
            )
        )
        end = first_partition + len(described)
        if described and end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        left -= len(described)
        first_partition = 0
    yield from _hide(response, hidden)
    return response


def _hide(response: DescribeTopicPartitionsResponse, names: list[str]) -> Work[None]:
    """Answer topics that the sender may not describe without revealing whether they exist."""
    for start in range(0, len(names), NAMED_A_STEP):
        yield TURN_COST
        response.topics += [
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                name=name,
                topic_authorized_operations=NOT_ASKED,
            )
            for name in names[start : start + NAMED_A_STEP]
        ]


def _missing(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _partition(
    image: MetadataImage, index: int, partition: PartitionRegistration, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    # As in Kafka, a partition without a leader has no error here, unlike in Metadata.
    _, leader = leader_for(image, partition, listener_name, True)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener_name),
    )


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    return at_once(_refused(request, code))


def _refused(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> Work[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    for start in range(0, len(request.topics), NAMED_A_STEP):
        if start:
            yield TURN_COST
        response.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics[start : start + NAMED_A_STEP]
        ]
    return response


HANDLER = Handler(handle, error_response, waits_for_opening=True)
