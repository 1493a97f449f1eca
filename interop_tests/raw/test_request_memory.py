"""queued.max.request.bytes: while requests that are being received have all the memory, nobody else is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, frame

pytestmark = pytest.mark.needs_control
POOL_BYTES = 1 << 20
SETTINGS = {"queued.max.request.bytes": f"{POOL_BYTES}", "socket.request.max.bytes": f"{POOL_BYTES}"}
TOPIC = "large"
SILENT_S = 0.5
PRODUCE, API_VERSIONS = ("Produce", 9), ("ApiVersions", 0)


def large_request(connection: Connection) -> tuple[int, bytes]:
    """A produce that takes all the memory."""
    values = POOL_BYTES
    while True:
        body = produce_body(TOPIC, BatchPlan(values=[b"x" * values]))
        number, request = connection.encode(*PRODUCE, body)
        if len(request) == POOL_BYTES:
            return number, frame(request)
        values += POOL_BYTES - len(request)


def unanswered(bootstrap: str) -> tuple[Connection, int]:
    """A client whose request is not received, as soon as there is one."""

    def asked() -> tuple[Connection, int] | None:
        connection = Connection(bootstrap)
        number = connection.send(*API_VERSIONS, {})
        if connection.is_silent(SILENT_S):
            return connection, number
        connection.close()
        return None

    found: Any = wait_until(asked, "a client is not read")
    return found


def test_nobody_is_read_while_one_request_has_all_the_memory(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    bootstrap = make_broker(SETTINGS).bootstrap
    create_topic(bootstrap, TOPIC)

    with Connection(bootstrap) as large:
        number, request = large_request(large)
        large.send_bytes(request[: POOL_BYTES // 2])
        other, asked = unanswered(bootstrap)
        large.send_bytes(request[POOL_BYTES // 2 :])
        (result,) = large.receive(*PRODUCE, number)["Responses"][0]["PartitionResponses"]
        assert result["ErrorCode"] == 0
        assert other.receive(*API_VERSIONS, asked)["ErrorCode"] == 0
        other.close()

        _, request = large_request(large)
        large.send_bytes(request[: POOL_BYTES // 2])
        other, asked = unanswered(bootstrap)
    # The client that had the memory has gone.
    assert other.receive(*API_VERSIONS, asked)["ErrorCode"] == 0
    other.close()
