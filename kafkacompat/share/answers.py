"""The answers to share fetches and acknowledgements, from what became of each partition.

Follows Kafka's ShareSessionContext (which partitions are told) and KIP-951 (current leader).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.share_services import ShareError, TopicIdPartition
from kafkacompat.ids import NO_EPOCH, NO_LEADER
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.share.sessions import INITIAL_EPOCH, next_epoch
from kafkacompat.wire import codec
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_acknowledge_response as acknowledge
from kafkacompat.wire.messages import share_fetch_response as fetch

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.share.sessions import ShareSession

STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
SIZE_BYTES = 4

Data = Mapping[TopicIdPartition, fetch.PartitionData]
Acknowledged = Mapping[TopicIdPartition, ShareError]


def share_fetch_response(
    session: ShareSession | None,
    epoch: int,
    data: Data,
    acknowledged: Acknowledged,
    image: MetadataImage,
    context: RequestContext,
    lock_timeout_ms: int,
) -> fetch.ShareFetchResponse:
    """`session` is None for the request that ends it. Counts what is sent towards the client's quota."""
    response = fetch.ShareFetchResponse(acquisition_lock_timeout_ms=lock_timeout_ms)
    leaders: set[int] = set()
    for key, one in data.items():
        if one.error_code in STALE_LEADER:
            leader, leader_epoch = leader_of(image, key)
            one.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)
            leaders.add(leader)
    throttling = context.throttling
    is_subsequent = session is not None and epoch != INITIAL_EPOCH
    if throttling is not None:
        response.throttle_time_ms = throttling.fetched(
            context, _size(data, session if is_subsequent else None, context)
        )
    if is_subsequent and session is not None and session.epoch != next_epoch(epoch):
        response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    elif not response.throttle_time_ms:
        _add(response, _told(data, session) if is_subsequent and session is not None else data)
    _add_acknowledged(response, acknowledged)
    if leaders:
        response.node_endpoints = endpoints_of(image, leaders, context.listener_name, fetch.NodeEndpoint)
    return response


def _told(data: Data, session: ShareSession) -> Data:
    """The partitions of an answer in an open session. Those with records are the last ones of the next fetch."""
    told: dict[TopicIdPartition, fetch.PartitionData] = {}
    for key, one in data.items():
        cached = session.partitions.get(key)
        if cached is None:
            continue
        has_records = len(one.records) > 0
        if cached.would_tell(has_records=has_records, has_error=one.error_code != 0):
            told[key] = one
            if has_records:
                session.to_the_end(cached)
    return told


def _add(response: fetch.ShareFetchResponse, data: Data) -> None:
    topics: dict[bytes, fetch.ShareFetchableTopicResponse] = {}
    for key, one in data.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = fetch.ShareFetchableTopicResponse(topic_id=key.topic_id)
            response.responses.append(topic)
        topic.partitions.append(one)


def _add_acknowledged(response: fetch.ShareFetchResponse, acknowledged: Acknowledged) -> None:
    if not acknowledged:
        return
    topics = {topic.topic_id: topic for topic in response.responses}
    present = {
        (topic.topic_id, one.partition_index): one for topic in response.responses for one in topic.partitions
    }
    for key, error in acknowledged.items():
        one = present.get(key)
        if one is None:
            one = fetch.PartitionData(partition_index=key.partition, records=EMPTY_RECORDS)
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = fetch.ShareFetchableTopicResponse(topic_id=key.topic_id)
                response.responses.append(topic)
            topic.partitions.append(one)
        one.acknowledge_error_code = error.code
        one.acknowledge_error_message = error.message


def _size(data: Data, session: ShareSession | None, context: RequestContext) -> int:
    """The bytes of the answer as Kafka counts them for the quota: without acknowledgements and header."""
    response = fetch.ShareFetchResponse()
    if session is not None:
        known = session.partitions
        data = {
            key: one
            for key, one in data.items()
            if len(one.records) or one.error_code or (key in known and known[key].is_news)
        }
    _add(response, data)
    return SIZE_BYTES + sum(map(len, codec.encode_parts(response, context.api_version)))


def share_acknowledge_response(
    acknowledged: Acknowledged, image: MetadataImage, context: RequestContext, lock_timeout_ms: int
) -> acknowledge.ShareAcknowledgeResponse:
    response = acknowledge.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_timeout_ms)
    topics: dict[bytes, acknowledge.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for key, error in acknowledged.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = acknowledge.ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            response.responses.append(topic)
        one = acknowledge.PartitionData(
            partition_index=key.partition, error_code=error.code, error_message=error.message
        )
        if error.code in STALE_LEADER:
            leader, epoch = leader_of(image, key)
            one.current_leader = acknowledge.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            leaders.add(leader)
        topic.partitions.append(one)
    if leaders:
        response.node_endpoints = endpoints_of(
            image, leaders, context.listener_name, acknowledge.NodeEndpoint
        )
    return response


def leader_of(image: MetadataImage, key: TopicIdPartition) -> tuple[int, int]:
    topic = image.topics_by_id.get(key.topic_id)
    partition = None if topic is None else topic.partitions.get(key.partition)
    return (NO_LEADER, NO_EPOCH) if partition is None else (partition.leader, partition.leader_epoch)
