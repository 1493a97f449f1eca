"""The listener: what it answers, and that no client ends it or holds it up."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from kafkacompat.metrics import endpoint as module
from kafkacompat.metrics._tests.exposition import gauge, gauges
from kafkacompat.metrics.endpoint import MetricsEndpoint, OneNode
from kafkacompat.metrics.families import Families
from kafkacompat.metrics.http import HEAD_BYTES_MAX

LOOPBACK = "127.0.0.1"


class FakeNode:
    def __init__(self) -> None:
        self.reason: str | None = None
        self.series = 1
        self.rendered = 0

    def families(self) -> Families:
        yield gauge("up", "Up.", 1)
        yield gauges("size", "Size.", (({"n": str(n)}, self._count()) for n in range(self.series)))

    def _count(self) -> int:
        self.rendered += 1
        return self.rendered

    def why_not_ready(self) -> str | None:
        return self.reason


class ServedEndpoint:
    def __init__(self, port: int, node: FakeNode, served: MetricsEndpoint) -> None:
        self.port = port
        self.node = node
        self.served = served

    async def ask(self, request: bytes) -> bytes:
        stream = await trio.open_tcp_stream(LOOPBACK, self.port)
        async with stream:
            await stream.send_all(request)
            return b"".join([part async for part in stream])

    async def get(self, path: str, version: str = "1.0") -> tuple[int, bytes]:
        whole = await self.ask(f"GET {path} HTTP/{version}\r\nHost: x\r\n\r\n".encode())
        head, _, body = whole.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@pytest.fixture
async def served_endpoint(nursery: trio.Nursery) -> ServedEndpoint:
    node = FakeNode()
    served = MetricsEndpoint(OneNode(node))
    port = await served.bind(LOOPBACK, 0)
    nursery.start_soon(served.run)
    return ServedEndpoint(port, node, served)


async def test_metrics_are_served(served_endpoint: ServedEndpoint) -> None:
    status, body = await served_endpoint.get("/metrics")
    assert status == 200
    assert body.decode().splitlines()[:3] == ["# HELP up Up.", "# TYPE up gauge", "up 1.0"]


async def test_a_large_answer_comes_in_chunks_and_whole(served_endpoint: ServedEndpoint) -> None:
    served_endpoint.node.series = 5000
    _, old = await served_endpoint.get("/metrics")
    served_endpoint.node.rendered = 0
    _, chunked = await served_endpoint.get("/metrics", "1.1")
    assert unchunked(chunked) == old


def unchunked(body: bytes) -> bytes:
    parts = []
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert rest == b"\r\n"
            return b"".join(parts)
        parts.append(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]


async def test_the_loop_serves_others_while_an_answer_is_rendered(served_endpoint: ServedEndpoint) -> None:
    served_endpoint.node.series = 100_000
    stream = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        await stream.receive_some(10)
        begun = served_endpoint.node.rendered
        await trio.testing.wait_all_tasks_blocked()
        assert served_endpoint.node.rendered < served_endpoint.node.series, (
            "a client that takes nothing stops the rendering"
        )
        assert (await served_endpoint.get("/live"))[0] == 200
        assert begun < 1000, "the head leaves before the series are read"


async def test_live_and_ready(served_endpoint: ServedEndpoint) -> None:
    assert await served_endpoint.get("/live") == (200, b"live\n")
    assert await served_endpoint.get("/ready") == (200, b"ready\n")
    served_endpoint.node.reason = "the broker's state is STARTING"
    assert await served_endpoint.get("/ready") == (503, b"the broker's state is STARTING\n")
    assert await served_endpoint.get("/live") == (200, b"live\n")


async def test_a_head_request_gets_no_body(served_endpoint: ServedEndpoint) -> None:
    for path in ("/metrics", "/live", "/ready"):
        whole = await served_endpoint.ask(f"HEAD {path} HTTP/1.1\r\n\r\n".encode())
        assert whole.startswith(b"HTTP/1.1 200"), path
        assert whole.endswith(b"\r\n\r\n"), path


async def test_other_paths_and_requests_are_refused(served_endpoint: ServedEndpoint) -> None:
    assert await served_endpoint.get("/") == (404, b"/metrics, /live and /ready are served\n")
    assert (await served_endpoint.ask(b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
    assert (await served_endpoint.ask(b"GET /" + b"x" * 2 * HEAD_BYTES_MAX)).startswith(b"HTTP/1.1 431")
    assert (await served_endpoint.get("/live"))[0] == 200


async def test_a_client_that_sends_nothing_is_let_go(
    served_endpoint: ServedEndpoint, autojump_clock: trio.testing.MockClock
) -> None:
    stream = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    with trio.fail_after(2 * module.HEAD_S):
        async with stream:
            assert await stream.receive_some(1) == b""
            assert trio.current_time() >= module.HEAD_S


async def test_the_client_that_has_sent_nothing_for_longest_makes_room(
    served_endpoint: ServedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)
    first = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    await trio.testing.wait_all_tasks_blocked()
    second = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    await trio.testing.wait_all_tasks_blocked()
    async with first, second:
        assert (await served_endpoint.get("/live"))[0] == 200
        assert await first.receive_some(1) == b""
        await second.send_all(b"GET /live HTTP/1.0\r\n\r\n")
        assert (await second.receive_some(12)).startswith(b"HTTP/1.1 200")


async def test_the_client_that_has_taken_nothing_for_longest_makes_room(
    served_endpoint: ServedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that stop to read must not keep scrapers and probes away."""
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(module, "SCRAPES_MAX", 1)
    served_endpoint.node.series = 200_000
    stalled = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    async with stalled:
        await stalled.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        begun = served_endpoint.node.rendered
        assert begun < served_endpoint.node.series
        served_endpoint.node.series = 10
        status, body = await served_endpoint.get("/metrics")
        assert (status, body.count(b"size{")) == (200, 10)
        assert served_endpoint.node.rendered == begun + 10, "nobody renders for a client that was given up"
        whole = b"".join([part async for part in stalled])
        assert not whole.endswith(b"0\r\n\r\n"), "the client can see that its answer is not complete"


async def test_one_scrape_too_many_is_refused_while_all_are_rendered(
    served_endpoint: ServedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCRAPES_MAX", 1)
    may_end = trio.Event()

    def slow() -> Families:
        while not may_end.is_set():
            yield None
        yield gauge("up", "Up.", 1)

    monkeypatch.setattr(served_endpoint.node, "families", slow)
    first = await trio.open_tcp_stream(LOOPBACK, served_endpoint.port)
    async with first:
        await first.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await first.receive_some(12)).startswith(b"HTTP/1.1 200")
        assert await served_endpoint.get("/metrics") == (503, b"1 scrapes are answered at a time\n")
        assert (await served_endpoint.get("/live"))[0] == 200
        may_end.set()
        assert b"".join([part async for part in first]).endswith(b"up 1.0\n")
    assert (await served_endpoint.get("/metrics"))[0] == 200


async def test_a_listener_that_cannot_accept_goes_on(
    served_endpoint: ServedEndpoint, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is left to accept with, for some time. That is said once."""
    failures: list[Exception] = [
        MemoryError(),
        OSError(errno.EMFILE, "too many open files"),
        OSError(errno.ENOTCONN, "?"),
    ]
    (listener,) = served_endpoint.served._listeners
    accept = listener.accept

    async def fails() -> trio.SocketStream:
        if failures:
            raise failures.pop()
        return await accept()

    listener.accept = fails  # type: ignore[method-assign]
    await served_endpoint.get("/live")  # the accept that waits already
    assert (await served_endpoint.get("/live"))[0] == 200
    assert not failures
    (said,) = caplog.messages
    assert said.startswith("the metrics listener cannot accept connections: ")


async def test_a_port_that_is_taken_names_the_setting(served_endpoint: ServedEndpoint) -> None:
    with pytest.raises(OSError, match=r"metrics\.listener\.port: cannot listen on 127\.0\.0\.1:"):
        await MetricsEndpoint(OneNode(served_endpoint.node)).bind(LOOPBACK, served_endpoint.port)
