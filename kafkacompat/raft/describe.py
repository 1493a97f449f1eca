"""DescribeQuorum (KIP-595, KIP-836, KIP-853), as a leader answers it.

Pure: a report and a request give the response. The quorum has one topic with one partition and answers only a request
for exactly that. As in Apache Kafka, each other entry gets an error.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.ids import METADATA_TOPIC, ZERO_UUID
from kafkacompat.raft.quorum_driver import QuorumReport, ReplicaReport
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest
from kafkacompat.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

REFUSED_A_STEP = 2_000
"""Topics and partitions refused in one step."""
UNKNOWN_PARTITION_TEXT = "This server does not host this topic-partition."
NOT_LEADER_TEXT = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests "
    "intended for any replica, this error indicates that the broker is not a replica of the topic partition."
)


def describe_quorum(
    request: DescribeQuorumRequest, report: QuorumReport | None, *, with_identities: bool = True
) -> Work[DescribeQuorumResponse]:
    """`report` is None if this node does not lead.

    `with_identities`: include directory ids and the voters' addresses, for which old versions have no fields.
    """
    if not _asks_for_the_metadata(request):
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION_TEXT
        return (yield from refused_partitions(request, code, text))
    if report is None:
        return (yield from refused_partitions(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER_TEXT))
    partition = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=report.leader_id,
        leader_epoch=report.epoch,
        high_watermark=report.high_watermark,
        current_voters=_states(report.voters, with_identities),
        observers=_states(report.observers, with_identities),
    )
    return DescribeQuorumResponse(
        error_message="",
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=voter.id,
                listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
            )
            for voter in report.voters
            if with_identities
        ],
    )


def _asks_for_the_metadata(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    (topic,) = request.topics
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == 0


def _states(replicas: Iterable[ReplicaReport], with_identities: bool) -> list[ReplicaState]:
    return [
        ReplicaState(
            replica_id=replica.id,
            replica_directory_id=replica.directory_id if with_identities else ZERO_UUID,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_ms,
            last_caught_up_timestamp=replica.last_caught_up_ms,
        )
        for replica in replicas
    ]


def refused_partitions(
    request: DescribeQuorumRequest, code: ErrorCode, text: str | None
) -> Work[DescribeQuorumResponse]:
    """The error for every requested partition."""
    response = DescribeQuorumResponse(error_message="")
    pace = Pace(REFUSED_A_STEP)
    for topic in request.topics:
        told = TopicData(topic_name=topic.topic_name)
        response.topics.append(told)
        for partition in topic.partitions:
            told.partitions.append(
                PartitionData(partition_index=partition.partition_index, error_code=code, error_message=text)
            )
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():  # many topics may have no partition
            yield TURN_COST
    return response
