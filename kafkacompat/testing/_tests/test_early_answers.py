"""Fetches that find nothing are answered early, and less so each time."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import LISTENER
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.testing.early_answers import FIRST_MS, EarlyAnswers
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import decode
from kafkacompat.wire.headers import parse_request_header, request_frame
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest

WAIT_MS = 500


class Parking:
    """A node's dispatcher whose fetches wait."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.parked: Deferred[Any] | None = None
        self.has_records = False
        self.closed: list[int] = []

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Any:
        self.frames.append(frame)
        if self.has_records:
            return [b"records"]
        self.parked = Deferred()
        return Pending(self.parked, blocks=True)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed.append(connection.connection_id)

    @property
    def request(self) -> Any:
        frame = self.frames[-1]
        header = parse_request_header(frame)
        return decode(request_class(header.api_key), header.api_version, frame, header.body_offset)


class Case:
    def __init__(self) -> None:
        self.time = HandTime()
        self.inner = Parking()
        self.dispatcher = EarlyAnswers(self.inner, self.time, {LISTENER})

    def ask(self, request: Any, version: int, connection_id: int = 1, *, listener: str = LISTENER) -> None:
        frame = memoryview(request_frame(request, version, 7, "till"))[4:]
        self.dispatcher.dispatch(ConnectionInfo(connection_id, listener, "127.0.0.1", 5555), frame)

    def answered_after(self, ms: int) -> None:
        self.time.advance(ms)
        assert self.inner.parked is not None
        self.inner.parked.resolve([b"reply"])

    def wait_ms(self, connection_id: int = 1) -> int:
        """Of a fetch, as the node sees it."""
        self.ask(fetch(), 18, connection_id)
        found: int = self.inner.request.max_wait_ms
        return found


def fetch(min_bytes: int = 1, max_wait_ms: int = WAIT_MS) -> FetchRequest:
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    request.topics = [FetchTopic(partitions=[FetchPartition(partition=3, fetch_offset=8)])]
    return request


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_of_each_version_waits_for_less_and_is_the_same_otherwise(version: int) -> None:
    case = Case()
    case.ask(fetch(), version)
    asked = case.inner.request
    assert (asked.max_wait_ms, asked.min_bytes, asked.replica_id) == (FIRST_MS, 1, -1)
    assert asked.topics[0].partitions[0].fetch_offset == 8


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("member", ["", "m" * 200])
def test_a_fetch_of_a_share_group_too(version: int, member: str) -> None:
    case = Case()
    request = ShareFetchRequest(group_id="g", member_id=member, share_session_epoch=2, max_wait_ms=WAIT_MS)
    request.min_bytes = 1
    case.ask(request, version)
    asked = case.inner.request
    assert (asked.group_id, asked.member_id, asked.share_session_epoch) == ("g", member, 2)
    assert (asked.max_wait_ms, asked.min_bytes) == (FIRST_MS, 1)


def test_the_wait_doubles_while_nothing_comes_and_ends_at_that_of_the_client() -> None:
    case = Case()
    waits = []
    for _ in range(9):
        waits.append(case.wait_ms())
        case.answered_after(waits[-1])
    assert waits == [10, 20, 40, 80, 160, 320, 500, 500, 500]


def test_records_that_come_meanwhile_make_it_short_again() -> None:
    case = Case()
    for _ in range(3):
        case.answered_after(case.wait_ms())
    assert case.wait_ms() == 80
    case.answered_after(79)
    assert case.wait_ms() == FIRST_MS


def test_records_that_are_there_make_it_short_again() -> None:
    case = Case()
    for _ in range(3):
        case.answered_after(case.wait_ms())
    case.inner.has_records = True
    assert case.wait_ms() == 80
    assert case.wait_ms() == FIRST_MS


def test_each_connection_has_a_wait_of_its_own_and_none_when_it_is_closed() -> None:
    case = Case()
    case.answered_after(case.wait_ms(1))
    assert case.wait_ms(2) == FIRST_MS
    assert case.wait_ms(1) == 20
    case.dispatcher.connection_closed(ConnectionInfo(1, LISTENER, "127.0.0.1", 5555))
    case.answered_after(20)
    assert case.inner.closed == [1]
    assert case.wait_ms(1) == FIRST_MS


def test_what_waits_for_more_than_any_record_waits_as_long_as_it_asks() -> None:
    case = Case()
    case.ask(fetch(min_bytes=2), 18)
    assert case.inner.request.max_wait_ms == WAIT_MS


def test_a_shorter_wait_stays() -> None:
    case = Case()
    case.ask(fetch(max_wait_ms=4), 18)
    assert case.inner.request.max_wait_ms == 4


def test_a_fetch_that_wants_no_wait_leaves_the_next_one_its_own() -> None:
    """It would ask again and again without a pause."""
    case = Case()
    case.ask(fetch(max_wait_ms=0), 18)
    case.answered_after(0)
    assert case.wait_ms() == FIRST_MS


def test_a_follower_waits_as_long_as_it_asks() -> None:
    case = Case()
    case.ask(fetch(), 18, listener="NODES")
    assert case.inner.request.max_wait_ms == WAIT_MS


def test_other_requests_pass() -> None:
    case = Case()
    case.ask(MetadataRequest(), 13)
    assert isinstance(case.inner.request, MetadataRequest)


@pytest.mark.parametrize("length", range(2, 21))
def test_a_request_that_is_cut_short_reaches_the_node_as_it_is(length: int) -> None:
    case = Case()
    frame = memoryview(request_frame(fetch(), 18, 7, "till"))[4 : 4 + length]
    case.dispatcher.dispatch(ConnectionInfo(1, LISTENER, "127.0.0.1", 5555), frame)
    assert bytes(case.inner.frames[-1]) == bytes(frame)
