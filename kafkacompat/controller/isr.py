"""AlterPartition (KIP-497, KIP-841, KIP-903): a leader asks to change the in-sync replicas of its partitions.

If the change completes a reassignment, one record does both. If that also moves the leadership, the sender gets the error
NEW_LEADER_ELECTED, although its change was made. Pure: the image and the request give the records and the response. The error
codes are those of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.controller.cluster_control import check_broker_epoch
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.controller.leader_and_isr import partition_change
from kafkacompat.controller.partition_change_builder import NO_LEADER_CHANGE, Election
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_request import AlterPartitionRequest
from kafkacompat.wire.messages.alter_partition_request import PartitionData as RequestedPartition
from kafkacompat.wire.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
ANY_EPOCH = -1
"""A broker epoch that is not checked, as in version 2, which has no epochs."""


def alter_partition(
    image: MetadataImage, settings: ControllerSettings, request: AlterPartitionRequest
) -> Work[ControllerResult[MetadataRecord, AlterPartitionResponse]]:
    """Raises BrokerRefused (STALE_BROKER_EPOCH), except for a request without topics, which changes nothing."""
    if not request.topics:
        return ControllerResult((), AlterPartitionResponse())
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    changed: dict[tuple[bytes, int], PartitionRegistration] = {}
    topics: list[TopicData] = []
    count = 0
    for wanted in request.topics:
        topic = image.topics_by_id.get(wanted.topic_id)
        answers: list[PartitionData] = []
        for each in wanted.partitions:
            answer = PartitionData(partition_index=each.partition_index)
            if topic is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                key = (topic.id, each.partition_index)
                # For a partition named twice, the second change is checked against the result of the first.
                partition = changed.get(key, topic.partitions.get(each.partition_index))
                _alter(image, settings, request.broker_id, topic, partition, each, answer, records, changed)
            answers.append(answer)
            count += 1
            if count % RECORDS_A_STEP == 0:
                yield TURN_COST
        topics.append(TopicData(topic_id=wanted.topic_id, partitions=answers))
    return ControllerResult(tuple(records), AlterPartitionResponse(topics=topics))


def _alter(
    image: MetadataImage,
    settings: ControllerSettings,
    sender: int,
    topic: TopicImage,
    partition: PartitionRegistration | None,
    wanted: RequestedPartition,
    answer: PartitionData,
    records: list[MetadataRecord],
    changed: dict[tuple[bytes, int], PartitionRegistration],
) -> None:
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    members = _members(wanted)
    answer.error_code = _refusal(image, sender, partition, wanted, members)
    if answer.error_code != ErrorCode.NONE:
        return
    builder = partition_change(image, settings, topic, wanted.partition_index)
    builder.target_isr = tuple(broker_id for broker_id, _ in members)
    builder.target_recovering = wanted.leader_recovery_state == RECOVERING
    if settings.unclean_election(image, topic.name):
        builder.election = Election.UNCLEAN
    record = builder.build()
    if record is not None:
        change = record.message
        assert isinstance(change, PartitionChangeRecord)
        records.append(record)
        partition = changed[topic.id, wanted.partition_index] = partition.merge(change)
        if change.leader not in (sender, NO_LEADER_CHANGE):
            answer.error_code = ErrorCode.NEW_LEADER_ELECTED
            return
    answer.leader_id = partition.leader
    answer.leader_epoch = partition.leader_epoch
    answer.isr = list(partition.isr)
    answer.leader_recovery_state = RECOVERING if partition.leader_recovering else RECOVERED
    answer.partition_epoch = partition.partition_epoch


def _members(wanted: RequestedPartition) -> Sequence[tuple[int, int]]:
    """(broker id, broker epoch) of the requested ISR."""
    if wanted.new_isr_with_epochs:
        return [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs]
    return [(broker_id, ANY_EPOCH) for broker_id in wanted.new_isr]


def _refusal(
    image: MetadataImage,
    sender: int,
    partition: PartitionRegistration,
    wanted: RequestedPartition,
    members: Sequence[tuple[int, int]],
) -> ErrorCode:
    """NONE if the change is allowed. An epoch ahead of ours shows that another controller is active."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [broker_id for broker_id, _ in members]
    recovering = wanted.leader_recovery_state == RECOVERING
    if (
        len(set(isr)) != len(isr)
        or not set(isr) <= set(partition.replicas)
        or partition.leader not in isr
        or wanted.leader_recovery_state not in (RECOVERED, RECOVERING)
        or (recovering and (len(isr) > 1 or not partition.leader_recovering))
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, broker_id, epoch) for broker_id, epoch in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    return (
        broker is not None
        and not broker.fenced
        and not broker.in_controlled_shutdown
        and broker_epoch in (ANY_EPOCH, broker.epoch)
    )
