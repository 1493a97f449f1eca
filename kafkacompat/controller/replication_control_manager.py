"""Changes of partitions' replicas, leaders and directories (ReplicationControlManager). Pure: image, settings and request give
records and response. Codes and texts are those of Apache Kafka. PartitionChangeBuilder makes each record. CreateTopics,
CreatePartitions and DeleteTopics are in topics.py.

- AlterPartition (KIP-497, KIP-841, KIP-903): a leader asks to change the in-sync replicas of its partitions. If the change
  completes a reassignment, one record does both. If that also moves the leadership, the sender gets the error
  NEW_LEADER_ELECTED, although its change was made.
- ElectLeaders (KIP-183, KIP-460): elections requested by an administrator, of preferred leaders or unclean.
- Automatic elections: preferred leaders, and unclean elections where the topic allows them. The response `True` asks for
  another round at once, because one round is bounded as in Apache Kafka.
- AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860). A reassignment starts with the target
  replicas first and the replicas to remove behind them, and with lists of added and removed replicas. A later change of the
  ISR completes it.
- AssignReplicasToDirs (KIP-858): a broker reports the directories of its replicas. A replica in a directory that is not
  online counts as lost: it leaves the ISR and another leader is elected. A replica that moves from there to an online
  directory may lead again at once (Kafka 4.3.0 waits for the next occasion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafkacompat.controller.cluster_control_manager import check_broker_epoch
from kafkacompat.controller.controller_result import (
    RECORD_COST,
    RECORDS_A_STEP,
    SCANNED_A_STEP,
    BrokerRefused,
    ControllerResult,
)
from kafkacompat.controller.features import directories_supported, metadata_version
from kafkacompat.controller.image import (
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    has_online_dir,
    manual_assignment_flaw,
)
from kafkacompat.controller.metadata_delta import replayed
from kafkacompat.controller.partition_change_builder import (
    NO_LEADER_CHANGE,
    BrokerChange,
    Election,
    generate_leader_and_isr_updates,
    partition_change,
)
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_LEADER
from kafkacompat.tasks import TURN_COST, Pace, Work, sorted_in_steps
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
from kafkacompat.wire.messages.alter_partition_request import AlterPartitionRequest
from kafkacompat.wire.messages.alter_partition_request import PartitionData as RequestedPartition
from kafkacompat.wire.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
)
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import PartitionData as AssignedPartition
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import TopicData as AssignedTopic
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
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
                _alter_partition(
                    image, settings, request.broker_id, topic, partition, each, answer, records, changed
                )
            answers.append(answer)
            count += 1
            if count % RECORDS_A_STEP == 0:
                yield TURN_COST
        topics.append(TopicData(topic_id=wanted.topic_id, partitions=answers))
    return ControllerResult(tuple(records), AlterPartitionResponse(topics=topics))


def _alter_partition(
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
    members = _requested_isr(wanted)
    answer.error_code = _isr_refusal(image, sender, partition, wanted, members)
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


def _requested_isr(wanted: RequestedPartition) -> Sequence[tuple[int, int]]:
    """(broker id, broker epoch) of the requested ISR."""
    if wanted.new_isr_with_epochs:
        return [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs]
    return [(broker_id, ANY_EPOCH) for broker_id in wanted.new_isr]


def _isr_refusal(
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


REFUSED_A_STEP = 5_000
RECORDS_LIKE_COST = 10
"""The cost of an election, relative to a partition that needs none."""
ELECTIONS_BY_TYPE = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""By the request's election type."""
NOT_NEEDED_TEXT = "Leader election not needed for topic partition."
NO_PREFERRED_TEXT = "The preferred leader was not available."
NO_ELIGIBLE_TEXT = "Eligible topic partition leaders are not available."
TOO_LARGE_TEXT = "Unable to perform excessively large batch operation."


def elect_leaders(
    image: MetadataImage,
    settings: ControllerSettings,
    request: ElectLeadersRequest,
    *,
    with_request_error: bool = True,
) -> Work[ControllerResult[MetadataRecord, ElectLeadersResponse]]:
    """If no partitions are named, all are meant. Partitions that need no election are then left out of the answer.

    `with_request_error`: the answer's version has a field for an error of the whole request.
    """
    if request.topic_partitions is not None and not request.topic_partitions:
        return ControllerResult((), ElectLeadersResponse())
    election = ELECTIONS_BY_TYPE.get(request.election_type)
    if election is None:
        text = f"Unknown election type {request.election_type}"
        return ControllerResult((), (yield from _refused_elections(request, ErrorCode.INVALID_REQUEST, text)))
    named = request.topic_partitions is not None
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        every = yield from sorted_in_steps(image.topics)
        wanted = ((name, sorted(image.topics[name].partitions)) for name in every)
    else:
        wanted = ((each.topic, each.partitions) for each in request.topic_partitions)
    records: dict[tuple[str, int], MetadataRecord] = {}
    results: list[ReplicaElectionResult] = []
    pace = Pace(RECORDS_A_STEP * RECORDS_LIKE_COST)
    for name, indexes in wanted:
        found: list[PartitionResult] = []
        for index in indexes:
            result = _elect_leader(image, settings, name, index, election, records)
            # Most partitions need no election, which is found out at once.
            if pace.is_over(1 if result.error_code == ErrorCode.ELECTION_NOT_NEEDED else RECORDS_LIKE_COST):
                yield TURN_COST
            if named or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                found.append(result)
        results.append(ReplicaElectionResult(topic=name, partition_result=found))
        if pace.is_over():  # many may name no partition
            yield TURN_COST
    if len(records) > MAX_RECORDS_PER_OPERATION:
        refused = yield from _refused_elections(request, ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
        if not with_request_error:
            refused.error_code = ErrorCode.NONE
        return ControllerResult((), refused)
    return ControllerResult(tuple(records.values()), ElectLeadersResponse(replica_election_results=results))


def _elect_leader(
    image: MetadataImage,
    settings: ControllerSettings,
    name: str,
    index: int,
    election: Election,
    records: dict[tuple[str, int], MetadataRecord],
) -> PartitionResult:
    def result(code: ErrorCode, text: str | None) -> PartitionResult:
        return PartitionResult(partition_id=index, error_code=code, error_message=text)

    topic = image.topics.get(name)
    if topic is None:
        return result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        return result(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED_TEXT)
    builder = partition_change(image, settings, topic, index)
    builder.election = election
    record = builder.build()
    if record is None:
        if preferred:
            return result(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, NO_PREFERRED_TEXT)
        return result(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_ELIGIBLE_TEXT)
    # A partition named twice is elected once: a second record would only increment the epoch.
    records[name, index] = record
    return result(ErrorCode.NONE, None)


def _refused_elections(
    request: ElectLeadersRequest, code: ErrorCode, text: str | None
) -> Work[ElectLeadersResponse]:
    """The error of the whole request, also set on every partition in it."""
    results: list[ReplicaElectionResult] = []
    pace = Pace(REFUSED_A_STEP)
    for topic in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=topic.topic)
        results.append(result)
        for index in topic.partitions:
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=code, error_message=text)
            )
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():
            yield TURN_COST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


MAX_ELECTIONS_PER_ROUND = 1000


def maybe_balance_partition_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Make the first replica the leader again where it is in sync and alive. True: there may be more to do."""
    return (yield from _elect_where(image, settings, Election.PREFERRED, _is_imbalanced))


def maybe_elect_unclean_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Elect leaders for partitions without one, out of sync if necessary, where the topic allows it. True: there may
    be more to do."""
    return (
        yield from _elect_where(
            image,
            settings,
            Election.UNCLEAN,
            lambda partition: partition.leader == NO_LEADER,
            lambda topic: settings.unclean_election(image, topic.name),
        )
    )


def _is_imbalanced(partition: PartitionRegistration) -> bool:
    return partition.leader != partition.replicas[0]


def _elect_where(
    image: MetadataImage,
    settings: ControllerSettings,
    election: Election,
    concerned: Callable[[PartitionRegistration], bool],
    allowed: Callable[[TopicImage], bool] = lambda topic: True,
) -> Work[ControllerResult[MetadataRecord, bool]]:
    records: list[MetadataRecord] = []
    cost = 0
    for name in (yield from sorted_in_steps(image.topics)):
        topic = image.topics[name]
        cost += len(topic.partitions)
        indexes = [index for index in sorted(topic.partitions) if concerned(topic.partitions[index])]
        if indexes and allowed(topic):
            for index in indexes:
                builder = partition_change(image, settings, topic, index)
                builder.election = election
                record = builder.build()
                cost += RECORD_COST
                if record is not None:
                    records.append(record)
                    if len(records) >= MAX_ELECTIONS_PER_ROUND:
                        return ControllerResult(tuple(records), True)
                if cost >= SCANNED_A_STEP:
                    cost = 0
                    yield TURN_COST
        if cost >= SCANNED_A_STEP:
            cost = 0
            yield TURN_COST
    return ControllerResult(tuple(records), False)


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
                record = _alter_reassignment(
                    image, settings, topic.name, partition, request.allow_replication_factor_change
                )
                if record is not None:
                    if len(records) >= MAX_RECORDS_PER_OPERATION:
                        raise ReassignmentRefused(ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
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


def _alter_reassignment(
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
    flaw = manual_assignment_flaw(image, target)
    if flaw is not None:
        raise ReassignmentRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, flaw)
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


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Work[ControllerResult[MetadataRecord, ListPartitionReassignmentsResponse]]:
    """The partitions being reassigned, among those requested or all. Topics without any are left out."""
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topics is None:
        every = yield from sorted_in_steps(image.topics)
        wanted = ((name, sorted(image.topics[name].partitions)) for name in every)
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
        topics: list[AssignedTopic] = []
        for wanted in directory.topics:
            topic = image.topics_by_id.get(wanted.topic_id)
            partitions: list[AssignedPartition] = []
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
                partitions.append(AssignedPartition(partition_index=index, error_code=code))
                count += 1
                if count % RECORDS_A_STEP == 0:
                    yield TURN_COST
            topics.append(AssignedTopic(topic_id=wanted.topic_id, partitions=partitions))
        answers.append(DirectoryData(id=directory.id, topics=topics))
    records = list(assigned.values())
    with_directories = yield from replayed(image, records)
    if lost:
        records.extend((yield from _leave_lost_directories(with_directories, settings, broker.id, lost)))
    for number, (topic_id, index) in enumerate((key for key in assigned if key not in lost), 1):
        if number % RECORDS_A_STEP == 0:
            yield TURN_COST
        topic = with_directories.topics_by_id[topic_id]
        if topic.partitions[index].leader == NO_LEADER:
            election = partition_change(with_directories, settings, topic, index).build()
            if election is not None:
                records.append(election)
    return ControllerResult(tuple(records), AssignReplicasToDirsResponse(directories=answers))


def _leave_lost_directories(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, lost: set[tuple[bytes, int]]
) -> Work[list[MetadataRecord]]:
    concerned = {id(image.topics_by_id[topic_id].partitions[index]) for topic_id, index in lost}

    def is_lost(partition: PartitionRegistration) -> bool:
        return id(partition) in concerned

    scope = BrokerChange(to_remove=broker_id)
    return (yield from generate_leader_and_isr_updates(image, settings, scope, is_lost))
