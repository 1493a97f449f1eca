"""A whole node with a client, for tests that look at what requests change. It is the node of the fuzzer (`fuzz/node`)."""

from __future__ import annotations

from typing import Any

from kafkacompat._tests.fuzz.node import FuzzedConnection, FuzzedNode
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.message import Message

HEADER_BYTES = {True: 5, False: 4}
WAITED_MAX_MS = 60_000


class AskedNode:
    """The node's steps are carried out while a request waits for its answer."""

    def __init__(self, node: FuzzedNode) -> None:
        self.node = node
        self.connection = node.connect()

    def send(
        self,
        request: Message,
        version: int,
        client_id: str = "tester",
        connection: FuzzedConnection | None = None,
    ) -> None:
        assert request.API_KEY is not None
        header = request_header_bytes(request.API_KEY, version, 7, client_id)
        (connection or self.connection).send(header + encode(request, version))

    def ask(self, request: Message, version: int, client_id: str = "tester") -> Any:
        """The answer as a message."""
        before = len(self.connection.answers)
        self.send(request, version, client_id)
        for _ in range(WAITED_MAX_MS // 10):
            if len(self.connection.answers) > before:
                kind: Any = response_class(request.API_KEY)  # type: ignore[arg-type]
                flexible = version >= kind.FLEXIBLE_MIN
                return decode(kind, version, self.connection.answers[-1], HEADER_BYTES[flexible])
            self.node.pass_time(10)
        raise AssertionError("no answer")
