"""What a node tells others of its listeners: the host of the machine for an empty one, the port that was bound for port 0."""

from __future__ import annotations

import socket

import pytest

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.server.advertised import broker_addresses, controller_addresses

PORTS = {"PLAINTEXT": 4711, "CONTROLLER": 4712}


def configured(**changes: str) -> ServerConfig:
    settings = {name.replace("_", "."): text for name, text in changes.items()}
    return ServerConfig.from_properties(defaults_without_file(), settings)


async def told(**changes: str) -> list[tuple[str, str, int]]:
    addresses = await broker_addresses(configured(**changes), PORTS)
    return [(each.listener_name, each.host, each.port) for each in addresses]


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "node.example.org")


async def test_an_empty_host_is_told_as_the_machines_name() -> None:
    listeners = "PLAINTEXT://:0,CONTROLLER://127.0.0.1:0"
    assert await told(listeners=listeners) == [("PLAINTEXT", "node.example.org", 4711)]
    advertised = "PLAINTEXT://:9999"
    assert await told(listeners=listeners, advertised_listeners=advertised) == [
        ("PLAINTEXT", "node.example.org", 9999)
    ]


async def test_what_is_set_is_told_as_it_stands() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert await told(listeners=listeners) == [("PLAINTEXT", "127.0.0.1", 9092)]
    assert await told(listeners=listeners, advertised_listeners="PLAINTEXT://h:1") == [("PLAINTEXT", "h", 1)]


async def test_controllers_are_told_as_advertised() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093"
    (controller,) = await controller_addresses(configured(listeners=listeners), PORTS)
    assert (controller.host, controller.port) == ("node.example.org", 9093)
    advertised = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://c:7"
    (controller,) = await controller_addresses(
        configured(listeners=listeners, advertised_listeners=advertised), PORTS
    )
    assert (controller.host, controller.port) == ("c", 7)
    anywhere = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:0"
    (controller,) = await controller_addresses(configured(listeners=anywhere), PORTS)
    assert controller.port == 4712
