"""What `kafkacompat groups` shows and changes of a share group (KIP-932)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kafkacompat.cli.described_group import NONE, assigned, assigned_text, described_group, group_lines
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from kafkacompat.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.share_group_describe_response import (
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
)

SET, DELETE = 0, 1
MEMBER_COLUMNS = ("member", "epoch", "client", "host", "subscribed", "assigned")


@dataclass(frozen=True, slots=True)
class Stand:
    """How far a share group has come in one partition. start_offset is -1 before the first record is delivered."""

    start_offset: int
    lag: int
    """Records that are not done with. -1 if it is not known."""


def described_share_group(cluster: Cluster, group: str) -> DescribedGroup | None:
    """Return the group, or None if the broker knows no share group by that name."""
    request = ShareGroupDescribeRequest(group_ids=[group])
    return described_group(cluster, group, ApiKey.SHARE_GROUP_DESCRIBE, request, ShareGroupDescribeResponse)


def share_group_lines(group: DescribedGroup) -> list[str]:
    """Return the epochs of the group, and a table of its members with their assignment."""
    return group_lines("share", group, MEMBER_COLUMNS, _member_row)


def member_counts(group: DescribedGroup) -> Counter[tuple[str, int]]:
    """Return how many members have each partition."""
    return Counter(partition for member in group.members for partition in assigned(member.assignment))


def described_offsets(cluster: Cluster, group: str) -> dict[str, dict[int, Stand]]:
    """Return the group's start offset and lag by topic and partition."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    answer = cluster.coordinator_call(
        group,
        DescribeShareGroupOffsetsRequest(groups=[asked]),
        DescribeShareGroupOffsetsResponse,
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    check(found.error_code, f"offsets of {group}", found.error_message)
    stands: dict[str, dict[int, Stand]] = {}
    for topic in found.topics:
        for each in topic.partitions:
            name = f"offset of {topic.topic_name}-{each.partition_index}"
            check(each.error_code, name, each.error_message)
            stands.setdefault(topic.topic_name, {})[each.partition_index] = Stand(each.start_offset, each.lag)
    return stands


def alter_offsets(cluster: Cluster, group: str, topic: str, targets: Mapping[int, int]) -> None:
    """Let the group begin at these offsets, and forget what it knows of records after them."""
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        for number, offset in targets.items()
    ]
    asked = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
    answer = cluster.coordinator_call(
        group,
        AlterShareGroupOffsetsRequest(group_id=group, topics=[asked]),
        AlterShareGroupOffsetsResponse,
        lambda answer: answer.error_code,
    )
    _check_empty(answer.error_code, group, f"group {group}", answer.error_message)
    for response in answer.responses:
        for result in response.partitions:
            _check_empty(result.error_code, group, f"{topic}-{result.partition_index}", result.error_message)


def delete_offsets(cluster: Cluster, group: str, topics: Collection[str]) -> None:
    """Let the group forget these topics."""
    asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    answer = cluster.coordinator_call(
        group,
        DeleteShareGroupOffsetsRequest(group_id=group, topics=asked),
        DeleteShareGroupOffsetsResponse,
        lambda answer: answer.error_code,
    )
    _check_empty(answer.error_code, group, f"group {group}", answer.error_message)
    for result in answer.responses:
        _check_empty(result.error_code, group, f"topic {result.topic_name}", result.error_message)


def set_group_configs(cluster: Cluster, group: str, values: Mapping[str, str | None]) -> None:
    """Set settings of a group. A value of None resets the setting to the broker's."""
    changes = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in values.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name=group, configs=changes
    )
    answer = cluster.any().call(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    check(answer.responses[0].error_code, f"group {group}", answer.responses[0].error_message)


def _check_empty(code: int, group: str, what: str, message: str | None) -> None:
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise CommandFailed(f"group {group} has members; stop them first")
    check(code, what, message)


def _member_row(member: Member) -> tuple[object, ...]:
    return (
        member.member_id,
        member.member_epoch,
        member.client_id or NONE,
        member.client_host or NONE,
        ",".join(sorted(member.subscribed_topic_names)) or NONE,
        assigned_text(member.assignment),
    )
