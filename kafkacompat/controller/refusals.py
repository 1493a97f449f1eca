"""Refusals of a whole request that brokers and controllers send to the controller: the error at the level where Kafka puts it.

Pure. Knows the shapes of responses, not why anything is refused. None of them but ControllerRegistration carries a text to the
sender, so the caller logs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message

_RESPONSES = {
    56: ("alter_partition_response", "AlterPartitionResponse"),
    62: ("broker_registration_response", "BrokerRegistrationResponse"),
    63: ("broker_heartbeat_response", "BrokerHeartbeatResponse"),
    64: ("unregister_broker_response", "UnregisterBrokerResponse"),
    67: ("allocate_producer_ids_response", "AllocateProducerIdsResponse"),
    70: ("controller_registration_response", "ControllerRegistrationResponse"),
    73: ("assign_replicas_to_dirs_response", "AssignReplicasToDirsResponse"),
}
"""By API key: module and class."""
CONTROLLER_REGISTRATION = 70


TEXT_MAX = 8_000
"""Characters of a text: what names of a request are put into has room in a string of the protocol, 32,767 bytes."""


def told(text: str | None) -> str | None:
    """As much of a refusal's text as an answer can hold."""
    return text if text is None or len(text) <= TEXT_MAX else text[:TEXT_MAX]


class BrokerRefused(Exception):
    """A request of a broker or controller is refused as a whole, with Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:TEXT_MAX]


def refused_response(request: Message, code: ErrorCode, message: str | None = None) -> Message:
    """The response that refuses `request`, one of the APIs above. `message` only where Kafka fills the field for one."""
    assert request.API_KEY is not None
    module, name = _RESPONSES[request.API_KEY]
    response: Callable[..., Message] = getattr(import_module(f"kafkacompat.wire.messages.{module}"), name)
    if request.API_KEY == CONTROLLER_REGISTRATION:
        return response(error_code=code, error_message=message)
    return response(error_code=code)
