"""Request and response headers, and the frames of requests. A frame is a 32-bit size, then that many bytes. The owner of a
connection splits received bytes into frames.

The version of a header depends on the API and its version. Kafka has exceptions: the client id has a 16-bit length also in
flexible headers. ApiVersions responses always have the oldest header (KIP-511). The header of an ApiVersions request with an
unsupported version is read as far as possible, so that it can be answered. WireError for a header that cannot be read.
"""

from struct import Struct as Layout
from struct import error as StructError

from kafkacompat.wire.codec import encoder
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.primitives import (
    ByteSequence,
    read_nullable_string,
    skip_tagged_fields,
    write_nullable_string,
)
from kafkacompat.wire.remember import remembered
from kafkacompat.wire.tables import APIS, ApiKey

START = Layout(">hhi")
RESPONSE = Layout(">i")
FLEXIBLE_RESPONSE = Layout(">ix")


class RequestHeader:
    """A request's header. `body_offset` is the start of the body in the frame. `client_id` may be None."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body_offset={self.body_offset})"
        )


def parse_request_header(frame: ByteSequence) -> RequestHeader:
    """Return the header of a frame (without its size).

    For an unknown API, and for an ApiVersions request with a newer version, only the first eight bytes are required.
    The rest is read if possible, and `body_offset` is the position where reading stopped. The caller checks whether
    the version is supported.
    """
    return rest_of_header(frame, *request_start(frame))


def request_start(frame: ByteSequence) -> tuple[int, int, int]:
    """Return key, version and correlation id of a frame (without its size)."""
    try:
        return START.unpack_from(frame)
    except StructError:
        raise WireError(f"a request of {len(frame)} bytes has no header") from None


def rest_of_header(frame: ByteSequence, api_key: int, api_version: int, correlation_id: int) -> RequestHeader:
    """`parse_request_header` for a frame whose start is known."""
    api = APIS.get(api_key)
    if api is None:
        return RequestHeader(api_key, api_version, correlation_id, None, START.size)
    client_id: str | None = None
    position = START.size
    try:
        client_id, position = read_nullable_string(frame, position)
        if api_version >= api.request_flexible_min:
            if position < len(frame) and not frame[position]:
                position += 1
            else:
                position = skip_tagged_fields(frame, position)
    except WireError:
        if api_key != ApiKey.API_VERSIONS or api_version <= api.latest:
            raise
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def request_header_bytes(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return the header of a request that this node sends. KeyError for an unknown API."""
    out = bytearray(START.pack(api_key, api_version, correlation_id))
    write_nullable_string(out, client_id)
    if api_version >= APIS[api_key].request_flexible_min:
        out.append(0)
    return out


def response_header_bytes(api_key: int, api_version: int, correlation_id: int) -> bytearray:
    """Return the header of a response, to which the body may be appended. KeyError for an unknown API."""
    if api_version >= APIS[api_key].response_flexible_min:
        return bytearray(FLEXIBLE_RESPONSE.pack(correlation_id))
    return bytearray(RESPONSE.pack(correlation_id))


def parse_response_header(frame: ByteSequence, api_key: int, api_version: int) -> tuple[int, int]:
    """Return the correlation id and the offset of the body in the response to a request of this node."""
    if len(frame) < RESPONSE.size:
        raise WireError(f"a reply of {len(frame)} bytes has no header")
    correlation_id: int = RESPONSE.unpack_from(frame)[0]
    if api_version >= APIS[api_key].response_flexible_min:
        end = FLEXIBLE_RESPONSE.size
        if len(frame) >= end and not frame[end - 1]:
            return correlation_id, end  # no tagged fields, as always
        return correlation_id, skip_tagged_fields(frame, RESPONSE.size)
    return correlation_id, RESPONSE.size


FRAME_SIZE = Layout(">i")
FRAME_START = Layout(">ihhi")


@remembered
def _own_header_rest(api_key: int, api_version: int, client_id: str | None) -> bytes:
    """What follows the correlation id. A node has few client ids of its own."""
    return bytes(request_header_bytes(api_key, api_version, 0, client_id)[START.size :])


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """Return a request with its size, for a client id of this node. EncodeError if this version cannot represent the message."""
    key = message.API_KEY
    assert key is not None
    frame = bytearray(FRAME_START.pack(0, key, version, correlation_id))
    frame += _own_header_rest(key, version, client_id)
    encoder(type(message), version)(message, frame)
    FRAME_SIZE.pack_into(frame, 0, len(frame) - FRAME_SIZE.size)
    return frame
