"""Links between nodes that are cut: who reaches whom, and what becomes of requests under way."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.deferred import Deferred
from kafkacompat.net.failures import ConnectionLost, RequestTimedOut
from kafkacompat.ports import ProbeResult
from kafkacompat.testing.links import TIMER_MAX_MS, Links, NodeLinks

NODES = {("127.0.0.1", port): port for port in (1, 2, 3)}


class FakeChannel:
    def __init__(self) -> None:
        self.on_refused = None
        self.is_closed = False
        self.asked: list[Deferred[Any]] = []

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        self.asked.append(Deferred())
        return self.asked[-1]


class FakeNetwork:
    """One channel to each address."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], FakeChannel] = {}
        self.channels = self.controller_channels = self

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> FakeChannel:
        return self.made.setdefault((host, port), FakeChannel())

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        return Deferred.of(ProbeResult.CONNECTED)


class Node:
    def __init__(self, links: Links, node: int) -> None:
        self.time = HandTime()
        self.links = NodeLinks(links, node)
        self.inner: Any = FakeNetwork()
        self.network = self.links.around(self.inner, self.time)

    def ask(self, port: int, timeout_ms: int = 100) -> Deferred[Any]:
        return self.network.channels.get("127.0.0.1", port, "some").request("message", timeout_ms)

    def answer(self, port: int) -> None:
        self.inner.made["127.0.0.1", port].asked[-1].resolve("answer")


def test_nodes_of_different_sides_do_not_reach_each_other() -> None:
    links = Links(NODES)
    links.cut([[1], [2, 3]])
    reached = {
        (one, other): not links.is_cut(one, ("127.0.0.1", other)) for one in (1, 2, 3) for other in (1, 2, 3)
    }
    assert [pair for pair, is_reached in reached.items() if not is_reached] == [
        (1, 2),
        (1, 3),
        (2, 1),
        (3, 1),
    ]
    assert not links.is_cut(1, ("elsewhere", 9))
    links.cut([[2], [3]])
    assert not links.is_cut(1, ("127.0.0.1", 2))
    links.mend()
    assert not links.is_cut(2, ("127.0.0.1", 3))


def test_a_request_over_a_cut_link_is_not_sent_and_times_out() -> None:
    links = Links(NODES)
    node = Node(links, 1)
    links.cut([[1], [2, 3]])
    answer = node.ask(2)
    assert node.inner.made["127.0.0.1", 2].asked == []
    node.time.advance(99)
    assert not answer.done
    node.time.advance(1)
    with pytest.raises(RequestTimedOut):
        answer.result()
    probed = node.network.channels.probe("127.0.0.1", 2, 10)
    assert probed.result() is ProbeResult.UNREACHABLE
    node.links.mended()  # nothing is lost any more


def test_an_answer_under_way_when_the_link_is_cut_is_lost_until_it_is_mended() -> None:
    links = Links(NODES)
    node = Node(links, 1)
    answer, other = node.ask(2, TIMER_MAX_MS), node.ask(3)
    links.cut([[1], [2]])
    node.answer(2)
    node.answer(3)
    assert other.result() == "answer"
    node.time.advance(1_000_000)
    assert not answer.done
    links.mend()
    node.links.mended()
    with pytest.raises(ConnectionLost):
        answer.result()
    again = node.ask(2)
    node.answer(2)
    assert again.result() == "answer"


def test_nobody_waits_for_what_was_abandoned() -> None:
    links = Links(NODES)
    node = Node(links, 1)
    links.cut([[1], [2]])
    answer = node.ask(2)
    answer.abandon()
    node.time.advance(200)
    node.links.mended()
    assert not answer.done


def test_a_channel_is_the_same_at_each_call() -> None:
    node = Node(Links(NODES), 1)
    get = node.network.channels.get
    assert get("127.0.0.1", 2, "some") is get("127.0.0.1", 2, "some")
    get("127.0.0.1", 2, "some").on_refused = print
    assert node.inner.made["127.0.0.1", 2].on_refused is print
