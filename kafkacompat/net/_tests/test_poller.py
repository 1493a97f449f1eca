"""Sockets in one set: who is called, for how long, and that the loop gets its turn."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import trio

from kafkacompat.net import poller as module
from kafkacompat.net.poller import EpollSet, Poller, SelectorSet, SocketSet


class Echo:
    """Takes one byte a turn."""

    def __init__(self, sock: socket.socket, then: Callable[[bytes], None] = lambda data: None) -> None:
        self.sock, self.then = sock, then
        self.received = b""

    def readable(self) -> None:
        data = self.sock.recv(1)
        self.received += data
        self.then(data)


@pytest.fixture(params=[EpollSet, SelectorSet])
def sockets(request: pytest.FixtureRequest) -> SocketSet:
    chosen: SocketSet = request.param()
    return chosen


def pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


async def test_a_socket_is_read_as_long_as_it_has_something_and_is_not_removed(sockets: SocketSet) -> None:
    poller = Poller(lambda: None, lambda: None, sockets)
    near, far = pair()

    def stop_at_c(data: bytes) -> None:
        if data == b"c":
            poller.remove(near.fileno())

    echo = Echo(near, stop_at_c)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            far.send(b"a")
            poller.add(near.fileno(), echo)
            while echo.received != b"a":
                await trio.sleep(0)
            far.send(b"bcd")
            while echo.received != b"abc":
                await trio.sleep(0)
            poller.add(near.fileno(), echo)
            while echo.received != b"abcd":
                await trio.sleep(0)
            nursery.cancel_scope.cancel()
    poller.close()


def test_a_turn_may_remove_a_connection_that_is_ready_too(sockets: SocketSet) -> None:
    poller = Poller(lambda: None, lambda: None, sockets)
    pairs = [pair(), pair()]
    echoes = [Echo(near) for near, _ in pairs]

    def remove_other(which: int) -> Callable[[bytes], None]:
        return lambda data: poller.remove(pairs[1 - which][0].fileno())

    for which, (near, far) in enumerate(pairs):
        echoes[which].then = remove_other(which)
        poller.add(near.fileno(), echoes[which])
        far.send(b"x")
    poller.serve()
    assert sorted(echo.received for echo in echoes) == [b"", b"x"]
    poller.close()


def test_requests_that_follow_each_other_are_served_without_the_loop_until_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    trace: list[str] = []
    poller = Poller(lambda: trace.append("each"), lambda: trace.append("all"))
    near, far = pair()

    def answer(data: bytes) -> None:
        nonlocal now
        assert poller.serving
        now += module.BUSY_S * 0.4
        far.send(b"x")

    poller.add(near.fileno(), Echo(near, answer))
    far.send(b"x")
    poller.serve()
    assert trace == ["each", "each", "each", "all"]
    assert not poller.serving
    poller.close()
