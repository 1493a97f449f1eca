"""The listeners that a node advertises: the machine's name for an empty host, the bound port for port 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file
from kafkacompat.deferred import Deferred
from kafkacompat.server.shared_server import broker_addresses, controller_addresses

BOUND = (
    EndPoint("PLAINTEXT", "", 4711, "PLAINTEXT"),
    EndPoint("CONTROLLER", "", 4712, "PLAINTEXT"),
)


class OwnNetwork:
    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return Deferred.of("" if all(each.host for each in endpoints) else "node.example.org")


NETWORK: Any = OwnNetwork()


def configured(**changes: str) -> ServerConfig:
    settings = {name.replace("_", "."): text for name, text in changes.items()}
    return ServerConfig.from_properties(defaults_without_file(), settings)


def told(**changes: str) -> list[tuple[str, str, int]]:
    addresses = broker_addresses(configured(**changes), BOUND, NETWORK).result()
    return [(each.listener_name, each.host, each.port) for each in addresses]


def test_an_empty_host_is_told_as_the_machines_name() -> None:
    listeners = "PLAINTEXT://:0,CONTROLLER://127.0.0.1:0"
    assert told(listeners=listeners) == [("PLAINTEXT", "node.example.org", 4711)]
    advertised = "PLAINTEXT://:9999"
    assert told(listeners=listeners, advertised_listeners=advertised) == [
        ("PLAINTEXT", "node.example.org", 9999)
    ]


def test_what_is_set_is_told_as_it_stands() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert told(listeners=listeners) == [("PLAINTEXT", "127.0.0.1", 9092)]
    assert told(listeners=listeners, advertised_listeners="PLAINTEXT://h:1") == [("PLAINTEXT", "h", 1)]


def test_controllers_are_told_as_advertised() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093"
    (controller,) = controller_addresses(configured(listeners=listeners), BOUND, NETWORK).result()
    assert (controller.host, controller.port) == ("node.example.org", 9093)
    advertised = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://c:7"
    (controller,) = controller_addresses(
        configured(listeners=listeners, advertised_listeners=advertised), BOUND, NETWORK
    ).result()
    assert (controller.host, controller.port) == ("c", 7)
    anywhere = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:0"
    (controller,) = controller_addresses(configured(listeners=anywhere), BOUND, NETWORK).result()
    assert controller.port == 4712
