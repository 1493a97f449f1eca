"""A small blocking client for the everyday commands: any message of any API, to any broker of a cluster.

It speaks the protocol like anybody's client and must not know that the broker may be ours. One request at a time; every
wait has a bound.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from collections.abc import Callable
from typing import TypeVar

from kafkacompat.cli.failure import CommandFailed
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.find_coordinator_response import FindCoordinatorResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse

CLIENT_ID = "kafkacompat-cli"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 256 * 1024 * 1024
COORDINATOR_TRIES = 100
RETRY_PAUSE_S = 0.1
COORDINATOR_MOVES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

ErrorCodes = frozenset(ErrorCode)

M = TypeVar("M", bound=Message)


def check(code: int, what: str, message: str | None = None) -> None:
    """CommandFailed naming the error, unless there is none."""
    if code != ErrorCode.NONE:
        name = ErrorCode(code).name if code in ErrorCodes else f"error {code}"
        raise CommandFailed(f"{what}: {name}" + (f" ({message})" if message else ""))


class Connection:
    """One broker. Versions are the highest that both sides know."""

    def __init__(self, host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """timeout_s: how long an answer may take."""
        try:
            self._socket = socket.create_connection((host, port), timeout=min(timeout_s, CONNECT_TIMEOUT_S))
        except OSError as error:
            raise CommandFailed(f"no broker answers at {host}:{port}: {error}") from error
        self._socket.settimeout(timeout_s)
        self._correlation_id = 0
        try:
            answer = self._exchange(ApiVersionsRequest(), 0, ApiVersionsResponse)
        except CommandFailed:
            self._socket.close()
            raise
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def call(self, request: Message, response_type: type[M], max_version: int | None = None) -> M:
        """Send a request, wait for its answer."""
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
        return self._exchange(request, version, response_type)

    def serves(self, api_key: int, version: int) -> bool:
        """Whether the broker knows this version of an API."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def close(self) -> None:
        self._socket.close()

    def _exchange(self, request: Message, version: int, response_type: type[M]) -> M:
        assert request.API_KEY is not None
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        head = (
            struct.pack(">hhih", request.API_KEY, version, self._correlation_id, len(client_id)) + client_id
        )
        flexible = version >= request.FLEXIBLE_MIN
        frame = head + (b"\0" if flexible else b"") + encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            answer = self._receive()
        except OSError as error:
            raise CommandFailed(f"the broker did not answer: {error}") from error
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
                raise CommandFailed("the broker closed the connection")
            position += count
        return bytes(data)


class Cluster:
    """Brokers reached by node id, found through bootstrap servers."""

    def __init__(self, bootstrap: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """bootstrap: 'host:port[,host:port...]'; the first that answers is used. timeout_s: for each answer."""
        self._timeout_s = timeout_s
        self._any = self._first_of(bootstrap)
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    def any(self) -> Connection:
        return self._any

    def node(self, node_id: int) -> Connection:
        """A connection to one broker, by the address that metadata gives."""
        if node_id not in self._connections:
            if node_id not in self._addresses:
                self.metadata([])
            if node_id not in self._addresses:
                raise CommandFailed(f"broker {node_id} is not alive")
            self._connections[node_id] = Connection(*self._addresses[node_id], self._timeout_s)
        return self._connections[node_id]

    def node_ids(self) -> list[int]:
        self.metadata([])
        return sorted(self._addresses)

    def metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Topics by name, None for all."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = self._any.call(
            MetadataRequest(topics=named, allow_auto_topic_creation=create), MetadataResponse
        )
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def coordinator_call(
        self,
        group: str,
        request: Message,
        response_type: type[M],
        error_of: Callable[[M], int],
        max_version: int | None = None,
    ) -> M:
        """Ask the group's coordinator; waits a while for one that is being found, made or loaded."""
        for last in (False,) * COORDINATOR_TRIES + (True,):
            node_id = self._coordinator_id(group)
            if node_id is not None:
                answer = self.node(node_id).call(request, response_type, max_version)
                if last or error_of(answer) not in COORDINATOR_MOVES:
                    return answer
            time.sleep(RETRY_PAUSE_S)
        raise CommandFailed(f"group {group} has no coordinator yet")

    def _coordinator_id(self, group: str) -> int | None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        found = self._any.call(request, FindCoordinatorResponse).coordinators[0]
        if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return None
        check(found.error_code, f"coordinator of group {group}", found.error_message)
        return found.node_id

    def close(self) -> None:
        for connection in [self._any, *self._connections.values()]:
            connection.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_of(self, bootstrap: str) -> Connection:
        failures = []
        for address in bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdigit():
                raise CommandFailed(f"--bootstrap takes host:port[,host:port...], not {address!r}")
            try:
                return Connection(host, int(port), self._timeout_s)
            except CommandFailed as failure:
                failures.append(str(failure))
        raise CommandFailed("; ".join(failures))


def add_bootstrap(parser: argparse.ArgumentParser, *, action: bool = False) -> None:
    """The option --bootstrap. `action`: for a parser below one that has it, so that it may stand before or after."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        default=argparse.SUPPRESS if action else DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"brokers to ask first, several with commas (default {DEFAULT_BOOTSTRAP})",
    )


__all__ = ["Cluster", "CommandFailed", "Connection", "add_bootstrap", "check"]
