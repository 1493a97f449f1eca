"""Connections within the machine are not paced, and those from other machines have the system's algorithm."""

from __future__ import annotations

import errno
import socket
import sys
from dataclasses import replace

import pytest

from kafkacompat.net import pacing
from kafkacompat.net._tests import helpers
from kafkacompat.net._tests.helpers import ScriptedDispatcher, serving, until
from kafkacompat.net.pacing import algorithm_of, pace, stop_pacing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets an algorithm be chosen")

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
"""Both are of this machine. The second one stands for another machine's address."""


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The system's algorithm, which paces in these tests, whatever it is."""
    with socket.socket() as sock:
        found = algorithm_of(sock)
    if found == b"reno":
        pytest.skip("the system's algorithm is the one that is chosen")
    monkeypatch.setattr(pacing, "_PACES", found)
    return found


@pytest.mark.parametrize("listens", [HERE, "0.0.0.0", "::"])
@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
async def test_a_connection_within_the_machine_is_not_paced(
    listens: str, address: str, usual: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "LOOPBACK", replace(helpers.LOOPBACK, host=listens))
    async with serving(ScriptedDispatcher()) as server:
        port = server.listeners[0].port
        with socket.create_connection((HERE, port), source_address=(address, 0)):
            await until(lambda: server.connection_count == 1)
            (served,) = server._connections.values()
            expected = b"reno" if address == HERE else usual
            assert algorithm_of(served._socket) == expected  # type: ignore[arg-type]  # a socket


def test_an_algorithm_that_does_not_pace_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_PACES", b"another")
    with socket.create_server((HERE, 0)) as listening:
        usual = algorithm_of(listening)
        assert stop_pacing(listening) is None
        assert algorithm_of(listening) == usual


def test_an_algorithm_that_cannot_be_given_back_stays(usual: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = pacing._choose

    def refusing(sock: socket.socket, name: bytes) -> None:
        if name == usual:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        choose(sock, name)

    monkeypatch.setattr(pacing, "_choose", refusing)
    with socket.create_server((HERE, 0)) as listening:
        assert stop_pacing(listening) is None
        assert algorithm_of(listening) == usual


def test_the_algorithm_of_a_route_stays(usual: bytes) -> None:
    with socket.create_server((HERE, 0)) as listening:
        address = listening.getsockname()
        with (
            socket.create_connection(address, source_address=(ELSEWHERE, 0)),
            listening.accept()[0] as accepted,
        ):
            pace(accepted, b"unknown to the system")
            assert algorithm_of(accepted) == usual
