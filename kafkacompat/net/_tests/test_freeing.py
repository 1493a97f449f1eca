"""A closed connection is freed at once, also without the garbage collector: clients that come and go take no memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafkacompat.net._tests.helpers import (
    TLS,
    ScriptedDispatcher,
    Terms,
    dial,
    expect_closed,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.connection import Connection
from kafkacompat.ports.dispatcher import CloseConnection


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(each, Connection) for each in gc.get_objects())


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["in the clear", "over TLS"])
async def test_a_closed_connection_is_freed_at_once(
    is_encrypted: bool, without_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_encrypted:
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        for _ in range(3):
            stream = await dial(server)
            await stream.send_all(framed(b"request"))
            assert await receive_frame(stream) == b"request"
            await stream.aclose()
        await until(lambda: not server._connections)
        dispatcher.connections.clear()
        await until(lambda: connections() == 0)


@pytest.mark.parametrize("request_name", [b"later", b"park"])
async def test_a_connection_that_an_error_closes_is_freed_at_once(
    request_name: bytes, without_collector: None
) -> None:
    """A produce with acks=0 that fails, of a hundred megabytes."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        for _ in range(3):
            stream = await dial(server)
            await stream.send_all(framed(request_name))
            await until(lambda: request_name in dispatcher.pending)
            dispatcher.pending.pop(request_name).fail(CloseConnection("acks=0 failed"))
            await expect_closed(stream)
            await stream.aclose()
        await until(lambda: not server._connections)
        dispatcher.connections.clear()
        await until(lambda: connections() == 0)
