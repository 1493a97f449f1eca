"""The socket servers of a node: what their listeners take from settings."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kafkacompat.config import ConfigError, EndPoint, ServerConfig, defaults_without_file
from kafkacompat.deferred import Deferred
from kafkacompat.net.network import READ_AGAIN_S, TrioNetwork, TrioSocketServer
from kafkacompat.net.runtime import SystemClock, TrioTimers
from kafkacompat.ports import WorkersBusy
from kafkacompat.security.sasl_client import ClientSecurity

LATE = EndPoint("LATE", "127.0.0.1", 9094, "SSL")


class Workers:
    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        try:
            return Deferred.of(function())
        except Exception as error:
            failed: Deferred[Any] = Deferred()
            failed.fail(error)
            return failed


class Listener:
    """A listener with TLS, and its server."""

    listeners = ()
    name = "listener LATE"

    def __init__(self, error: Exception | None) -> None:
        self.done: list[str] = []
        self._error = error

    def update_settings(self, settings: object) -> None:
        pass

    async def bind(self, endpoints: Iterable[EndPoint]) -> list[Any]:
        self.done.append("bind")
        return [SimpleNamespace(endpoint=each, port=each.port) for each in endpoints]

    def exchanged(self, config: ServerConfig) -> object:
        self.done.append("read")
        if self._error is not None:
            raise self._error
        return config

    def take(self, exchanged: object) -> None:
        self.done.append("take")


@pytest.mark.parametrize(
    ("error", "opened"),
    [
        (None, ["read", "take", "bind"]),
        (ConfigError("ssl.keystore.location", "gone", "is not there"), ["read", "bind"]),
    ],
)
async def test_a_listener_that_is_bound_later_has_the_stores_of_the_newest_settings(
    error: ConfigError | None, opened: list[str]
) -> None:
    """They may have come from the metadata before it was bound (early.start.listeners)."""
    config = ServerConfig.from_properties(defaults_without_file(), {})
    listener: Any = Listener(error)
    async with trio.open_nursery() as nursery:
        server = TrioSocketServer(nursery, listener, {"LATE": listener, "OTHER": listener}, Workers())
        server.take_settings(config)
        assert listener.done == []
        bound: Deferred[tuple[EndPoint, ...]] = server.bind([LATE])
        with trio.fail_after(60):
            while not bound.done:
                await trio.lowlevel.checkpoint()
    assert bound.result() == (LATE,)
    assert listener.done == opened


async def test_stores_with_which_the_node_dials_follow_its_settings() -> None:
    config = ServerConfig.from_properties(defaults_without_file(), {})
    clock, workers = SystemClock(), Workers()
    to: list[Any] = [Listener(None), Listener(None)]
    dialling = [ClientSecurity(), ClientSecurity()]
    for security, stores in zip(dialling, to, strict=True):
        security.stores = stores
    async with trio.open_nursery() as nursery:
        network: Any = TrioNetwork(nursery, config, clock, TrioTimers(clock), workers, {}, *dialling)  # type: ignore[arg-type]
        server = network.socket_server()
        server.take_settings(config)
        with trio.fail_after(60):
            while not all("take" in each.done for each in to):
                await trio.lowlevel.checkpoint()
        server.check_settings(config)
    assert [each.done for each in to] == [["read", "take", "read"]] * 2


def unread(number: int) -> ConfigError:
    error = ConfigError("ssl.keystore.location", "node.p12", "cannot be read")
    error.__cause__ = OSError(number, "no")
    return error


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (unread(errno.EMFILE), ["read", "read", "take"]),
        (OSError(errno.EMFILE, "the key needs a descriptor too"), ["read", "read", "take"]),
        (WorkersBusy("no thread"), ["read", "read", "take"]),
        (unread(errno.ENOENT), ["read"]),
    ],
    ids=["no descriptor", "no descriptor for the key", "no thread", "no file"],
)
async def test_stores_that_a_shortage_keeps_from_being_read_are_read_again(
    error: Exception, seen: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    """Nobody states the settings again: the node would keep a certificate that ends."""
    config = ServerConfig.from_properties(defaults_without_file(), {})
    listener: Any = Listener(error)
    async with trio.open_nursery() as nursery:
        server = TrioSocketServer(nursery, listener, {}, Workers(), [listener])  # type: ignore[arg-type]
        server.take_settings(config)
        await trio.testing.wait_all_tasks_blocked()
        listener._error = None
        await trio.sleep(READ_AGAIN_S + 1)
    assert listener.done == seen


async def test_stores_of_settings_that_were_replaced_are_not_read_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config, newer = (ServerConfig.from_properties(defaults_without_file(), {}) for _ in range(2))
    listener: Any = Listener(unread(errno.EMFILE))
    async with trio.open_nursery() as nursery:
        server = TrioSocketServer(nursery, listener, {}, Workers(), [listener])  # type: ignore[arg-type]
        server.take_settings(config)
        await trio.testing.wait_all_tasks_blocked()
        listener._error = None
        server.take_settings(newer)
        await trio.sleep(READ_AGAIN_S + 1)
    assert listener.done == ["read", "read", "take"]
