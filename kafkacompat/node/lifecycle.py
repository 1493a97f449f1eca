"""A broker's life in the cluster: registered, unfenced, shut down in order.

Duty: say these to the controller at the right moment and remember the broker epoch. Knows no log and no listener: the composition
root calls `register` when metadata is loaded, `unfence` when the first image has been taken up, `shut_down` before the logs
close, and writes `broker_epoch` into every `.kafka_cleanshutdown` after that. Follows KIP-631, clean-shutdown detection KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafkacompat.config import EndPoint
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_EPOCH, Uuid
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerState(Enum):
    """Kafka's states of a broker; the value is what its BrokerState metric shows."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationController(Protocol):
    """What a broker says to its controller. Refusals raise BrokerRefused."""

    def register_broker(self, request: BrokerRegistrationRequest) -> Deferred[int]: ...

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]: ...

    def shut_down_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]: ...


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
    """See `previous_broker_epoch()`."""


def previous_broker_epoch(marks: Sequence[int | None]) -> int:
    """The epoch that every log directory's clean-shutdown mark agrees on; -1 (unclean) when one has none (None) or they differ."""
    epochs = set(marks)
    if len(epochs) != 1:
        return NO_EPOCH
    epoch = epochs.pop()
    return NO_EPOCH if epoch is None else epoch


def endpoint_records(endpoints: Sequence[EndPoint]) -> list[tuple[str, str, int, int]]:
    """(name, host, port, security protocol id) of each."""
    return [
        (each.listener_name, each.host, each.port, SECURITY_PROTOCOL_IDS[each.security_protocol])
        for each in endpoints
    ]


class BrokerLifecycle:
    """One process's registration. `register`, `unfence`, `shut_down`: once each, in this order."""

    __slots__ = ("_controller", "_identity", "broker_epoch", "state")

    def __init__(self, controller: RegistrationController, identity: BrokerIdentity) -> None:
        self._controller = controller
        self._identity = identity
        self.broker_epoch = NO_EPOCH
        self.state = BrokerState.NOT_RUNNING

    def register(self) -> Deferred[int]:
        """Resolves with the broker epoch once it is committed."""
        self._advance(BrokerState.NOT_RUNNING, BrokerState.STARTING)
        identity = self._identity
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in endpoint_records(identity.listeners)
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=identity.rack,
            log_dirs=list(identity.directory_ids),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

        def registered(epoch: int) -> int:
            self.broker_epoch = epoch
            self.state = BrokerState.RECOVERY
            return epoch

        return self._controller.register_broker(request).then(registered)

    def unfence(self) -> Deferred[None]:
        """From now on partitions get this broker as their leader."""
        self._advance(BrokerState.RECOVERY, BrokerState.RECOVERY)

        def running(_: None) -> None:
            self.state = BrokerState.RUNNING

        return self._controller.unfence_broker(self._identity.node_id, self.broker_epoch).then(running)

    def shut_down(self) -> Deferred[None]:
        """Leadership is given up and the broker fenced once this resolves. Nothing to do for one that never registered."""
        if self.state not in (BrokerState.RECOVERY, BrokerState.RUNNING):
            self.state = BrokerState.SHUTTING_DOWN
            return Deferred.of(None)
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN

        def done(_: None) -> None:
            self.state = BrokerState.SHUTTING_DOWN

        return self._controller.shut_down_broker(self._identity.node_id, self.broker_epoch).then(done)

    def _advance(self, expected: BrokerState, following: BrokerState) -> None:
        if self.state is not expected:
            raise RuntimeError(f"the broker is {self.state.name}, not {expected.name}")
        self.state = following
