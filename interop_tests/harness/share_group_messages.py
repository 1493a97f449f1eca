"""Definitions of the messages of share groups (KIP-932), and of those between a leader and a share coordinator.

They have the form of `consumer_group_messages`. No client library in use contains them.
"""

from __future__ import annotations

from typing import Any

from interop_tests.harness.consumer_group_messages import Shape, in_kafkas_form

SHAPES: dict[str, tuple[int, str, Shape]] = {
    "ShareGroupHeartbeatRequest": (
        76,
        "1",
        [
            ("GroupId", "string"),
            ("MemberId", "string"),
            ("MemberEpoch", "int32"),
            ("RackId", "string?"),
            ("SubscribedTopicNames", "[]string?"),
        ],
    ),
    "ShareGroupHeartbeatResponse": (
        76,
        "1",
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            ("MemberId", "string?"),
            ("MemberEpoch", "int32"),
            ("HeartbeatIntervalMs", "int32"),
            ("Assignment:struct?", [("TopicPartitions", [("TopicId", "uuid"), ("Partitions", "[]int32")])]),
        ],
    ),
    "ShareGroupDescribeRequest": (
        77,
        "1",
        [("GroupIds", "[]string"), ("IncludeAuthorizedOperations", "bool")],
    ),
    "ShareGroupDescribeResponse": (
        77,
        "1",
        [
            ("ThrottleTimeMs", "int32"),
            (
                "Groups",
                [
                    ("ErrorCode", "int16"),
                    ("ErrorMessage", "string?"),
                    ("GroupId", "string"),
                    ("GroupState", "string"),
                    ("GroupEpoch", "int32"),
                    ("AssignmentEpoch", "int32"),
                    ("AssignorName", "string"),
                    (
                        "Members",
                        [
                            ("MemberId", "string"),
                            ("RackId", "string?"),
                            ("MemberEpoch", "int32"),
                            ("ClientId", "string"),
                            ("ClientHost", "string"),
                            ("SubscribedTopicNames", "[]string"),
                            (
                                "Assignment:struct",
                                [
                                    (
                                        "TopicPartitions",
                                        [
                                            ("TopicId", "uuid"),
                                            ("TopicName", "string"),
                                            ("Partitions", "[]int32"),
                                        ],
                                    )
                                ],
                            ),
                        ],
                    ),
                    ("AuthorizedOperations", "int32=-2147483648"),
                ],
            ),
        ],
    ),
    "ShareFetchRequest": (
        78,
        "1-2",
        [
            ("GroupId", "string?"),
            ("MemberId", "string?"),
            ("ShareSessionEpoch", "int32"),
            ("MaxWaitMs", "int32"),
            ("MinBytes", "int32"),
            ("MaxBytes", "int32=0x7fffffff"),
            ("MaxRecords@1", "int32"),
            ("BatchSize@1", "int32"),
            ("ShareAcquireMode@2", "int8"),
            ("IsRenewAck@2", "bool"),
            (
                "Topics",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("PartitionIndex", "int32"),
                            (
                                "AcknowledgementBatches",
                                [
                                    ("FirstOffset", "int64"),
                                    ("LastOffset", "int64"),
                                    ("AcknowledgeTypes", "[]int8"),
                                ],
                            ),
                        ],
                    ),
                ],
            ),
            ("ForgottenTopicsData", [("TopicId", "uuid"), ("Partitions", "[]int32")]),
        ],
    ),
    "ShareFetchResponse": (
        78,
        "1-2",
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            ("AcquisitionLockTimeoutMs@1", "int32"),
            (
                "Responses",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("PartitionIndex", "int32"),
                            ("ErrorCode", "int16"),
                            ("ErrorMessage", "string?"),
                            ("AcknowledgeErrorCode", "int16"),
                            ("AcknowledgeErrorMessage", "string?"),
                            ("CurrentLeader:struct", [("LeaderId", "int32"), ("LeaderEpoch", "int32")]),
                            ("Records", "records?"),
                            (
                                "AcquiredRecords",
                                [
                                    ("FirstOffset", "int64"),
                                    ("LastOffset", "int64"),
                                    ("DeliveryCount", "int16"),
                                ],
                            ),
                        ],
                    ),
                ],
            ),
            (
                "NodeEndpoints",
                [("NodeId", "int32"), ("Host", "string"), ("Port", "int32"), ("Rack", "string?")],
            ),
        ],
    ),
    "ShareAcknowledgeRequest": (
        79,
        "1-2",
        [
            ("GroupId", "string?"),
            ("MemberId", "string?"),
            ("ShareSessionEpoch", "int32"),
            ("IsRenewAck@2", "bool"),
            (
                "Topics",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("PartitionIndex", "int32"),
                            (
                                "AcknowledgementBatches",
                                [
                                    ("FirstOffset", "int64"),
                                    ("LastOffset", "int64"),
                                    ("AcknowledgeTypes", "[]int8"),
                                ],
                            ),
                        ],
                    ),
                ],
            ),
        ],
    ),
    "ShareAcknowledgeResponse": (
        79,
        "1-2",
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            ("AcquisitionLockTimeoutMs@2", "int32"),
            (
                "Responses",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("PartitionIndex", "int32"),
                            ("ErrorCode", "int16"),
                            ("ErrorMessage", "string?"),
                            ("CurrentLeader:struct", [("LeaderId", "int32"), ("LeaderEpoch", "int32")]),
                        ],
                    ),
                ],
            ),
            (
                "NodeEndpoints",
                [("NodeId", "int32"), ("Host", "string"), ("Port", "int32"), ("Rack", "string?")],
            ),
        ],
    ),
    "InitializeShareGroupStateRequest": (
        83,
        "0",
        [
            ("GroupId", "string"),
            (
                "Topics",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [("Partition", "int32"), ("StateEpoch", "int32"), ("StartOffset", "int64")],
                    ),
                ],
            ),
        ],
    ),
    "InitializeShareGroupStateResponse": (
        83,
        "0",
        [
            (
                "Results",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [("Partition", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")],
                    ),
                ],
            )
        ],
    ),
    "ReadShareGroupStateRequest": (
        84,
        "0",
        [
            ("GroupId", "string"),
            (
                "Topics",
                [("TopicId", "uuid"), ("Partitions", [("Partition", "int32"), ("LeaderEpoch", "int32")])],
            ),
        ],
    ),
    "ReadShareGroupStateResponse": (
        84,
        "0",
        [
            (
                "Results",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("Partition", "int32"),
                            ("ErrorCode", "int16"),
                            ("ErrorMessage", "string?"),
                            ("StateEpoch", "int32"),
                            ("StartOffset", "int64"),
                            (
                                "StateBatches",
                                [
                                    ("FirstOffset", "int64"),
                                    ("LastOffset", "int64"),
                                    ("DeliveryState", "int8"),
                                    ("DeliveryCount", "int16"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
        ],
    ),
    "WriteShareGroupStateRequest": (
        85,
        "0-1",
        [
            ("GroupId", "string"),
            (
                "Topics",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("Partition", "int32"),
                            ("StateEpoch", "int32"),
                            ("LeaderEpoch", "int32"),
                            ("StartOffset", "int64"),
                            ("DeliveryCompleteCount@1", "int32=-1"),
                            (
                                "StateBatches",
                                [
                                    ("FirstOffset", "int64"),
                                    ("LastOffset", "int64"),
                                    ("DeliveryState", "int8"),
                                    ("DeliveryCount", "int16"),
                                ],
                            ),
                        ],
                    ),
                ],
            ),
        ],
    ),
    "WriteShareGroupStateResponse": (
        85,
        "0-1",
        [
            (
                "Results",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [("Partition", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")],
                    ),
                ],
            )
        ],
    ),
    "DeleteShareGroupStateRequest": (
        86,
        "0",
        [("GroupId", "string"), ("Topics", [("TopicId", "uuid"), ("Partitions", [("Partition", "int32")])])],
    ),
    "DeleteShareGroupStateResponse": (
        86,
        "0",
        [
            (
                "Results",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [("Partition", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")],
                    ),
                ],
            )
        ],
    ),
    "ReadShareGroupStateSummaryRequest": (
        87,
        "0-1",
        [
            ("GroupId", "string"),
            (
                "Topics",
                [("TopicId", "uuid"), ("Partitions", [("Partition", "int32"), ("LeaderEpoch", "int32")])],
            ),
        ],
    ),
    "ReadShareGroupStateSummaryResponse": (
        87,
        "0-1",
        [
            (
                "Results",
                [
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [
                            ("Partition", "int32"),
                            ("ErrorCode", "int16"),
                            ("ErrorMessage", "string?"),
                            ("StateEpoch", "int32"),
                            ("LeaderEpoch", "int32"),
                            ("StartOffset", "int64"),
                            ("DeliveryCompleteCount@1", "int32=-1"),
                        ],
                    ),
                ],
            )
        ],
    ),
    "DescribeShareGroupOffsetsRequest": (
        90,
        "0-1",
        [
            (
                "Groups",
                [("GroupId", "string"), ("Topics?", [("TopicName", "string"), ("Partitions", "[]int32")])],
            )
        ],
    ),
    "DescribeShareGroupOffsetsResponse": (
        90,
        "0-1",
        [
            ("ThrottleTimeMs", "int32"),
            (
                "Groups",
                [
                    ("GroupId", "string"),
                    (
                        "Topics",
                        [
                            ("TopicName", "string"),
                            ("TopicId", "uuid"),
                            (
                                "Partitions",
                                [
                                    ("PartitionIndex", "int32"),
                                    ("StartOffset", "int64"),
                                    ("LeaderEpoch", "int32"),
                                    ("Lag@1", "int64=-1"),
                                    ("ErrorCode", "int16"),
                                    ("ErrorMessage", "string?"),
                                ],
                            ),
                        ],
                    ),
                    ("ErrorCode", "int16"),
                    ("ErrorMessage", "string?"),
                ],
            ),
        ],
    ),
    "AlterShareGroupOffsetsRequest": (
        91,
        "0",
        [
            ("GroupId", "string"),
            (
                "Topics",
                [
                    ("TopicName", "string"),
                    ("Partitions", [("PartitionIndex", "int32"), ("StartOffset", "int64")]),
                ],
            ),
        ],
    ),
    "AlterShareGroupOffsetsResponse": (
        91,
        "0",
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            (
                "Responses",
                [
                    ("TopicName", "string"),
                    ("TopicId", "uuid"),
                    (
                        "Partitions",
                        [("PartitionIndex", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")],
                    ),
                ],
            ),
        ],
    ),
    "DeleteShareGroupOffsetsRequest": (
        92,
        "0",
        [("GroupId", "string"), ("Topics", [("TopicName", "string")])],
    ),
    "DeleteShareGroupOffsetsResponse": (
        92,
        "0",
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            (
                "Responses",
                [
                    ("TopicName", "string"),
                    ("TopicId", "uuid"),
                    ("ErrorCode", "int16"),
                    ("ErrorMessage", "string?"),
                ],
            ),
        ],
    ),
}


def definition(name: str) -> dict[str, Any] | None:
    """The definition of a message in Kafka's form. None for a message that is not defined here."""
    found = SHAPES.get(name)
    if found is None:
        return None
    key, versions, shape = found
    return in_kafkas_form(name, key, versions, shape)
