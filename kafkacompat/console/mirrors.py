"""Asks a node which topics are mirrors of another cluster."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from kafkacompat.console.clients import connected_to
from kafkacompat.console.core.mirrors import mirrors_in, mirrors_requests
from kafkacompat.console.core.snapshot import MirrorSeen, Snapshot
from kafkacompat.console.topic_settings import NODES_ASKED
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse


async def mirrors_of(
    snapshot: Snapshot, security: ClientSecurity, before: Sequence[MirrorSeen]
) -> tuple[MirrorSeen, ...]:
    """If no node tells them, they are as they were `before`."""
    for node in snapshot.nodes[:NODES_ASKED]:
        found: list[MirrorSeen] = []
        try:
            async with connected_to(node, security) as connection:
                for request in mirrors_requests(snapshot.topics):
                    answer = await connection.call(request, DescribeConfigsResponse)
                    found += await trio.to_thread.run_sync(mirrors_in, answer)
        except CommandFailed:
            continue
        return tuple(found)
    return tuple(before)
