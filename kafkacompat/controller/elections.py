"""ElectLeaders (KIP-183, KIP-460): elections requested by an administrator, of preferred leaders or unclean.

Pure: image and request give records and response. PartitionChangeBuilder elects. Codes and texts are those of Apache
Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.leader_and_isr import partition_change
from kafkacompat.controller.partition_change_builder import Election
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.ids import NO_LEADER
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

REFUSED_A_STEP = 5_000
RECORDS_LIKE_COST = 10
"""The cost of an election, relative to a partition that needs none."""
ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
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
    election = ELECTIONS.get(request.election_type)
    if election is None:
        text = f"Unknown election type {request.election_type}"
        return ControllerResult((), (yield from _refused(request, ErrorCode.INVALID_REQUEST, text)))
    named = request.topic_partitions is not None
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        wanted = ((name, sorted(image.topics[name].partitions)) for name in sorted(image.topics))
    else:
        wanted = ((each.topic, each.partitions) for each in request.topic_partitions)
    records: dict[tuple[str, int], MetadataRecord] = {}
    results: list[ReplicaElectionResult] = []
    pace = Pace(RECORDS_A_STEP * RECORDS_LIKE_COST)
    for name, indexes in wanted:
        found: list[PartitionResult] = []
        for index in indexes:
            result = _elect(image, settings, name, index, election, records)
            # Most partitions need no election, which is found out at once.
            if pace.is_over(1 if result.error_code == ErrorCode.ELECTION_NOT_NEEDED else RECORDS_LIKE_COST):
                yield TURN_COST
            if named or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                found.append(result)
        results.append(ReplicaElectionResult(topic=name, partition_result=found))
        if pace.is_over():  # many may name no partition
            yield TURN_COST
    if len(records) > MAX_RECORDS_PER_OPERATION:
        refused = yield from _refused(request, ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
        if not with_request_error:
            refused.error_code = ErrorCode.NONE
        return ControllerResult((), refused)
    return ControllerResult(tuple(records.values()), ElectLeadersResponse(replica_election_results=results))


def _elect(
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


def _refused(request: ElectLeadersRequest, code: ErrorCode, text: str | None) -> Work[ElectLeadersResponse]:
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
