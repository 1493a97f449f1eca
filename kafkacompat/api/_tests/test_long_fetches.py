"""Fetches of many partitions: read, parked and answered in steps. No change that happens in between is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkacompat import memory
from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_long_requests import in_steps, stepping_api
from kafkacompat.partition._tests.kit import batch_of, broker_image, partition_image, topic_image
from kafkacompat.partition.fetch import EVERYTHING, LONG_FROM, LOOKED_AT_A_STEP, NAMED_A_STEP, READ_A_STEP
from kafkacompat.partition.fetch_session import EVICTION_MS, CachedPartition
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.service import FetchRequestPartition
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

COUNT = 2_500


def asking(partitions: Any, offset: int = 0, **options: Any) -> FetchRequest:
    named = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in partitions
    ]
    topics = [FetchTopic(topic="t", partitions=named)] if named else []
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}, topics=topics)


def consumer_api() -> Api:
    return stepping_api(topic_image("t", COUNT))


def follower_api(count: int = COUNT) -> Api:
    api = Api(
        topic_image("t", {index: partition_image(replicas=(1, 2), epoch=2) for index in range(count)}),
        brokers=[broker_image(1), broker_image(2)],
    )
    return stepping_api(of=api)


def one_step(api: Api) -> None:
    api.world.time.fire_next()


def answered(api: Api, reply: Pending) -> Any:
    while not reply.reply.done:
        one_step(api)
    return api.decoded(reply.reply.result(), 1, 12)


def rows(response: Any) -> list[Any]:
    return [row for topic in response.responses for row in topic.partitions]


@contextmanager
def most_at_once(api: Api, *counted: tuple[type, str]) -> Iterator[Callable[[], int]]:
    """Return a function that gives the most calls of any one of these methods in one step."""
    calls: dict[str, int] = {}
    most = 0
    before = api.world.time.call_after

    def stepped(delay_ms: int, callback: Callable[[], None]) -> Any:
        def step() -> None:
            nonlocal most
            calls.clear()
            callback()
            most = max(most, *calls.values(), 0)

        return before(delay_ms, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.world.time, "call_after", stepped)
        for owner, name in counted:

            def counting(
                *arguments: Any, _name: str = name, _real: Any = getattr(owner, name), **options: Any
            ) -> Any:
                calls[_name] = calls.get(_name, 0) + 1
                return _real(*arguments, **options)

            patch.setattr(owner, name, counting)
        yield lambda: max(most, *calls.values(), 0)


READING = ((Partition, "check_leader"), (Partition, "check_replica"))
REMEMBERING = ((CachedPartition, "update"), (CachedPartition, "must_tell"))
LOOKING = ((Partition, "update_idle_follower_fetch_state"),)


def session_of(api: Api, **options: Any) -> int:
    response, _ = in_steps(api, asking(range(COUNT), session_epoch=0, **options), 12)
    assert len(rows(response)) == COUNT
    assert response.session_id > 0
    session_id: int = response.session_id
    return session_id


def test_many_partitions_are_read_parked_and_told_in_steps() -> None:
    api = consumer_api()
    with most_at_once(api, *READING) as most, most_at_once(api, *REMEMBERING) as most_remembered:
        reply = api.send(asking(range(COUNT), session_epoch=0, max_wait_ms=500), 12)
        assert isinstance(reply, Pending)
        for _ in range(COUNT):
            if len(api.world.engine.purgatory):
                break
            one_step(api)
        # The log becomes durable, which otherwise happens a moment later.
        api.world.log("t", COUNT - 1).is_durable = True
        api.world.produce("t", COUNT - 1)
        response = answered(api, reply)
        assert [row.partition_index for row in rows(response)] == list(range(COUNT))
        assert [row.partition_index for row in rows(response) if len(row.records)] == [COUNT - 1]
        assert len(api.world.engine.purgatory) == 0
        # The partitions in the session count, not those that the request names.
        again = asking((), session_id=response.session_id, session_epoch=1, max_wait_ms=500)
        response, steps = in_steps(api, again, 12)
        assert [row.partition_index for row in rows(response)] == [COUNT - 1]
        assert steps >= COUNT // LOOKED_AT_A_STEP
        named = asking(
            range(COUNT), session_id=response.session_id, session_epoch=2, forgotten_topics_data=[]
        )
        in_steps(api, named, 12)
    assert most() <= 2 * READ_A_STEP
    assert most_remembered() <= NAMED_A_STEP


def test_what_a_session_of_many_forgets_and_that_it_ends_is_as_with_a_small_one() -> None:
    api = consumer_api()
    session_id = session_of(api)
    forgets = asking((), session_id=session_id, session_epoch=1)
    forgets.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=list(range(1, COUNT)))]
    api.world.produce("t", 5)
    response, _ = in_steps(api, forgets, 12)
    assert rows(response) == []
    session = api.world.sessions.get(session_id)
    assert session is not None
    assert [index for _, index in session.partitions] == [0]
    forgets = asking((), session_id=session_id, session_epoch=2)
    forgets.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=list(range(COUNT)))]
    in_steps(api, forgets, 12)
    assert api.world.sessions.get(session_id) is None
    wrong = asking(range(COUNT), session_id=session_id, session_epoch=3)
    assert in_steps(api, wrong, 12)[0].error_code == 70


def test_a_session_that_outgrows_the_room_for_all_is_over_and_the_next_fetch_has_none() -> None:
    api = consumer_api()
    api.world.sessions.partitions_max = COUNT - 1
    response, _ = in_steps(api, asking(range(COUNT), session_epoch=0), 12)
    assert len(rows(response)) == COUNT
    assert response.session_id == 0
    response, _ = in_steps(api, asking(range(NAMED_A_STEP), session_epoch=0), 12)
    grows = asking(range(NAMED_A_STEP, COUNT), session_id=response.session_id, session_epoch=1)
    refused, _ = in_steps(api, grows, 12)
    assert (refused.error_code, refused.session_id, rows(refused)) == (70, 0, [])
    assert api.world.sessions.get(response.session_id) is None
    assert api.world.sessions.partition_count == 0


@pytest.mark.parametrize("end", ["by its client", "for another one", "without room"])
def test_what_a_long_fetch_keeps_is_freed_in_steps(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may name half a million partitions. They would take a tenth of a second to go."""
    monkeypatch.setattr(memory, "FREED_AT_ONCE", 100)
    for kind in (CachedPartition, FetchRequestPartition):
        monkeypatch.setattr(kind, "__del__", lambda self: None, raising=False)
    api = consumer_api()
    sessions = api.world.sessions
    sessions.slots = 1
    if end == "without room":
        sessions.partitions_max = 1
    with most_at_once(api, (CachedPartition, "__del__"), (FetchRequestPartition, "__del__")) as most:
        response, _ = in_steps(api, asking(range(COUNT), session_epoch=0), 12)
        if end == "for another one":
            api.world.time.advance(EVICTION_MS + 1)
            api.send(asking([0], session_epoch=0), 12)
        else:
            api.send(asking([], session_id=response.session_id, session_epoch=-1), 12)
        assert sessions.get(response.session_id) is None
        assert most() <= 100 + 1
        while api.world.time.pending():
            one_step(api)
        assert 0 < most() <= 100 + 1  # the last fetch's own


def test_what_a_long_fetch_keeps_is_freed_in_steps_if_its_client_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "FREED_AT_ONCE", 100)
    api = consumer_api()
    reply = api.send(asking(range(COUNT), session_epoch=0, max_wait_ms=10_000), 12)
    purgatory = api.world.engine.purgatory
    while not len(purgatory):
        one_step(api)
    (waiter,) = purgatory.consumers.by_key[EVERYTHING]
    kept = waiter.context.partitions
    assert isinstance(kept, list)
    api.dispatcher.connection_closed(api.connection)
    del reply, waiter
    sizes = [len(kept)]
    while api.world.time.pending():
        one_step(api)
        sizes.append(len(kept))
    assert sorted(set(sizes), reverse=True) == list(range(COUNT, -1, -100))


def test_a_session_that_is_dropped_while_a_fetch_uses_it_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FREED_AT_ONCE", 100)
    api = consumer_api()
    session_id = session_of(api)
    waiting = asking([], session_id=session_id, session_epoch=1, max_wait_ms=10_000)
    reply = api.send(waiting, 12)
    assert isinstance(reply, Pending)
    while not len(api.world.engine.purgatory):
        one_step(api)
    session = api.world.sessions.get(session_id)
    assert session is not None
    api.world.sessions._drop(session)
    api.world.time.advance(10)
    assert len(session.partitions) == COUNT
    del session
    api.world.produce("t", COUNT - 1)
    api.settle()
    assert [row.partition_index for row in rows(answered(api, reply))] == [COUNT - 1]


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 10, 20, 30])
def test_what_is_appended_between_two_steps_is_not_waited_for(steps: int) -> None:
    api = consumer_api()
    began_ms = api.world.time.monotonic_ms()
    reply = api.send(asking(range(COUNT), session_epoch=-1, max_wait_ms=10_000), 12)
    for _ in range(steps):
        one_step(api)
    api.world.produce("t", 0)
    for _ in range(1000):
        if reply.reply.done:
            break
        one_step(api)
    assert api.world.time.monotonic_ms() == began_ms
    assert [row.partition_index for row in rows(answered(api, reply)) if len(row.records)] == [0]


def test_min_bytes_are_summed_over_the_partitions_of_a_long_fetch() -> None:
    api = consumer_api()
    size = len(batch_of(b"value"))
    reply = api.send(asking(range(COUNT - 1), session_epoch=-1, max_wait_ms=10_000, min_bytes=2 * size), 12)
    while not len(api.world.engine.purgatory):
        one_step(api)
    api.world.produce("t", 1)
    assert len(api.world.engine.purgatory) == 1
    api.world.produce("t", COUNT - 1)  # the request does not name it
    assert len(api.world.engine.purgatory) == 1
    api.world.produce("t", 2)
    assert len(api.world.engine.purgatory) == 0
    assert [row.partition_index for row in rows(answered(api, reply)) if len(row.records)] == [1, 2]


def test_a_long_fetch_that_waited_in_vain_tells_of_all_its_partitions() -> None:
    api = consumer_api()
    reply = api.send(asking(range(COUNT), session_epoch=-1, max_wait_ms=500), 12)
    while not len(api.world.engine.purgatory):
        one_step(api)
    response = answered(api, reply)
    assert len(rows(response)) == COUNT
    assert len(api.world.engine.purgatory) == 0


def test_a_followers_session_of_many_is_looked_at_in_steps_and_woken() -> None:
    api = follower_api()
    session_id = session_of(api, replica_id=2)
    in_steps(api, asking((), session_id=session_id, session_epoch=1, replica_id=2), 12)
    with most_at_once(api, *READING, *REMEMBERING) as most, most_at_once(api, *LOOKING) as most_looked:
        reply = api.send(
            asking((), session_id=session_id, session_epoch=2, replica_id=2, max_wait_ms=500), 12
        )
        assert isinstance(reply, Pending)
        while not len(api.world.engine.purgatory):
            one_step(api)
        api.world.produce("t", 7)
        response = answered(api, reply)
        assert [row.partition_index for row in rows(response)] == [7]
        # The follower's fetch offset advances the high watermark. Records appended in the meantime are in the answer.
        reply = api.send(
            asking([7], 1, session_id=session_id, session_epoch=3, replica_id=2, max_wait_ms=500), 12
        )
        one_step(api)
        api.world.produce("t", 3)
        assert [row.partition_index for row in rows(answered(api, reply)) if len(row.records)] == [3]
        assert api.world.log("t", 7).high_watermark == 1
    assert most() <= 2 * READ_A_STEP
    assert most_looked() <= LOOKED_AT_A_STEP


def test_a_session_that_is_long_but_quick_is_answered_at_once() -> None:
    """One step reads many of a follower's quiet partitions, so that replication does not wait for turns of the loop."""
    api = follower_api(LONG_FROM + 100)
    response, _ = in_steps(api, asking(range(LONG_FROM + 100), session_epoch=0, replica_id=2), 12)
    session = response.session_id
    in_steps(api, asking((), session_id=session, session_epoch=1, replica_id=2), 12)
    quiet = asking((), session_id=session, session_epoch=2, replica_id=2)
    assert not isinstance(api.send(quiet, 12), Pending)
