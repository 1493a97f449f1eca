"""What the descriptions of a consumer group (KIP-848) and of a share group (KIP-932) have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kafkacompat.cli.output import table_lines
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message

NONE = "-"
OTHER_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""The answers for a group of another type, and of a broker on which this type is off."""

M = TypeVar("M", bound=Message)


def described_group(
    cluster: Cluster, group: str, key: ApiKey, request: Message, response_type: type[M]
) -> Any | None:
    """Return the group that `request` names from the answer, or None if the broker knows no group of this type by that
    name."""
    if not cluster.any().serves(key, request.MIN_VERSION):
        return None
    answer: Any = cluster.coordinator_call(
        group,
        request,
        response_type,
        lambda answer: answer.groups[0].error_code,  # type: ignore[attr-defined]
    )
    (found,) = answer.groups
    if found.error_code in OTHER_TYPE:
        return None
    check(found.error_code, f"group {group}", found.error_message)
    return found


def group_lines(
    kind: str, group: Any, columns: Sequence[str], row_of: Callable[[Any], Sequence[object]]
) -> list[str]:
    """Return the epochs of the group, and a table of its members."""
    lines = [
        f"type {kind}, group epoch {group.group_epoch}, "
        f"target assignment epoch {group.assignment_epoch}, assignor {group.assignor_name or NONE}"
    ]
    if group.members:
        members = sorted(group.members, key=lambda member: member.member_id)
        lines += table_lines(columns, map(row_of, members))
    return lines


def assigned(assignment: Any) -> Iterable[tuple[str, int]]:
    """Return the topic and number of each partition of an assignment."""
    for topic in assignment.topic_partitions:
        for number in topic.partitions:
            yield _name_of(topic), number


def assigned_text(assignment: Any) -> str:
    """Return the assignment in the form of kafka-consumer-groups.sh: topic:0,1;another:0."""
    topics = sorted((_name_of(topic), sorted(topic.partitions)) for topic in assignment.topic_partitions)
    return ";".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in topics) or NONE


def _name_of(topic: Any) -> str:
    return topic.topic_name or uuid_to_text(topic.topic_id)
