"""CreatePartitions: image and request -> records and response.

Pure. Checks, their order, codes and texts are those of Kafka's controller. The caller checks the authorization, and
passes the random numbers for placement.
"""

from __future__ import annotations

from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.new_partitions import (
    NAMED_A_STEP,
    TOO_LARGE_TEXT,
    TOPICS_A_STEP,
    LogRoom,
    TopicRefused,
    check_assignment,
    partition_records,
    place,
    times_named,
)
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.striped_replica_placer import PlacementRefused
from kafkacompat.ports import Random
from kafkacompat.quota.mutations import MayMutate, unlimited
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


def create_partitions(
    image: MetadataImage,
    random: Random,
    request: CreatePartitionsRequest,
    may_mutate: MayMutate = unlimited,
    node_id: int = -1,
    logs_left: int | None = None,
) -> Work[ControllerResult[MetadataRecord, CreatePartitionsResponse]]:
    """`node_id`, `logs_left`: see LogRoom."""
    room = LogRoom(node_id, logs_left)
    pace = Pace(NAMED_A_STEP)
    repeated: dict[str, None] = {}
    for name, count in (yield from times_named(request.topics, pace)).items():
        if count > 1:
            repeated[name] = None
        if pace.is_over():
            yield TURN_COST
    results = []
    for name in repeated:
        results.append(
            CreatePartitionsTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
        if pace.is_over():
            yield TURN_COST
    records: list[MetadataRecord] = []
    for position, topic in enumerate(request.topics, 1):
        if position % TOPICS_A_STEP == 0:
            yield TURN_COST
        if topic.name in repeated:
            continue
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
        try:
            added = yield from _add_partitions(image, random, topic, may_mutate, room)
            if len(records) + len(added) > MAX_RECORDS_PER_OPERATION:
                raise TopicRefused(ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
            records.extend(added)
        except TopicRefused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    return ControllerResult(
        () if request.validate_only else tuple(records), CreatePartitionsResponse(results=results)
    )


def _add_partitions(
    image: MetadataImage,
    random: Random,
    request: CreatePartitionsTopic,
    may_mutate: MayMutate,
    room: LogRoom,
) -> Work[list[MetadataRecord]]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    current = len(topic.partitions)
    if request.count == current:
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if request.count < current:
        raise TopicRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {current} partition(s); "
            f"{request.count} would not be an increase.",
        )
    additional = request.count - current
    factor = len(topic.partitions[0].replicas)
    if request.assignments is not None and len(request.assignments) != additional:
        raise TopicRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified.",
        )
    if not may_mutate(additional):
        raise TopicRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    if request.assignments is not None:
        placed = []
        for position, assignment in enumerate(request.assignments):
            placed.append(check_assignment(image, assignment.broker_ids, factor, current + position))
            if len(placed) % RECORDS_A_STEP == 0:
                yield TURN_COST
    elif additional > MAX_RECORDS_PER_OPERATION:
        raise TopicRefused(ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
    else:
        try:
            placed = yield from place(image, additional, factor, random)
        except PlacementRefused as refusal:
            raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(refusal)) from refusal
    room.take(placed)
    return (yield from partition_records(image, topic.id, current, placed))
