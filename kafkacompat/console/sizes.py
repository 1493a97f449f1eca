"""Asks each node for the sizes of its logs. The sizes of nodes that do not answer stay unknown."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kafkacompat.console.clients import connected_to
from kafkacompat.console.core.log_directories import sizes_in
from kafkacompat.console.core.snapshot import NodeSeen, ReplicaSize
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


async def sizes_of(
    nodes: Iterable[NodeSeen], security: ClientSecurity
) -> tuple[tuple[ReplicaSize, ...] | None, str]:
    """Return (sizes of all nodes that answered, "" or the reason why some did not), or (None, reason) if no node answered."""
    answers: dict[int, list[ReplicaSize]] = {}
    errors: list[str] = []

    async def ask(node: NodeSeen) -> None:
        try:
            answers[node.node_id] = await _ask_node(node, security)
        except CommandFailed as failure:
            errors.append(f"node {node.node_id}: {failure}")

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    told = tuple(size for sizes in answers.values() for size in sizes)
    return (told if answers else None), "; ".join(sorted(errors))


async def _ask_node(node: NodeSeen, security: ClientSecurity) -> list[ReplicaSize]:
    async with connected_to(node, security) as connection:
        answer = await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    # A node may have tens of thousands of logs. Reading that many here would block the loop.
    return await trio.to_thread.run_sync(sizes_in, answer, node.node_id)
