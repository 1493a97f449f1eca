"""The first exchange on a connection between two nodes: the versions of the APIs, and authentication.

The versions are requested by ApiVersions at our highest version, and again at a version of the peer if it does not
support that one (KIP-511). Errors are those of an unusable connection.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from kafkacompat import __version__
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.security.sasl_client import SASL_VERSIONS
from kafkacompat.wire.apis import ApiKey, response_class
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.frames import request_frame
from kafkacompat.wire.headers import parse_response_header
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

if TYPE_CHECKING:
    from kafkacompat.net.tls_socket import AnySocket
    from kafkacompat.security.sasl_client import SaslClientAuthenticator
    from kafkacompat.wire.message import Message

SOFTWARE_NAME = "kafkacompat"

AUTHENTICATING_MAX = 8
"""Threads at once, those included whose connection was given up while they wait for a server."""
_AUTHENTICATING = trio.CapacityLimiter(AUTHENTICATING_MAX)
_ERROR_CODE = Struct(">h")


async def agree_on_versions(
    sock: AnySocket, buffer: ReceiveBuffer, client_id: str | None
) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest) version that the peer supports. Raises ConnectionLost, WireError or OSError."""
    version = ApiVersionsRequest.MAX_VERSION
    while True:
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        reply, position = await _ask(sock, buffer, message, version, client_id)
        if len(reply) < position + _ERROR_CODE.size:
            raise WireError("a reply without an error code")
        code: int = _ERROR_CODE.unpack_from(reply, position)[0]
        # A peer answers an unsupported version in the oldest one.
        form = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        response: ApiVersionsResponse = decoder(ApiVersionsResponse, form)(reply, position)[0]
        served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if not code:
            return served
        lower = min(served.get(ApiKey.API_VERSIONS, (0, 0))[1], version - 1)
        if code != ErrorCode.UNSUPPORTED_VERSION or lower < 0:
            raise ConnectionLost(f"the other side answers ApiVersions with error {code}")
        version = lower


async def authenticate(
    sock: AnySocket, buffer: ReceiveBuffer, client_id: str | None, authenticator: SaslClientAuthenticator
) -> int:
    """Authenticate this node. Returns how long the session lasts in ms; 0 means forever. Raises AuthenticationFailed,
    and the errors above."""
    response: Any = None
    while True:
        # In a thread, because it derives a key from a password, or waits for a server that issues tickets.
        request = await trio.to_thread.run_sync(
            authenticator.step, response, abandon_on_cancel=True, limiter=_AUTHENTICATING
        )
        if request is None:
            return authenticator.session_lifetime_ms
        assert request.API_KEY is not None
        version = SASL_VERSIONS[request.API_KEY]
        reply, position = await _ask(sock, buffer, request, version, client_id)
        response = decoder(response_class(request.API_KEY), version)(reply, position)[0]


async def _ask(
    sock: AnySocket, buffer: ReceiveBuffer, message: Message, version: int, client_id: str | None
) -> tuple[memoryview, int]:
    """The reply, and the position of its body."""
    assert message.API_KEY is not None
    await _send_all(sock, request_frame(message, version, 0, client_id))
    while (reply := buffer.next_frame()) is None:
        await receive_some(sock, buffer)
    answered_id, position = parse_response_header(reply, message.API_KEY, version)
    if answered_id:
        raise WireError(f"a reply to request {answered_id}, not to 0")
    return reply, position


async def receive_some(sock: AnySocket, buffer: ReceiveBuffer) -> None:
    """Wait for bytes. Raises ConnectionLost at the end, or OSError."""
    room = buffer.unviewed_room()
    while True:
        try:
            received = sock.recv_into(room)
            break
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
    if not received:
        raise ConnectionLost("the other side closed the connection")
    buffer.received(received)


async def _send_all(sock: AnySocket, data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
