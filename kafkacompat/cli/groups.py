"""`kafkacompat groups`: manage groups, their offsets and their settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.consume import starting_timestamp
from kafkacompat.cli.consumer_group import consumer_group_lines, described_consumer_group, owners_of
from kafkacompat.cli.group_member import NAMES_VERSION_MAX, assigned_partitions
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.reader import EARLIEST, LATEST, Reader
from kafkacompat.cli.share_group import alter_offsets as alter_share_offsets
from kafkacompat.cli.share_group import delete_offsets as delete_share_offsets
from kafkacompat.cli.share_group import (
    described_offsets,
    described_share_group,
    member_counts,
    set_group_configs,
    share_group_lines,
)
from kafkacompat.cli.streams_group import described_streams_group, streams_group_lines
from kafkacompat.cli.streams_group import owners_of as owners_of_tasks
from kafkacompat.cli.topics import pairs
from kafkacompat.client.blocking import API_TIMEOUT_S, Backoff, Cluster, Remote
from kafkacompat.client.brokers import COORDINATOR_RETRIABLE, check
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_groups_response import DeleteGroupsResponse
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseTopics
from kafkacompat.wire.messages.share_group_describe_response import DescribedGroup as DescribedShareGroup
from kafkacompat.wire.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup

DESCRIBED_TYPES = ("share", "consumer", "streams", "classic")
Described = DescribedConsumerGroup | DescribedStreamsGroup | DescribedGroup
"""Of the kinds that commit offsets."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="all groups with their states and types")
    describe = actions.add_parser("describe", help="members, assignments, offsets and lag of a group")
    describe.add_argument("group", help="its id")
    reset = actions.add_parser("reset", help="move the offsets of a group without members")
    reset.add_argument("group", help="its id")
    reset.add_argument("--topic", required=True, help="the topic of the offsets")
    reset.add_argument(
        "--partition", type=int, action="append", help="only this partition; may be repeated (default: all)"
    )
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to-earliest", action="store_true", dest="from_beginning", help="to the first record kept"
    )
    target.add_argument("--to-latest", action="store_true", help="to the end, past all records")
    target.add_argument(
        "--to-offset", type=int, metavar="N", help="to this offset, or the nearest existing one"
    )
    target.add_argument(
        "--to-time",
        metavar="TIME",
        dest="since",
        help="to the first record at or after an ISO time or ms since 1970",
    )
    reset.add_argument("--dry-run", action="store_true", help="print the new offsets and change nothing")
    alter = actions.add_parser("alter", help="set or unset settings of a group")
    alter.add_argument("group", help="its id")
    alter.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of this group, such as share.delivery.count.limit=3; may be repeated",
    )
    alter.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="reset a setting to the broker's"
    )
    forget = actions.add_parser("delete-offsets", help="delete a group's offsets in a topic")
    forget.add_argument("group", help="its id")
    forget.add_argument("--topic", required=True, help="the topic of the offsets")
    delete = actions.add_parser("delete", help="delete groups without members")
    delete.add_argument("group", nargs="+", help="its id; several may follow")
    add_bootstrap_to(actions)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments)) as cluster:
        {
            "list": list_groups,
            "describe": describe_group,
            "reset": reset_offsets,
            "alter": alter_group,
            "delete-offsets": delete_offsets,
            "delete": delete_groups,
        }[arguments.action](cluster, arguments)
    return 0


def list_groups(cluster: Cluster, arguments: argparse.Namespace) -> None:
    rows = [
        (entry.group_id, entry.group_state, entry.group_type, entry.protocol_type)
        for entry in listed_groups(cluster)
    ]
    print_table(("group", "state", "type", "protocol"), sorted(rows))


def describe_group(cluster: Cluster, arguments: argparse.Namespace, *, is_new: bool = False) -> None:
    """`is_new`: the group has begun between two earlier questions."""
    shared = described_share_group(cluster, arguments.group)
    if shared is not None:
        describe_share_group(cluster, shared)
        return
    described: Described | None = (
        described_consumer_group(cluster, arguments.group)
        or described_streams_group(cluster, arguments.group)
        or described_classic_group(cluster, arguments.group)
    )
    if described is None and not is_new and listed_type(cluster, arguments.group) in DESCRIBED_TYPES:
        describe_group(cluster, arguments, is_new=True)
        return
    owners = print_members(arguments.group, described)
    rows: list[tuple[object, ...]] = []
    for topic, offsets in sorted(committed(cluster, arguments.group).items()):
        ends = end_offsets(cluster, topic)
        for number, offset in sorted(offsets.items()):
            end = ends.get(number)
            lag = end - offset if end is not None else "-"
            owner = owners.get((topic, number), "-")
            rows.append((topic, number, offset, "-" if end is None else end, lag, owner))
    if rows:
        print_table(("topic", "partition", "offset", "end", "lag", "member"), rows)


def describe_share_group(cluster: Cluster, group: DescribedShareGroup) -> None:
    """Print the group, and how far it has come. How many records are in flight is not told by the protocol."""
    print_state(group.group_id, group.group_state, len(group.members))
    for line in share_group_lines(group):
        print(line)
    counts = member_counts(group)
    rows: list[tuple[object, ...]] = []
    for topic, stands in sorted(described_offsets(cluster, group.group_id).items()):
        ends = end_offsets(cluster, topic)
        for number, stand in sorted(stands.items()):
            start = stand.start_offset if stand.start_offset >= 0 else "-"
            lag = stand.lag if stand.lag >= 0 else "-"
            rows.append((topic, number, start, ends.get(number, "-"), lag, counts[topic, number]))
    if rows:
        print_table(("topic", "partition", "start", "end", "lag", "members"), rows)


def print_members(group: str, described: Described | None) -> dict[tuple[str, int], str]:
    """Print the group's state and members. Return the member that has each partition."""
    owners: dict[tuple[str, int], str] = {}
    if described is None:
        print(
            f"{group} is neither a classic, a consumer, a share nor a streams group, so its members are not shown"
        )
        return owners
    print_state(group, described.group_state, len(described.members))
    if isinstance(described, DescribedConsumerGroup):
        for line in consumer_group_lines(described):
            print(line)
        return owners_of(described)
    if isinstance(described, DescribedStreamsGroup):
        for line in streams_group_lines(described):
            print(line)
        return owners_of_tasks(described)
    if described.members:
        print_table(
            ("member", "client", "host"),
            [(each.member_id, each.client_id, each.client_host) for each in described.members],
        )
    if described.protocol_type == "consumer":
        for member in described.members:
            owners.update(dict.fromkeys(assigned_partitions(member.member_assignment), member.member_id))
    return owners


def print_state(group: str, state: str, members: int) -> None:
    print(f"{group}: {state}, {members} {'member' if members == 1 else 'members'}")


def described_classic_group(cluster: Cluster, group: str) -> DescribedGroup | None:
    """Return the classic group, or None for a group of another type. Raises CommandFailed if the group does not exist."""
    answer = cluster.coordinator_call(
        group,
        DescribeGroupsRequest(groups=[group]),
        DescribeGroupsResponse,
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND and listed_type(cluster, group) is not None:
        return None
    check(found.error_code, f"group {group}", found.error_message)
    return found


def listed_type(cluster: Cluster, group: str) -> str | None:
    """Return the type of a group in the list of groups. Empty if the broker does not tell types, None if the group is
    not in the list."""
    return next(
        (entry.group_type.lower() for entry in listed_groups(cluster) if entry.group_id == group), None
    )


def listed_groups(cluster: Cluster) -> list[ListedGroup]:
    """Return the groups of all brokers."""
    return [entry for node in cluster.node_ids() for entry in groups_at(cluster.node(node), node)]


def groups_at(remote: Remote, node_id: int, within_s: float = API_TIMEOUT_S) -> list[ListedGroup]:
    """Return the groups of a broker. It is asked again for a while if it still loads some, because it then tells none."""
    backoff = Backoff(within_s)
    while True:
        answer = remote.call(ListGroupsRequest(), ListGroupsResponse)
        if answer.error_code not in COORDINATOR_RETRIABLE or backoff.is_over:
            check(answer.error_code, f"groups of broker {node_id}")
            return answer.groups
        backoff.wait()


def end_offsets(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return the end offset of each partition. Empty if the topic does not exist."""
    (found,) = cluster.metadata([topic]).topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {}
    return Reader(cluster, topic, None).offsets(LATEST)


def committed(cluster: Cluster, group: str) -> dict[str, dict[int, int]]:
    """Return the group's committed offsets by topic and partition."""
    return {
        topic.name: {entry.partition_index: entry.committed_offset for entry in topic.partitions}
        for topic in committed_topics(cluster, group)
    }


def committed_topics(cluster: Cluster, group: str) -> list[OffsetFetchResponseTopics]:
    """Return all that the group has committed."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = cluster.coordinator_call(
        group,
        OffsetFetchRequest(groups=[asked]),
        OffsetFetchResponse,
        lambda answer: answer.groups[0].error_code,
        max_version=NAMES_VERSION_MAX,
    )
    (found,) = answer.groups
    check(found.error_code, f"offsets of {group}")
    return found.topics


def reset_offsets(cluster: Cluster, arguments: argparse.Namespace) -> None:
    reader = Reader(cluster, arguments.topic, arguments.partition)
    targets = new_offsets(reader, arguments)
    if arguments.dry_run:
        pass
    elif described_share_group(cluster, arguments.group) is not None:
        alter_share_offsets(cluster, arguments.group, arguments.topic, targets)
    else:
        commit_offsets(cluster, arguments.group, arguments.topic, targets)
    print_table(
        ("topic", "partition", "offset"), [(arguments.topic, *pair) for pair in sorted(targets.items())]
    )


def commit_offsets(cluster: Cluster, group: str, name: str, targets: Mapping[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number, offset in targets.items()
    ]
    commit(cluster, group, name, partitions)


def commit(cluster: Cluster, group: str, name: str, partitions: list[OffsetCommitRequestPartition]) -> None:
    """Commit for a group without members, in at least one partition of a topic."""
    topic = OffsetCommitRequestTopic(name=name, partitions=partitions)
    answer = cluster.coordinator_call(
        group,
        OffsetCommitRequest(group_id=group, topics=[topic]),
        OffsetCommitResponse,
        lambda answer: answer.topics[0].partitions[0].error_code,
        max_version=NAMES_VERSION_MAX,
    )
    for result in answer.topics[0].partitions:
        if result.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise CommandFailed(f"group {group} has members; stop them first")
        check(result.error_code, f"{name}-{result.partition_index}")


def new_offsets(reader: Reader, arguments: argparse.Namespace) -> dict[int, int]:
    """Return the new offset of each partition, limited to the offsets that the partition has."""
    ends = reader.offsets(LATEST)
    if arguments.to_offset is not None:
        starts = reader.offsets(EARLIEST)
        return {number: min(max(arguments.to_offset, starts[number]), ends[number]) for number in ends}
    if arguments.to_latest:
        return ends
    found = reader.offsets(starting_timestamp(arguments, "--to-time"))
    return {number: offset if offset >= 0 else ends[number] for number, offset in found.items()}


def delete_offsets(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if described_share_group(cluster, arguments.group) is not None:
        delete_share_offsets(cluster, arguments.group, [arguments.topic])
        print(f"deleted the offsets of {arguments.topic}")
        return
    stored = committed(cluster, arguments.group).get(arguments.topic)
    if not stored:
        raise CommandFailed(f"group {arguments.group} has no offsets in {arguments.topic}")
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in stored]
    topic = OffsetDeleteRequestTopic(name=arguments.topic, partitions=partitions)
    answer = cluster.coordinator_call(
        arguments.group,
        OffsetDeleteRequest(group_id=arguments.group, topics=[topic]),
        OffsetDeleteResponse,
        lambda answer: answer.error_code,
    )
    check(answer.error_code, f"group {arguments.group}")
    for result in answer.topics[0].partitions:
        if result.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise CommandFailed(
                f"members of {arguments.group} are subscribed to {arguments.topic}; stop them first"
            )
        check(result.error_code, f"{arguments.topic}-{result.partition_index}")
    print(f"deleted {len(stored)} offsets")


def alter_group(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if not (arguments.config or arguments.unset):
        raise CommandFailed("groups alter requires --config or --unset")
    changes: dict[str, str | None] = dict.fromkeys(arguments.unset)
    set_group_configs(cluster, arguments.group, changes | dict(pairs(arguments.config)))
    print(f"altered {arguments.group}")


def delete_groups(cluster: Cluster, arguments: argparse.Namespace) -> None:
    failures = []
    for group in arguments.group:
        answer = cluster.coordinator_call(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda answer: answer.results[0].error_code,
        )
        (found,) = answer.results
        if found.error_code == ErrorCode.NONE:
            print(f"deleted {group}")
        else:
            failures.append(found)
    for each in failures:
        check(each.error_code, f"group {each.group_id}", each.error_message)
