"""Checks that each request that a node may hold back is answered in time.

Clients that time out continue without an answer, so only this check notices a forgotten request. Time is the node's
own clock: a paused node may be late by the length of the pause. This module does not know how requests are held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.sim.breach import Breach
from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.links import Connection

SLACK_MS = 3_500
"""For the time before and after the wait: requests to coordinators and the controller, slow syncs."""
VERIFIED_MS = 8_000
"""For a produce: a coordinator may verify it first, and a node without the newest metadata must find that coordinator."""
GROUP_MS = 3_000
"""A rebalance and a session of the simulated members, and the write of an assignment."""


def time_of(message: Any) -> int | None:
    """Return the time in ms within which the node promises an answer. None for a request that it does not hold back."""
    if isinstance(message, FetchRequest):
        return message.max_wait_ms
    if isinstance(message, ShareFetchRequest):
        # Acknowledgements wait for the share coordinator, for as long as it takes to find it.
        return None if has_acknowledgements(message) else message.max_wait_ms
    if isinstance(message, ProduceRequest):
        return message.timeout_ms + VERIFIED_MS
    if isinstance(message, (DeleteRecordsRequest, ElectLeadersRequest)):
        return message.timeout_ms
    if isinstance(message, (JoinGroupRequest, SyncGroupRequest)):
        return GROUP_MS
    return None


def has_acknowledgements(message: ShareFetchRequest) -> bool:
    return any(one.acknowledgement_batches for topic in message.topics for one in topic.partitions)


def watch(life: Life, connection: Connection, message: Any) -> Watch | None:
    """Watch a request. The caller cancels the watch when the answer arrives."""
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
        if isinstance(self._message, ShareFetchRequest) and self._connection.is_ended:
            return  # it must not acquire records for a member that is gone
        if life.is_held_by_a_full_disk:
            # The quorum's answers wait until what was decided before them can be written.
            self._timer = life.look_after(self._time_ms, self._too_late)
            return
        if isinstance(self._message, ElectLeadersRequest) and not _is_controlled(life):
            # The node forwards the request for up to a minute to whichever node becomes the controller (KIP-590).
            self._timer = life.look_after(SLACK_MS, self._too_late)
            return
        name = type(self._message).__name__.removesuffix("Request")
        life.simulation.found(
            Breach(
                "who waits is answered", f"node {life.id} owes a {name} its answer since {self._time_ms} ms"
            )
        )


def _is_controlled(life: Life) -> bool:
    """Whether there has been a controller for long enough to answer the requests that waited for one."""
    simulation = life.simulation
    since_us = simulation.scheduler.now_us - 1_000 * SLACK_MS
    return not simulation.faults.has_cuts and any(
        other is not None and other.metadata.is_active and other.active_since_us <= since_us
        for other in (machine.life for machine in simulation.ordered)
    )
