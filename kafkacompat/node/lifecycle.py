"""A broker's identity in the cluster, the states of its life, and the reading of the marks of a clean shutdown
(KIP-966).

This module knows no requests and no time. broker_life.py is the state machine, heartbeats.py carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafkacompat.config import EndPoint
from kafkacompat.ids import Uuid

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerState(Enum):
    """Kafka's broker states. The value is that of Kafka's BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity with which a broker registers. `listeners` are its advertised listeners, with the bound ports."""

    node_id: int
    cluster_id: str
    incarnation_id: Uuid
    """Random, new for every process."""
    listeners: tuple[EndPoint, ...]
    directory_ids: tuple[Uuid, ...]
    rack: str | None
    previous_broker_epoch: int
    """The epoch of the last clean shutdown if all log directories agree on it, otherwise -1."""


def endpoint_records(endpoints: Sequence[EndPoint]) -> list[tuple[str, str, int, int]]:
    """Return (name, host, port, security protocol id) of each endpoint."""
    return [
        (each.listener_name, each.host, each.port, SECURITY_PROTOCOL_IDS[each.security_protocol])
        for each in endpoints
    ]
