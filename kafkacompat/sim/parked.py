"""That whoever waits at a node is answered in its time: judged from outside, of every request that a node may park.

Clients that give up go on without an answer, so nothing but this sees a request that is forgotten. The time is the node's own: one
that is paused is late by that much. Knows of no request how it is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.hosts import Timer
    from kafkacompat.sim.links import Connection

SLACK_MS = 3_500
"""For what comes before and after a request is parked: questions to coordinators and the controller, syncs that stall."""
VERIFIED_MS = 8_000
"""Of a produce, which may be verified by a coordinator first that has to be found by a node without its newest metadata."""
GROUP_MS = 3_000
"""A rebalance and a session of those that the simulated members have, and the write of a plan."""


def time_of(message: Any) -> int | None:
    """Within how many ms the node promises an answer; None for a request that it does not park."""
    if isinstance(message, FetchRequest):
        return message.max_wait_ms
    if isinstance(message, ProduceRequest):
        return message.timeout_ms + VERIFIED_MS
    if isinstance(message, (DeleteRecordsRequest, ElectLeadersRequest)):
        return message.timeout_ms
    if isinstance(message, (JoinGroupRequest, SyncGroupRequest)):
        return GROUP_MS
    return None


def watch(life: Life, connection: Connection, message: Any) -> Timer | None:
    """To be cancelled once the answer is there."""
    time_ms = time_of(message)
    if time_ms is None:
        return None

    def too_late() -> None:
        if connection.is_refused or life.is_stopping or not life.is_serving:
            return
        name = type(message).__name__.removesuffix("Request")
        life.simulation.found(
            Breach(
                "who waits is answered",
                f"node {life.id} owes a {name} its answer since {time_ms + SLACK_MS} ms",
            )
        )

    return life.call_after(time_ms + SLACK_MS, too_late)
