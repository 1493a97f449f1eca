"""Asks the coordinators for the epochs of groups of the consumer protocol (KIP-848). What is not told stays unknown."""

from __future__ import annotations

import trio

from kafkacompat.console.core.group_epochs import (
    describe_request,
    describe_version,
    parse_epochs,
    versions_request,
)
from kafkacompat.console.core.snapshot import CONSUMER, GroupEpochs, NodeSeen, Snapshot
from kafkacompat.console.node_connection import FAILURES, NODE_TIMEOUT_S, answer_to, connected
from kafkacompat.security.sasl_client import ClientSecurity

MAX_GROUPS_ASKED = 500
"""The epochs of further groups stay unknown."""
GROUPS_A_REQUEST = 25


async def epochs_of(snapshot: Snapshot, security: ClientSecurity) -> dict[str, GroupEpochs]:
    """Return the epochs of the snapshot's groups, without those whose coordinator does not answer."""
    nodes = {node.node_id: node for node in snapshot.nodes}
    asked: dict[int, list[str]] = {}
    for group in [group for group in snapshot.groups if group.kind == CONSUMER][:MAX_GROUPS_ASKED]:
        if group.coordinator in nodes:
            asked.setdefault(group.coordinator, []).append(group.group_id)
    found: dict[str, GroupEpochs] = {}

    async def ask(node: NodeSeen, groups: list[str]) -> None:
        try:
            with trio.fail_after(NODE_TIMEOUT_S):
                found.update(await _ask_coordinator(node, security, groups))
        except FAILURES:
            return

    async with trio.open_nursery() as nursery:
        for node_id, groups in asked.items():
            nursery.start_soon(ask, nodes[node_id], groups)
    return found


async def _ask_coordinator(
    node: NodeSeen, security: ClientSecurity, groups: list[str]
) -> dict[str, GroupEpochs]:
    found: dict[str, GroupEpochs] = {}
    async with connected(node, security) as stream:
        version = describe_version(await answer_to(stream, versions_request()))
        for start in range(0, len(groups), GROUPS_A_REQUEST):
            request = describe_request(groups[start : start + GROUPS_A_REQUEST], version)
            answer = await answer_to(stream, request)
            # A group may have thousands of members. Parsing that many here would block the loop.
            found |= await trio.to_thread.run_sync(parse_epochs, answer, version)
    return found
