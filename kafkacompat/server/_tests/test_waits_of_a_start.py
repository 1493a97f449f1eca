"""What a start waits for, in the time of the simulation, in which computing and disks take next to none."""

from __future__ import annotations

import pytest

from kafkacompat._tests.fuzz.node import FuzzedNode
from kafkacompat.node.node_to_controller_channel_manager import RETRY_BACKOFF_MS


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sole_node_waits_for_no_backoff(seed: int) -> None:
    """Its first request finds the leader known but its first records not yet written. It is sent again when they are."""
    node = FuzzedNode(seed)
    before_us = node.scheduler.now_us
    node.start()
    assert node.server.ready_line()
    assert node.scheduler.now_us - before_us < RETRY_BACKOFF_MS * 1_000
