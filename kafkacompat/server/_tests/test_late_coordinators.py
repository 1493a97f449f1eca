"""Coordinators of groups and transactions are made when somebody asks for them, and not before."""

from __future__ import annotations

import ast
from errno import EMFILE
from importlib import import_module
from pathlib import Path

import pytest

from kafkacompat import api, late
from kafkacompat._tests.fuzz.node import FuzzedNode
from kafkacompat._tests.fuzz.ports import FrameServer
from kafkacompat._tests.kit import AskedNode
from kafkacompat.api.meters import RequestMeters
from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkacompat.late import AGAIN_MS
from kafkacompat.ports.dispatcher import Dispatcher
from kafkacompat.server.broker_coordinators import BrokerCoordinators
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup


def made_of(node: FuzzedNode) -> BrokerCoordinators | None:
    assert node.server.broker is not None
    return node.server.broker._coordinators.made


class CoordinatingNode(AskedNode):
    @property
    def made(self) -> BrokerCoordinators | None:
        return made_of(self.node)

    def make_topic(self, kind: int) -> None:
        """By looking for a coordinator."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
        for _ in range(100):
            (found,) = self.ask(request, 4).coordinators
            if found.error_code == ErrorCode.NONE:
                return
            self.node.pass_time(100)
        raise AssertionError("the topic is not made")


@pytest.fixture
def coordinating() -> CoordinatingNode:
    node = FuzzedNode(1)
    node.start()
    return CoordinatingNode(node)


def test_produce_and_fetch_make_no_coordinators(coordinating: CoordinatingNode) -> None:
    coordinating.ask(MetadataRequest(), 9)
    coordinating.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert coordinating.made is None
    assert not coordinating.node.findings


def test_the_first_request_that_asks_them_waits_and_is_answered(coordinating: CoordinatingNode) -> None:
    coordinating.send(ListGroupsRequest(), 4)
    assert coordinating.made is None
    assert not coordinating.connection.answers
    coordinating.node.pass_time(100)
    assert coordinating.made is not None
    assert len(coordinating.connection.answers) == 1
    assert coordinating.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
    assert not coordinating.node.findings


def test_a_transactional_producer_makes_them(coordinating: CoordinatingNode) -> None:
    coordinating.make_topic(1)
    given = coordinating.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
    assert given.error_code == ErrorCode.NONE
    assert coordinating.made is not None
    assert not coordinating.node.findings


@pytest.mark.parametrize(("kind", "topic"), [(0, OFFSETS_TOPIC), (1, TRANSACTION_TOPIC)])
def test_coordinators_are_made_when_their_topic_appears(
    coordinating: CoordinatingNode, kind: int, topic: str
) -> None:
    """It leads partitions then, and must end sessions and transactions of which nobody tells any more."""
    coordinating.make_topic(kind)
    coordinating.node.pass_time(100)
    assert coordinating.made is not None
    assert not coordinating.node.findings


def test_coordinators_of_an_existing_topic_are_made_before_clients_are_served(
    coordinating: CoordinatingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinating.make_topic(0)
    coordinating.node.kill()
    serve, made = FrameServer.serve, []

    def serving(server: FrameServer, dispatcher: Dispatcher) -> Deferred[None]:
        made.append(made_of(coordinating.node))
        return serve(server, dispatcher)

    monkeypatch.setattr(FrameServer, "serve", serving)
    coordinating.node.start()
    assert made[-1] is not None, "the broker's listeners are the last to serve"
    again = CoordinatingNode(coordinating.node)
    assert again.made is not None
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = again.ask(asked, 8).groups
    assert group.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not coordinating.node.findings


def test_where_metrics_are_shown_they_are_there_from_the_start() -> None:
    node = FuzzedNode(1)
    node.meters = RequestMeters()
    node.start()
    assert CoordinatingNode(node).made is not None


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Empty it to let modules be imported again."""
    lacks = [True]

    def imported(name: str) -> object:
        if lacks:
            raise OSError(EMFILE, "no descriptor is left")
        return import_module(name)

    monkeypatch.setattr(late, "import_module", imported)
    return lacks


def test_a_client_tries_again_if_the_system_lacks_what_they_need(
    coordinating: CoordinatingNode, lacking: list[bool]
) -> None:
    """It gives up when it is told of a disk's error."""
    assert coordinating.ask(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    lacking.clear()
    assert coordinating.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
    assert not coordinating.node.findings


def test_coordinators_of_a_topic_are_made_as_soon_as_the_system_allows(
    coordinating: CoordinatingNode, lacking: list[bool]
) -> None:
    coordinating.make_topic(1)
    coordinating.node.pass_time(100)
    assert coordinating.made is None
    lacking.clear()
    coordinating.node.pass_time(AGAIN_MS + 100)
    assert coordinating.made is not None
    assert not coordinating.node.findings


def _of_coordinators() -> set[str]:
    """The fields of Node that are set when they are made."""
    tree = ast.parse(Path(import_module("kafkacompat.server.broker_coordinators").__file__ or "").read_text())
    (serve,) = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "serve"]
    targets = [each.targets[0] for each in ast.walk(serve) if isinstance(each, ast.Assign)]
    return {each.attr for each in targets if isinstance(each, ast.Attribute)}


def _uses(path: Path, names: set[str]) -> bool:
    return any(
        isinstance(each, ast.Attribute)
        and each.attr in names
        and ast.unparse(each.value) in ("node", "self._node")
        for each in ast.walk(ast.parse(path.read_text()))
    )


WAIT_BY_THEMSELVES = {"init_producer_id", "transactional_produce"}
"""They ask only for some requests. They wait for Node.when_coordinating."""
ASKED_BY_OTHERS = {"share_requests"}
"""Its functions are called by handlers."""
CONTEXT = {"context"}


def test_every_handler_that_uses_them_waits_for_them() -> None:
    names = _of_coordinators()
    assert {"groups", "transactions", "shares"} <= names
    folder = Path(api.__file__ or "").parent
    using = {path.stem for path in folder.glob("*.py") if _uses(path, names)} - CONTEXT
    assert using >= WAIT_BY_THEMSELVES | ASKED_BY_OTHERS
    for name in sorted(using - WAIT_BY_THEMSELVES - ASKED_BY_OTHERS):
        handler = import_module(f"kafkacompat.api.{name}").HANDLER
        assert handler.asks_coordinators, f"api/{name}.py uses coordinators: set asks_coordinators"
    for name in WAIT_BY_THEMSELVES:
        assert "when_coordinating" in (folder / f"{name}.py").read_text()


def test_an_api_that_does_not_use_them_does_not_wait() -> None:
    for name in ("produce", "fetch", "metadata", "api_versions", "find_coordinator"):
        assert not import_module(f"kafkacompat.api.{name}").HANDLER.asks_coordinators


def test_no_request_waits_for_the_opening_and_for_them() -> None:
    """One that has waited for the opening is handled at once."""
    for entry in BROKER_APIS_WITH_TELEMETRY.entries:
        handler = BROKER_APIS_WITH_TELEMETRY.load(entry.key)
        assert not (handler.waits_for_opening and handler.asks_coordinators), entry.module
