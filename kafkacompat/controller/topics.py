"""CreateTopics, CreatePartitions and DeleteTopics (the other part of ReplicationControlManager). Pure: image and request give
records and response.

Checks, their order, codes and texts are those of Kafka's controller. The caller checks the authorization, and passes the random
numbers for ids and placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkacompat.config.topic import MIRROR_LEADER_EPOCH
from kafkacompat.controller.configuration_control_manager import (
    ConfigRefused,
    check_count,
    check_topic_configs,
    describe_new_topic,
    topic_name_flaw,
)
from kafkacompat.controller.controller_result import RECORDS_A_STEP, ControllerResult, cut_to_fit
from kafkacompat.controller.features import elr_enabled, metadata_version, partition_version
from kafkacompat.controller.image import (
    MetadataImage,
    TopicImage,
    default_dir,
    is_active,
    manual_assignment_flaw,
)
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.controller.striped_replica_placer import PlacementRefused, place_partitions
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import INTERNAL_TOPICS, METADATA_TOPIC, ZERO_UUID, Uuid
from kafkacompat.ports import Random
from kafkacompat.quota.client_quotas import MayMutate, unlimited
from kafkacompat.tasks import TURN_COST, Pace, Work, pieces
from kafkacompat.wire.config_resources import ConfigResourceType
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
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest
from kafkacompat.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

NAMED_A_STEP = 5_000
"""Topics whose name only is checked, or settings, handled in one step, at up to 2 us each."""
TOPICS_A_STEP = 100
"""Topics handled in one step with any outcome, at up to 100 us each."""
TOO_LARGE_TEXT = "Unable to perform excessively large batch operation."


class TopicRefused(Exception):
    """The refusal of one topic, at its place in the protocol."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = cut_to_fit(message)


@dataclass(slots=True)
class Placed:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class LogRoom:
    """The room for new logs on this node, which one request uses up. A log that is created but finds no descriptor could
    not be written. What other brokers have room for is unknown."""

    __slots__ = ("_left", "_node_id")

    def __init__(self, node_id: int, logs_left: int | None) -> None:
        """`logs_left`: for how many logs this node has descriptors. None if there is no limit."""
        self._node_id = node_id
        self._left = logs_left

    def take(self, placed: Iterable[Placed]) -> None:
        """Raises TopicRefused."""
        if self._left is None:
            return
        own = sum(self._node_id in each.replicas for each in placed)
        if own > self._left:
            raise TopicRefused(
                ErrorCode.POLICY_VIOLATION,
                f"Node {self._node_id} would have {own} new replicas, but its limit of open files leaves room for "
                f"{self._left}.",
            )
        self._left -= own


def times_named(
    topics: Sequence[CreatableTopic | CreatePartitionsTopic], pace: Pace
) -> Work[Mapping[str, int]]:
    """How often a request names each topic, in order."""
    times: dict[str, int] = {}
    for topic in topics:
        times[topic.name] = times.get(topic.name, 0) + 1
        if pace.is_over():
            yield TURN_COST
    return times


def check_assignment(image: MetadataImage, brokers: Sequence[int], factor: int | None, index: int) -> Placed:
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    flaw = manual_assignment_flaw(image, brokers)
    if flaw is not None:
        raise TopicRefused(code, flaw)
    if factor is not None and len(brokers) != factor:
        raise TopicRefused(
            code,
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s).",
        )
    isr = tuple(broker for broker in brokers if is_active(image, broker))
    if not isr:
        raise TopicRefused(
            code,
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown.",
        )
    return Placed(tuple(brokers), isr)


def place(image: MetadataImage, partitions: int, factor: int, random: Random) -> Work[list[Placed]]:
    placed: list[Placed] = []
    for replicas in place_partitions(image.brokers.values(), partitions, factor, random):
        isr = tuple(broker for broker in replicas if is_active(image, broker))
        if not isr:
            raise PlacementRefused("All brokers are currently fenced or in controlled shutdown.")
        placed.append(Placed(replicas, isr))
        if len(placed) % RECORDS_A_STEP == 0:
            yield TURN_COST
    return placed


def partition_records(
    image: MetadataImage,
    topic_id: Uuid,
    first_index: int,
    placed: Iterable[Placed],
    configs: Mapping[str, str],
) -> Work[list[MetadataRecord]]:
    """`configs`: the topic's own settings, which are valid."""
    version = partition_version(metadata_version(image.features))
    leader_epoch = int(configs.get(MIRROR_LEADER_EPOCH, "0"))
    records: list[MetadataRecord] = []
    for index, each in enumerate(placed, first_index):
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(each.replicas),
            isr=list(each.isr),
            leader=each.isr[0],
            leader_epoch=leader_epoch,
            partition_epoch=0,
            directories=[default_dir(image, broker) for broker in each.replicas] if version else [],
        )
        records.append(MetadataRecord(record, version))
        if len(records) % RECORDS_A_STEP == 0:
            yield TURN_COST
    return records


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
                image, settings, random, topic, normalized, records, may_mutate, room, pace
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
    pace: Pace,
) -> Work[CreatableTopicResult]:
    flaw = topic_name_flaw(topic.name)
    if topic.name in image.topics:
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    colliding = normalized.get(topic.name.replace(".", "_"))
    if colliding is not None:
        flaw = f"Topic '{topic.name}' collides with existing topic: {colliding}"
    if flaw is not None:
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, flaw)
    try:
        check_count(topic)
    except ConfigRefused as refusal:
        raise TopicRefused(refusal.code, refusal.message) from refusal
    overrides: dict[str, str] = {}
    nulls: list[str] = []
    for config in topic.configs:
        if config.value is None:
            nulls.append(config.name)
        else:
            overrides[config.name] = config.value
    if pace.is_over(len(topic.configs)):
        yield TURN_COST
    if nulls:
        raise TopicRefused(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    try:
        if overrides:  # as in Kafka: the broker's own defaults refuse no topic
            check_topic_configs(image, settings, overrides, {})
    except ConfigRefused as refusal:
        raise TopicRefused(refusal.code, refusal.message) from refusal
    if topic.name in INTERNAL_TOPICS and MIRROR_LEADER_EPOCH in overrides:
        raise TopicRefused(
            ErrorCode.INVALID_CONFIG, f"Topic '{topic.name}' is internal and cannot be a mirror."
        )
    if topic.assignments:
        placed = yield from _manually_placed(image, topic)
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
    records.extend((yield from partition_records(image, topic_id, 0, placed, overrides)))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(placed),
        replication_factor=len(placed[0].replicas),
        configs=describe_new_topic(image, settings, overrides),
    )


def _manually_placed(image: MetadataImage, topic: CreatableTopic) -> Work[list[Placed]]:
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
    total = 0
    for topic in request.topics:
        known = image.topics.get(topic.name)
        if known is not None and topic.name not in repeated:
            total += max(0, topic.count - len(known.partitions))
        if pace.is_over():
            yield TURN_COST
    results = []
    if total > MAX_PARTITIONS_PER_REQUEST:
        text = "Excessively large number of additional partitions per request."
        for topic in request.topics:
            code = ErrorCode.POLICY_VIOLATION
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text))
            if pace.is_over():
                yield TURN_COST
        return ControllerResult((), CreatePartitionsResponse(results=results))
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
            records.extend((yield from _add_partitions(image, random, topic, may_mutate, room)))
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
    else:
        try:
            placed = yield from place(image, additional, factor, random)
        except PlacementRefused as refusal:
            raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(refusal)) from refusal
    room.take(placed)
    configs = image.configs.get((ConfigResourceType.TOPIC, topic.name), {})
    return (yield from partition_records(image, topic.id, current, placed, configs))


DELETED_A_STEP = 1_000
"""Topics that are looked up and removed in one step."""
_UNKNOWN_TOPIC = "This server does not host this topic-partition."
_UNKNOWN_ID = "This server does not host this topic ID."


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, may_mutate: MayMutate = unlimited
) -> Work[ControllerResult[MetadataRecord, DeleteTopicsResponse]]:
    """Accepts names (v1-5), and names or ids (v6). The caller knows the version and checks that deletion is enabled."""
    results: list[DeletableTopicResult] = []

    def answer(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None) -> None:
        results.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        )

    names: dict[str, int] = {}
    ids: dict[Uuid, int] = {}
    for position, name in enumerate(request.topic_names, 1):
        if position % NAMED_A_STEP == 0:
            yield TURN_COST
        names[name] = names.get(name, 0) + 1
    for position, each in enumerate(request.topics, 1):
        if position % NAMED_A_STEP == 0:
            yield TURN_COST
        if each.name is None and each.topic_id == ZERO_UUID:
            answer(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif each.name is None:
            ids[each.topic_id] = ids.get(each.topic_id, 0) + 1
        elif each.topic_id == ZERO_UUID:
            names[each.name] = names.get(each.name, 0) + 1
        else:
            text = "You may not specify both topic name and topic id."
            answer(each.name, each.topic_id, ErrorCode.INVALID_REQUEST, text)
    doomed: dict[Uuid, TopicImage] = {}
    for position, (topic_id, count) in enumerate(ids.items(), 1):
        if position % DELETED_A_STEP == 0:
            yield TURN_COST
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            answer(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic is None:
            answer(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
        else:
            doomed[topic_id] = topic
    for position, (name, count) in enumerate(names.items(), 1):
        if position % DELETED_A_STEP == 0:
            yield TURN_COST
        topic = image.topics.get(name)
        if count > 1:
            answer(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic is None:
            answer(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC)
        elif ids.get(topic.id):
            doomed.pop(topic.id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            answer(name, topic.id, ErrorCode.INVALID_REQUEST, text)
        else:
            doomed[topic.id] = topic
    records: list[MetadataRecord] = []
    for position, topic in enumerate(doomed.values(), 1):
        if position % DELETED_A_STEP == 0:
            yield TURN_COST
        if not may_mutate(len(topic.partitions)):
            answer(topic.name, topic.id, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
            continue
        records.append(MetadataRecord(RemoveTopicRecord(topic_id=topic.id), 0))
        answer(topic.name, topic.id, ErrorCode.NONE, None)
    return ControllerResult(tuple(records), DeleteTopicsResponse(responses=results))


def deletion_disabled(
    request: DeleteTopicsRequest, code: ErrorCode
) -> Work[ControllerResult[MetadataRecord, DeleteTopicsResponse]]:
    """The refusal of every topic while delete.topic.enable is false. As in Kafka it has no text."""
    results: list[DeletableTopicResult] = []
    for names in pieces(request.topic_names, NAMED_A_STEP):
        results += [DeletableTopicResult(name=name, error_code=code) for name in names]
        yield TURN_COST
    for some in pieces(request.topics, NAMED_A_STEP):
        results += [
            DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=code) for each in some
        ]
        yield TURN_COST
    return ControllerResult((), DeleteTopicsResponse(responses=results))
