"""Metadata (key 3): brokers and topics as seen from the client's listener. Creates topics on demand.

This module selects the brokers, topics and partition errors, and requests the creation of missing topics. Everything
comes from the image, so all brokers answer the same at the same metadata offset. A topic that is unchanged in the
image is sent with the same bytes again. KIP-516 (topic ids), KIP-430.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.api.access import NOT_ASKED, Access, access_of, cluster_operations, seen_of, topic_operations
from kafkacompat.api.endpoints import controller_for, named_brokers
from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.api.topics import is_legal_topic_name, leader_for, offline_replicas
from kafkacompat.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Work, at_once, sorted_in_steps
from kafkacompat.wire.codec import element_encoded_in_steps, encoded_element
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.encoded_topics import Variant
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.wire.messages.metadata_request import MetadataRequest

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
FIRST_VERSION_BY_ID = 12
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NAMED_A_STEP = 5_000
"""Topics of a request per step when they are looked up. One takes less than a microsecond."""
DESCRIBED_A_STEP = 500
"""Topics and partitions per step when they are described. One takes about ten microseconds, less if it is cached."""


def handle(
    node: Node, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Work[MetadataResponse]:
    steps = in_steps(node, context, request)
    if context.api_version < FIRST_VERSION_WITH_NULL_FOR_ALL and not request.topics:
        return steps  # all topics, which the size of the request does not tell
    return at_once(steps)


def in_steps(node: Node, context: RequestContext, request: MetadataRequest) -> Work[MetadataResponse]:
    """All steps use the image of the first step."""
    version = context.api_version
    image = node.image
    variant = (context.listener_name, version, request.include_topic_authorized_operations)
    access = access_of(node, context)
    topics: list[MetadataResponseTopic]
    asked = request.topics
    if asked is None or (not asked and version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        names_of_all = yield from sorted_in_steps(image.topics)
        if access is not None:
            names_of_all = yield from seen_of(
                access, ResourceType.TOPIC, names_of_all, str, logs_denied=False
            )
        all_topics = (image.topics[name] for name in names_of_all)
        topics = yield from _described(node, image, all_topics, variant, access)
    else:
        ids: dict[Uuid, None] = {}
        names: dict[str | None, None] = {}
        for start in range(0, len(asked), NAMED_A_STEP):
            if start:
                yield TURN_COST
            some = asked[start : start + NAMED_A_STEP]
            ids.update(dict.fromkeys([one.topic_id for one in some]))
            names.update(dict.fromkeys([one.name for one in some]))
        ids.pop(ZERO_UUID, None)
        if version < FIRST_VERSION_BY_ID and (ids or None in names):
            return (yield from _refused(request, ErrorCode.INVALID_REQUEST))
        if ids:
            topics = yield from _described(node, image, _by_id(image, ids, access), variant, access)
        else:
            # A topic has neither a name nor an id. No client sends that, and Kafka has no better error code for it.
            if None in names:
                return (yield from _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            missing: list[str] = []
            makes = request.allow_auto_topic_creation and node.dynamic.get_boolean(
                "auto.create.topics.enable"
            )
            by_name = _by_name(image, names, missing, access, makes)
            topics = yield from _described(node, image, by_name, variant, access)
            if missing and makes:
                node.auto_create.request(missing, context)
    brokers = named_brokers(node, context.listener_name)
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
        controller_id=controller_for(node, brokers),
        topics=topics,
        cluster_authorized_operations=cluster_operations(
            node, context, request.include_cluster_authorized_operations
        ),
    )


def _by_id(
    image: MetadataImage, ids: Iterable[Uuid], access: Access | None
) -> Iterator[TopicImage | MetadataResponseTopic]:
    for topic_id in ids:
        topic = image.topics_by_id.get(topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None and not _is_seen(access, topic.name):
            topic, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield topic or MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)


def _by_name(
    image: MetadataImage,
    names: Iterable[str | None],
    missing: list[str],
    access: Access | None,
    makes: bool,
) -> Iterator[TopicImage | MetadataResponseTopic]:
    """Yield known topics and error responses.

    If `makes` is set, topics that do not exist and that the sender may create are added to `missing`.
    """
    for name in names:
        assert name is not None
        if not _is_seen(access, name):
            yield MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            continue
        topic = image.topics.get(name)
        if topic is not None:
            yield topic
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # also while the topic is being created
        if makes and not _may_be_made(access, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not is_legal_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            missing.append(name)
        yield MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def _is_seen(access: Access | None, topic: str) -> bool:
    return access is None or access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _may_be_made(access: Access | None, topic: str) -> bool:
    return (
        access is None
        or access.allows(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, logs_denied=False)
        or access.allows(AclOperation.CREATE, ResourceType.TOPIC, topic)
    )


def _described(
    node: Node,
    image: MetadataImage,
    topics: Iterable[TopicImage | MetadataResponseTopic],
    variant: Variant,
    access: Access | None,
) -> Work[list[MetadataResponseTopic]]:
    """Return topics encoded for the request's version, cached ones if the image is unchanged. Error responses stay as they are."""
    listener_name, version, operations = variant
    described = []
    done = 0
    for topic in topics:
        if done >= DESCRIBED_A_STEP:
            done = 0
            yield TURN_COST
        done += 1
        if isinstance(topic, MetadataResponseTopic):
            if operations and topic.name is not None and topic.error_code != REFUSED:
                topic.topic_authorized_operations = topic_operations(access, topic.name)
            described.append(topic)
            continue
        is_shared = access is None or not operations
        known = node.encoded_topics.get(image.brokers, topic, variant) if is_shared else None
        if known is None:
            told = yield from described_in_steps(image, topic, listener_name, version)
            if operations:
                told.topic_authorized_operations = topic_operations(access, topic.name)
            if len(topic.partitions) > DESCRIBED_A_STEP:
                known = yield from element_encoded_in_steps(MetadataResponse, version, told)
            else:
                known = encoded_element(MetadataResponse, version, told)
            if is_shared and image.brokers is node.image.brokers:
                # Another request may have called `get` between two steps. This call sets the brokers from which the
                # entry was made.
                node.encoded_topics.get(image.brokers, topic, variant)
                node.encoded_topics.put(topic, variant, known)
        described.append(known)
        done += len(topic.partitions)
    return described


def describe_topic(
    image: MetadataImage, topic: TopicImage, listener_name: str, version: int
) -> MetadataResponseTopic:
    return at_once(described_in_steps(image, topic, listener_name, version))


def described_in_steps(
    image: MetadataImage, topic: TopicImage, listener_name: str, version: int
) -> Work[MetadataResponseTopic]:
    """Build the response for one topic of an image, without authorized operations."""
    # Most partitions of a topic share their leader and replicas with another partition.
    leaders: dict[int, tuple[ErrorCode, int]] = {}
    offline: dict[tuple[tuple[int, ...], tuple[Uuid, ...]], list[int]] = {}
    knows_listener_not_found = version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
    partitions: list[MetadataResponsePartition] = []
    for index, partition in sorted(topic.partitions.items()):
        if partitions and len(partitions) % DESCRIBED_A_STEP == 0:
            yield TURN_COST
        leader = leaders.get(partition.leader)
        if leader is None:
            leader = leader_for(image, partition, listener_name, knows_listener_not_found)
            leaders[partition.leader] = leader
        placed = (partition.replicas, partition.directories)
        dead = offline.get(placed)
        if dead is None:
            dead = offline[placed] = offline_replicas(image, partition, listener_name)
        partitions.append(
            MetadataResponsePartition(
                error_code=leader[0],
                partition_index=index,
                leader_id=leader[1],
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=dead,
            )
        )
    if version == 0:
        alive = {
            each.id for each in image.brokers.values() if not each.fenced and listener_name in each.endpoints
        }
        for start in range(0, len(partitions), DESCRIBED_A_STEP):
            if start:
                yield TURN_COST
            _name_living_replicas_only(partitions[start : start + DESCRIBED_A_STEP], alive)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=NOT_ASKED,
    )


def _name_living_replicas_only(partitions: list[MetadataResponsePartition], alive: set[int]) -> None:
    for one in partitions:
        if one.error_code == ErrorCode.NONE and not alive.issuperset(one.replica_nodes):
            one.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        one.replica_nodes = [replica for replica in one.replica_nodes if replica in alive]
        one.isr_nodes = [replica for replica in one.isr_nodes if replica in alive]


def error_response(request: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    return at_once(_refused(request, code))


def _refused(request: MetadataRequest, code: ErrorCode) -> Work[MetadataResponse]:
    topics: list[MetadataResponseTopic] = []
    asked = request.topics or []
    for start in range(0, len(asked), NAMED_A_STEP):
        if start:
            yield TURN_COST
        for one in asked[start : start + NAMED_A_STEP]:
            topics.append(MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id))
    return MetadataResponse(topics=topics, error_code=code)


def _size(node: Node, request: MetadataRequest) -> int:
    """Return the number of topics. If they fit into one step, their partitions are counted too."""
    topics = node.image.topics
    asked = request.topics
    if asked is None:
        count = len(topics)
        return (
            count
            if count > DESCRIBED_A_STEP
            else count + sum([len(each.partitions) for each in topics.values()])
        )
    size = len(asked)
    if size > DESCRIBED_A_STEP:
        return size
    for one in asked:
        known = topics.get(one.name or "") or node.image.topics_by_id.get(one.topic_id)
        if known is not None:
            size += len(known.partitions)
    return size


HANDLER = Handler(
    handle,
    error_response,
    waits_for_opening=True,
    long=LongHandling(_size, DESCRIBED_A_STEP, in_steps),
)
