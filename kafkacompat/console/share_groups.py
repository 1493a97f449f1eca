"""Asks each node for the share groups and streams groups that it coordinates. The groups of a node that does not answer
stay as they were, and the reason is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import trio

from kafkacompat.client.trio_connection import TrioConnection
from kafkacompat.console.clients import connected_to
from kafkacompat.console.core import streams_groups
from kafkacompat.console.core.share_groups import (
    describe_request,
    groups_in,
    has_share_groups,
    list_request,
    listed_groups,
    offsets_request,
)
from kafkacompat.console.core.snapshot import SHARE, STREAMS, NodeSeen, ShareGroupSeen, StreamsGroupSeen
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
from kafkacompat.wire.messages.streams_group_describe_response import StreamsGroupDescribeResponse

MAX_GROUPS_A_NODE = 200
"""Further groups of a kind, in order of names, are counted and not shown."""
GROUPS_A_REQUEST = 25


@dataclass(frozen=True, slots=True)
class CoordinatedGroups:
    """The share groups and streams groups of one node."""

    groups: tuple[ShareGroupSeen, ...] = ()
    streams_groups: tuple[StreamsGroupSeen, ...] = ()
    hidden: int = 0
    error: str = ""
    """Why the node did not answer the last time."""


async def share_groups_of(
    nodes: Iterable[NodeSeen], security: ClientSecurity, before: Mapping[int, CoordinatedGroups]
) -> dict[int, CoordinatedGroups]:
    """Return the groups by node. `before` is the previous answer."""
    found: dict[int, CoordinatedGroups] = {}

    async def ask(node: NodeSeen) -> None:
        try:
            found[node.node_id] = await _ask_node(node, security)
        except CommandFailed as failure:
            known = before.get(node.node_id, CoordinatedGroups())
            found[node.node_id] = replace(known, error=str(failure))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    return found


async def _ask_node(node: NodeSeen, security: ClientSecurity) -> CoordinatedGroups:
    groups: list[ShareGroupSeen] = []
    streams: list[StreamsGroupSeen] = []
    hidden = 0
    async with connected_to(node, security) as connection:
        # A group may have thousands of partitions. Reading that many here would block the loop.
        if has_share_groups(connection.serves):
            parts, more = await _listed(connection, SHARE)
            hidden += more
            for asked in parts:
                described = await connection.call(describe_request(asked), ShareGroupDescribeResponse)
                offsets = await connection.call(offsets_request(asked), DescribeShareGroupOffsetsResponse)
                groups += await trio.to_thread.run_sync(groups_in, described, offsets, node.node_id)
        if streams_groups.has_streams_groups(connection.serves):
            parts, more = await _listed(connection, STREAMS)
            hidden += more
            for asked in parts:
                told = await connection.call(
                    streams_groups.describe_request(asked), StreamsGroupDescribeResponse
                )
                streams += await trio.to_thread.run_sync(streams_groups.groups_in, told, node.node_id)
    return CoordinatedGroups(tuple(groups), tuple(streams), hidden)


async def _listed(connection: TrioConnection, kind: str) -> tuple[list[list[str]], int]:
    """The ids of the groups of a kind that are shown, by request, and how many more there are."""
    listed = await connection.call(list_request(kind), ListGroupsResponse)
    names = await trio.to_thread.run_sync(listed_groups, listed, kind)
    shown = names[:MAX_GROUPS_A_NODE]
    parts = [shown[start : start + GROUPS_A_REQUEST] for start in range(0, len(shown), GROUPS_A_REQUEST)]
    return parts, len(names) - len(shown)
