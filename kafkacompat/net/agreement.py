"""What two nodes agree on first on a connection between them: which versions of which APIs they may use.

The versions are asked for by ApiVersions at our highest version, and once more at one of the peer's own if that is too new for it
(KIP-511). Raises what a connection that is of no use raises.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any

import trio

from kafkacompat import __version__
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import decoder, encoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.frames import FrameReader
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

API_VERSIONS = 18
SOFTWARE_NAME = "kafkacompat"

_SIZE = Struct(">i")
_ERROR_CODE = Struct(">h")


async def agree_on_versions(
    sock: socket.socket, reader: FrameReader, client_id: str | None
) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest) that the peer serves. ConnectionLost, WireError or OSError."""
    version = ApiVersionsRequest.MAX_VERSION
    while True:
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        await _send_all(sock, request_frame(API_VERSIONS, version, 0, client_id, message))
        while (reply := reader.next_frame()) is None:
            await receive_some(sock, reader)
        answered_id, position = parse_response_header(reply, API_VERSIONS, version)
        if answered_id:
            raise WireError(f"a reply to request {answered_id}, not to 0")
        if len(reply) < position + _ERROR_CODE.size:
            raise WireError("a reply without an error code")
        code: int = _ERROR_CODE.unpack_from(reply, position)[0]
        # A version that the peer does not know it answers in the oldest form.
        form = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        response: ApiVersionsResponse = decoder(ApiVersionsResponse, form)(reply, position)[0]
        served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if not code:
            return served
        lower = min(served.get(API_VERSIONS, (0, 0))[1], version - 1)
        if code != ErrorCode.UNSUPPORTED_VERSION or lower < 0:
            raise ConnectionLost(f"the other side answers ApiVersions with error {code}")
        version = lower


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> bytearray:
    """A request with its size. EncodeError when this version cannot carry the message."""
    out = bytearray(_SIZE.size)
    out += request_header_bytes(api_key, version, correlation_id, client_id)
    encoder(request_class(api_key), version)(message, out)
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return out


async def receive_some(sock: socket.socket, reader: FrameReader) -> None:
    """Wait for bytes. ConnectionLost at the end, OSError."""
    room = reader.space()
    while True:
        try:
            received = sock.recv_into(room)
            break
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
    if not received:
        raise ConnectionLost("the other side closed the connection")
    reader.received(received)


async def _send_all(sock: socket.socket, data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
