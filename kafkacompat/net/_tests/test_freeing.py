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
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.connection import Connection


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
