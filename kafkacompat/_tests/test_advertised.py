"""What a node tells others of its listeners: the host of the machine for an empty one, the port that was bound for port 0."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import pytest
import trio

from kafkacompat import broker
from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file


class Bound:
    def __init__(self, endpoint: EndPoint) -> None:
        self.endpoint = endpoint
        self.port = endpoint.port or 4711


class Server:
    """Binds nothing."""

    def bind(self, endpoints: Iterable[EndPoint]) -> tuple[Bound, ...]:
        return tuple(map(Bound, endpoints))


async def told(**changes: str) -> list[tuple[str, str, int]]:
    settings = {name.replace("_", "."): text for name, text in changes.items()}
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    async with trio.open_nursery() as nursery:
        node: Any = broker.RunningNode(config, nursery)
        node._bind(Server())
        return [(each.listener_name, each.host, each.port) for each in node._advertised]
    raise AssertionError("the nursery ended early")


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


def test_controllers_are_told_as_advertised() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093"
    config = ServerConfig.from_properties(defaults_without_file(), {"listeners": listeners})
    assert [(each.host, each.port) for each in broker._advertised_controllers(config)] == [
        ("node.example.org", 9093)
    ]
    config = ServerConfig.from_properties(
        defaults_without_file(),
        {
            "listeners": listeners,
            "advertised.listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://c:9094",
        },
    )
    assert [(each.host, each.port) for each in broker._advertised_controllers(config)] == [("c", 9094)]
