"""Fields of Apache Kafka 4.4 that the definitions in kafka-python lack."""

from __future__ import annotations

from typing import Any

_TOPIC_ID = {"name": "TopicId", "type": "uuid", "versions": "6+", "ignorable": True}

FIELDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ApiVersionsRequest": (
        "",
        [
            {
                "name": "ClusterId",
                "type": "string",
                "versions": "5+",
                "nullableVersions": "5+",
                "default": "null",
            },
            {"name": "NodeId", "type": "int32", "versions": "5+", "default": "-1"},
        ],
    ),
    "DeleteGroupsResponse": (
        "Results",
        [
            {
                "name": "ErrorMessage",
                "type": "string",
                "versions": "3+",
                "nullableVersions": "3+",
                "default": "null",
            }
        ],
    ),
    "TxnOffsetCommitRequest": ("Topics", [_TOPIC_ID]),
    "TxnOffsetCommitResponse": ("Topics", [_TOPIC_ID]),
}
"""Message -> (the array whose elements have the fields, or "" for the message itself; the fields). A topic id comes after the
name, other fields come last."""


def with_later_fields(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """The definition of a message with the fields of later versions."""
    if name not in FIELDS:
        return definition
    place, more = FIELDS[name]
    if not place:
        return definition | {"fields": [*definition["fields"], *more]}
    fields = [
        each | {"fields": _extended(each["fields"], more)} if each["name"] == place else each
        for each in definition["fields"]
    ]
    return definition | {"fields": fields}


def _extended(fields: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if more != [_TOPIC_ID]:
        return [*fields, *more]
    first, *rest = fields
    assert first["name"] == "Name"
    return [first | {"versions": "0-5"}, _TOPIC_ID, *rest]
