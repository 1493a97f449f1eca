"""Who a broker is in the cluster, and the states of its life. Declarations, and the reading of a clean stop's marks (KIP-966).

Knows no request and no time: broker_life.py is the machine, heartbeats.py carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafkacompat.config import EndPoint
from kafkacompat.ids import Uuid

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerState(Enum):
    """Kafka's states of a broker; the value is what its BrokerState metric shows."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who registers. `listeners` are the advertised ones of the broker, with the ports really bound."""

    node_id: int
    cluster_id: str
    incarnation_id: Uuid
    """Random, new for every process."""
    listeners: tuple[EndPoint, ...]
    directory_ids: tuple[Uuid, ...]
    rack: str | None
    previous_broker_epoch: int
    """Of the last clean stop, if every log directory agrees on it; -1 otherwise."""


def endpoint_records(endpoints: Sequence[EndPoint]) -> list[tuple[str, str, int, int]]:
    """(name, host, port, security protocol id) of each."""
    return [
        (each.listener_name, each.host, each.port, SECURITY_PROTOCOL_IDS[each.security_protocol])
        for each in endpoints
    ]
