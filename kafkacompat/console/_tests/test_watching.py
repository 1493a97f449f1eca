"""The requests of nodes, live, for a browser: who gets them, and what a node that misbehaves leaves of the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.types import Message

from kafkacompat.console import watching
from kafkacompat.console._tests.making import ask
from kafkacompat.console.failure import ConsoleError
from kafkacompat.console.run import run_console
from kafkacompat.console.server import application
from kafkacompat.console.state import ConsoleState
from kafkacompat.console.watching import SHOWN_BYTES_MAX, Nodes, watched_nodes
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.http_fetch import HttpAddress

TOKEN = "the-token-of-the-nodes"
ANSWER = b"HTTP/1.0 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n\n"
EXCHANGE = {"api": "Produce", "request": {"a": 1}, "response": None, "errors": []}


@pytest.fixture
def state() -> ConsoleState:
    return ConsoleState(ClusterAddress("broker:9092"), 1_000, "run")


@asynccontextmanager
async def node(*pieces: bytes, stays: bool = False) -> AsyncIterator[tuple[HttpAddress, list[bytes]]]:
    """Its address, and the heads of the requests that it has had. It sends the pieces, and then closes or waits."""
    heads: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        heads.append(await stream.receive_some(10_000))
        for piece in pieces:
            await stream.send_all(piece)
        if stays:
            await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield HttpAddress("http", "127.0.0.1", listener.socket.getsockname()[1], "/metrics"), heads
        nursery.cancel_scope.cancel()


async def browse(
    app: Any,
    query: str = "",
    headers: dict[str, str] | None = None,
    *,
    until: Callable[[list[Any]], object] = lambda events: False,
) -> tuple[int, list[Any]]:
    """The status, and the data of the events, until `until` says that the browser leaves, or the stream ends."""
    given = {"host": "localhost"} | (headers or {})
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/watch",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    status, body, left = 0, b"", trio.Event()
    events: list[Any] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
            return
        body += message["body"]
        events[:] = [
            json.loads(each.removeprefix(b"data: ")) for each in body.split(b"\n\n") if each[:5] == b"data:"
        ]
        if until(events):
            left.set()

    with trio.fail_after(20):
        await app(scope, receive, send)
    return status, events


def watching_app(state: ConsoleState, *addresses: HttpAddress) -> Any:
    return application(state, lambda: 1_000, (), watched=Nodes(addresses, TOKEN))


async def test_exchanges_of_all_nodes_come_as_the_nodes_tell_them(state: ConsoleState) -> None:
    line = json.dumps(EXCHANGE).encode() + b"\n"
    async with node(ANSWER, line, stays=True) as (one, heads), node(ANSWER, b'\n{"lost": 3}\n') as (two, _):
        _, events = await browse(
            watching_app(state, one, two), "api=Produce&topic=a%20b", until=lambda events: len(events) == 5
        )
    for expected in (
        {"watching": one.place},
        EXCHANGE,
        {"watching": two.place},
        {"lost": 3},
        {"place": two.place, "problem": f"{two.place} has closed the connection"},
    ):
        assert expected in events
    assert heads[0].startswith(b"GET /watch?api=Produce&topic=a+b HTTP/1.0\r\n")
    assert f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode() in heads[0]


async def test_a_browser_that_leaves_ends_the_watching(state: ConsoleState) -> None:
    async with node(ANSWER, stays=True) as (address, _):
        app = watching_app(state, address)
        for _ in range(watching.BROWSERS_MAX + 1):
            assert await browse(app, until=bool) == (200, [{"watching": address.place}])


async def test_what_a_node_refuses_is_told(state: ConsoleState) -> None:
    refusal = b"HTTP/1.0 400 Bad Request\r\n\r\nthere is no API 'Prduce'\n"
    async with node(refusal) as (address, _):
        status, events = await browse(watching_app(state, address))
    problem = f"{address.place}: there is no API 'Prduce'"
    assert (status, events) == (200, [{"place": address.place, "problem": problem}])


async def test_a_long_exchange_comes_without_its_messages(state: ConsoleState) -> None:
    line = json.dumps({**EXCHANGE, "response": "x" * SHOWN_BYTES_MAX}).encode() + b"\n"
    async with node(ANSWER, line) as (address, _):
        _, events = await browse(watching_app(state, address))
    assert events[1] == {**EXCHANGE, "request": None, "response": None, "too_long": len(line) - 1}


async def test_lines_that_are_no_json_end_it(state: ConsoleState) -> None:
    async with node(ANSWER, b"{\n", stays=True) as (address, _):
        _, events = await browse(watching_app(state, address))
    assert events[-1]["problem"] == f"{address.place}: it tells no exchanges any more"


async def test_a_console_without_the_option_shows_none(state: ConsoleState) -> None:
    app = application(state, lambda: 1_000, ())
    answer = await ask(app, "/api/watch")
    assert (answer.status, "--watch-token-file" in answer.json["error"]) == (503, True)
    assert b'id="exchanges"' in (await ask(app, "/watch")).body


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "via"])
async def test_nobody_gets_them_through_a_proxy(state: ConsoleState, header: str) -> None:
    app = watching_app(state, HttpAddress("http", "127.0.0.1", 1, "/metrics"))
    answer = await ask(app, "/api/watch", headers={header: "for=192.0.2.1"})
    assert (answer.status, "proxy" in answer.json["error"]) == (503, True)


async def test_so_many_browsers_watch_and_no_more(state: ConsoleState) -> None:
    async with node(ANSWER, stays=True) as (address, _):
        app = watching_app(state, address)
        watch, over = 0, trio.Event()

        def begun(events: list[Any]) -> bool:
            nonlocal watch
            watch += 1
            return False

        async with trio.open_nursery() as nursery:
            for _ in range(watching.BROWSERS_MAX):
                nursery.start_soon(lambda: browse(app, until=begun))
            with trio.fail_after(20):
                while watch < 2 * watching.BROWSERS_MAX:
                    await trio.sleep(0.001)
            answer = await ask(app, "/api/watch")
            assert (answer.status, "watch already" in answer.json["error"]) == (503, True)
            over.set()
            nursery.cancel_scope.cancel()


async def test_only_get_is_served(state: ConsoleState) -> None:
    app = watching_app(state, HttpAddress("http", "127.0.0.1", 1, "/metrics"))
    assert (await ask(app, "/api/watch", method="HEAD")).status == 405


def test_the_options_say_what_is_missing(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    address = HttpAddress("http", "127.0.0.1", 9404, "/metrics")
    assert watched_nodes([address], str(token)) == Nodes((address,), TOKEN)
    with pytest.raises(ConsoleError, match="needs --metrics"):
        watched_nodes([], str(token))
    with pytest.raises(ConsoleError, match="begins with http://"):
        watched_nodes([address._replace(scheme="https")], str(token))
    with pytest.raises(ConsoleError, match=r"cannot read the file .*none of --watch-token-file"):
        watched_nodes([address], str(tmp_path / "none"))
    token.write_text("")
    with pytest.raises(ConsoleError, match="has no token"):
        watched_nodes([address], str(token))


async def test_a_console_that_other_machines_reach_shows_none() -> None:
    nodes = Nodes((HttpAddress("http", "127.0.0.1", 9404, "/metrics"),), TOKEN)
    with pytest.raises(ConsoleError, match="this machine only"):
        await run_console(
            ClusterAddress("127.0.0.1:1"), "0.0.0.0", 0, (), lambda *_: None, "a" * 20, (), None, nodes
        )


async def test_a_console_that_watches_asks_for_a_token_on_loopback_too() -> None:
    nodes = Nodes((HttpAddress("http", "127.0.0.1", 9404, "/metrics"),), TOKEN)
    told: list[tuple[str, str | None]] = []
    async with trio.open_nursery() as nursery:

        def ready(address: str, token: str | None) -> None:
            told.append((address, token))
            nursery.cancel_scope.cancel()

        nursery.start_soon(
            run_console, ClusterAddress("127.0.0.1:1"), "127.0.0.1", 0, (), ready, None, (), None, nodes
        )
    ((_, token),) = told
    assert token is not None
    assert len(token) > 30
