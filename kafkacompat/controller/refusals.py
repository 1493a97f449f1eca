"""Refusals of whole requests from brokers and controllers: the error at Kafka's place in each response.

Pure. It knows the structure of responses, not the reasons. Of these responses only ControllerRegistration's has a
text, so the caller logs it.
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
"""API key -> (module, class)."""
CONTROLLER_REGISTRATION = 70


TEXT_MAX = 8_000
"""Characters of a text. With names from a request it then still fits into a string of the protocol, 32,767 bytes."""


def told(text: str | None) -> str | None:
    """A refusal's text, cut to what an answer can hold."""
    return text if text is None or len(text) <= TEXT_MAX else text[:TEXT_MAX]


class BrokerRefused(Exception):
    """A broker's or controller's request is refused as a whole, with Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:TEXT_MAX]


def refused_response(request: Message, code: ErrorCode, message: str | None = None) -> Message:
    """The response that refuses `request`, one of the APIs above. `message` only if Kafka fills that field."""
    assert request.API_KEY is not None
    module, name = _RESPONSES[request.API_KEY]
    response: Callable[..., Message] = getattr(import_module(f"kafkacompat.wire.messages.{module}"), name)
    if request.API_KEY == CONTROLLER_REGISTRATION:
        return response(error_code=code, error_message=message)
    return response(error_code=code)
