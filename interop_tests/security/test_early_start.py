"""early.start.listeners: a controller listener that is not among them opens when the access control entries are loaded."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from interop_tests.cluster.clusters import BOTH, CONTROLLER, Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import KAFKACOMPAT, chosen_kind
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

pytestmark = pytest.mark.needs_control
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LATE = {"early.start.listeners": ""}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(nodes: int, roles: str, settings: dict[str, str]) -> Cluster:
        made.append(Cluster(chosen_kind(), tmp_path, nodes=nodes, roles=roles, settings=settings))
        for node in made[-1].nodes.values():
            node.environment["KAFKACOMPAT_LOG"] = "INFO"
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def listens(address: str) -> bool:
    host, port = address.split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
        return True
    return False


def chosen_port(node: ClusterNode) -> int:
    """The port that the system has chosen for a controller's other listener. 0 before that."""
    found = {
        each.laddr.port
        for each in psutil.Process(node.pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    return next(iter(found - {node.controller_port}), 0)


def answers(port: int, timeout_s: float) -> bool:
    with (
        contextlib.suppress(OSError, ConnectionClosed, Silence),
        Connection(f"127.0.0.1:{port}", timeout_s) as connection,
    ):
        return bool(connection.call("ApiVersions", 0, {})["ErrorCode"] == 0)
    return False


def test_a_voter_among_others_opens_when_it_has_learned_the_entries_from_their_leader(
    make: Callable[..., Cluster],
) -> None:
    """Without the others it never opens: nobody can tell it which entries are committed, and nobody can fetch from it."""
    cluster = make(3, CONTROLLER, SECURED)
    late, second, third = cluster.nodes.values()
    late.settings |= LATE
    for node in cluster.nodes.values():
        cluster.format(node)
    late.start()
    if late.kind == KAFKACOMPAT:
        wait_until(lambda: "CONTROLLER opens when" in late.log_text(), "the first controller waits")
    second.start()
    wait_until(lambda: listens(second.controller_bootstrap), "a controller opens without the entries")
    assert not listens(late.controller_bootstrap)
    assert late.is_running
    third.start()
    wait_until(lambda: listens(late.controller_bootstrap), "the first controller opens")


def test_a_quorum_of_controllers_that_was_killed_opens_again(make: Callable[..., Cluster]) -> None:
    """Nobody writes a record after the restart, so the entries are complete with the message of the new leader."""
    cluster = make(3, CONTROLLER, SECURED)
    nodes = list(cluster.nodes.values())
    nodes[0].settings |= LATE
    for node in nodes:
        cluster.format(node)
        node.start()
    for node in nodes:
        wait_until(lambda node=node: listens(node.controller_bootstrap), "the controller opens")
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()
    for node in nodes:
        wait_until(lambda node=node: listens(node.controller_bootstrap), "the controller opens again")


def test_a_lone_node_loads_its_entries_without_any_listener(make: Callable[..., Cluster]) -> None:
    cluster = make(1, BOTH, SECURED | LATE | ONE_REPLICA).start()
    node = cluster.nodes[1]
    assert listens(node.controller_bootstrap)
    cluster.create_topic("topic", replication_factor=1)
    node.stop()
    node.start()
    cluster.wait_until_whole()
    assert listens(node.controller_bootstrap)


def test_a_port_that_the_system_chooses_is_there_at_once_and_served_when_the_entries_are_loaded(
    make: Callable[..., Cluster],
) -> None:
    cluster = make(3, CONTROLLER, SECURED)
    first, *others = cluster.nodes.values()
    first.settings |= {
        "listeners": f"{first.settings['listeners']},WILD://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER,WILD",
        "listener.security.protocol.map": f"{first.settings['listener.security.protocol.map']},WILD:PLAINTEXT",
        "early.start.listeners": "CONTROLLER",
    }
    for node in cluster.nodes.values():
        cluster.format(node)
    first.start()
    port = wait_until(lambda: chosen_port(first), "the port is there")
    wait_until(lambda: listens(first.controller_bootstrap), "the early listener opens")
    assert listens(f"127.0.0.1:{port}")
    assert answers(first.controller_port, 20)
    assert not answers(port, 1)
    for node in others:
        node.start()
    wait_until(lambda: answers(port, 5), "the other listener is served")
