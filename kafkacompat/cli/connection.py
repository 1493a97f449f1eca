"""One connection to one broker: a request, its answer, and a time limit."""

from __future__ import annotations

import socket
from typing import TypeVar

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.failure import CommandFailed
from kafkacompat.security.sasl_client import (
    NO_SECURITY,
    SASL_VERSIONS,
    AuthenticationFailed,
    ClientSecurity,
)
from kafkacompat.wire.apis import ApiKey, response_class
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.frames import FRAME_SIZE, request_frame
from kafkacompat.wire.headers import parse_response_header
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

CLIENT_ID = "kafkacompat-cli"
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
"""request.timeout.ms of Kafka's clients."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024

M = TypeVar("M", bound=Message)


class BrokerAway(CommandFailed):
    """The broker cannot be reached, or the connection was lost. A retry may find it, or another broker in its place."""


class NoAnswer(BrokerAway):
    """The broker took the connection, but an answer did not come in time."""


class Connection:
    """One broker. Each request uses the highest version that both sides support."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """timeout_s: time limit for an answer. Raises BrokerAway, or CommandFailed if a retry cannot help."""
        self._socket = _connected(host, port, min(timeout_s, CONNECT_TIMEOUT_S), security)
        self._timeout_s = timeout_s
        self.is_lost = False
        """True if the connection cannot be used any more."""
        self._correlation_id = 0
        try:
            answer = self._exchange(ApiVersionsRequest(), 0, ApiVersionsResponse, timeout_s)
            self._authenticate(security, host, timeout_s)
        except AuthenticationFailed as failure:
            self._socket.close()
            raise CommandFailed(
                f"authentication with {host_and_port(host, port)} failed: {failure}"
            ) from None
        except CommandFailed:
            self._socket.close()
            raise
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def _authenticate(self, security: ClientSecurity, host: str, timeout_s: float) -> None:
        authenticator = security.authenticator(host)
        if authenticator is None:
            return
        response: Message | None = None
        while (request := authenticator.step(response)) is not None:
            assert request.API_KEY is not None
            version = SASL_VERSIONS[type(request)]
            response = self._exchange(request, version, response_class(request.API_KEY), timeout_s)

    def call(
        self,
        request: Message,
        response_type: type[M],
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> M:
        """Send a request and wait for its answer. `timeout_s`: for a request that the broker may hold back. Raises BrokerAway."""
        assert request.API_KEY is not None
        name = ApiKey(request.API_KEY).name
        if request.API_KEY not in self._versions:
            raise CommandFailed(f"the broker does not serve {name}")
        lowest, highest = self._versions[request.API_KEY]
        version = min(
            highest, request.MAX_VERSION, request.MAX_VERSION if max_version is None else max_version
        )
        if version < max(lowest, request.MIN_VERSION):
            raise CommandFailed(
                f"the broker serves {name} in versions {lowest} to {highest}, which are not known here"
            )
        return self._exchange(
            request, version, response_type, self._timeout_s if timeout_s is None else timeout_s
        )

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker supports this version of an API."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def close(self) -> None:
        self.is_lost = True
        self._socket.close()

    def _exchange(self, request: Message, version: int, response_type: type[M], timeout_s: float) -> M:
        assert request.API_KEY is not None
        self._correlation_id += 1
        frame = request_frame(request, version, self._correlation_id, CLIENT_ID)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            answer = self._receive()
        except BaseException as error:
            # Also after an interrupt: a late answer would be taken for the answer to the next request.
            self.close()
            if isinstance(error, TimeoutError):
                raise NoAnswer(f"the broker did not answer: {error}") from error
            if isinstance(error, OSError):
                raise BrokerAway(f"the broker did not answer: {error}") from error
            raise
        try:
            answered_id, position = parse_response_header(answer, request.API_KEY, version)
            if answered_id != self._correlation_id:
                raise WireError(f"it is the one to request {answered_id}, not to {self._correlation_id}")
            return decode(response_type, version, memoryview(answer), position)
        except WireError as error:
            raise CommandFailed(f"the broker's answer cannot be read: {error}") from error

    def _receive(self) -> bytes:
        (size,) = FRAME_SIZE.unpack(self._receive_exactly(FRAME_SIZE.size))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise CommandFailed(f"the broker's answer claims {size} bytes")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, position = memoryview(data), 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if count == 0:
                raise BrokerAway("the broker closed the connection")
            position += count
        return bytes(data)


def _connected(host: str, port: int, timeout_s: float, security: ClientSecurity) -> socket.socket:
    try:
        plain = socket.create_connection((host, port), timeout=timeout_s)
    except OSError as error:
        raise BrokerAway(f"no broker answers at {host_and_port(host, port)}: {error}") from error
    if security.context is None:
        return plain
    from ssl import SSLCertVerificationError

    try:
        return security.context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        plain.close()
        if isinstance(error, SSLCertVerificationError):
            raise CommandFailed(
                f"the certificate of {host_and_port(host, port)} is refused: {error.verify_message}"
            ) from None
        raise BrokerAway(f"TLS with {host_and_port(host, port)} failed: {error}") from error
