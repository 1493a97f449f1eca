"""What the requests of a fetch session name, with partitions that have a position and nothing else."""

from __future__ import annotations

import pytest

from kafkacompat.partition.fetch_session_handler import (
    FetchedPartition,
    FetchSessionHandler,
    FetchSettings,
    Position,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchRequest, ReplicaState
from kafkacompat.wire.messages.fetch_response import FetchResponse

TOPIC = b"t" * 16
NAMED_MAX = 3


class Fetched(FetchedPartition):
    def __init__(self, index: int) -> None:
        super().__init__((TOPIC, index))
        self.end = 0
        self.is_wanted = True

    def position(self) -> Position | None:
        return (self.end, -1, 2, 3) if self.is_wanted else None


class World:
    def __init__(self, count: int, named_max: int | None = None) -> None:
        self.session = FetchSessionHandler[Fetched](FetchSettings(), named_max=named_max)
        self.partitions = [Fetched(index) for index in range(count)]
        for each in self.partitions:
            self.session.add(each)
        self.removed: list[Fetched] = []
        self.session_id = 9
        self.now_ms = 0

    def ask(self) -> FetchRequest:
        self.session.resume(self.now_ms)
        request = self.session.build(ReplicaState(), self.removed)
        assert request is not None
        return request

    def round(self) -> list[int]:
        """The partitions that the request names."""
        request = self.ask()
        self.session.handle_response(FetchResponse(session_id=self.session_id))
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
    for each in world.partitions:
        world.session.changed(each)
    request = world.ask()
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert (asked.partition, asked.fetch_offset) == (1, 5)
    assert (asked.log_start_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (-1, 2, 3)
    assert (request.session_id, request.session_epoch) == (9, 3 - 1)


def test_a_request_says_who_asks_and_has_the_settings() -> None:
    settings = FetchSettings(max_wait_ms=1, min_bytes=2, partition_max_bytes=3, response_max_bytes=4)
    session = FetchSessionHandler[Fetched](settings)
    session.add(Fetched(0))
    request = session.build(ReplicaState(replica_id=5, replica_epoch=6))
    assert request is not None
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (1, 2, 4)
    assert request.topics[0].partitions[0].partition_max_bytes == 3
    assert request.replica_state == ReplicaState(replica_id=5, replica_epoch=6)


def test_many_partitions_are_named_in_several_requests_that_do_not_wait() -> None:
    world = World(2 * NAMED_MAX + 1, NAMED_MAX)
    waits = []
    found: list[int] = []
    for _ in range(3):
        request = world.ask()
        found += named(request)
        waits.append(request.max_wait_ms)
        world.session.handle_response(FetchResponse(session_id=9))
    assert found == list(range(2 * NAMED_MAX + 1))
    assert waits == [0, 0, FetchSettings().max_wait_ms]
    assert world.round() == []


def test_a_leader_without_room_for_a_session_is_told_all_each_time() -> None:
    world = World(NAMED_MAX + 2, NAMED_MAX)
    world.session_id = 0
    assert len(world.round()) == NAMED_MAX
    for _ in range(2):
        assert len(world.round()) == NAMED_MAX + 2
    world.session_id = 7
    assert len(world.round()) == NAMED_MAX + 2
    assert world.round() == []


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ],
)
def test_a_session_that_is_over_begins_anew_at_once(error: ErrorCode, session_id: int) -> None:
    world = World(3)
    world.round()
    world.session.remove(world.partitions[2])
    assert world.session.is_over(error)
    request = world.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (session_id, 0, [0, 1])
    assert forgotten(request) == []


def test_another_error_does_not_end_the_session() -> None:
    world = World(2)
    world.round()
    assert not world.session.is_over(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.round() == []


def test_a_request_without_an_answer_delays_all_and_ends_the_session() -> None:
    world = World(2)
    world.round()
    world.session.lost(10)
    world.session.resume(10)
    assert world.session.build(ReplicaState()) is None
    due_ms = world.session.next_due_ms()
    assert due_ms == 10 + FetchSettings().backoff_ms
    world.now_ms = due_ms
    request = world.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (9, 0, [0, 1])


def test_a_partition_that_waits_is_forgotten_until_it_is_due() -> None:
    world = World(2)
    world.round()
    first = world.partitions[0]
    world.session.delay(first, 1_000)
    request = world.ask()
    assert (named(request), forgotten(request)) == ([], [0])
    world.session.handle_response(FetchResponse(session_id=9))
    assert world.session.next_due_ms() == 1_000
    world.session.changed(first)
    assert world.round() == []
    assert list(world.session.in_turn().values()) == [world.partitions[1]]
    world.now_ms = 1_000
    assert world.round() == [0]


def test_a_partition_that_comes_back_before_the_next_request_is_not_forgotten() -> None:
    world = World(2)
    world.round()
    world.session.delay(world.partitions[0], 0)
    request = world.ask()
    assert (named(request), forgotten(request)) == ([0], [])


def test_without_partitions_that_are_due_nothing_is_asked() -> None:
    world = World(1)
    world.partitions[0].resolving = True
    world.session.delay(world.partitions[0], 0)
    world.session.resume(0)
    assert world.session.build(ReplicaState()) is None
    assert world.session.next_due_ms() is None


def test_partitions_that_are_not_fetched_any_more_leave_the_session() -> None:
    world = World(3)
    world.round()
    world.partitions[0].is_wanted = False
    world.session.changed(world.partitions[0])
    world.session.remove(world.partitions[1])
    request = world.ask()
    assert (named(request), forgotten(request)) == ([], [1, 0])
    assert world.removed == [world.partitions[0]]
    assert list(world.session.partitions.values()) == [world.partitions[2]]


def test_a_partition_that_waits_for_offsets_is_not_asked_for_when_it_is_added() -> None:
    world = World(2)
    world.partitions[0].resolving = True
    world.session = FetchSessionHandler(FetchSettings())
    for each in world.partitions:
        world.session.add(each)
    assert world.round() == [1]
    world.partitions[0].resolving = False
    assert world.round() == [0]


def test_a_partition_that_is_added_again_is_named_again_in_its_place() -> None:
    """Its log may not have taken over what the session has told."""
    world = World(3)
    world.round()
    again = Fetched(1)
    world.session.add(again)
    assert again.asked == world.partitions[1].asked  # an answer on its way may be taken
    assert world.round() == [1]
    assert world.round() == []
    assert list(world.session.partitions.values()) == [world.partitions[0], again, world.partitions[2]]


def test_one_that_is_added_again_and_must_wait_is_forgotten() -> None:
    world = World(2)
    world.round()
    again = Fetched(0)
    world.session.add(again)
    world.session.delay(again, 1_000)
    assert forgotten(world.ask()) == [0]


def test_what_was_taken_out_changes_nothing_any_more() -> None:
    """The rest of an answer may speak of it."""
    world = World(2)
    world.round()
    former = world.partitions[0]
    world.session.remove(former)
    world.round()
    world.session.changed(former)
    world.session.delay(former, 0)
    world.session.move_to_end(former)
    world.session.remove(former)
    request = world.ask()
    assert (named(request), forgotten(request)) == ([], [])
    assert list(world.session.partitions.values()) == [world.partitions[1]]


def test_a_full_request_names_those_last_that_were_moved_to_the_end() -> None:
    world = World(3)
    world.session_id = 0
    world.round()
    world.session.move_to_end(world.partitions[0])
    assert world.round() == [1, 2, 0]
