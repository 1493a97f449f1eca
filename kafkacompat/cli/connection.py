"""One connection to one broker: a request, its answer, and a bound for the wait."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from kafkacompat.cli.failure import CommandFailed
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
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
    """The broker cannot be reached, or has gone: another try may find it, or another one in its place."""


class Connection:
    """One broker. Versions are the highest that both sides know."""

    def __init__(self, host: str, port: int, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """timeout_s: how long an answer may take."""
        try:
            self._socket = socket.create_connection((host, port), timeout=min(timeout_s, CONNECT_TIMEOUT_S))
        except OSError as error:
            raise BrokerAway(f"no broker answers at {host}:{port}: {error}") from error
        self._timeout_s = timeout_s
        self.is_lost = False
        """Nothing more can be asked here."""
        self._correlation_id = 0
        try:
            answer = self._exchange(ApiVersionsRequest(), 0, ApiVersionsResponse, timeout_s)
        except CommandFailed:
            self._socket.close()
            raise
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def call(
        self,
        request: Message,
        response_type: type[M],
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> M:
        """Send a request, wait for its answer. `timeout_s`: for one that the broker parks. BrokerAway."""
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
        """Whether the broker knows this version of an API."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def close(self) -> None:
        self.is_lost = True
        self._socket.close()

    def _exchange(self, request: Message, version: int, response_type: type[M], timeout_s: float) -> M:
        assert request.API_KEY is not None
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        head = (
            struct.pack(">hhih", request.API_KEY, version, self._correlation_id, len(client_id)) + client_id
        )
        flexible = version >= request.FLEXIBLE_MIN
        frame = head + (b"\0" if flexible else b"") + encode(request, version)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            answer = self._receive()
        except BaseException as error:
            # Interrupted too: an answer that comes later would be taken for the next one's.
            self.close()
            if isinstance(error, OSError):
                raise BrokerAway(f"the broker did not answer: {error}") from error
            raise
        skipped = 5 if flexible and request.API_KEY != ApiKey.API_VERSIONS else 4
        try:
            return decode(response_type, version, memoryview(answer), skipped)
        except WireError as error:
            raise CommandFailed(f"the broker's answer cannot be read: {error}") from error

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
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
