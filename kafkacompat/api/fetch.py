"""Fetch (key 1, versions 4-18): the request's shapes turned into one, for partition/fetch to serve.

Duty: names and ids by version, where the replica id stands, the isolation level. Limits, sessions and waits are the
FetchService's. From version 13 topics come by id (KIP-516); the follower's state moved into a tag in 15 (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.context import FetchParameters, FetchRequestPartition
from kafkacompat.api.handler import Handler
from kafkacompat.ids import ZERO_UUID
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.fetch_request import FetchRequest

FIRST_VERSION_WITH_TOPIC_IDS = 13
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
REPEATS_LOOKED_FOR_FROM = 500
"""Partitions of a fetch. No client names one twice, and it is read twice."""


def handle(
    node: Node, context: RequestContext, request: FetchRequest
) -> FetchResponse | Deferred[FetchResponse]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.api_version)  # E26
    version = context.api_version
    image = node.image
    uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
    state = request.replica_state
    asked: list[FetchRequestPartition] = []
    for topic in request.topics:
        name: str | None
        if uses_topic_ids:
            topic_id = topic.topic_id
            known = image.topics_by_id.get(topic_id)
            name = None if known is None else known.name
        else:
            name = topic.topic
            known = image.topics.get(name)
            topic_id = ZERO_UUID if known is None else known.id
        asked.extend(
            [
                FetchRequestPartition(
                    topic_id,
                    name,
                    one.partition,
                    one.fetch_offset,
                    one.partition_max_bytes,
                    one.current_leader_epoch,
                    one.last_fetched_epoch,
                    one.log_start_offset,
                )
                for one in topic.partitions
            ]
        )
    if len(asked) > REPEATS_LOOKED_FOR_FROM:
        asked = list({(one.topic_id, one.topic, one.partition): one for one in asked}.values())
    forgotten = [
        (topic.topic_id, topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    parameters = FetchParameters(
        replica_id=request.replica_id if state is None else state.replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        rack_id=request.rack_id,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_topic_ids=uses_topic_ids,
        version=version,
        client_host=context.client_host,
        listener_name=context.listener_name,
    )
    return node.fetches.fetch(parameters, asked, forgotten)


def error_response(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:  # the error stands for all, as in Kafka
        return FetchResponse(error_code=code, session_id=request.session_id)
    return FetchResponse(
        error_code=code,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=one.partition,
                        error_code=code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


HANDLER = Handler(1, 4, 18, handle, error_response)
