"""What an answer must be, whatever was asked: whole, of its version, with codes that Kafka has.

And for what a connection may be closed.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decoder, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_response_header
from kafkacompat.wire.message import Message, Struct

from .author import Request
from .node import Finding

CODES = {int(code) for code in ErrorCode}
CODE_FIELDS = ("error_code", "partition_error_code")
PRODUCE = 0
ACL_APIS = (29, 30, 31)
ACL_CODES = (
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
    "permission_type",
)


def read_answer(request: Request, answer: bytes) -> Any:
    """The response. Finding where it is none that this version has."""
    key, version = request.entry.key, request.version
    try:
        correlation_id, start = parse_response_header(answer, key, version)
        response, end = decoder(response_class(key), version)(memoryview(answer), start)
    except (WireError, UnicodeDecodeError) as error:
        raise Finding(f"an answer cannot be read: {error}\n{request}\n{answer[:400].hex()}") from error
    if correlation_id != request.correlation_id:
        raise Finding(f"an answer to {correlation_id} where {request.correlation_id} was asked: {request}")
    if end != len(answer):
        raise Finding(f"{len(answer) - end} bytes behind an answer to {request}")
    if encode(response, version) != bytes(answer[start:]):
        raise Finding(f"an answer is not as Kafka would write it: {response}\n{request}")
    check_codes(response, request)
    return response


def check_codes(struct: Struct, request: Request) -> None:
    for name in struct.__slots__:
        value = getattr(struct, name)
        if type(value) is list:
            for item in value:
                if isinstance(item, Struct):
                    check_codes(item, request)
        elif isinstance(value, Struct):
            check_codes(value, request)
        elif name in CODE_FIELDS and value not in CODES:
            # UNKNOWN_SERVER_ERROR is among them: Kafka too has it for what it does not expect. Ours is logged, and so found.
            raise Finding(f"no error has the number {value}: {request}")


def check_closed(reason: Exception, request: Request) -> None:
    """Finding where Kafka would have answered."""
    if request.is_mangled and isinstance(reason, WireError):
        return
    message: Message = request.message
    if request.entry.key == PRODUCE:
        if isinstance(reason, CloseConnection) and message.acks == 0:  # type: ignore[attr-defined]
            return
        if isinstance(reason, WireError):
            return  # of the records, which are read with the request in Kafka
    if request.entry.key in ACL_APIS and isinstance(reason, WireError) and holds_no_code(message):
        return
    raise Finding(f"the connection is closed for {reason!r}: {request}")


def holds_no_code(message: Message) -> bool:
    """Whether a code of the request is 0, which Kafka reads as a request that it cannot parse."""
    parts: list[Any] = [message]
    for name in ("filters", "creations"):
        parts += getattr(message, name, [])
    return any(getattr(part, name, None) == 0 for part in parts for name in ACL_CODES)
