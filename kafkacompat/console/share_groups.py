"""Asks each node for the share groups that it coordinates. The groups of a node that does not answer stay as they were,
and the reason is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import trio

from kafkacompat.console.clients import connected_to
from kafkacompat.console.core.share_groups import (
    describe_request,
    groups_in,
    has_share_groups,
    list_request,
    offsets_request,
    share_groups_in,
)
from kafkacompat.console.core.snapshot import NodeSeen, ShareGroupSeen
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse

MAX_GROUPS_A_NODE = 200
"""Further groups, in order of names, are counted and not shown."""
GROUPS_A_REQUEST = 25


@dataclass(frozen=True, slots=True)
class CoordinatorConnection:
    """The share groups of one node."""

    groups: tuple[ShareGroupSeen, ...] = ()
    hidden: int = 0
    error: str = ""
    """Why the node did not answer the last time."""


async def share_groups_of(
    nodes: Iterable[NodeSeen], security: ClientSecurity, before: Mapping[int, CoordinatorConnection]
) -> dict[int, CoordinatorConnection]:
    """Return the share groups by node. `before` is the previous answer."""
    found: dict[int, CoordinatorConnection] = {}

    async def ask(node: NodeSeen) -> None:
        try:
            found[node.node_id] = await _ask_node(node, security)
        except CommandFailed as failure:
            known = before.get(node.node_id, CoordinatorConnection())
            found[node.node_id] = replace(known, error=str(failure))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    return found


async def _ask_node(node: NodeSeen, security: ClientSecurity) -> CoordinatorConnection:
    async with connected_to(node, security) as connection:
        if not has_share_groups(connection.serves):
            return CoordinatorConnection()
        listed = await connection.call(list_request(), ListGroupsResponse)
        names = await trio.to_thread.run_sync(share_groups_in, listed)
        shown = names[:MAX_GROUPS_A_NODE]
        groups: list[ShareGroupSeen] = []
        for start in range(0, len(shown), GROUPS_A_REQUEST):
            asked = shown[start : start + GROUPS_A_REQUEST]
            described = await connection.call(describe_request(asked), ShareGroupDescribeResponse)
            offsets = await connection.call(offsets_request(asked), DescribeShareGroupOffsetsResponse)
            # A group may have thousands of partitions. Reading that many here would block the loop.
            groups += await trio.to_thread.run_sync(groups_in, described, offsets, node.node_id)
    return CoordinatorConnection(tuple(groups), len(names) - len(shown))
