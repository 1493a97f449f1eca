"""Fetch sessions (KIP-227): every case of Kafka's session table, and eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkacompat.ids import TopicPartition
from kafkacompat.partition.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    PARTITIONS_MAX,
    CachedPartition,
    FetchContext,
    FetchSessionCache,
    next_epoch,
)
from kafkacompat.partition.service import FetchRequestPartition
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import EpochEndOffset, PartitionData

TOPIC_ID = b"t" * 16


def cache_of(slots: int = 10, partitions_max: int = PARTITIONS_MAX) -> FetchSessionCache:
    ids = iter(range(1, 1000))
    return FetchSessionCache(slots, lambda: next(ids), lambda held: None, partitions_max)


def asked(
    partition: int, offset: int = 0, topic: str = "t", topic_id: bytes = TOPIC_ID
) -> FetchRequestPartition:
    return FetchRequestPartition(topic_id, topic, partition, offset, 1000)


def open_context(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    partitions: Sequence[FetchRequestPartition] = (),
    forgotten: Sequence[tuple[bytes, str, int]] = (),
    *,
    ids: bool = True,
    privileged: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    return cache.open(
        session_id, epoch, partitions, forgotten, uses_topic_ids=ids, privileged=privileged, now_ms=now_ms
    )


def data(partition: int = 0, high_watermark: int = 5, records: bytes = b"", **fields: Any) -> PartitionData:
    fields.setdefault("log_start_offset", 0)
    return PartitionData(partition_index=partition, high_watermark=high_watermark, records=records, **fields)


def answer(context: FetchContext, now_ms: int = 0, **by_partition: PartitionData) -> tuple[int, list[int]]:
    """(session id, partitions sent) when every partition of the context is answered. `p<n>` overrides the default
    answer."""
    pairs = [(one, by_partition.get(f"p{one.partition}", data(one.partition))) for one in context.partitions]
    session_id, selected = context.select(pairs, lambda: now_ms)
    return session_id, [one.partition for one, _ in selected]


def session_with(cache: FetchSessionCache, *partitions: int, **options: Any) -> int:
    context = open_context(cache, 0, INITIAL_EPOCH, [asked(one) for one in partitions], **options)
    return answer(context, options.get("now_ms", 0))[0]


def test_epoch_after_the_last_is_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(MAX_EPOCH) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_sessionless_fetch_gets_id_zero_and_makes_no_session() -> None:
    cache = cache_of()
    assert answer(open_context(cache, 0, FINAL_EPOCH, [asked(0), asked(1)])) == (0, [0, 1])
    assert len(cache) == 0


def test_full_fetch_makes_a_session_and_lists_partitions_in_request_order() -> None:
    cache = cache_of()
    session_id, sent = answer(open_context(cache, 0, INITIAL_EPOCH, [asked(1), asked(0)]))
    assert (session_id, sent) == (1, [1, 0])
    session = cache.get(1)
    assert session is not None
    assert session.epoch == 1


def test_even_an_empty_full_fetch_makes_a_session() -> None:
    cache = cache_of()
    assert answer(open_context(cache, 0, INITIAL_EPOCH)) == (1, [])


def test_full_fetch_with_an_id_replaces_that_session() -> None:
    cache = cache_of()
    old = session_with(cache, 0)
    new, _ = answer(open_context(cache, old, INITIAL_EPOCH, [asked(0)]))
    assert new != old
    assert cache.get(old) is None


def test_final_epoch_closes_the_session() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    assert answer(open_context(cache, session_id, FINAL_EPOCH, [asked(0)])) == (0, [0])
    assert len(cache) == 0


def test_unknown_id_wrong_epoch_and_other_kind_of_topics() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    assert open_context(cache, 77, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_context(cache, session_id, 2).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert open_context(cache, session_id, 1, ids=False).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert open_context(cache, session_id, 1).error is ErrorCode.NONE


def test_incremental_answer_omits_what_did_not_change() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0, 1)
    assert answer(open_context(cache, session_id, 1)) == (session_id, [])
    moved = answer(open_context(cache, session_id, 2), p1=data(1, high_watermark=6))
    assert moved == (session_id, [1])
    assert answer(open_context(cache, session_id, 3), p1=data(1, high_watermark=6)) == (session_id, [])


def test_what_is_stated_anew_without_having_come_further_is_told_anew() -> None:
    """A follower ignores an answer if its leader epoch has changed since the request. The high watermark must then be
    sent again, or it would lag until the next record is written. Found by the simulation."""
    cache = cache_of()
    session_id = session_with(cache, 0, 1)
    assert answer(open_context(cache, session_id, 1, [asked(0)])) == (session_id, [0])
    assert answer(open_context(cache, session_id, 2)) == (session_id, [])
    assert answer(open_context(cache, session_id, 3, [asked(0, 5)])) == (session_id, [])


def test_log_start_divergence_and_preferred_replica_are_news() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0, 1, 2)
    context = open_context(cache, session_id, 1)
    news = answer(
        context,
        p0=data(0, log_start_offset=3),
        p1=data(1, diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
        p2=data(2, preferred_read_replica=7),
    )
    assert news == (session_id, [0, 1, 2])


def test_an_error_is_told_and_so_is_the_success_after_it() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    refused = data(0, high_watermark=-1, log_start_offset=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer(open_context(cache, session_id, 1), p0=refused)[1] == [0]
    assert answer(open_context(cache, session_id, 2), p0=refused)[1] == [0]
    assert answer(open_context(cache, session_id, 3))[1] == [0]
    assert answer(open_context(cache, session_id, 4))[1] == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0, 1)
    context = open_context(cache, session_id, 1, [asked(1, offset=9), asked(2)], [(TOPIC_ID, "t", 0)])
    assert [(one.partition, one.fetch_offset) for one in context.partitions] == [(1, 9), (2, 0)]


def test_forgetting_what_is_not_there_is_tolerated() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    context = open_context(cache, session_id, 1, (), [(b"x" * 16, "x", 4)])
    assert context.error is ErrorCode.NONE


def test_session_with_no_partition_left_closes() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    context = open_context(cache, session_id, 1, (), [(TOPIC_ID, "t", 0)])
    assert answer(context) == (0, [])
    assert len(cache) == 0


def test_sessions_by_name_are_keyed_by_name() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0, ids=False)
    context = open_context(cache, session_id, 1, [asked(0, offset=4, topic_id=bytes(16))], ids=False)
    assert [(one.topic, one.fetch_offset) for one in context.partitions] == [("t", 4)]


def test_a_partition_that_got_records_goes_to_the_end_of_the_order() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0, 1, 2)
    answer(open_context(cache, session_id, 1), p0=data(0, records=b"some"))
    assert [one.partition for one in open_context(cache, session_id, 2).partitions] == [1, 2, 0]


def test_epoch_wraps_in_a_session() -> None:
    cache = cache_of()
    session_id = session_with(cache, 0)
    session = cache.get(session_id)
    assert session is not None
    session.epoch = MAX_EPOCH
    assert open_context(cache, session_id, MAX_EPOCH).error is ErrorCode.NONE
    assert open_context(cache, session_id, 1).error is ErrorCode.NONE


def test_full_cache_gives_no_session_to_a_newcomer() -> None:
    cache = cache_of(slots=1)
    first = session_with(cache, 0)
    assert session_with(cache, 0) == 0
    assert cache.get(first) is not None


def test_no_slots_no_sessions() -> None:
    assert session_with(cache_of(slots=0), 0) == 0


def test_the_least_recently_used_goes_when_it_has_been_idle() -> None:
    cache = cache_of(slots=2)
    first, second = session_with(cache, 0), session_with(cache, 1)
    open_context(cache, first, 1, now_ms=1000)
    third = session_with(cache, 2, now_ms=EVICTION_MS + 1)
    assert cache.get(second) is None
    assert cache.get(first) is not None
    assert cache.get(third) is not None
    assert cache.evictions == 1


def test_a_follower_pushes_a_consumer_out_but_not_another_follower() -> None:
    cache = cache_of(slots=2)
    follower = session_with(cache, 0, privileged=True)
    consumer = session_with(cache, 0, 1, 2, 3)
    newcomer = session_with(cache, 0, privileged=True)
    assert newcomer != 0
    assert cache.get(consumer) is None
    assert cache.get(follower) is not None
    assert session_with(cache, 0, 1, 2, privileged=True) == 0


def test_a_consumer_pushes_out_an_old_smaller_session_in_use() -> None:
    cache = cache_of(slots=1)
    first = session_with(cache, 0)
    later = EVICTION_MS + 10
    open_context(cache, first, 1, now_ms=later)
    assert session_with(cache, 0, 1, now_ms=later + 1) != 0
    assert cache.get(first) is None


def test_a_smaller_consumer_does_not_push_out_a_larger_session() -> None:
    cache = cache_of(slots=1)
    first = session_with(cache, 0, 1, 2)
    later = EVICTION_MS + 10
    open_context(cache, first, 1, now_ms=later)
    assert session_with(cache, 0, now_ms=later + 1) == 0
    assert cache.get(first) is not None


def test_a_fetch_whose_partitions_find_no_room_gets_no_session_and_evicts_none() -> None:
    cache = cache_of(partitions_max=5)
    kept = session_with(cache, 0, 1, 2)
    assert session_with(cache, 0, 1, 2, now_ms=EVICTION_MS) == 0
    assert cache.get(kept) is not None
    assert session_with(cache, 0, 1, now_ms=EVICTION_MS) != 0
    assert cache.partition_count == 5


def test_sessions_that_nobody_uses_make_room_unless_that_is_not_enough() -> None:
    cache = cache_of(partitions_max=5)
    idle, used = session_with(cache, 0, 1), session_with(cache, 0, 1, now_ms=1)
    assert session_with(cache, *range(4), now_ms=EVICTION_MS + 1) == 0
    assert cache.get(idle) is not None
    assert session_with(cache, *range(3), now_ms=EVICTION_MS + 1) != 0
    assert cache.get(idle) is None
    assert cache.get(used) is not None
    assert (cache.partition_count, cache.evictions) == (5, 1)


def test_a_followers_partitions_take_the_room_of_consumers() -> None:
    cache = cache_of(partitions_max=5)
    consumer = session_with(cache, 0, 1, 2)
    follower = session_with(cache, 0, 1, 2, privileged=True)
    assert follower != 0
    assert cache.get(consumer) is None
    assert session_with(cache, 0, 1, 2, privileged=True) == 0
    assert cache.get(follower) is not None


def test_a_session_that_grows_beyond_the_room_is_over_and_its_client_begins_anew() -> None:
    cache = cache_of(partitions_max=4)
    kept, grown = session_with(cache, 0), session_with(cache, 0)
    assert open_context(cache, grown, 1, [asked(1), asked(2)]).error is ErrorCode.NONE
    assert open_context(cache, grown, 2, [asked(1, 7), asked(2, 7)]).error is ErrorCode.NONE
    assert cache.partition_count == 4
    assert open_context(cache, grown, 3, [asked(3)]).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (cache.get(grown), cache.partition_count) == (None, 1)
    assert cache.get(kept) is not None


def test_whatever_ends_or_shrinks_a_session_gives_its_room_back() -> None:
    cache = cache_of(slots=3, partitions_max=100)
    closed, replaced, shrunk = (session_with(cache, 0, 1) for _ in range(3))
    open_context(cache, closed, FINAL_EPOCH)
    assert cache.partition_count == 4
    session_with(cache, 0)
    assert cache.partition_count == 5
    open_context(cache, replaced, INITIAL_EPOCH)
    assert cache.partition_count == 3
    open_context(cache, shrunk, 1, forgotten=[(TOPIC_ID, "t", 0)])
    assert cache.partition_count == 2
    open_context(cache, shrunk, 2, forgotten=[(TOPIC_ID, "t", 1)])
    assert (len(cache), cache.partition_count) == (1, 1)
    assert session_with(cache, 0, 1, 2, now_ms=EVICTION_MS + 1) != 0
    session_with(cache, 0, now_ms=EVICTION_MS + 1)
    session_with(cache, 0, now_ms=EVICTION_MS + 1)
    assert (len(cache), cache.evictions, cache.partition_count) == (3, 1, 5)


def test_a_session_that_was_evicted_while_its_request_goes_on_takes_no_room() -> None:
    cache = cache_of(partitions_max=3)
    session = cache.get(session_with(cache, 0, 1))
    assert session is not None
    session_with(cache, 0, 1, privileged=True)
    assert cache.get(session.id) is None
    assert cache.learn(session, [asked(5), asked(6)], ())
    assert cache.partition_count == 2


def test_long_names_take_the_room_of_many_partitions() -> None:
    """No topic has such a name, but a session remembers what its client has named."""
    long = "n" * 30_000
    cache = cache_of(partitions_max=250)
    small = session_with(cache, 0)
    context = open_context(cache, 0, INITIAL_EPOCH, [asked(0, topic=long), asked(1, topic=long)], ids=False)
    large, _ = answer(context)
    assert large != 0
    assert cache.partition_count == 3
    third = open_context(cache, 0, INITIAL_EPOCH, [asked(0, topic=long)], ids=False)
    assert answer(third)[0] == 0
    grown = open_context(cache, large, 1, [asked(2, topic=long)], ids=False)
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (cache.get(large), cache.partition_count, cache._weight) == (None, 1, 1)
    again = open_context(cache, 0, INITIAL_EPOCH, [asked(0, topic=long), asked(1, topic=long)], ids=False)
    second, _ = answer(again)
    shrunk = open_context(cache, second, 1, forgotten=[(TOPIC_ID, long, 0), (TOPIC_ID, "x", 0)], ids=False)
    assert shrunk.error is ErrorCode.NONE
    assert cache._weight == 1 + 101
    assert cache.get(small) is not None


COMES_WITH_OTHERS = {
    "partition_index": "which partition it is",
    "last_stable_offset": "as in Kafka, which tells it with records or another high watermark",
    "current_leader": "with an error",
    "snapshot_id": "of the quorum, which has no sessions",
    "aborted_transactions": "with records",
}
NEWS: dict[str, Any] = {
    "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "high_watermark": 6,
    "log_start_offset": 1,
    "diverging_epoch": EpochEndOffset(epoch=1, end_offset=2),
    "preferred_read_replica": 2,
    "records": b"records",
}


def test_each_field_of_an_answer_is_news_to_a_session() -> None:
    """Or comes with others. What a session takes for no news is never sent."""
    assert NEWS.keys() | COMES_WITH_OTHERS.keys() == set(PartitionData.field_names())
    for name, value in NEWS.items():
        session = CachedPartition(asked(0), TopicPartition("t", 0))
        session.must_tell(data())
        assert not session.must_tell(data())
        changed = data()
        setattr(changed, name, value)
        assert session.must_tell(changed), name
