"""Asks the coordinators for the epochs of groups of the consumer protocol (KIP-848). What is not told stays unknown."""

from __future__ import annotations

from contextlib import suppress

import trio

from kafkacompat.console.clients import connected_to
from kafkacompat.console.core.group_epochs import epochs_in
from kafkacompat.console.core.snapshot import CONSUMER, GroupEpochs, NodeSeen, Snapshot
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse

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
        with suppress(CommandFailed):
            found.update(await _ask_coordinator(node, security, groups))

    async with trio.open_nursery() as nursery:
        for node_id, groups in asked.items():
            nursery.start_soon(ask, nodes[node_id], groups)
    return found


async def _ask_coordinator(
    node: NodeSeen, security: ClientSecurity, groups: list[str]
) -> dict[str, GroupEpochs]:
    found: dict[str, GroupEpochs] = {}
    async with connected_to(node, security) as connection:
        for start in range(0, len(groups), GROUPS_A_REQUEST):
            request = ConsumerGroupDescribeRequest(group_ids=groups[start : start + GROUPS_A_REQUEST])
            answer = await connection.call(request, ConsumerGroupDescribeResponse)
            # A group may have thousands of members. Reading that many here would block the loop.
            found |= await trio.to_thread.run_sync(epochs_in, answer)
    return found
