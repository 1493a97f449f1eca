"""CreateTopics: image and request -> records and response.

Pure. Checks, their order, codes and texts are those of Kafka's controller. The caller checks the authorization, and
passes the random numbers for ids and placement.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.controller.config_changes import ConfigRefused
from kafkacompat.controller.configs import describe_new_topic
from kafkacompat.controller.configuration_validator import check_topic_configs
from kafkacompat.controller.features import elr_enabled
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.new_partitions import (
    NAMED_A_STEP,
    TOO_LARGE_TEXT,
    TOPICS_A_STEP,
    LogRoom,
    Placed,
    TopicRefused,
    check_assignment,
    partition_records,
    place,
    times_named,
)
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.controller.striped_replica_placer import PlacementRefused
from kafkacompat.controller.topic_name import topic_name_flaw
from kafkacompat.ids import METADATA_TOPIC
from kafkacompat.ports import Random
from kafkacompat.quota.mutations import MayMutate, unlimited
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.topic_record import TopicRecord

MAX_PARTITIONS_PER_REQUEST = 10_000


def create_topics(
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    request: CreateTopicsRequest,
    may_mutate: MayMutate = unlimited,
    logs_left: int | None = None,
) -> Work[ControllerResult[MetadataRecord, CreateTopicsResponse]]:
    """`logs_left`: see LogRoom."""
    room = LogRoom(settings.node_id, logs_left)
    pace = Pace(NAMED_A_STEP)
    times = yield from times_named(request.topics, pace)
    total = 0
    for topic in request.topics:
        if times[topic.name] == 1 and topic.name != METADATA_TOPIC:
            total += _asked_partitions(topic, settings)
        if pace.is_over():
            yield TURN_COST
    if total > MAX_PARTITIONS_PER_REQUEST:
        text = "Excessively large number of partitions per request."
        return (yield from _all_refused(times, text, pace))
    normalized: dict[str, str] = {}
    for name in image.topics:
        if "." in name or "_" in name:
            normalized[name.replace(".", "_")] = name
        if pace.is_over():
            yield TURN_COST
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    made = begun = 0
    for topic in request.topics:
        if times[topic.name] > 1 or topic.name == METADATA_TOPIC:
            if pace.is_over():
                yield TURN_COST
            continue
        if len(records) - made >= RECORDS_A_STEP or begun >= TOPICS_A_STEP:
            made, begun = len(records), 0
            yield TURN_COST
        begun += 1
        try:
            result = yield from _create_topic(
                image, settings, random, topic, normalized, records, may_mutate, room
            )
        except TopicRefused as refusal:
            result = _refused_topic(topic.name, refusal.code, refusal.message)
        results.append(result)
        if len(records) > MAX_RECORDS_PER_OPERATION:
            return (yield from _all_refused(times, TOO_LARGE_TEXT, pace))
    for name, count in times.items():
        if count > 1:
            results.append(_refused_topic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == METADATA_TOPIC:
            text = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            results.append(_refused_topic(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, text))
        if pace.is_over():
            yield TURN_COST
    response = CreateTopicsResponse(topics=results)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _all_refused(
    names: Iterable[str], text: str, pace: Pace
) -> Work[ControllerResult[MetadataRecord, CreateTopicsResponse]]:
    every = []
    for name in names:
        every.append(_refused_topic(name, ErrorCode.POLICY_VIOLATION, text))
        if pace.is_over():
            yield TURN_COST
    return ControllerResult((), CreateTopicsResponse(topics=every))


def _refused_topic(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _asked_partitions(topic: CreatableTopic, settings: ControllerSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == -1:
        return settings.static.get_int("num.partitions")
    return max(0, topic.num_partitions)


def _create_topic(
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    topic: CreatableTopic,
    normalized: dict[str, str],
    records: list[MetadataRecord],
    may_mutate: MayMutate,
    room: LogRoom,
) -> Work[CreatableTopicResult]:
    flaw = topic_name_flaw(topic.name)
    if topic.name in image.topics:
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    colliding = normalized.get(topic.name.replace(".", "_"))
    if colliding is not None:
        flaw = f"Topic '{topic.name}' collides with existing topic: {colliding}"
    if flaw is not None:
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, flaw)
    overrides: dict[str, str] = {}
    nulls: list[str] = []
    for position, config in enumerate(topic.configs, 1):
        if config.value is None:
            nulls.append(config.name)
        else:
            overrides[config.name] = config.value
        if position % NAMED_A_STEP == 0:
            yield TURN_COST
    if nulls:
        raise TopicRefused(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    try:
        check_topic_configs(image, settings, overrides, {})
    except ConfigRefused as refusal:
        raise TopicRefused(refusal.code, refusal.message) from refusal
    if topic.assignments:
        placed = yield from _assigned(image, topic)
    elif topic.replication_factor < -1 or topic.replication_factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    elif topic.num_partitions < -1 or topic.num_partitions == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, text)
    else:
        count = _asked_partitions(topic, settings)
        factor = topic.replication_factor
        if factor == -1:
            factor = settings.static.get_int("default.replication.factor")
        try:
            placed = yield from place(image, count, factor, random)
        except PlacementRefused as refusal:
            text = f"Unable to replicate the partition {factor} time(s): {refusal}"
            raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, text) from refusal
    room.take(placed)
    if not may_mutate(len(placed)):
        raise TopicRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    topic_id = random.uuid()
    while topic_id in image.topics_by_id:
        topic_id = random.uuid()
    records.append(MetadataRecord(TopicRecord(name=topic.name, topic_id=topic_id), 0))
    records.extend(
        MetadataRecord(
            ConfigRecord(
                resource_type=int(ConfigResourceType.TOPIC), resource_name=topic.name, name=name, value=value
            ),
            0,
        )
        for name, value in overrides.items()
    )
    if MIN_INSYNC_REPLICAS in overrides and elr_enabled(image.features):
        records.append(MetadataRecord(ClearElrRecord(topic_name=topic.name), 0))
    records.extend((yield from partition_records(image, topic_id, 0, placed)))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(placed),
        replication_factor=len(placed[0].replicas),
        configs=describe_new_topic(image, settings, overrides),
    )


def _assigned(image: MetadataImage, topic: CreatableTopic) -> Work[list[Placed]]:
    if topic.replication_factor != -1:
        text = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise TopicRefused(ErrorCode.INVALID_REQUEST, text)
    if topic.num_partitions != -1:
        text = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise TopicRefused(ErrorCode.INVALID_REQUEST, text)
    by_index: dict[int, Placed] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            text = f"Found multiple manual partition assignments for partition {index}"
            raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        by_index[index] = check_assignment(image, assignment.broker_ids, factor, index)
        factor = len(assignment.broker_ids)
        if len(by_index) % RECORDS_A_STEP == 0:
            yield TURN_COST
    if any(index not in by_index for index in range(len(by_index))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [by_index[index] for index in range(len(by_index))]
