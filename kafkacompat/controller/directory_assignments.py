"""AssignReplicasToDirs (KIP-858): a broker reports the directories of its replicas.

A replica in a directory that is not online counts as lost: it leaves the ISR and another leader is elected. A replica
that moves from there to an online directory may lead again at once (Kafka 4.3.0 waits for the next occasion). Pure:
image and request give records and response. Codes are those of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from kafkacompat.controller.cluster_control import check_broker_epoch, has_online_dir
from kafkacompat.controller.features import directories_supported, metadata_version
from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.controller.leader_and_isr import (
    BrokerChange,
    generate_leader_and_isr_updates,
    partition_change,
)
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.controller.replayer import replayed
from kafkacompat.controller.result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.ids import NO_LEADER
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)


def assign_replicas_to_dirs(
    image: MetadataImage, settings: ControllerSettings, request: AssignReplicasToDirsRequest
) -> Work[ControllerResult[MetadataRecord, AssignReplicasToDirsResponse]]:
    """Raises BrokerRefused (STALE_BROKER_EPOCH, or UNSUPPORTED_VERSION below metadata.version 17)."""
    if not directories_supported(metadata_version(image.features)):
        raise BrokerRefused(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    assigned: dict[tuple[bytes, int], MetadataRecord] = {}
    lost: set[tuple[bytes, int]] = set()
    answers: list[DirectoryData] = []
    count = 0
    for directory in request.directories:
        is_online = has_online_dir(broker, directory.id)
        topics: list[TopicData] = []
        for wanted in directory.topics:
            topic = image.topics_by_id.get(wanted.topic_id)
            partitions: list[PartitionData] = []
            for index in (each.partition_index for each in wanted.partitions):
                partition = None if topic is None else topic.partitions.get(index)
                code = ErrorCode.NONE
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker.id not in partition.replicas:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    key = (topic.id, index)
                    change = partition_change(image, settings, topic, index)
                    change.target_directories = {broker.id: directory.id}
                    record = change.build()
                    # Of several directories for one replica the last one counts.
                    assigned.pop(key, None)
                    lost.discard(key)
                    if record is not None:
                        assigned[key] = record
                    if not is_online:
                        lost.add(key)
                partitions.append(PartitionData(partition_index=index, error_code=code))
                count += 1
                if count % RECORDS_A_STEP == 0:
                    yield TURN_COST
            topics.append(TopicData(topic_id=wanted.topic_id, partitions=partitions))
        answers.append(DirectoryData(id=directory.id, topics=topics))
    records = list(assigned.values())
    with_directories = yield from replayed(image, records)
    if lost:
        records.extend((yield from _lose(with_directories, settings, broker.id, lost)))
    for number, (topic_id, index) in enumerate((key for key in assigned if key not in lost), 1):
        if number % RECORDS_A_STEP == 0:
            yield TURN_COST
        topic = with_directories.topics_by_id[topic_id]
        if topic.partitions[index].leader == NO_LEADER:
            election = partition_change(with_directories, settings, topic, index).build()
            if election is not None:
                records.append(election)
    return ControllerResult(tuple(records), AssignReplicasToDirsResponse(directories=answers))


def _lose(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, lost: set[tuple[bytes, int]]
) -> Work[list[MetadataRecord]]:
    concerned = {id(image.topics_by_id[topic_id].partitions[index]) for topic_id, index in lost}

    def is_lost(partition: PartitionRegistration) -> bool:
        return id(partition) in concerned

    scope = BrokerChange(to_remove=broker_id)
    return (yield from generate_leader_and_isr_updates(image, settings, scope, is_lost))
