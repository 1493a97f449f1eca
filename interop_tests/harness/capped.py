"""A relay in front of a broker that shows clients the API versions of an older Kafka release.

It lowers the version ranges in ApiVersions responses and leaves every other byte unchanged. So a new client uses the
old versions. The relay records the versions of the client's requests.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator

from interop_tests.harness.schema import message
from interop_tests.harness.wire import API_VERSIONS, decode_response, frame

UNSUPPORTED_VERSION = 35
MAX_FRAME_BYTES = 1 << 28

# The newest version of each client API in Kafka 2.6, by api key. Kafka 2.6 had no other client APIs.
_FROM_PRODUCE_TO_METADATA = [8, 11, 5, 9]
_FROM_OFFSET_COMMIT_TO_TXN_MARKERS = [8, 7, 3, 7, 4, 4, 5, 5, 4, 1, 3, 5, 4, 2, 3, 3, 1, 1, 1, 0]
_FROM_TXN_OFFSET_COMMIT_TO_CLIENT_QUOTAS = [3, 2, 2, 2, 3, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0, 0, 0, 0, 0]
KAFKA_2_6 = (
    dict(enumerate(_FROM_PRODUCE_TO_METADATA))
    | dict(enumerate(_FROM_OFFSET_COMMIT_TO_TXN_MARKERS, 8))
    | dict(enumerate(_FROM_TXN_OFFSET_COMMIT_TO_CLIENT_QUOTAS, 28))
)


class Relay:
    """Listens on `port` and forwards connections to the broker's port. close() ends all connections."""

    def __init__(self, newest: dict[int, int]) -> None:
        """newest has the highest version to show, by api key. APIs without an entry are not shown."""
        self.newest = newest
        self.asked: dict[int, set[int]] = defaultdict(set)
        self.broker_port: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._closed = False
        self._lock = threading.Lock()

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def serve(self, broker_port: int) -> None:
        """Start to accept connections."""
        self.broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def too_new(self) -> dict[int, set[int]]:
        """Versions that a client used although they were not shown, by api key. A client may try any version of
        ApiVersions."""
        found = {}
        for key, versions in self.asked.items():
            above = {version for version in versions if version > self.newest.get(key, -1)}
            if above and key != API_VERSIONS:
                found[key] = above
        return found

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sockets = [self._listener, *self._open]
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port or 0))
            except OSError:
                return
            with self._lock:
                self._open += [client, broker]
                if self._closed:
                    return
            handshakes: dict[int, int] = {}
            for target in (self._pass_requests, self._pass_replies):
                threading.Thread(target=target, args=(client, broker, handshakes), daemon=True).start()

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, handshakes: dict[int, int]
    ) -> None:
        with _hanging_up(client, broker):
            while True:
                request = _receive(client)
                key, version, correlation_id = struct.unpack_from(">hhi", request)
                self.asked[key].add(version)
                if key == API_VERSIONS:
                    handshakes[correlation_id] = version
                broker.sendall(frame(request))

    def _pass_replies(self, client: socket.socket, broker: socket.socket, handshakes: dict[int, int]) -> None:
        with _hanging_up(client, broker):
            while True:
                reply = _receive(broker)
                (correlation_id,) = struct.unpack_from(">i", reply)
                version = handshakes.pop(correlation_id, None)
                if version is not None:
                    reply = self._lowered(reply, version, correlation_id)
                client.sendall(frame(reply))

    def _lowered(self, reply: bytes, version: int, correlation_id: int) -> bytes:
        (error,) = struct.unpack_from(">h", reply, 4)
        version = 0 if error == UNSUPPORTED_VERSION else version
        body = decode_response(reply, "ApiVersions", version, correlation_id)
        shown = [
            {**each, "MaxVersion": min(each["MaxVersion"], self.newest[each["ApiKey"]])}
            for each in body["ApiKeys"]
            if each["MinVersion"] <= self.newest.get(each["ApiKey"], -1)
        ]
        lowered = {"ErrorCode": error, "ApiKeys": shown, "ThrottleTimeMs": 0}
        return struct.pack(">i", correlation_id) + message("ApiVersionsResponse").encode(lowered, version)


@contextlib.contextmanager
def _hanging_up(*sockets: socket.socket) -> Iterator[None]:
    """When one side closes, the relay closes the other."""
    with contextlib.suppress(OSError, EOFError):
        try:
            yield
        finally:
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(source, 4))
    if not 0 <= size < MAX_FRAME_BYTES:
        raise OSError(f"a frame of {size} bytes")
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
