"""Asks each node for the sizes of its logs. The sizes of nodes that do not answer stay unknown."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kafkacompat.console.core.log_directories import parse_response, sizes_request
from kafkacompat.console.core.snapshot import NodeSeen, ReplicaSize
from kafkacompat.console.node_connection import FAILURES, NODE_TIMEOUT_S, answer_to, connected, reason_of
from kafkacompat.security.sasl_client import ClientSecurity


async def sizes_of(
    nodes: Iterable[NodeSeen], security: ClientSecurity
) -> tuple[tuple[ReplicaSize, ...] | None, str]:
    """Return (sizes of all nodes that answered, "" or the reason why some did not), or (None, reason) if no node answered."""
    answers: dict[int, list[ReplicaSize]] = {}
    errors: list[str] = []

    async def ask(node: NodeSeen) -> None:
        try:
            with trio.fail_after(NODE_TIMEOUT_S):
                answers[node.node_id] = await _ask_node(node, security)
        except FAILURES as error:
            errors.append(f"node {node.node_id}: {reason_of(error)}")

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    told = tuple(size for sizes in answers.values() for size in sizes)
    return (told if answers else None), "; ".join(sorted(errors))


async def _ask_node(node: NodeSeen, security: ClientSecurity) -> list[ReplicaSize]:
    async with connected(node, security) as stream:
        answer = await answer_to(stream, sizes_request())
    # A node may have tens of thousands of logs. Parsing that many here would block the loop.
    return await trio.to_thread.run_sync(parse_response, answer, node.node_id)
