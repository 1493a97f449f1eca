"""kafka-consumer-groups: list, describe and delete consumer groups."""

from __future__ import annotations

import argparse
import sys

from kafkacompat.cli.consumer_group import described_consumer_group
from kafkacompat.cli.described_group import assigned
from kafkacompat.cli.group_member import assigned_partitions
from kafkacompat.cli.groups import committed, described_classic_group, end_offsets, listed_groups
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import error_name
from kafkacompat.container.tools.options import Options, address_of
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_groups_response import DeleteGroupsResponse

ACTIONS = ("list", "describe", "delete")
COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
CONSUMER = "consumer"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
Owners = dict[tuple[str, int], tuple[str, str, str]]
"""Id, host and client id of the member that has a partition."""
WIDTH = 15
"""The least width of a column."""
PARTITION_WIDTH = 10


def options() -> Options:
    parser = Options("kafka-consumer-groups", "List, describe or delete consumer groups.")
    parser.add_server("command-config")
    parser.add_flags(*ACTIONS, "all-groups", "offsets")
    parser.add_argument("--group", action="append", default=[])
    return parser


def run(arguments: argparse.Namespace) -> int:
    chosen = [each for each in ACTIONS if getattr(arguments, each)]
    if len(chosen) != 1:
        raise CommandFailed("Command must include exactly one action: --list, --describe, --delete")
    if not (arguments.list or arguments.all_groups or arguments.group):
        raise CommandFailed(f"Option [{chosen[0]}] takes one of these options: [all-groups], [group]")
    with Cluster(address_of(arguments)) as cluster:
        if arguments.list:
            for group in groups_of(cluster):
                print(group)
            return 0
        groups = groups_of(cluster) if arguments.all_groups else arguments.group
        if arguments.delete:
            delete(cluster, groups)
            return 0
        for group in groups:
            describe(cluster, group)
    return 0


def groups_of(cluster: Cluster) -> list[str]:
    """The groups of consumers on all brokers."""
    return [each.group_id for each in listed_groups(cluster) if each.protocol_type in ("", CONSUMER)]


def describe(cluster: Cluster, group: str) -> None:
    state, owners = state_and_owners(cluster, group)
    print()
    if state == "Empty":
        print(f"Consumer group '{group}' has no active members.\n", file=sys.stderr)
    elif state in REBALANCING:
        print(f"Warning: Consumer group '{group}' is rebalancing.\n", file=sys.stderr)
    offsets = {
        (topic, number): offset
        for topic, numbers in committed(cluster, group).items()
        for number, offset in numbers.items()
    }
    ends: dict[str, dict[int, int]] = {}
    rows: list[tuple[str, ...]] = [COLUMNS]
    for topic, number in sorted(offsets.keys() | owners.keys()):
        if topic not in ends:
            ends[topic] = end_offsets(cluster, topic)
        offset, end = offsets.get((topic, number)), ends[topic].get(number)
        lag = None if offset is None or end is None else end - offset
        numbers = ["-" if each is None else str(each) for each in (offset, end, lag)]
        rows.append((group, topic, str(number), *numbers, *owners.get((topic, number), ("-", "-", "-"))))
    if len(rows) > 1:
        widths = [
            PARTITION_WIDTH if title == "PARTITION" else max(WIDTH, *(len(row[column]) for row in rows))
            for column, title in enumerate(COLUMNS)
        ]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            print(" ".join([*cells[:-1], row[-1]]))


def state_and_owners(cluster: Cluster, group: str) -> tuple[str | None, Owners]:
    """The state of a group, and which member has each partition. No state if it is no group of consumers."""
    owners: Owners = {}
    current = described_consumer_group(cluster, group)
    if current is not None:
        for member in current.members:
            who = member.member_id, member.client_host, member.client_id
            owners.update(dict.fromkeys(assigned(member.assignment), who))
        return current.group_state, owners
    classic = described_classic_group(cluster, group)
    if classic is None:
        return None, owners
    for each in classic.members:
        who = each.member_id, each.client_host, each.client_id
        owners.update(dict.fromkeys(assigned_partitions(each.member_assignment), who))
    return classic.group_state, owners


def delete(cluster: Cluster, groups: list[str]) -> None:
    deleted: list[tuple[str, int]] = []
    failed: list[tuple[str, int]] = []
    for group in groups:
        answer = cluster.coordinator_call(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda answer: answer.results[0].error_code,
        )
        code = answer.results[0].error_code
        (deleted if code == ErrorCode.NONE else failed).append((group, code))
    named = ", ".join(f"'{group}'" for group, _ in deleted)
    if failed:
        told = ", ".join(f"'{group}': {error_name(code)}" for group, code in failed)
        raise CommandFailed(f"Deletion of some consumer groups failed: {told}")
    print(f"Deletion of requested consumer groups ({named}) was successful.")
