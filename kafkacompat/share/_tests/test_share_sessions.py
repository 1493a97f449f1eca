"""Share sessions: epochs, what a session takes up and tells, bounds, and connections."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.share._tests.kit import GROUP, ShareLeader, codes, rows, taken
from kafkacompat.share.delayed_share_fetch import max_bytes_of_each
from kafkacompat.share.service import TopicIdPartition
from kafkacompat.share.share_partition_cache import STALE_KEPT
from kafkacompat.share.share_session import (
    GROUPS_REMEMBERED_MAX,
    SessionKey,
    ShareSessionCache,
    rotated,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_fetch_request as fetch


def test_a_session_must_be_opened_first() -> None:
    world = ShareLeader()
    assert world.fetched(epoch=1, partitions=[0]).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert world.fetched(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert world.acknowledged("m", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert world.acknowledged("m", -1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_requests_of_a_session_are_counted() -> None:
    world = ShareLeader()
    world.fetched(partitions=[0], max_wait_ms=0)
    assert world.fetched(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert world.fetched(epoch=1, max_wait_ms=0).error_code == ErrorCode.NONE
    assert world.acknowledged("m", 1).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert world.acknowledged("m", 2).error_code == ErrorCode.NONE
    assert world.fetched(epoch=3, max_wait_ms=0).error_code == ErrorCode.NONE


def test_an_acknowledgement_opens_no_session() -> None:
    assert ShareLeader().acknowledged("m", 0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_first_fetch_cannot_acknowledge() -> None:
    world = ShareLeader()
    assert world.fetched(partitions={0: [(0, 0, 1)]}).error_code == ErrorCode.INVALID_REQUEST
    assert len(world.shares.sessions) == 0


def test_a_partition_that_is_named_twice_fails_a_first_fetch() -> None:
    world = ShareLeader()
    request = world.request_fetch
    assert request(partitions=[0], max_wait_ms=0).error_code == ErrorCode.NONE
    twice = fetch.ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=0, max_records=1)
    twice.topics = [
        fetch.FetchTopic(
            topic_id=world.topic_id(), partitions=[fetch.FetchPartition(), fetch.FetchPartition()]
        )
    ]
    answer = world.result(world.shares.share_fetch(twice, world.context(78, 2, "m"), None))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.shares.sessions) == 0


def test_too_many_sessions_are_refused_after_the_wait() -> None:
    world = ShareLeader(sessions_max=1)
    world.fetched("a", partitions=[0], max_wait_ms=0)
    answer = world.parked("b", partitions=[0])
    world.time.advance(499)
    assert not answer.done
    world.time.advance(1)
    assert answer.result().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    world.disconnect("a")
    world.fetched("b", partitions=[0], max_wait_ms=0)


def test_a_new_session_of_a_member_replaces_its_old_one() -> None:
    world = ShareLeader(sessions_max=1)
    world.fetched("a", partitions=[0], max_wait_ms=0, connection=1)
    world.fetched("a", partitions=[1], max_wait_ms=0, connection=2)
    world.shares.on_connection_closed(1)
    assert world.fetched("a", 1, max_wait_ms=0, connection=2).error_code == ErrorCode.NONE
    world.shares.on_connection_closed(2)
    assert len(world.shares.sessions) == 0
    assert world.shares.sessions.evictions == 1


def test_a_session_fetches_all_its_partitions() -> None:
    world = ShareLeader()
    world.fetched(partitions=[0], max_wait_ms=0)
    answer = world.parked(epoch=1, partitions=[2], forget=[0])
    world.produce("t", 0)
    assert not answer.done
    world.produce("t", 2)
    assert taken(answer.result()) == {2: [(0, 0, 1)]}


def test_a_partition_is_told_when_it_is_new_or_has_something() -> None:
    world = ShareLeader()
    assert codes(world.fetched(partitions=[0, 1], max_wait_ms=0)) == {0: 0, 1: 0}
    assert codes(world.fetched(epoch=1, max_wait_ms=0)) == {}
    assert codes(world.fetched(epoch=2, partitions=[1, 2], max_wait_ms=0)) == {2: 0}
    assert codes(world.fetched(epoch=3, max_wait_ms=0)) == {}
    world.produce("t", 1)
    assert codes(world.fetched(epoch=4, max_wait_ms=0)) == {1: 0}


def test_an_error_is_told_and_its_end_too() -> None:
    world = ShareLeader()
    world.fetched(partitions=[0], max_wait_ms=0)
    assert codes(world.fetched(epoch=1, may_read=lambda _: False)) == {
        0: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }
    assert codes(world.fetched(epoch=2, max_wait_ms=0)) == {0: ErrorCode.NONE}
    assert codes(world.fetched(epoch=3, max_wait_ms=0)) == {}


def test_unknown_partitions_are_told() -> None:
    world = ShareLeader()
    assert codes(world.fetched(partitions=[7])) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    world.image.topics["other"] = topic_image("other")  # type: ignore[index]
    response = world.fetched(partitions=[0], topic="other")
    assert codes(response) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_fetch_that_ends_the_session_fetches_nothing() -> None:
    world = ShareLeader()
    world.produce()
    world.fetched(partitions=[0])
    response = world.fetched(epoch=-1, partitions={0: [(0, 0, 1)]})
    assert rows(response)[0].acknowledge_error_code == ErrorCode.NONE
    assert len(world.shares.sessions) == 0
    assert world.core().start_offset == 1


def test_a_renewal_fetches_nothing() -> None:
    world = ShareLeader()
    world.produce()
    world.fetched(partitions=[0])
    world.produce()
    response = world.fetched(
        epoch=1, partitions={0: [(0, 0, 4)]}, is_renew_ack=True, max_wait_ms=0, max_records=0, max_bytes=0
    )
    assert taken(response) == {}
    assert rows(response)[0].acknowledge_error_code == ErrorCode.NONE


def test_a_renewal_tells_nothing_of_the_other_partitions() -> None:
    world = ShareLeader()
    world.produce()
    unknown = {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(world.fetched(partitions=[0, 7])) == {0: ErrorCode.NONE} | unknown
    response = world.fetched(
        epoch=1, partitions={0: [(0, 0, 4)]}, is_renew_ack=True, max_wait_ms=0, max_records=0, max_bytes=0
    )
    assert codes(response) == {0: ErrorCode.NONE}
    assert codes(world.fetched(epoch=2, max_wait_ms=0)) == unknown


def test_a_partition_with_records_is_the_last_one_of_the_next_fetch() -> None:
    world = ShareLeader()
    world.fetched(partitions=[0, 1, 2], max_wait_ms=0)
    world.produce("t", 0)
    assert taken(world.fetched(epoch=1)) == {0: [(0, 0, 1)]}
    session = world.shares.sessions.get(SessionKey(GROUP, "m"))
    assert session is not None
    assert [each.partition for each in session.partitions] == [1, 2, 0]


def test_a_fetch_of_no_records_is_answered_at_once() -> None:
    world = ShareLeader()
    world.produce()
    assert taken(world.fetched(partitions=[0], max_records=0)) == {}
    assert taken(world.fetched(epoch=1, max_bytes=0)) == {}
    assert len(world.persister.reads) == 0


@pytest.mark.parametrize(
    ("epoch", "order"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc"), (4, "bca"), (-1, "abc")]
)
def test_each_fetch_begins_with_another_partition(epoch: int, order: str) -> None:
    assert "".join(rotated("abc", epoch)) == order


def test_bytes_are_divided() -> None:
    assert max_bytes_of_each(100, 3, 3, lambda _: 1) == [33, 34, 33]
    assert max_bytes_of_each(100, 2, 4, lambda _: 1) == [25, 25]
    assert max_bytes_of_each(3, 2, 4, lambda _: 1) == [1, 2]
    assert max_bytes_of_each(2, 3, 3, lambda _: 2) == [1, 0, 1]


def test_a_session_with_very_many_partitions_fetches_them_in_turns() -> None:
    world = ShareLeader(topic_image("t", 1200))
    world.fetched(partitions=range(1200), max_wait_ms=0)
    for partition in (10, 600, 1100):
        world.produce("t", partition)
    world.settle()
    found = {}
    for epoch in range(1, 4):
        found |= taken(world.fetched(epoch=epoch, max_wait_ms=0))
    assert found == {each: [(0, 0, 1)] for each in (10, 600, 1100)}


def test_groups_of_a_connection_are_bounded() -> None:
    cache = ShareSessionCache(1000)
    for each in range(GROUPS_REMEMBERED_MAX + 5):
        key = SessionKey(f"g{each}", "m")
        cache.open(key, 1)
        cache.remove(key)
    assert cache.surplus_groups(1) == [f"g{each}" for each in range(5)]
    assert len(cache.connection_closed(1)) == GROUPS_REMEMBERED_MAX


def test_sessions_count_their_partitions() -> None:
    cache = ShareSessionCache(10)
    session = cache.open(SessionKey("g", "m"), 1)
    session.add(TopicIdPartition(bytes(16), 0), "t", is_news=False)
    session.add(TopicIdPartition(bytes(16), 0), "t", is_news=False)
    assert cache.partition_count == 1


def test_a_member_that_goes_between_two_steps_gets_nothing() -> None:
    world = ShareLeader(topic_image("t", 300))
    world.produce("t", 7)
    world.settle()
    world.fetched("other", partitions=[1], max_wait_ms=0)
    topic = fetch.FetchTopic(
        topic_id=world.topic_id(),
        partitions=[fetch.FetchPartition(partition_index=index) for index in range(300)],
    )
    request = fetch.ShareFetchRequest(group_id="g", member_id="m", max_records=5, topics=[topic])
    handling: Any = world.shares.share_fetch(request, world.context(78, 2, "m"), None)
    handling.send(None)
    world.disconnect("m")
    assert world.result(handling).error_code == ErrorCode.NONE
    assert taken(world.fetched("other", 1, partitions=[7])) == {7: [(0, 0, 1)]}


def test_a_member_that_goes_between_two_steps_leaves_no_share_partitions() -> None:
    world = ShareLeader(topic_image("t", 300))
    topic = fetch.FetchTopic(
        topic_id=world.topic_id(),
        partitions=[fetch.FetchPartition(partition_index=index) for index in range(300)],
    )
    request = fetch.ShareFetchRequest(group_id="g", member_id="m", max_records=5, topics=[topic])
    handling: Any = world.shares.share_fetch(request, world.context(78, 2, "m"), None)
    for _ in range(3):
        handling.send(None)
    assert world.shares.cache.count > 0
    world.disconnect("m")
    world.settle()
    assert world.result(handling).error_code == ErrorCode.NONE
    assert world.shares.cache.count == 0


@pytest.mark.parametrize("bound", ["PARTITIONS_MAX", "PARTITIONS_OF_ONE_MAX"])
def test_the_partitions_of_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """A client may name half a million partitions in a request, and as many more in each that follows."""
    monkeypatch.setattr(f"kafkacompat.share.share_session.{bound}", 5)
    monkeypatch.setattr("kafkacompat.share.share_session.FEW_PARTITIONS", 1)
    world = ShareLeader()
    refused = world.fetched(partitions=range(6), max_wait_ms=0)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (len(world.shares.sessions), world.shares.sessions.partition_count) == (0, 0)
    world.produce()
    assert taken(world.fetched(partitions=range(5))) == {0: [(0, 0, 1)]}
    assert world.shares.sessions.partition_count == 5
    assert world.fetched(epoch=1, partitions=[7], forget=[4], max_wait_ms=0).error_code == (
        ErrorCode.SHARE_SESSION_LIMIT_REACHED
    )
    assert (len(world.shares.sessions), world.shares.sessions.partition_count) == (0, 0)
    assert taken(world.fetched("other", partitions=[0])) == {0: [(0, 0, 2)]}


def test_forgotten_partitions_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.share.share_session.PARTITIONS_MAX", 5)
    monkeypatch.setattr("kafkacompat.share.share_session.FEW_PARTITIONS", 1)
    world = ShareLeader()
    world.fetched(partitions=range(5), max_wait_ms=0)
    world.fetched(epoch=1, forget=[4, 7], max_wait_ms=0)
    assert world.fetched(epoch=2, partitions=[8], max_wait_ms=0).error_code == ErrorCode.NONE
    assert world.shares.sessions.partition_count == 5
    world.disconnect("m")
    assert world.shares.sessions.partition_count == 0


def test_what_a_large_session_keeps_is_freed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.memory.FREED_AT_ONCE", 10)
    world = ShareLeader()
    world.fetched(partitions=range(25), max_wait_ms=0)
    session = world.shares.sessions.get(SessionKey("g", "m"))
    assert session is not None
    world.disconnect("m")
    sizes = [len(session.partitions)]
    while world.time.step():
        sizes.append(len(session.partitions))
    assert sizes == [25, 15, 5, 0]


def held(world: ShareLeader, partitions: int) -> list[int]:
    return [world.core(index).held().records for index in range(partitions)]


def test_a_member_that_holds_many_records_is_released_in_several_turns() -> None:
    """Each record takes some microseconds."""
    world = ShareLeader()
    for partition in range(3):
        world.produce("t", partition, *[b"x"] * 500)
    world.fetched("other", partitions=[0], max_wait_ms=0, max_records=0)
    world.fetched(partitions=range(3), max_records=10_000)
    assert held(world, 3) == [500, 500, 500]
    world.disconnect("m")
    assert held(world, 3) == [0, 500, 500]
    world.time.step()
    assert held(world, 3) == [0, 0, 500]
    world.time.step()
    assert held(world, 3) == [0, 0, 0]


def test_locks_on_many_records_end_in_several_turns() -> None:
    world = ShareLeader()
    for partition in range(3):
        world.produce("t", partition, *[b"x"] * 2_000)
    world.fetched(partitions=range(3), max_records=10_000)
    assert held(world, 3) == [2_000, 2_000, 2_000]
    world.time.fire_next()
    assert held(world, 3) == [0, 0, 2_000]
    world.time.step()
    assert held(world, 3) == [0, 0, 0]


def test_the_settings_of_groups_that_are_gone_are_forgotten() -> None:
    world = ShareLeader()
    known = world.shares.services.settings._known
    for each in range(3):
        world.produce()
        group = f"g{each}"
        world.configure(group, share_auto_offset_reset="earliest")
        assert taken(world.fetched("m", partitions=[0], group=group, connection=each))
        assert list(known) == [group]
        world.fetched("m", -1, group=group, connection=each, max_wait_ms=0)
        world.shares.on_connection_closed(each)
        assert list(known) == []
    long = "g" * 1_000
    world.fetched("m", partitions=[0], group=long, max_wait_ms=0)
    assert list(known) == []


def test_a_fetch_that_names_too_many_partitions_opens_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.share.share_partition_manager.PARTITIONS_OF_ONE_MAX", 2)
    world = ShareLeader()
    refused = world.fetched(partitions=range(4), max_wait_ms=0)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(world.shares.sessions) == 0
    assert world.fetched(partitions=range(3), max_wait_ms=0).error_code == ErrorCode.NONE
    assert world.fetched("m", 1, partitions=range(4), max_wait_ms=0).error_code == (
        ErrorCode.SHARE_SESSION_LIMIT_REACHED
    )
    assert world.fetched("m", 1, max_wait_ms=0).error_code == ErrorCode.NONE


def test_share_partitions_that_are_dropped_keep_no_memory() -> None:
    """Whoever opens a session, acquires a full window and goes, again and again, took some hundred kilobytes each time
    until the locks would have ended."""
    world = ShareLeader()
    world.produce("t", 0, *[b"x"] * 20)
    dropped: list[weakref.ref[Any]] = []
    for turn in range(160):
        world.fetched(f"m{turn}", partitions=[0], group=f"g{turn}", max_records=0, max_wait_ms=0)
        world.configure(f"g{turn}", share_auto_offset_reset="earliest")
        assert taken(world.fetched(f"m{turn}", 1, group=f"g{turn}", partitions=[0])) == {0: [(0, 19, 1)]}
        dropped.append(weakref.ref(world.core(group=f"g{turn}")))
        world.disconnect(f"m{turn}")
        world.settle()
    gc.collect()
    assert sum(each() is not None for each in dropped) <= 2 * STALE_KEPT


def test_a_fetch_that_is_over_keeps_no_share_partitions() -> None:
    """Its deadline may be weeks away."""
    world = ShareLeader()
    world.fetched(partitions=[0, 1], max_wait_ms=0)
    ended = world.parked(epoch=1, max_wait_ms=2**31 - 1)
    core = weakref.ref(world.core(1))
    ended.abandon()
    world.disconnect("m")
    world.settle()
    gc.collect()
    assert len(world.shares.fetches.purgatory._deadlines) == 1
    assert core() is None


def test_large_sessions_take_no_room_from_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.share.share_session.PARTITIONS_MAX", 5)
    monkeypatch.setattr("kafkacompat.share.share_session.FEW_PARTITIONS", 3)
    world = ShareLeader()
    world.fetched("large", partitions=range(5), max_wait_ms=0)
    assert world.fetched("small", partitions=range(3), max_wait_ms=0).error_code == ErrorCode.NONE
    refused = world.fetched("other", partitions=range(4), max_wait_ms=0)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
