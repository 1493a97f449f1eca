"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860): moving a partition to other brokers.

A reassignment starts with the target replicas first and the replicas to remove behind them, and with lists of added
and removed replicas. A later change of the ISR completes it. Pure: image and request give records and response. Codes
and texts are those of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.controller.leader_and_isr import partition_change
from kafkacompat.controller.partition_change_builder import Election
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.result import RECORD_COST, RECORDS_A_STEP, SCANNED_A_STEP, ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kafkacompat.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_ASSIGNMENT = "The manual partition assignment includes"
_TOO_LARGE = "Unable to perform excessively large batch operation."


class ReassignmentRefused(Exception):
    """The refusal for one partition."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition's replica lists during a reassignment."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]


def reassignment_replicas(current: Sequence[int], target: Sequence[int]) -> Reassignment:
    """The change from all present replicas, including those of a running reassignment, to the target."""
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Reassignment((*target, *removing), removing, adding)


def reassignment_revert(partition: PartitionRegistration) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(replicas, ISR, whether records are lost): the state before the reassignment, without the added replicas.

    If only added replicas are in sync, the first original replica is put into the ISR although it is not in sync.
    """
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not replicas:
        raise ReassignmentRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    return (replicas, isr, False) if isr else (replicas, replicas[:1], True)


def is_reassignment_in_progress(partition: PartitionRegistration) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def alter_partition_reassignments(
    image: MetadataImage, settings: ControllerSettings, request: AlterPartitionReassignmentsRequest
) -> Work[ControllerResult[MetadataRecord, AlterPartitionReassignmentsResponse]]:
    if not request.topics:
        return ControllerResult((), AlterPartitionReassignmentsResponse(error_message=""))
    records: dict[tuple[str, int], MetadataRecord] = {}
    responses: list[ReassignableTopicResponse] = []
    pace = Pace(RECORDS_A_STEP)
    for topic in request.topics:
        answers: list[ReassignablePartitionResponse] = []
        for partition in topic.partitions:
            answer = ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            try:
                record = _alter(
                    image, settings, topic.name, partition, request.allow_replication_factor_change
                )
                if record is not None:
                    if len(records) >= MAX_RECORDS_PER_OPERATION:
                        raise ReassignmentRefused(ErrorCode.POLICY_VIOLATION, _TOO_LARGE)
                    # Of several changes for one partition the last one counts: each is based on the same state.
                    records[topic.name, partition.partition_index] = record
            except ReassignmentRefused as refusal:
                answer.error_code, answer.error_message = refusal.code, refusal.message
            answers.append(answer)
            if pace.is_over():
                yield TURN_COST
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
        if pace.is_over():  # many may name no partition
            yield TURN_COST
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return ControllerResult(tuple(records.values()), response)


def _alter(
    image: MetadataImage,
    settings: ControllerSettings,
    name: str,
    request: ReassignablePartition,
    factor_may_change: bool,
) -> MetadataRecord | None:
    index = request.partition_index
    topic = image.topics.get(name)
    if topic is None:
        text = f"Unable to find a topic named {name}."
        raise ReassignmentRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if index not in topic.partitions:
        text = f"Unable to find partition {name}:{index}."
        raise ReassignmentRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if request.replicas is None:
        return _cancel(image, settings, topic, index)
    return _reassign(image, settings, topic, index, request.replicas, factor_may_change)


def _cancel(
    image: MetadataImage, settings: ControllerSettings, topic: TopicImage, index: int
) -> MetadataRecord | None:
    partition = topic.partitions[index]
    if not is_reassignment_in_progress(partition):
        raise ReassignmentRefused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    replicas, isr, unclean = reassignment_revert(partition)
    may_be_unclean = settings.unclean_election(image, topic.name)
    if unclean and not may_be_unclean:
        raise ReassignmentRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    builder = partition_change(image, settings, topic, index)
    builder.target_isr = isr
    builder.target_replicas = replicas
    builder.target_removing = builder.target_adding = ()
    if may_be_unclean:
        builder.election = Election.UNCLEAN
    return builder.build()


def _reassign(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: TopicImage,
    index: int,
    target: Sequence[int],
    factor_may_change: bool,
) -> MetadataRecord | None:
    _check_target(image, target)
    partition = topic.partitions[index]
    factor = len(set(partition.replicas) - set(partition.removing_replicas))
    if not factor_may_change and len(target) != factor:
        raise ReassignmentRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )
    plan = reassignment_replicas(partition.replicas, target)
    builder = partition_change(image, settings, topic, index)
    builder.target_replicas = plan.replicas
    # If the new plan's list is empty, the list of a running reassignment stays.
    builder.target_removing = plan.removing or None
    builder.target_adding = plan.adding or None
    return builder.build()


def _check_target(image: MetadataImage, target: Sequence[int]) -> None:
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target:
        raise ReassignmentRefused(code, f"{_ASSIGNMENT} an empty replica list.")
    previous: int | None = None
    for broker in sorted(target):
        if broker not in image.brokers:
            text = f"{_ASSIGNMENT} broker {broker}, but no such broker is registered."
            raise ReassignmentRefused(code, text)
        if broker == previous:
            raise ReassignmentRefused(code, f"{_ASSIGNMENT} the broker {broker} more than once.")
        previous = broker


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Work[ControllerResult[MetadataRecord, ListPartitionReassignmentsResponse]]:
    """The partitions being reassigned, among those requested or all. Topics without any are left out."""
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topics is None:
        wanted = ((name, sorted(image.topics[name].partitions)) for name in sorted(image.topics))
    else:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    found: list[OngoingTopicReassignment] = []
    pace = Pace(SCANNED_A_STEP)
    for name, indexes in wanted:
        if pace.is_over():
            yield TURN_COST
        topic = image.topics.get(name)
        if topic is None:
            continue
        moving: list[OngoingPartitionReassignment] = []
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and is_reassignment_in_progress(partition):
                moving.append(_ongoing(index, partition))
                if pace.is_over(RECORD_COST):
                    yield TURN_COST
            elif pace.is_over():
                yield TURN_COST
        if moving:
            found.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ControllerResult((), ListPartitionReassignmentsResponse(error_message=None, topics=found))


def _ongoing(index: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
