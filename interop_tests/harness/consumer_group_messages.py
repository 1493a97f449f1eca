"""Definitions of the messages of KIP-848 that the client library does not contain, in Kafka's own form.

A field's versions stand behind its name ("MemberType@1": from version 1 on, "Lag@0-0": only in version 0), a nullable
type ends in "?".
"""

from __future__ import annotations

from typing import Any

Shape = list[tuple[str, Any]]

PARTITIONS_BY_ID: Shape = [("TopicId", "uuid"), ("Partitions", "[]int32")]
PARTITIONS_BY_NAME: Shape = [("TopicId", "uuid"), ("TopicName", "string"), ("Partitions", "[]int32")]
ASSIGNMENT: Shape = [("TopicPartitions", PARTITIONS_BY_NAME)]

HEARTBEAT_REQUEST: Shape = [
    ("GroupId", "string"),
    ("MemberId", "string"),
    ("MemberEpoch", "int32"),
    ("InstanceId", "string?"),
    ("RackId", "string?"),
    ("RebalanceTimeoutMs", "int32=-1"),
    ("SubscribedTopicNames", "[]string?"),
    ("SubscribedTopicRegex@1", "string?"),
    ("ServerAssignor", "string?"),
    ("TopicPartitions?", PARTITIONS_BY_ID),
]
HEARTBEAT_RESPONSE: Shape = [
    ("ThrottleTimeMs", "int32"),
    ("ErrorCode", "int16"),
    ("ErrorMessage", "string?"),
    ("MemberId", "string?"),
    ("MemberEpoch", "int32"),
    ("HeartbeatIntervalMs", "int32"),
    ("Assignment:struct?", [("TopicPartitions", PARTITIONS_BY_ID)]),
]
DESCRIBE_REQUEST: Shape = [("GroupIds", "[]string"), ("IncludeAuthorizedOperations", "bool")]
DESCRIBE_RESPONSE: Shape = [
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
                    ("InstanceId", "string?"),
                    ("RackId", "string?"),
                    ("MemberEpoch", "int32"),
                    ("ClientId", "string"),
                    ("ClientHost", "string"),
                    ("SubscribedTopicNames", "[]string"),
                    ("SubscribedTopicRegex", "string?"),
                    ("Assignment:struct", ASSIGNMENT),
                    ("TargetAssignment:struct", ASSIGNMENT),
                    ("MemberType@1", "int8=-1"),
                ],
            ),
            ("AuthorizedOperations", "int32"),
        ],
    ),
]

SHAPES: dict[str, tuple[int, Shape]] = {
    "ConsumerGroupHeartbeatRequest": (68, HEARTBEAT_REQUEST),
    "ConsumerGroupHeartbeatResponse": (68, HEARTBEAT_RESPONSE),
    "ConsumerGroupDescribeRequest": (69, DESCRIBE_REQUEST),
    "ConsumerGroupDescribeResponse": (69, DESCRIBE_RESPONSE),
}


def definition(name: str) -> dict[str, Any] | None:
    """The definition of a message in Kafka's form. None for a message that is not defined here."""
    found = SHAPES.get(name)
    if found is None:
        return None
    return in_kafkas_form(name, found[0], "0-1", found[1])


def in_kafkas_form(name: str, key: int, versions: str, shape: Shape) -> dict[str, Any]:
    """The definition of a message that is flexible in all its versions."""
    return {
        "apiKey": key,
        "name": name,
        "validVersions": versions,
        "flexibleVersions": "0+",
        "fields": [_field(*each) for each in shape],
    }


def _field(name: str, kind: str | Shape) -> dict[str, Any]:
    nullable = name.endswith("?") or (isinstance(kind, str) and kind.endswith("?"))
    name, _, struct = name.removesuffix("?").partition(":")
    name, _, since = name.partition("@")
    versions = since if "-" in since else f"{since or 0}+"
    field: dict[str, Any] = {"name": name, "versions": versions}
    if nullable:
        field |= {"nullableVersions": versions, "default": "null"}
    if isinstance(kind, list):
        return field | {"type": name if struct else f"[]{name}", "fields": [_field(*each) for each in kind]}
    kind, _, default = kind.removesuffix("?").partition("=")
    return field | {"type": kind} | ({"default": default} if default else {})
