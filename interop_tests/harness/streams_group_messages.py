"""Definitions of the messages of streams groups (KIP-1071). They have the form of `consumer_group_messages`."""

from __future__ import annotations

from typing import Any

from interop_tests.harness.consumer_group_messages import Shape, in_kafkas_form

KEY_VALUE: Shape = [("Key", "string"), ("Value", "string")]
TOPIC_INFO: Shape = [
    ("Name", "string"),
    ("Partitions", "int32"),
    ("ReplicationFactor", "int16"),
    ("TopicConfigs", KEY_VALUE),
]
ENDPOINT: Shape = [("Host", "string"), ("Port", "uint16")]
TASK_OFFSET: Shape = [("SubtopologyId", "string"), ("Partition", "int32"), ("Offset", "int64")]
TASK_IDS: Shape = [("SubtopologyId", "string"), ("Partitions", "[]int32")]
TOPIC_PARTITION: Shape = [("Topic", "string"), ("Partitions", "[]int32")]
ASSIGNMENT: Shape = [("ActiveTasks", TASK_IDS), ("StandbyTasks", TASK_IDS), ("WarmupTasks", TASK_IDS)]
NODE: Shape = [
    ("Name@1", "string"),
    ("NodeType@1", "int8"),
    ("SourceTopics@1", "[]string"),
    ("SinkTopic@1", "string?"),
    ("Stores@1", "[]string"),
    ("Successors@1", "[]string"),
]

SHAPES: dict[str, tuple[int, Shape]] = {
    "StreamsGroupHeartbeatRequest": (
        88,
        [
            ("GroupId", "string"),
            ("MemberId", "string"),
            ("MemberEpoch", "int32"),
            ("EndpointInformationEpoch", "int32"),
            ("InstanceId", "string?"),
            ("RackId", "string?"),
            ("RebalanceTimeoutMs", "int32=-1"),
            (
                "Topology:struct?",
                [
                    ("Epoch", "int32"),
                    (
                        "Subtopologies",
                        [
                            ("SubtopologyId", "string"),
                            ("SourceTopics", "[]string"),
                            ("SourceTopicRegex", "[]string"),
                            ("StateChangelogTopics", TOPIC_INFO),
                            ("RepartitionSinkTopics", "[]string"),
                            ("RepartitionSourceTopics", TOPIC_INFO),
                            (
                                "CopartitionGroups",
                                [
                                    ("SourceTopics", "[]int16"),
                                    ("SourceTopicRegex", "[]int16"),
                                    ("RepartitionSourceTopics", "[]int16"),
                                ],
                            ),
                        ],
                    ),
                ],
            ),
            ("ActiveTasks?", TASK_IDS),
            ("StandbyTasks?", TASK_IDS),
            ("WarmupTasks?", TASK_IDS),
            ("ProcessId", "string?"),
            ("UserEndpoint:struct?", ENDPOINT),
            ("ClientTags?", KEY_VALUE),
            ("TaskOffsets?", TASK_OFFSET),
            ("TaskEndOffsets?", TASK_OFFSET),
            ("ShutdownApplication", "bool"),
        ],
    ),
    "StreamsGroupHeartbeatResponse": (
        88,
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ErrorMessage", "string?"),
            ("MemberId", "string"),
            ("MemberEpoch", "int32"),
            ("HeartbeatIntervalMs", "int32"),
            ("AcceptableRecoveryLagLegacy@0-0", "int32"),
            ("TaskOffsetIntervalMs", "int32"),
            ("AcceptableRecoveryLag@1", "int64"),
            ("Status?", [("StatusCode", "int8"), ("StatusDetail", "string")]),
            ("ActiveTasks?", TASK_IDS),
            ("StandbyTasks?", TASK_IDS),
            ("WarmupTasks?", TASK_IDS),
            ("TopologyDescriptionRequired@1", "bool"),
            ("EndpointInformationEpoch", "int32"),
            (
                "PartitionsByUserEndpoint?",
                [
                    ("UserEndpoint:struct", ENDPOINT),
                    ("ActivePartitions", TOPIC_PARTITION),
                    ("StandbyPartitions", TOPIC_PARTITION),
                ],
            ),
        ],
    ),
    "StreamsGroupDescribeRequest": (
        89,
        [
            ("GroupIds", "[]string"),
            ("IncludeAuthorizedOperations", "bool"),
            ("IncludeTopologyDescription@1", "bool"),
        ],
    ),
    "StreamsGroupDescribeResponse": (
        89,
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
                    (
                        "Topology:struct?",
                        [
                            ("Epoch", "int32"),
                            (
                                "Subtopologies?",
                                [
                                    ("SubtopologyId", "string"),
                                    ("SourceTopics", "[]string"),
                                    ("RepartitionSinkTopics", "[]string"),
                                    ("StateChangelogTopics", TOPIC_INFO),
                                    ("RepartitionSourceTopics", TOPIC_INFO),
                                ],
                            ),
                        ],
                    ),
                    (
                        "Members",
                        [
                            ("MemberId", "string"),
                            ("MemberEpoch", "int32"),
                            ("InstanceId", "string?"),
                            ("RackId", "string?"),
                            ("ClientId", "string"),
                            ("ClientHost", "string"),
                            ("TopologyEpoch", "int32"),
                            ("ProcessId", "string"),
                            ("UserEndpoint:struct?", ENDPOINT),
                            ("ClientTags", KEY_VALUE),
                            ("TaskOffsets", TASK_OFFSET),
                            ("TaskEndOffsets", TASK_OFFSET),
                            ("Assignment:struct", ASSIGNMENT),
                            ("TargetAssignment:struct", ASSIGNMENT),
                            ("IsClassic", "bool"),
                        ],
                    ),
                    ("AuthorizedOperations", "int32=-2147483648"),
                    (
                        "TopologyDescription@1:struct?",
                        [
                            ("Subtopologies@1", [("SubtopologyId@1", "string"), ("Nodes@1", NODE)]),
                            ("GlobalStores@1", [("Source@1:struct", NODE), ("Processor@1:struct", NODE)]),
                        ],
                    ),
                    ("TopologyDescriptionStatus@1", "int8"),
                    ("AssignorName@1", "string?"),
                ],
            ),
        ],
    ),
}


def definition(name: str) -> dict[str, Any] | None:
    """The definition of a message in Kafka's form. None for a message that is not defined here."""
    found = SHAPES.get(name)
    return None if found is None else in_kafkas_form(name, found[0], "0-1", found[1])
