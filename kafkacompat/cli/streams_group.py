"""What `kafkacompat groups describe` shows of a streams group (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.cli.described_group import NONE, described_group, group_lines
from kafkacompat.cli.output import table_lines
from kafkacompat.client.blocking import Cluster
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_response import (
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
)

MEMBER_COLUMNS = (
    "member",
    "epoch",
    "topology",
    "process",
    "instance",
    "client",
    "host",
    "active",
    "standby",
    "warm-up",
    "target active",
    "target standby",
)
SUBTOPOLOGY_COLUMNS = ("subtopology", "reads", "repartition reads", "repartition writes", "changelogs")


def described_streams_group(cluster: Cluster, group: str) -> DescribedGroup | None:
    """Return the group, or None if the broker knows no streams group by that name."""
    request = StreamsGroupDescribeRequest(group_ids=[group])
    return described_group(
        cluster, group, ApiKey.STREAMS_GROUP_DESCRIBE, request, StreamsGroupDescribeResponse
    )


def streams_group_lines(group: DescribedGroup) -> list[str]:
    """Return the epochs of the group, a table of its members with their tasks, and one of its subtopologies. A task is
    written as the subtopology and the partition: 0:1,2 are two tasks of subtopology 0."""
    lines = group_lines("streams", group, MEMBER_COLUMNS, _member_row)
    if group.topology is not None:
        lines.append(f"topology epoch {group.topology.epoch}")
        lines += table_lines(SUBTOPOLOGY_COLUMNS, map(_subtopology_row, _subtopologies(group)))
    return lines


def owners_of(group: DescribedGroup) -> dict[tuple[str, int], str]:
    """Return the member that reads each partition: it has the active task."""
    topics = {
        each.subtopology_id: [
            *each.source_topics,
            *[topic.name for topic in each.repartition_source_topics],
        ]
        for each in _subtopologies(group)
    }
    return {
        (topic, partition): member.member_id
        for member in group.members
        for tasks in member.assignment.active_tasks
        for topic in topics.get(tasks.subtopology_id, ())
        for partition in tasks.partitions
    }


def _subtopologies(group: DescribedGroup) -> list[Subtopology]:
    return (None if group.topology is None else group.topology.subtopologies) or []


def _member_row(member: Member) -> tuple[object, ...]:
    return (
        member.member_id,
        member.member_epoch,
        member.topology_epoch,
        member.process_id or NONE,
        member.instance_id or NONE,
        member.client_id or NONE,
        member.client_host or NONE,
        _tasks_text(member.assignment.active_tasks),
        _tasks_text(member.assignment.standby_tasks),
        _tasks_text(member.assignment.warmup_tasks),
        _tasks_text(member.target_assignment.active_tasks),
        _tasks_text(member.target_assignment.standby_tasks),
    )


def _tasks_text(tasks: Iterable[TaskIds]) -> str:
    ordered = sorted((each.subtopology_id, sorted(each.partitions)) for each in tasks)
    return ";".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in ordered) or NONE


def _subtopology_row(subtopology: Subtopology) -> tuple[object, ...]:
    columns = (
        subtopology.source_topics,
        [topic.name for topic in subtopology.repartition_source_topics],
        subtopology.repartition_sink_topics,
        [topic.name for topic in subtopology.state_changelog_topics],
    )
    return (subtopology.subtopology_id, *[",".join(sorted(names)) or NONE for names in columns])
