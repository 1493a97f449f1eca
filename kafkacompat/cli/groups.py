"""`kafkacompat groups`: list and describe consumer groups with their lag, move or delete their offsets, delete them."""

from __future__ import annotations

import argparse

from kafkacompat.cli.client import Cluster, CommandFailed, add_bootstrap, check
from kafkacompat.cli.consume import LATEST, Reader, starting_timestamp
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_groups_response import DeleteGroupsResponse
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.describe_groups_response import DescribeGroupsResponse
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
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
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse

NAMES_VERSION_MAX = 9
"""The newest version of the offset APIs that names topics instead of giving their ids."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="all groups and their states")
    describe = actions.add_parser("describe", help="members, offsets and lag")
    describe.add_argument("group")
    reset = actions.add_parser("reset", help="move the offsets of a group without members")
    reset.add_argument("group")
    reset.add_argument("--topic", required=True)
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", dest="from_beginning")
    target.add_argument("--to-latest", action="store_true")
    target.add_argument("--to-offset", type=int)
    target.add_argument("--to-time", metavar="TIME", dest="since", help="an ISO time or ms since 1970")
    reset.add_argument("--dry-run", action="store_true", help="print the new offsets and change nothing")
    forget = actions.add_parser("delete-offsets", help="forget a group's offsets in a topic")
    forget.add_argument("group")
    forget.add_argument("--topic", required=True)
    delete = actions.add_parser("delete", help="delete groups without members")
    delete.add_argument("group", nargs="+")


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    with Cluster(arguments.bootstrap) as cluster:
        {
            "list": list_groups,
            "describe": describe_group,
            "reset": reset_offsets,
            "delete-offsets": delete_offsets,
            "delete": delete_groups,
        }[arguments.action](cluster, arguments)
    return 0


def list_groups(cluster: Cluster, arguments: argparse.Namespace) -> None:
    rows = []
    for node in cluster.node_ids():
        answer = cluster.node(node).call(ListGroupsRequest(), ListGroupsResponse)
        check(answer.error_code, f"groups of broker {node}")
        rows += [(entry.group_id, entry.group_state, entry.protocol_type) for entry in answer.groups]
    print_table(("group", "state", "protocol"), sorted(rows))


def describe_group(cluster: Cluster, arguments: argparse.Namespace) -> None:
    coordinator = cluster.coordinator(arguments.group)
    described = coordinator.call(
        DescribeGroupsRequest(groups=[arguments.group]), DescribeGroupsResponse
    ).groups[0]
    check(described.error_code, f"group {arguments.group}", described.error_message)
    print(f"{arguments.group}: {described.group_state}, {len(described.members)} members")
    print_table(
        ("member", "client", "host"),
        [(member.member_id, member.client_id, member.client_host) for member in described.members],
    )
    rows = []
    for topic, offsets in committed(cluster, arguments.group).items():
        ends = Reader(cluster, topic, None).offsets(LATEST)
        rows += [
            (topic, number, offset, ends.get(number, "-"), ends[number] - offset if number in ends else "-")
            for number, offset in sorted(offsets.items())
        ]
    print_table(("topic", "partition", "offset", "end", "lag"), rows)


def committed(cluster: Cluster, group: str) -> dict[str, dict[int, int]]:
    """All offsets that the group has stored, by topic and partition."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = cluster.coordinator(group).call(
        OffsetFetchRequest(groups=[asked]), OffsetFetchResponse, max_version=NAMES_VERSION_MAX
    )
    (found,) = answer.groups
    check(found.error_code, f"offsets of {group}")
    return {
        topic.name: {entry.partition_index: entry.committed_offset for entry in topic.partitions}
        for topic in found.topics
    }


def reset_offsets(cluster: Cluster, arguments: argparse.Namespace) -> None:
    reader = Reader(cluster, arguments.topic, None)
    ends = reader.offsets(LATEST)
    if arguments.to_offset is not None:
        targets = dict.fromkeys(ends, arguments.to_offset)
    elif arguments.to_latest:
        targets = ends
    else:
        found = reader.offsets(starting_timestamp(arguments))
        targets = {number: offset if offset >= 0 else ends[number] for number, offset in found.items()}
    if not arguments.dry_run:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in targets.items()
        ]
        topic = OffsetCommitRequestTopic(name=arguments.topic, partitions=partitions)
        answer = cluster.coordinator(arguments.group).call(
            OffsetCommitRequest(group_id=arguments.group, topics=[topic]),
            OffsetCommitResponse,
            max_version=NAMES_VERSION_MAX,
        )
        for result in answer.topics[0].partitions:
            check(result.error_code, f"{arguments.topic}-{result.partition_index}")
    print_table(
        ("topic", "partition", "offset"), [(arguments.topic, *pair) for pair in sorted(targets.items())]
    )


def delete_offsets(cluster: Cluster, arguments: argparse.Namespace) -> None:
    stored = committed(cluster, arguments.group).get(arguments.topic)
    if not stored:
        raise CommandFailed(f"group {arguments.group} has no offsets in {arguments.topic}")
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in stored]
    topic = OffsetDeleteRequestTopic(name=arguments.topic, partitions=partitions)
    answer = cluster.coordinator(arguments.group).call(
        OffsetDeleteRequest(group_id=arguments.group, topics=[topic]), OffsetDeleteResponse
    )
    check(answer.error_code, f"group {arguments.group}")
    for result in answer.topics[0].partitions:
        check(result.error_code, f"{arguments.topic}-{result.partition_index}")
    print(f"deleted {len(stored)} offsets")


def delete_groups(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for group in arguments.group:
        answer = cluster.coordinator(group).call(
            DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse
        )
        check(answer.results[0].error_code, f"group {group}")
        print(f"deleted {group}")
