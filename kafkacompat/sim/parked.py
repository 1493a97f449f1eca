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


def watch(life: Life, connection: Connection, message: Any) -> Watch | None:
    """To be cancelled once the answer is there."""
    time_ms = time_of(message)
    return None if time_ms is None else Watch(life, connection, message, time_ms + SLACK_MS)


class Watch:
    def __init__(self, life: Life, connection: Connection, message: Any, time_ms: int) -> None:
        self._life = life
        self._connection = connection
        self._message = message
        self._time_ms = time_ms
        self._timer = life.look_after(time_ms, self._too_late)

    def cancel(self) -> None:
        self._timer.cancel()

    def _too_late(self) -> None:
        life = self._life
        if self._connection.is_refused or life.is_stopping or not life.is_serving:
            return
        if isinstance(self._message, ElectLeadersRequest) and not _is_controlled(life):
            # It is passed on to whoever becomes the controller (KIP-590), for a minute.
            self._timer = life.look_after(SLACK_MS, self._too_late)
            return
        name = type(self._message).__name__.removesuffix("Request")
        life.simulation.found(
            Breach(
                "who waits is answered", f"node {life.id} owes a {name} its answer since {self._time_ms} ms"
            )
        )


def _is_controlled(life: Life) -> bool:
    """For so long that what waited for a controller is answered."""
    simulation = life.simulation
    since_us = simulation.scheduler.now_us - 1_000 * SLACK_MS
    return not simulation.faults.has_cuts and any(
        other is not None and other.metadata.is_active and other.active_since_us <= since_us
        for other in (machine.life for machine in simulation.ordered)
    )
