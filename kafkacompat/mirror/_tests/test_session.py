"""What the requests of a fetch session name, with partitions that only have a position."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.mirror.session import MAX_WAIT_MS, NAMED_MAX, LeaderSession
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchResponse

TOPIC = b"t" * 16


class Followed:
    """As much of a MirroredPartition as a session uses."""

    def __init__(self, index: int) -> None:
        self.key = (TOPIC, index)
        self.asked: tuple[int, int, int] | None = None
        self.end = 0
        self.due_ms = 0
        self.resolving = False
        self.leads = True

    def position(self) -> tuple[int, int, int]:
        return self.end, 0, 0

    def is_current(self) -> bool:
        return self.leads

    def is_due(self, now_ms: int) -> bool:
        return not self.resolving and self.due_ms <= now_ms


class World:
    def __init__(self, count: int) -> None:
        self.session: Any = LeaderSession()
        self.partitions = [Followed(index) for index in range(count)]
        for each in self.partitions:
            self.session.add(each)
        self.stale: list[Any] = []
        self.session_id = 9
        self.now_ms = 0

    def ask(self) -> FetchRequest:
        request = self.session.build(self.now_ms, self.stale)
        assert isinstance(request, FetchRequest)
        return request

    def round(self) -> list[int]:
        """The partitions that the request names."""
        request = self.ask()
        self.session.take(FetchResponse(session_id=self.session_id))
        return named(request)


def named(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_what_has_not_changed_is_not_named_again() -> None:
    world = World(3)
    assert world.round() == [0, 1, 2]
    assert world.round() == []
    world.partitions[1].end = 5
    world.session.served(world.partitions[1])
    request = world.ask()
    (topic,) = request.topics
    assert [(each.partition, each.fetch_offset) for each in topic.partitions] == [(1, 5)]
    assert (request.session_id, request.session_epoch) == (9, 3 - 1)


def test_many_partitions_are_named_in_several_requests_that_do_not_wait() -> None:
    world = World(2 * NAMED_MAX + 1)
    waits = []
    found: list[int] = []
    for _ in range(3):
        request = world.ask()
        found += named(request)
        waits.append(request.max_wait_ms)
        world.session.take(FetchResponse(session_id=9))
    assert found == list(range(2 * NAMED_MAX + 1))
    assert waits == [0, 0, MAX_WAIT_MS]
    assert world.round() == []


def test_a_source_without_room_for_a_session_is_told_all_each_time() -> None:
    world = World(NAMED_MAX + 2)
    world.session_id = 0
    assert len(world.round()) == NAMED_MAX
    for _ in range(2):
        assert len(world.round()) == NAMED_MAX + 2
    world.session_id = 7
    assert len(world.round()) == NAMED_MAX + 2
    assert world.round() == []


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9)],
)
def test_a_session_that_is_over_begins_anew_at_once(error: ErrorCode, session_id: int) -> None:
    world = World(2)
    world.round()
    assert world.session.is_over(error)
    request = world.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (session_id, 0, [0, 1])
    assert not world.session.is_over(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_partition_that_waits_is_forgotten_until_it_is_due() -> None:
    world = World(2)
    world.round()
    first = world.partitions[0]
    first.due_ms = 1_000
    world.session.wait(first)
    request = world.ask()
    assert (named(request), forgotten(request)) == ([], [0])
    world.session.take(FetchResponse(session_id=9))
    assert world.session.next_due_ms() == 1_000
    world.session.changed(first)
    assert world.round() == []
    world.now_ms = 1_000
    assert world.round() == [0]


def test_a_partition_that_comes_back_before_the_next_request_is_not_forgotten() -> None:
    world = World(2)
    world.round()
    world.session.wait(world.partitions[0])
    request = world.ask()
    assert (named(request), forgotten(request)) == ([0], [])


def test_without_partitions_that_are_due_nothing_is_asked() -> None:
    world = World(1)
    world.partitions[0].resolving = True
    world.session.wait(world.partitions[0])
    assert world.session.build(0, []) is None
    assert world.session.next_due_ms() is None


def test_partitions_that_are_led_elsewhere_leave_the_session() -> None:
    world = World(3)
    world.round()
    world.partitions[0].leads = False
    world.session.changed(world.partitions[0])
    world.session.remove(world.partitions[1])
    request = world.ask()
    assert (named(request), forgotten(request)) == ([], [1, 0])
    assert world.stale == [world.partitions[0]]


def test_a_partition_that_waits_for_offsets_is_not_asked_of_a_new_leader_either() -> None:
    world = World(2)
    world.partitions[0].resolving = True
    world.session = LeaderSession()
    for each in world.partitions:
        world.session.add(each)
    assert world.round() == [1]
    world.partitions[0].resolving = False
    assert world.round() == [0]
