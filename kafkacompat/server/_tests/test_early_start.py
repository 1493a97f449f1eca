"""early.start.listeners: which listeners open before the access control entries are loaded (KIP-801)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.security.authorizer import StandardAuthorizer
from kafkacompat.server.broker_server import BrokerServer
from kafkacompat.server.controller_server import ControllerServer
from kafkacompat.server.shared_server import SharedServer

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,SAFE://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:PLAINTEXT",
    "controller.listener.names": "CONTROLLER,SAFE",
}


class Listening:
    """A socket server that remembers what was asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._bound: set[str] = set()
        self._held: set[str] = set()

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        bound = tuple(endpoints)
        self._bound |= {each.listener_name for each in bound}
        self.done += [f"bind {each.listener_name}" for each in bound]
        return Deferred.of(bound)

    def hold(self, listeners: Iterable[str]) -> None:
        held = {*listeners} & self._bound
        self.done += [f"hold {each}" for each in sorted(held)]
        self.done += [f"release {each}" for each in sorted(self._held - held)]
        self._held = held

    def serve(self) -> Deferred[None]:
        self.done.append("serve")
        return Deferred.of(None)


class Start:
    """A controller that was built and starts."""

    def __init__(self, **changes: str) -> None:
        settings = TWO | {name.replace("_", "."): text for name, text in changes.items()}
        self.config = ServerConfig.from_properties(defaults_without_file(), settings)
        self.server = Listening()
        network = SimpleNamespace(socket_server=lambda: self.server, own_name=lambda _: Deferred.of(""))
        doors: Any = SimpleNamespace(config=self.config, network=network)
        self.loaded: Deferred[None] = Deferred()
        self._carry_out(ControllerServer.listen(doors))
        shared = SimpleNamespace(acls_loaded=self.loaded)
        controller: Any = SimpleNamespace(_doors=doors, _server=self.server, _shared=shared)
        self._start = ControllerServer.start(controller)
        self.goes_on()

    def goes_on(self) -> None:
        self.has_started = self._carry_out(self._start)

    @staticmethod
    def _carry_out(coroutine: Any) -> bool:
        """Whether it has ended. Otherwise it waits."""
        try:
            coroutine.send(None)
        except StopIteration:
            return True
        return False


ALL_AT_ONCE = ["bind CONTROLLER", "bind SAFE", "serve"]


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ({}, ALL_AT_ONCE, []),
        (AUTHORIZER, ALL_AT_ONCE, []),
        (AUTHORIZER | {"early.start.listeners": "safe,CONTROLLER"}, ALL_AT_ONCE, []),
        ({"early.start.listeners": ""}, ALL_AT_ONCE, []),
        (AUTHORIZER | {"early.start.listeners": "SAFE"}, ["bind SAFE", "serve"], ["bind CONTROLLER"]),
        (
            AUTHORIZER | {"early.start.listeners": "PLAINTEXT"},
            ["serve"],
            ["bind CONTROLLER", "bind SAFE"],
        ),
        (AUTHORIZER | {"early.start.listeners": ""}, ["serve"], ["bind CONTROLLER", "bind SAFE"]),
        (
            AUTHORIZER | {"early.start.listeners": "", "listeners": TWO["listeners"].replace("9094", "0")},
            ["bind SAFE", "hold SAFE", "serve"],
            ["release SAFE", "bind CONTROLLER"],
        ),
    ],
)
def test_what_opens_before_the_entries_are_loaded(
    changes: dict[str, str], before: list[str], after: list[str]
) -> None:
    start = Start(**changes)
    assert start.server.done == before
    assert start.has_started is not bool(after)
    if after:
        start.loaded.resolve(None)
        start.goes_on()
        assert start.has_started
        assert start.server.done == before + after


def test_a_broker_serves_nobody_before_the_entries_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its registration may be applied before what was committed meanwhile. As in Kafka, its listeners wait for that."""

    async def addresses(*_: Any) -> tuple[EndPoint, ...]:
        return ()

    monkeypatch.setattr("kafkacompat.server.broker_server.admitting", lambda *_: None)
    monkeypatch.setattr("kafkacompat.server.broker_server.broker_addresses", addresses)
    server, loaded = Listening(), Deferred[None]()
    broker = MagicMock()
    broker._doors.config = ServerConfig.from_properties(defaults_without_file(), TWO)
    broker._doors.network.socket_server.return_value = server
    broker.broker_logs.load.return_value = Deferred.of(None)
    broker._make_heartbeats.return_value.start.return_value = Deferred.of(7)
    broker._make_heartbeats.return_value.ready_to_unfence.return_value = Deferred.of(None)
    broker._shared.machine.when_at.return_value = Deferred.of(None)
    broker._shared.acls_loaded = loaded
    start = BrokerServer.start(broker)
    assert not Start._carry_out(start)
    assert server.done == ["bind PLAINTEXT"]
    loaded.resolve(None)
    assert Start._carry_out(start)
    assert server.done == ["bind PLAINTEXT", "serve"]


def test_entries_count_when_they_are_those_that_were_committed_at_the_start() -> None:
    """An image from this node's own snapshot may lack a denial that the others have."""
    shared: Any = SimpleNamespace(driver=SimpleNamespace(has_caught_up=False), acls_loaded=Deferred())
    authorizer = StandardAuthorizer()
    for has_caught_up in (False, True, True):
        shared.driver.has_caught_up = has_caught_up
        SharedServer._take_acls(shared, authorizer, MetadataImage(), MetadataImage())
        assert authorizer.is_loaded is has_caught_up
        assert shared.acls_loaded.done is has_caught_up


@pytest.mark.parametrize(
    ("endpoints", "address"),
    [
        ((("CONTROLLER", "a", 1), ("SAFE", "b", 2)), (7, "a", 1)),
        ((("SAFE", "b", 2), ("CONTROLLER", "a", 1)), (7, "a", 1)),
        ((("SAFE", "b", 2),), (7, "b", 2)),
        ((), None),
    ],
)
def test_the_active_controller_is_dialed_at_the_first_of_our_controller_listeners(
    endpoints: tuple[tuple[str, str, int], ...], address: tuple[int, str, int] | None
) -> None:
    config = ServerConfig.from_properties(defaults_without_file(), TWO)
    shared: Any = SimpleNamespace(
        driver=SimpleNamespace(leader_id=7, leader_endpoints=endpoints), _doors=SimpleNamespace(config=config)
    )
    assert SharedServer.active_address(shared) == address
