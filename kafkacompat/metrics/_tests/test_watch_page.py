"""/watch: who gets it, what it sends, and that it ends with its client."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
import trio
import trio.testing

from kafkacompat.cli.brokers_watch import BrokersWatchPage
from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.watching import WATCHERS_MAX, Entry, Selection, Waiting, Watchers
from kafkacompat.metrics._tests.test_endpoint import FakeNode
from kafkacompat.metrics.endpoint import MetricsEndpoint, OneNode, Page
from kafkacompat.metrics.http import Request
from kafkacompat.metrics.watch_page import WatchPage, is_loopback

LOOPBACK = "127.0.0.1"
TOKEN = "0123456789abcdef"


class Node:
    def __init__(self) -> None:
        self.looks: list[bool] = []
        self.watchers = Watchers(self.looks.append, lambda what, error: None)
        self.reason: str | None = None

    def why_not(self) -> str | None:
        return self.reason

    def shown(self, entry: Entry, selection: Selection) -> dict[str, Any] | None:
        return None if entry.exchange.client_id == "unwanted" else {"at_ms": entry.exchange.at_ms}


def exchange(at_ms: int, client_id: str = "app") -> Exchange:
    return Exchange(12, 4, client_id, "User:ANONYMOUS", 1, "PLAINTEXT", 1, "127.0.0.1:5", at_ms, b"")


async def ask(port: int, query: str = "", token: str = TOKEN, version: str = "1.0") -> trio.SocketStream:
    stream = await trio.open_tcp_stream(LOOPBACK, port)
    head = f"GET /watch{query} HTTP/{version}\r\nAuthorization: Bearer {token}\r\n\r\n"
    await stream.send_all(head.encode())
    return stream


async def receive_until(stream: trio.SocketStream, wanted: bytes) -> bytes:
    received = b""
    with trio.fail_after(20):
        while wanted not in received:
            data = await stream.receive_some(4096)
            assert data, received
            received += data
    return received


async def whole(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(20):
        async with stream:
            return b"".join([part async for part in stream])


async def served(nursery: trio.Nursery, node: Node) -> int:
    endpoint = MetricsEndpoint(OneNode(FakeNode()), {"/watch": WatchPage(TOKEN, node)})
    port = await endpoint.bind(LOOPBACK, 0)
    nursery.start_soon(endpoint.run)
    return port


async def test_a_watcher_sees_exchanges_until_it_leaves() -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        port = await served(nursery, node)
        stream = await ask(port)
        received = await receive_until(stream, b"\r\n\r\n\n")
        assert received.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n")
        assert node.looks == [True]
        node.watchers.tell(exchange(1))
        node.watchers.tell(exchange(2, "unwanted"))
        node.watchers.tell(exchange(3))
        lines = (await receive_until(stream, b'"at_ms": 3}\n')).splitlines()
        assert [json.loads(each)["at_ms"] for each in lines] == [1, 3]
        await stream.aclose()
        with trio.fail_after(20):
            while node.looks != [True, False]:
                await trio.sleep(0)
        nursery.cancel_scope.cancel()


async def test_a_watcher_is_told_what_it_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.exchanges.watching.WAITING_MAX", 2)
    node = Node()
    async with trio.open_nursery() as nursery:
        stream = await ask(await served(nursery, node), version="1.1")
        await receive_until(stream, b"1\r\n\n\r\n")
        for at_ms in range(5):
            node.watchers.tell(exchange(at_ms))
        received = await receive_until(stream, b'"at_ms": 4}')
        assert received.index(b'{"lost": 3}') < received.index(b'"at_ms": 3}')
        await stream.aclose()
        nursery.cancel_scope.cancel()


class Gone:
    """The stream of a client that has reset its connection."""

    socket: Any

    def __init__(self) -> None:
        self.socket = self

    def getpeername(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    async def send_all(self, data: bytes) -> None:
        raise trio.BrokenResourceError


@pytest.mark.parametrize("page", [WatchPage(TOKEN, Node()), BrokersWatchPage(dict)])
async def test_a_client_that_has_gone_before_it_is_answered_is_no_bug(page: Page) -> None:
    request = Request("GET", "/watch", True, "", f"Bearer {TOKEN}")
    with pytest.raises(trio.BrokenResourceError):  # which the listener expects
        await page.answer(Gone(), request)  # type: ignore[arg-type]


async def test_who_may_not_watch_is_told_why() -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        port = await served(nursery, node)
        for query, token, status, text in (
            ("", "another0123456789", 401, b"needs the token"),
            ("", "", 401, b"needs the token"),
            ("?api=Nope", TOKEN, 400, b"no API 'Nope'"),
            ("?" + "&".join(["api=Fetch"] * 200), TOKEN, 400, b"at most 100 parameters"),
        ):
            answer = await whole(await ask(port, query, token))
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert text in answer
        node.reason = "the node starts"
        assert (await whole(await ask(port))).endswith(b"the node starts\n")
        node.reason = None
        for _ in range(WATCHERS_MAX):
            node.watchers.add(Waiting(Selection(), lambda: None))
        assert b" 503 " in await whole(await ask(port))
        nursery.cancel_scope.cancel()


def test_only_addresses_of_this_machine_are_loopback() -> None:
    found = [is_loopback(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "fe80::1")]
    assert found == [True, True, True, False, False]
