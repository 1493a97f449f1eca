"""Checks requests that a node holds back: each is answered in time, and no fetch waits although records are available.

Clients that time out continue without an answer, so only `AnswerOracle` notices a forgotten request. Time is the node's
own clock: a paused node may be late by the length of the pause. It does not know how requests are held back.

A forgotten fetch is still answered when its maximum wait is over. Nothing is lost and everything continues, but every
acks=all produce waits that long. Only `check_fetches` notices it, after each event. It shares no code with the fetch
engine except the lists of parked fetches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

if TYPE_CHECKING:
    from kafkacompat.partition.fetch import DelayedFetch, FetchEngine
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.sim.links import Connection
    from kafkacompat.sim.views import NodeView


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


class AnswerOracle:
    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        self._env = env
        self._machines = machines

    def watch(self, life: NodeView, connection: Connection, message: Any) -> Watch | None:
        """Watch a request. The caller cancels the watch when the answer arrives."""
        time_ms = time_of(message)
        return None if time_ms is None else Watch(self, life, connection, message, time_ms + SLACK_MS)

    def found(self, breach: Breach) -> None:
        self._env.found(breach)

    def has_controller(self) -> bool:
        """Whether there has been a controller for long enough to answer the requests that waited for one."""
        since_us = self._env.scheduler.now_us - 1_000 * SLACK_MS
        return not self._env.network.severed and any(
            other is not None and other.metadata.is_active and other.active_since_us <= since_us
            for other in (machine.life for machine in self._machines.values())
        )


class Watch:
    def __init__(
        self, oracle: AnswerOracle, life: NodeView, connection: Connection, message: Any, time_ms: int
    ) -> None:
        self._oracle = oracle
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
        if isinstance(self._message, ElectLeadersRequest) and not self._oracle.has_controller():
            # The node forwards the request for up to a minute to whichever node becomes the controller (KIP-590).
            self._timer = life.look_after(SLACK_MS, self._too_late)
            return
        name = type(self._message).__name__.removesuffix("Request")
        self._oracle.found(
            Breach(
                "who waits is answered", f"node {life.id} owes a {name} its answer since {self._time_ms} ms"
            )
        )


def check_fetches(node_id: int, partitions: ReplicaManager, fetches: FetchEngine) -> None:
    """Raise Breach if a fetch with min_bytes 1 waits although a partition that it may read here has records for it."""
    for waiter in (*fetches.purgatory.followers.all(), *fetches.purgatory.consumers.all()):
        if waiter.parameters.min_bytes <= 1:
            _check_fetch(node_id, partitions, waiter)


def _check_fetch(node_id: int, partitions: ReplicaManager, waiter: DelayedFetch) -> None:
    parameters = waiter.parameters
    for asked in waiter.context.partitions:
        core = partitions.by_id.get((asked.topic_id, asked.partition))
        if core is None or not core.is_leader or asked.current_leader_epoch not in (-1, core.leader_epoch):
            continue
        log = core.log
        if parameters.replica_id >= 0:
            end = log.log_end_offset
        else:
            end = log.last_stable_offset if parameters.read_committed else log.high_watermark
        if log.log_start_offset <= asked.fetch_offset < end:
            reader = f"node {parameters.replica_id}" if parameters.replica_id >= 0 else "a consumer"
            raise Breach(
                "no fetch waits for what is there",
                f"{reader} waits at node {node_id} for {core.topic_partition} from {asked.fetch_offset}, there is all to {end}",
            )
