"""Requests that the client library lacks, as bytes, and their answers. No sockets."""

from __future__ import annotations

from typing import TypeVar

from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.frames import request_frame
from kafkacompat.wire.headers import parse_response_header
from kafkacompat.wire.message import Message

CORRELATION_ID = 1
CLIENT_ID = "kafkacompat-console"
MAX_RESPONSE_BYTES = 16 * 1024 * 1024

M = TypeVar("M", bound=Message)


class BadResponse(ValueError):
    """The answer is malformed, or is an error."""


def framed(request: Message, version: int) -> bytearray:
    """Return the request with its length in front."""
    return request_frame(request, version, CORRELATION_ID, CLIENT_ID)


def parsed(response_type: type[M], version: int, payload: bytes) -> M:
    """Return the answer to the request of `framed` (payload without the length). Raises BadResponse."""
    assert response_type.API_KEY is not None
    try:
        answered_id, position = parse_response_header(payload, response_type.API_KEY, version)
        if answered_id != CORRELATION_ID:
            raise BadResponse("an answer to another request")
        return decode(response_type, version, payload, position)
    except WireError as error:
        raise BadResponse(f"an answer that cannot be read: {error}") from error
