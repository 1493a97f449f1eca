"""A connection tells when replies leave while times are taken of one of its requests."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.net._tests.helpers import (
    Answer,
    ScriptedDispatcher,
    dial,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.ports.dispatcher import ConnectionInfo


class Told:
    """ports.dispatcher.Timings that keeps the order of calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def add(self, mark: Any) -> None:
        self.calls.append("add")

    def sending(self) -> None:
        self.calls.append("sending")

    def sent(self, waiting: int) -> None:
        self.calls.append(f"sent, {waiting} wait")


class Timing(ScriptedDispatcher):
    def __init__(self) -> None:
        super().__init__()
        self.told = Told()
        self.read_s: list[float] = []

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Answer:
        connection.timings = self.told
        self.read_s.append(connection.read_s)
        return super().dispatch(connection, frame)


@pytest.fixture
def dispatcher() -> Timing:
    return Timing()


async def test_a_reply_that_is_there_at_once(dispatcher: Timing) -> None:
    async with serving(dispatcher) as server:
        stream = await dial(server)
        async with stream:
            await stream.send_all(framed(b"hello"))
            await receive_frame(stream)
            assert dispatcher.told.calls == ["sending", "sent, 0 wait"]


async def test_a_reply_that_comes_later(dispatcher: Timing) -> None:
    async with serving(dispatcher) as server:
        stream = await dial(server)
        async with stream:
            await stream.send_all(framed(b"park"))
            await until(lambda: b"park" in dispatcher.pending)
            assert not dispatcher.told.calls
            dispatcher.resolve(b"park")
            await receive_frame(stream)
            assert dispatcher.told.calls == ["sending", "sent, 0 wait"]


async def test_a_reply_in_front_of_another(dispatcher: Timing) -> None:
    async with serving(dispatcher) as server:
        stream = await dial(server)
        async with stream:
            await stream.send_all(framed(b"later 1") + framed(b"later 2"))
            await until(lambda: len(dispatcher.pending) == 2)
            dispatcher.resolve(b"later 1")
            await receive_frame(stream)
            assert dispatcher.told.calls == ["sending", "sent, 1 wait"]


async def test_the_time_of_the_read_is_known_to_the_dispatcher(dispatcher: Timing) -> None:
    async with serving(dispatcher) as server:
        stream = await dial(server)
        async with stream:
            for _ in range(2):
                await stream.send_all(framed(b"hello"))
                await receive_frame(stream)
    first, second = dispatcher.read_s
    assert 0 < first < second
