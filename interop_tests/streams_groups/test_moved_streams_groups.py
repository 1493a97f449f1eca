"""Streams groups (KIP-1071) in every state continue when another program opens the data directory.

These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.groups import coordinator
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.wire import Connection
from interop_tests.streams_groups.held_groups import SETTINGS, HeldStreamsGroups, create_source

pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize(
    "kinds", [(APACHE, KAFKACOMPAT), (KAFKACOMPAT, APACHE)], ids=["from-apache", "from-ours"]
)
def test_the_other_program_opens_the_directory_and_gives_it_back(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    """Each program says what the other one said. The members continue, and leave their states as they would have."""
    first, other = kinds
    broker = SwitchingBroker(first, tmp_path / "node", True, SETTINGS)
    connections: list[Connection] = []
    held = HeldStreamsGroups(lambda: connections[-1])

    def become(kind: str) -> None:
        broker.become(kind)
        connections.append(Connection(broker.bootstrap))
        coordinator(connections[-1], "any")

    try:
        become(first)
        create_source(broker.bootstrap)
        for kind in (other, first):
            said = held.begin()
            become(kind)
            assert held.said() == said
            held.go_on()
            held.finish()
    finally:
        for connection in connections:
            connection.close()
        broker.kill()
