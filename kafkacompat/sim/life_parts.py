"""Small parts of a simulated node's life: contexts of requests, stand-ins for answers, a metadata machine that counts.

Know nothing of time and nothing of what befalls a node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, cast

from kafkacompat.api.context import ControllerTimedOut, Node, NotController, RequestContext
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.sessions import BrokerSessions
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.node.broker_life import LifeSettings
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.partition.moves import Moves
    from kafkacompat.raft.contracts import LoadedBatch
    from kafkacompat.sim.cluster_counters import ClusterCounters

NEVER_MS = 2**40
STAND_INS: dict[type[Exception], ErrorCode] = {
    NotController: ErrorCode.NOT_CONTROLLER,
    ControllerTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    ConnectionLost: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""As api/dispatch answers them."""


class NodeFailed(Exception):
    """A node halted itself, or handled a request with a bug."""


class CountedMachine(MetadataMachine):
    """Tells the run's counters what it did."""

    counters: ClusterCounters
    now_us: Callable[[], int]
    active_since_us = 0
    """When it became the active controller last."""

    def load_snapshot(self, batch: LoadedBatch) -> None:
        self.counters.snapshots_loaded += batch.last_offset > 0
        super().load_snapshot(batch)

    def became_active(self, epoch: int) -> None:
        self.counters.controllers += 1
        self.active_since_us = self.now_us()
        super().became_active(epoch)


class WatchedSessions(BrokerSessions):
    """Tells an oracle whom the controller takes for gone before the session is over."""

    def __init__(self, session_timeout_ms: int, taken_for_gone: Callable[[int], None]) -> None:
        super().__init__(session_timeout_ms)
        self._taken_for_gone = taken_for_gone

    def take_for_gone(self, broker_id: int) -> bool:
        self._taken_for_gone(broker_id)
        return super().take_for_gone(broker_id)


def life_settings_of(config: ServerConfig) -> LifeSettings:
    """A broker of a simulation waits for its controller as long as it takes."""
    return LifeSettings(
        heartbeat_interval_ms=config.int("broker.heartbeat.interval.ms"),
        session_timeout_ms=config.int("broker.session.timeout.ms"),
        registration_timeout_ms=NEVER_MS,
    )


def no_moves() -> Moves:
    raise NodeFailed("there is one log directory: nothing moves to another")


def node_of(**services: Any) -> Node:
    """What is not given is not part of the simulation: no client asks for it."""
    absent = {each.name: None for each in fields(Node) if each.name not in services and is_required(each)}
    return Node(**services, **cast(Any, absent))


def is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def context_of(message: Any, connection_id: int, listener: str) -> RequestContext:
    return RequestContext(message.API_KEY, message.MAX_VERSION, 0, None, connection_id, listener, "127.0.0.1")


def read_records(response: FetchResponse) -> None:
    """As they leave through the socket."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records is not None and not isinstance(partition.records, bytes):
                partition.records = partition.records.read()


def copied(response: Any, request: Any) -> Any:
    """Through the wire form: parts of it are encoded already."""
    version = request.MAX_VERSION
    return decode(response_class(request.API_KEY), version, bytes(encode(response, version)))
