"""Of what a follower has got everything is passed over when it fetches in a session, and what comes then is not counted. That
shows nowhere: a node that looks at each partition whole, and counts bytes, answers the same at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import LedPartitions, broker_image, partition_image, topic_image
from kafkacompat.partition._tests.test_fetch import bytes_of, fetch, rows, want
from kafkacompat.partition.fetch_session import CachedPartition
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

PARTITIONS = 3
FOLLOWER, OTHER = 2, 3
WAIT_MS = 500
COMPARED_OTHERWISE = {"records", "last_stable_offset"}
"""Records are compared as bytes. The last stable offset of a partition that is looked at whole is that before the fetch, and
followers do not read it."""


class Leader:
    """Its follower has a session. `log` has what happened."""

    def __init__(self, *, looks_at_all: bool) -> None:
        self.world = world = LedPartitions(
            topic_image(
                "t", {each: partition_image(replicas=(1, FOLLOWER, OTHER)) for each in range(PARTITIONS)}
            ),
            brokers=[broker_image(each) for each in (1, FOLLOWER, OTHER)],
        )
        if looks_at_all:
            world.engine._reads._has_all = lambda *words: False  # type: ignore[method-assign]
            purgatory = world.engine.purgatory
            purgatory._has_anything_for = purgatory._is_due  # type: ignore[method-assign]
        self.epochs = [0] * PARTITIONS
        self.session_id = self.session_epoch = 0
        self.waiting: Deferred[FetchResponse] | None = None
        self.answers: list[Any] = []

    def note(self, response: FetchResponse) -> None:
        told = sorted(
            (
                row.partition_index,
                row.high_watermark,
                [
                    (name, repr(getattr(row, name)))
                    for name in row.field_names()
                    if name not in COMPARED_OTHERWISE
                ],
                bytes_of(row),
            )
            for row in rows(response)
        )
        self.answers.append((response.error_code, told))
        if response.error_code:
            self.session_id = self.session_epoch = 0
        else:
            self.session_id = response.session_id
            self.session_epoch = self.session_epoch + 1 if response.session_id else 0

    def take(self) -> None:
        if self.waiting is not None and self.waiting.done:
            self.note(self.waiting.result())
            self.waiting = None

    def fetch(self, named: dict[int, tuple[int, int, int]], max_wait_ms: int, min_bytes: int) -> None:
        """`named`: how far from the log's end, from the leader's epoch, and from the last fetched one."""
        if self.waiting is not None:
            self.world.time.advance(WAIT_MS)
            self.take()
        if not self.session_id:
            named = {each: named.get(each, (0, 0, 0)) for each in range(PARTITIONS)}
        asked = []
        for each, (back, earlier, fetched) in named.items():
            log = self.world.log("t", each)
            asked.append(
                want(
                    self.world,
                    each,
                    max(log.log_end_offset - back, 0),
                    current_leader_epoch=self.epochs[each] - earlier,
                    last_fetched_epoch=log.latest_epoch() - fetched,
                    log_start_offset=0,
                )
            )
        response = fetch(
            self.world,
            *asked,
            replica_id=FOLLOWER,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
        )
        if isinstance(response, Deferred):
            self.waiting = response
            self.take()
        else:
            self.note(response)

    def other_fetches(self, partition: int) -> None:
        """The other follower has everything, so that the high watermark may move."""
        core = self.world.manager.by_name["t", partition]
        error = self.world.manager.follower_fetched(core, OTHER, core.log.log_end_offset)
        assert error is ErrorCode.NONE
        self.take()

    def produce(self, *partitions: int) -> None:
        self.world.manager.hold_wakeups()
        for each in partitions:
            self.world.produce("t", each)
        self.world.manager.release_wakeups()
        self.take()

    def produce_when_committed(self, partition: int, then: int) -> None:
        """A coordinator waits for one partition, and then appends to another."""
        log = self.world.log("t", partition)
        ends = {self.world.manager.by_name["t", partition].topic_partition: log.log_end_offset}
        replicated = self.world.manager.when_replicated(ends, 60_000)
        if replicated is not None:
            replicated.on_done(lambda _: self.produce(then))

    def delete(self, partition: int) -> None:
        log = self.world.log("t", partition)
        log.increment_log_start_offset(log.high_watermark)

    def take_out(self, partition: int, isr: tuple[int, ...]) -> None:
        """A new epoch, with another in-sync set."""
        self.epochs[partition] += 1
        topic = self.world.image.topics["t"]
        changed = replace(
            topic,
            partitions=topic.partitions
            | {
                partition: partition_image(
                    replicas=(1, FOLLOWER, OTHER), isr=isr, epoch=self.epochs[partition]
                )
            },
        )
        self.world.publish(
            replace(self.world.image, topics={"t": changed}, topics_by_id={changed.id: changed})
        )
        self.take()

    def seen(self) -> tuple[Any, ...]:
        world = self.world
        logs = [world.log("t", each) for each in range(PARTITIONS)]
        counters = [
            [getattr(traffic, name) for name in TopicTraffic.__slots__]
            for traffic in world.manager.hosted.traffic.sums()
        ]
        followers = [
            [getattr(world.manager.by_name["t", each].followers[FOLLOWER], name) for name in STATE]
            for each in range(PARTITIONS)
        ]
        return (
            self.answers,
            self.waiting is None,
            [(log.high_watermark, log.log_end_offset) for log in logs],
            counters,
            followers,
        )


STATE = ("log_end_offset", "log_start_offset", "last_caught_up_ms", "last_fetch_ms", "has_fetched")
index = st.integers(0, PARTITIONS - 1)
seldom = st.sampled_from([0, 0, 0, 0, 1])
asked_for = st.tuples(seldom, seldom, seldom)
steps = st.one_of(
    *[
        st.tuples(
            st.just("fetch"),
            st.dictionaries(index, asked_for),
            st.sampled_from([WAIT_MS, WAIT_MS, 0]),
            st.sampled_from([1, 1, 1, 0, 150]),
        )
    ]
    * 3,
    st.tuples(st.just("fetch"), st.just({0: (0, 0, 0)}), st.just(WAIT_MS), st.just(1)),
    st.lists(index, min_size=1, max_size=2).map(lambda several: ("produce", *several)),
    st.tuples(st.just("other_fetches"), index),
    st.tuples(st.just("produce_when_committed"), index, index),
    st.tuples(st.just("delete"), index),
    st.tuples(st.just("take_out"), index, st.sampled_from([(1, FOLLOWER, OTHER), (1, OTHER)])),
)
ALL = dict.fromkeys(range(PARTITIONS), (0, 0, 0))
FETCH = ("fetch", {0: (0, 0, 0)}, WAIT_MS, 1)


@given(st.lists(steps, min_size=3, max_size=14))
@settings(max_examples=300, deadline=None)
@example(
    [
        *(("produce", 0), FETCH, ("other_fetches", 0), ("produce", 0), FETCH),
        *(("other_fetches", 0), ("produce", 1), ("fetch", {1: (0, 0, 0)}, 0, 1)),
    ]
)
@example([("produce", 0), ("other_fetches", 0), ("produce_when_committed", 0, 0), FETCH])
@example([("produce", 0, 1), ("other_fetches", 0), ("produce_when_committed", 0, 0), FETCH])
def test_what_a_follower_has_is_passed_over_and_shows_nowhere(taken: list[tuple[Any, ...]]) -> None:
    plain, whole = Leader(looks_at_all=False), Leader(looks_at_all=True)
    for each in (plain, whole):
        each.produce(*range(PARTITIONS))
        each.fetch(ALL, 0, 1)
    for name, *arguments in taken:
        for each in (plain, whole):
            getattr(each, name)(*arguments)
        assert plain.seen() == whole.seen()


@pytest.mark.parametrize("looks_at_all", [False, True])
def test_records_of_one_partition_come_with_the_high_watermarks_of_others(looks_at_all: bool) -> None:
    """Consumers may read from the follower. A partition with few records must not wait until a busy one has none."""
    leader = Leader(looks_at_all=looks_at_all)
    leader.fetch(ALL, 0, 1)
    leader.produce(0)
    leader.other_fetches(0)
    leader.fetch({0: (1, 0, 0)}, WAIT_MS, 1)
    leader.fetch({0: (0, 0, 0)}, WAIT_MS, 1)  # commits the record
    leader.produce(1)
    told = [(partition, high_watermark) for partition, high_watermark, *_ in leader.answers[-1][1]]
    assert told == [(0, 1), (1, 0)]


TOLD = [name for name in CachedPartition.__slots__ if name.startswith("told_")]
ENDS_NO_WAIT = {"told_high_watermark"}
"""A follower without new records hears of it with the next that comes."""


@pytest.mark.parametrize("looks_at_all", [False, True])
@pytest.mark.parametrize("max_wait_ms", [0, WAIT_MS])
@pytest.mark.parametrize("name", TOLD)
def test_a_follower_that_was_told_otherwise_is_passed_over_by_no_short_way(
    name: str, max_wait_ms: int, looks_at_all: bool
) -> None:
    leader = Leader(looks_at_all=looks_at_all)
    for _ in range(3):
        leader.fetch(ALL if not leader.session_id else {}, 0, 1)
    assert leader.answers[-1] == (0, []), "nothing is new"
    session = leader.world.engine.sessions.get(leader.session_id)
    assert session is not None
    first = next(iter(session.partitions.values()))
    setattr(first, name, -7)
    leader.fetch({}, max_wait_ms, 1)
    if max_wait_ms and name in ENDS_NO_WAIT:
        assert leader.waiting is not None
        leader.world.time.advance(WAIT_MS)
        leader.take()
    assert leader.waiting is None
    assert [row[0] for row in leader.answers[-1][1]] == [first.partition]
