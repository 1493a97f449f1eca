"""Asks each node for the share groups that it coordinates. The groups of a node that does not answer stay as they were,
and the reason is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import trio

from kafkacompat.console.core.group_epochs import versions_request
from kafkacompat.console.core.share_groups import (
    describe_request,
    list_request,
    offsets_request,
    offsets_version,
    parse_groups,
    parse_list,
)
from kafkacompat.console.core.snapshot import NodeSeen, ShareGroupSeen
from kafkacompat.console.node_connection import FAILURES, NODE_TIMEOUT_S, answer_to, connected, reason_of
from kafkacompat.security.sasl_client import ClientSecurity

MAX_GROUPS_A_NODE = 200
"""Further groups, in order of names, are counted and not shown."""
GROUPS_A_REQUEST = 25


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The share groups of one node."""

    groups: tuple[ShareGroupSeen, ...] = ()
    hidden: int = 0
    error: str = ""
    """Why the node did not answer the last time."""


async def share_groups_of(
    nodes: Iterable[NodeSeen], security: ClientSecurity, before: Mapping[int, Coordinated]
) -> dict[int, Coordinated]:
    """Return the share groups by node. `before` is the previous answer."""
    found: dict[int, Coordinated] = {}

    async def ask(node: NodeSeen) -> None:
        try:
            with trio.fail_after(NODE_TIMEOUT_S):
                found[node.node_id] = await _ask_node(node, security)
        except FAILURES as error:
            known = before.get(node.node_id, Coordinated())
            found[node.node_id] = replace(known, error=reason_of(error))

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    return found


async def _ask_node(node: NodeSeen, security: ClientSecurity) -> Coordinated:
    async with connected(node, security) as stream:
        version = offsets_version(await answer_to(stream, versions_request()))
        if version is None:
            return Coordinated()
        names = await trio.to_thread.run_sync(parse_list, await answer_to(stream, list_request()))
        shown = names[:MAX_GROUPS_A_NODE]
        groups: list[ShareGroupSeen] = []
        for start in range(0, len(shown), GROUPS_A_REQUEST):
            asked = shown[start : start + GROUPS_A_REQUEST]
            described = await answer_to(stream, describe_request(asked))
            offsets = await answer_to(stream, offsets_request(asked, version))
            # A group may have thousands of partitions. Parsing that many here would block the loop.
            groups += await trio.to_thread.run_sync(parse_groups, described, offsets, version, node.node_id)
    return Coordinated(tuple(groups), len(names) - len(shown))
