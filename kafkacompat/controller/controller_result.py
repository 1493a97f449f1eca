"""What a controller's command gives back: its result, or the refusal of a whole request from a broker or controller. Pure.

A command reads the state and never changes it. The state changes only when the records are replayed. A command is a generator
(`tasks.Work`) that yields after what one step may do.

A refusal has the error at Kafka's place in each response. Of these responses only ControllerRegistration's has a text, so
the caller logs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Generic, ParamSpec, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")

RECORDS_A_STEP = 200
"""Records or partitions that one step creates, replays or takes over. One takes 15 to 40 us."""
SCANNED_A_STEP = 20_000
"""Partitions that one step only reads. One takes 0.2 us."""
RECORD_COST = SCANNED_A_STEP // RECORDS_A_STEP
"""The cost of a record, in partitions that are only read."""


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R, T]):
    """`records` in order, to be written atomically. `response` is sent when they are committed."""

    records: tuple[R, ...]
    response: T


def whole(command: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Work[T]:
    """A command that needs no pauses, as a work."""
    return command(*arguments, **options)
    yield


_RESPONSES = {
    56: ("alter_partition_response", "AlterPartitionResponse"),
    62: ("broker_registration_response", "BrokerRegistrationResponse"),
    63: ("broker_heartbeat_response", "BrokerHeartbeatResponse"),
    64: ("unregister_broker_response", "UnregisterBrokerResponse"),
    67: ("allocate_producer_ids_response", "AllocateProducerIdsResponse"),
    70: ("controller_registration_response", "ControllerRegistrationResponse"),
    73: ("assign_replicas_to_dirs_response", "AssignReplicasToDirsResponse"),
    94: ("unregister_controller_response", "UnregisterControllerResponse"),
}
"""API key -> (module, class)."""
WITH_MESSAGES = (64, 70, 94)
"""UnregisterBroker, ControllerRegistration and UnregisterController tell why."""


TEXT_MAX = 8_000
"""Characters of a text. With names from a request it then still fits into a string of the protocol, 32,767 bytes."""


def cut_to_fit(text: str | None) -> str | None:
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
    if request.API_KEY in WITH_MESSAGES:
        return response(error_code=code, error_message=message)
    return response(error_code=code)
