"""CreateTopics and CreatePartitions: image and request -> records and response.

Pure. Checks, their order, codes and texts are those of Kafka's controller. The caller checks the authorization, and
passes the random numbers for ids and placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafkacompat.controller.cluster_control import default_dir, is_active
from kafkacompat.controller.config_changes import ConfigRefused
from kafkacompat.controller.configs import describe_new_topic
from kafkacompat.controller.configuration_validator import check_topic_configs
from kafkacompat.controller.features import elr_enabled, metadata_version, partition_version
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.refusals import told
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.controller.striped_replica_placer import PlacementRefused, place_partitions
from kafkacompat.controller.topic_name import topic_name_flaw
from kafkacompat.ids import METADATA_TOPIC, Uuid
from kafkacompat.ports import Random
from kafkacompat.quota.mutations import MayMutate, unlimited
from kafkacompat.stepping.jobs import Pace
from kafkacompat.stepping.stepped import RECORDS_A_STEP, Stepped, Steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

MAX_PARTITIONS_PER_REQUEST = 10_000
NAMED_A_STEP = 5_000
"""Topics whose name only is checked, or settings, handled in one step, at up to 2 us each."""
TOPICS_A_STEP = 100
"""Topics handled in one step with any outcome, at up to 100 us each."""
_TOO_LARGE = "Unable to perform excessively large batch operation."
THROTTLED_TEXT = "The throttling quota has been exceeded."
UNKNOWN_TOPIC_TEXT = "This server does not host this topic-partition."


class Refused(Exception):
    """The refusal of one topic, at its place in the protocol."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = told(message)


@dataclass(slots=True)
class _Placed:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@Stepped
def create_topics(
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    request: CreateTopicsRequest,
    may_mutate: MayMutate = unlimited,
) -> Steps[ControllerResult[MetadataRecord, CreateTopicsResponse]]:
    pace = Pace(NAMED_A_STEP)
    times = yield from _times_named(request.topics, pace)
    total = 0
    for topic in request.topics:
        if times[topic.name] == 1 and topic.name != METADATA_TOPIC:
            total += _asked_partitions(topic, settings)
        if pace.is_over():
            yield
    if total > MAX_PARTITIONS_PER_REQUEST:
        text = "Excessively large number of partitions per request."
        return (yield from _all_refused(times, text, pace))
    normalized: dict[str, str] = {}
    for name in image.topics:
        if "." in name or "_" in name:
            normalized[name.replace(".", "_")] = name
        if pace.is_over():
            yield
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    made = begun = 0
    for topic in request.topics:
        if times[topic.name] > 1 or topic.name == METADATA_TOPIC:
            if pace.is_over():
                yield
            continue
        if len(records) - made >= RECORDS_A_STEP or begun >= TOPICS_A_STEP:
            made, begun = len(records), 0
            yield
        begun += 1
        try:
            result = yield from _create_topic(image, settings, random, topic, normalized, records, may_mutate)
        except Refused as refusal:
            result = _refused_topic(topic.name, refusal.code, refusal.message)
        results.append(result)
        if len(records) > MAX_RECORDS_PER_OPERATION:
            return (yield from _all_refused(times, _TOO_LARGE, pace))
    for name, count in times.items():
        if count > 1:
            results.append(_refused_topic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == METADATA_TOPIC:
            text = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            results.append(_refused_topic(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, text))
        if pace.is_over():
            yield
    response = CreateTopicsResponse(topics=results)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _times_named(
    topics: Sequence[CreatableTopic | CreatePartitionsTopic], pace: Pace
) -> Steps[Mapping[str, int]]:
    """How often a request names each topic, in order."""
    times: dict[str, int] = {}
    for topic in topics:
        times[topic.name] = times.get(topic.name, 0) + 1
        if pace.is_over():
            yield
    return times


def _all_refused(
    names: Iterable[str], text: str, pace: Pace
) -> Steps[ControllerResult[MetadataRecord, CreateTopicsResponse]]:
    every = []
    for name in names:
        every.append(_refused_topic(name, ErrorCode.POLICY_VIOLATION, text))
        if pace.is_over():
            yield
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
) -> Steps[CreatableTopicResult]:
    flaw = topic_name_flaw(topic.name)
    if topic.name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    colliding = normalized.get(topic.name.replace(".", "_"))
    if colliding is not None:
        flaw = f"Topic '{topic.name}' collides with existing topic: {colliding}"
    if flaw is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, flaw)
    overrides: dict[str, str] = {}
    nulls: list[str] = []
    for position, config in enumerate(topic.configs, 1):
        if config.value is None:
            nulls.append(config.name)
        else:
            overrides[config.name] = config.value
        if position % NAMED_A_STEP == 0:
            yield
    if nulls:
        raise Refused(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    try:
        check_topic_configs(image, settings, overrides, {})
    except ConfigRefused as refusal:
        raise Refused(refusal.code, refusal.message) from refusal
    if topic.assignments:
        placed = yield from _assigned(image, topic)
    elif topic.replication_factor < -1 or topic.replication_factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    elif topic.num_partitions < -1 or topic.num_partitions == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, text)
    else:
        count = _asked_partitions(topic, settings)
        factor = topic.replication_factor
        if factor == -1:
            factor = settings.static.get_int("default.replication.factor")
        try:
            placed = yield from _place(image, count, factor, random)
        except PlacementRefused as refusal:
            text = f"Unable to replicate the partition {factor} time(s): {refusal}"
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, text) from refusal
    if not may_mutate(len(placed)):
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED_TEXT)
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
    records.extend((yield from _partition_records(image, topic_id, 0, placed)))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(placed),
        replication_factor=len(placed[0].replicas),
        configs=describe_new_topic(image, settings, overrides),
    )


def _assigned(image: MetadataImage, topic: CreatableTopic) -> Steps[list[_Placed]]:
    if topic.replication_factor != -1:
        text = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    if topic.num_partitions != -1:
        text = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    by_index: dict[int, _Placed] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            text = f"Found multiple manual partition assignments for partition {index}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        by_index[index] = _check_assignment(image, assignment.broker_ids, factor, index)
        factor = len(assignment.broker_ids)
        if len(by_index) % RECORDS_A_STEP == 0:
            yield
    if any(index not in by_index for index in range(len(by_index))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [by_index[index] for index in range(len(by_index))]


def _check_assignment(
    image: MetadataImage, brokers: Sequence[int], factor: int | None, index: int
) -> _Placed:
    code, start = ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes"
    if not brokers:
        raise Refused(code, f"{start} an empty replica list.")
    previous: int | None = None
    for broker in sorted(brokers):
        if broker not in image.brokers:
            raise Refused(code, f"{start} broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise Refused(code, f"{start} the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(brokers) != factor:
        raise Refused(
            code,
            f"{start} a partition with {len(brokers)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s).",
        )
    isr = tuple(broker for broker in brokers if is_active(image, broker))
    if not isr:
        raise Refused(
            code,
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown.",
        )
    return _Placed(tuple(brokers), isr)


def _place(image: MetadataImage, partitions: int, factor: int, random: Random) -> Steps[list[_Placed]]:
    placed: list[_Placed] = []
    for replicas in place_partitions(image.brokers.values(), partitions, factor, random):
        isr = tuple(broker for broker in replicas if is_active(image, broker))
        if not isr:
            raise PlacementRefused("All brokers are currently fenced or in controlled shutdown.")
        placed.append(_Placed(replicas, isr))
        if len(placed) % RECORDS_A_STEP == 0:
            yield
    return placed


def _partition_records(
    image: MetadataImage, topic_id: Uuid, first_index: int, placed: Iterable[_Placed]
) -> Steps[list[MetadataRecord]]:
    version = partition_version(metadata_version(image.features))
    records: list[MetadataRecord] = []
    for index, each in enumerate(placed, first_index):
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(each.replicas),
            isr=list(each.isr),
            leader=each.isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[default_dir(image, broker) for broker in each.replicas] if version else [],
        )
        records.append(MetadataRecord(record, version))
        if len(records) % RECORDS_A_STEP == 0:
            yield
    return records


@Stepped
def create_partitions(
    image: MetadataImage,
    random: Random,
    request: CreatePartitionsRequest,
    may_mutate: MayMutate = unlimited,
) -> Steps[ControllerResult[MetadataRecord, CreatePartitionsResponse]]:
    pace = Pace(NAMED_A_STEP)
    repeated: dict[str, None] = {}
    for name, count in (yield from _times_named(request.topics, pace)).items():
        if count > 1:
            repeated[name] = None
        if pace.is_over():
            yield
    results = []
    for name in repeated:
        results.append(
            CreatePartitionsTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
        if pace.is_over():
            yield
    records: list[MetadataRecord] = []
    for position, topic in enumerate(request.topics, 1):
        if position % TOPICS_A_STEP == 0:
            yield
        if topic.name in repeated:
            continue
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
        try:
            added = yield from _add_partitions(image, random, topic, may_mutate)
            if len(records) + len(added) > MAX_RECORDS_PER_OPERATION:
                raise Refused(ErrorCode.POLICY_VIOLATION, _TOO_LARGE)
            records.extend(added)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    return ControllerResult(
        () if request.validate_only else tuple(records), CreatePartitionsResponse(results=results)
    )


def _add_partitions(
    image: MetadataImage, random: Random, request: CreatePartitionsTopic, may_mutate: MayMutate
) -> Steps[list[MetadataRecord]]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_TEXT)
    current = len(topic.partitions)
    if request.count == current:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if request.count < current:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {current} partition(s); "
            f"{request.count} would not be an increase.",
        )
    additional = request.count - current
    factor = len(topic.partitions[0].replicas)
    if request.assignments is not None and len(request.assignments) != additional:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified.",
        )
    if not may_mutate(additional):
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED_TEXT)
    if request.assignments is not None:
        placed = []
        for position, assignment in enumerate(request.assignments):
            placed.append(_check_assignment(image, assignment.broker_ids, factor, current + position))
            if len(placed) % RECORDS_A_STEP == 0:
                yield
    elif additional > MAX_RECORDS_PER_OPERATION:
        raise Refused(ErrorCode.POLICY_VIOLATION, _TOO_LARGE)
    else:
        try:
            placed = yield from _place(image, additional, factor, random)
        except PlacementRefused as refusal:
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, str(refusal)) from refusal
    return (yield from _partition_records(image, topic.id, current, placed))
