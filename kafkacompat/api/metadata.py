"""Metadata (key 3, versions 0-13): brokers and topics as the client's listener sees them; topics made on demand.

Duty: whom to name, which topics, what each partition's state is called, and asking for missing topics to be made.
Everything comes from the image, so every broker says the same at one offset. KIP-516 (topic ids), KIP-430.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.endpoints import alive_brokers
from kafkacompat.api.handler import Handler
from kafkacompat.api.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from kafkacompat.api.partition_state import leader_for, offline_replicas
from kafkacompat.api.topic_names import is_legal_topic_name
from kafkacompat.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.controller.image import MetadataImage, PartitionImage, TopicImage
    from kafkacompat.wire.messages.metadata_request import MetadataRequest

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
FIRST_VERSION_BY_ID = 12


def handle(node: Node, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version = context.api_version
    image = node.image
    topics: list[MetadataResponseTopic]
    asked = request.topics
    if asked is None or (not asked and version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        topics = [_describe(image, name, context, request) for name in sorted(image.topics)]
    else:
        if version < FIRST_VERSION_BY_ID and any(
            one.name is None or one.topic_id != ZERO_UUID for one in asked
        ):
            return error_response(request, ErrorCode.INVALID_REQUEST, version)  # C5
        ids = list(dict.fromkeys(one.topic_id for one in asked if one.topic_id != ZERO_UUID))
        if ids:
            topics = [_by_id(image, topic_id, context, request) for topic_id in ids]
        else:
            names = list(dict.fromkeys(one.name for one in asked))
            if None in names:
                return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, version)  # C6
            topics = _by_name(node, [name for name in names if name is not None], context, request)
    brokers = alive_brokers(image, context.listener_name)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id,
                host=broker.endpoints[context.listener_name].host,
                port=broker.endpoints[context.listener_name].port,
                rack=broker.rack,
            )
            for broker in brokers
        ],
        cluster_id=node.cluster_id,
        controller_id=brokers[node.random.randrange(len(brokers))].id if brokers else -1,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _by_id(
    image: MetadataImage, topic_id: Uuid, context: RequestContext, request: MetadataRequest
) -> MetadataResponseTopic:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _describe(image, topic.name, context, request)


def _by_name(
    node: Node, names: list[str], context: RequestContext, request: MetadataRequest
) -> list[MetadataResponseTopic]:
    image = node.image
    missing = []
    topics = []
    for name in names:
        if name in image.topics:
            topics.append(_describe(image, name, context, request))
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # also while it is being made (C2)
        if not is_legal_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            missing.append(name)
        topics.append(MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
    if missing and request.allow_auto_topic_creation and node.dynamic.bool("auto.create.topics.enable"):
        node.auto_create.request(missing)
    return topics


def _describe(
    image: MetadataImage, name: str, context: RequestContext, request: MetadataRequest
) -> MetadataResponseTopic:
    topic: TopicImage = image.topics[name]
    version = context.api_version
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, index, partition, context.listener_name, version)
            for index, partition in sorted(topic.partitions.items())
        ],
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        ),
    )


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener_name: str, version: int
) -> MetadataResponsePartition:
    error, leader = leader_for(
        image, partition, listener_name, version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
    )
    replicas = list(partition.replicas)
    isr = list(partition.isr)
    if version == 0:
        alive = {broker.id for broker in alive_brokers(image, listener_name)}
        if error is ErrorCode.NONE and not alive.issuperset(replicas):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = [replica for replica in replicas if replica in alive]
        isr = [replica for replica in isr if replica in alive]
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener_name),
    )


def error_response(request: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id)
            for one in request.topics or ()
        ],
        error_code=code,
    )


HANDLER = Handler(3, 0, 13, handle, error_response)
