"""Asks a node for the settings of a topic."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.console.clients import connected_to
from kafkacompat.console.core.snapshot import NodeSeen
from kafkacompat.console.core.topic_settings import View, settings_in, settings_request
from kafkacompat.console.failure import BrokerAway
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse

NODES_ASKED = 3
"""If one does not answer, another is asked."""


async def settings_of(topic: str, nodes: Sequence[NodeSeen], security: ClientSecurity) -> list[View]:
    """Return the settings, those that somebody has set first. NotThere, or BrokerAway with the reason if no node tells them."""
    said = "no node is known"
    for node in nodes[:NODES_ASKED]:
        try:
            async with connected_to(node, security) as connection:
                answer = await connection.call(settings_request(topic), DescribeConfigsResponse)
                return settings_in(answer, topic)
        except CommandFailed as failure:
            said = str(failure)
    raise BrokerAway(said)
