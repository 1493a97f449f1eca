"""early.start.listeners: which listeners open before the access control entries are loaded (KIP-801)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file
from kafkacompat.controller.image import KeyChanges, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.security.authorizer import TAKEN_A_STEP, Asker, StandardAuthorizer
from kafkacompat.server.broker_server import BrokerServer
from kafkacompat.server.controller_server import ControllerServer
from kafkacompat.server.shared_server import SharedServer
from kafkacompat.tasks import Tasks

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

    def serve(self, dispatcher: Any) -> Deferred[None]:
        self.done.append("serve")
        return Deferred.of(None)


class Start:
    """A controller that was built and starts."""

    def __init__(self, **changes: str) -> None:
        settings = TWO | {name.replace("_", "."): text for name, text in changes.items()}
        self.config = ServerConfig.from_properties(defaults_without_file(), settings)
        self.server = Listening()
        network = SimpleNamespace(socket_server=lambda: self.server, own_name=lambda _: Deferred.of(""))
        services: Any = SimpleNamespace(config=self.config, network=network)
        self.loaded: Deferred[None] = Deferred()
        self._carry_out(ControllerServer.listen(services))
        shared = SimpleNamespace(acls_loaded=self.loaded)
        controller: Any = SimpleNamespace(
            _services=services, _server=self.server, _shared=shared, admitted=None
        )
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
    broker._services.config = ServerConfig.from_properties(defaults_without_file(), TWO)
    broker._services.network.socket_server.return_value = server
    broker.broker_logs.load.return_value = Deferred.of(None)
    broker._register.return_value = Deferred.of(7)
    broker.lifecycle.ready_to_unfence.return_value = Deferred.of(None)
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
    shared = authorized(Tasks(HandTime()))
    authorizer = StandardAuthorizer()
    for has_caught_up in (False, True, True):
        shared.driver.has_caught_up = has_caught_up
        SharedServer._take_acls(shared, authorizer, MetadataImage(), MetadataImage())
        assert authorizer.is_loaded is has_caught_up
        assert shared.acls_loaded.done is has_caught_up


def test_many_entries_are_loaded_in_steps_and_count_with_those_that_came_meanwhile() -> None:
    time = HandTime()
    shared = authorized(Tasks(time))
    authorizer = StandardAuthorizer()
    acls = {number.to_bytes(16, "big"): entry(ALLOW, f"t{number}") for number in range(5 * TAKEN_A_STEP)}
    SharedServer._take_acls(shared, authorizer, MetadataImage(), MetadataImage(acls=acls))
    shared.driver.has_caught_up = True  # which that image did not see
    later = {**acls, b"denied": entry(DENY, "t1")}
    SharedServer._take_acls(shared, authorizer, MetadataImage(acls=acls), MetadataImage(acls=later))
    steps = 0
    while not authorizer.is_loaded:
        time.fire_next()
        steps += 1
    assert steps >= 5
    assert shared.acls_loaded.result() is None
    asker = Asker("User:a", "127.0.0.1", "Fetch")
    assert [
        authorizer.allows(asker, AclOperation.READ, ResourceType.TOPIC, name) for name in ("t1", "t2")
    ] == [
        False,
        True,
    ]


def test_an_image_that_lacks_what_was_committed_is_not_enough_when_it_is_loaded_late() -> None:
    time = HandTime()
    shared = authorized(Tasks(time))
    authorizer = StandardAuthorizer()
    acls = {number.to_bytes(16, "big"): entry(ALLOW, f"t{number}") for number in range(3 * TAKEN_A_STEP)}
    SharedServer._take_acls(shared, authorizer, MetadataImage(), MetadataImage(acls=acls))
    shared.driver.has_caught_up = True
    while time.pending():
        time.fire_next()
    assert not authorizer.is_loaded
    SharedServer._take_acls(shared, authorizer, MetadataImage(acls=acls), MetadataImage(acls=acls))
    assert authorizer.is_loaded


def test_many_entries_of_one_image_are_taken_in_steps_after_the_start_too() -> None:
    time = HandTime()
    shared = authorized(Tasks(time))
    shared.driver.has_caught_up = True
    authorizer = StandardAuthorizer()
    first = MetadataImage(offset=1)
    SharedServer._take_acls(shared, authorizer, MetadataImage(), first)
    assert authorizer.is_loaded
    few = {number.to_bytes(16, "big"): entry(ALLOW, f"t{number}") for number in range(10)}
    second = MetadataImage(acls=few, acl_changes=KeyChanges(first.acl_changes.state, tuple(few)))
    SharedServer._take_acls(shared, authorizer, first, second)
    assert may_read(authorizer, "t9")
    many = few | {
        number.to_bytes(16, "big"): entry(ALLOW, f"t{number}") for number in range(3 * TAKEN_A_STEP)
    }
    third = MetadataImage(acls=many, acl_changes=KeyChanges(second.acl_changes.state, tuple(many)))
    SharedServer._take_acls(shared, authorizer, second, third)
    last = f"t{3 * TAKEN_A_STEP - 1}"
    assert not may_read(authorizer, last)
    without = {key: acl for key, acl in many.items() if acl.resource_name != "t0"}
    fourth = MetadataImage(acls=without, acl_changes=KeyChanges(third.acl_changes.state, (next(iter(many)),)))
    SharedServer._take_acls(shared, authorizer, third, fourth)
    assert may_read(authorizer, "t0")
    while time.pending():
        time.fire_next()
    assert may_read(authorizer, last)
    assert not may_read(authorizer, "t0")


def test_a_node_whose_entries_cannot_be_taken_halts() -> None:
    """It would go on with older ones for ever."""
    problems: list[BaseException] = []
    shared = authorized(Tasks(HandTime()), problems.append)
    authorizer = StandardAuthorizer()
    authorizer.is_loaded = True
    problem = KeyError("a bug")

    def updating(acls: Any) -> Any:
        yield 1
        raise problem

    authorizer.updating = updating  # type: ignore[method-assign]
    many = {number.to_bytes(16, "big"): entry(DENY, f"t{number}") for number in range(2 * TAKEN_A_STEP)}
    SharedServer._take_acls(shared, authorizer, MetadataImage(offset=1), MetadataImage(acls=many))
    assert problems == [problem]


def may_read(authorizer: StandardAuthorizer, name: str) -> bool:
    asker = Asker("User:a", "127.0.0.1", "Fetch")
    return authorizer.allows(asker, AclOperation.READ, ResourceType.TOPIC, name)


ALLOW, DENY = int(AclPermissionType.ALLOW), int(AclPermissionType.DENY)


def authorized(tasks: Tasks, halt: Any = None) -> Any:
    shared = SimpleNamespace(
        driver=SimpleNamespace(has_caught_up=False),
        acls_loaded=Deferred(),
        is_loading_acls=False,
        newest_acls=({}, False),
        _services=SimpleNamespace(tasks=tasks, halt=halt),
    )
    shared._load_acls = partial(SharedServer._load_acls, shared)  # type: ignore[arg-type]  # it has what is used
    return shared


def entry(permission: int, name: str) -> Acl:
    return Acl(
        int(ResourceType.TOPIC),
        name,
        int(PatternType.LITERAL),
        "User:a",
        "*",
        int(AclOperation.READ),
        permission,
    )


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
        driver=SimpleNamespace(leader_id=7, leader_endpoints=endpoints),
        _services=SimpleNamespace(config=config),
    )
    assert SharedServer.active_address(shared) == address
