"""Partitions without news are passed over in a session of a consumer. That shows in no answer and in no counter: a fetch that
looks at each of them whole, because it may have to send its reader to a nearer replica, gets the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import LedPartitions, broker_image, partition_image, topic_image
from kafkacompat.partition._tests.test_fetch import fetch, transactional, want
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.fetch_session import CachedPartition
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.wire.codec import encode_parts
from kafkacompat.wire.messages.fetch_response import FetchResponse

PARTITIONS = 3
EMPTY_HERE = "a rack without replicas"
WAIT_MS = 500


class Reader:
    """A consumer with a session, and what it was answered."""

    def __init__(self, *, looks_at_all: bool) -> None:
        self.world = world = LedPartitions(
            topic_image("t", PARTITIONS), brokers=[broker_image(1), broker_image(2)]
        )
        self.epochs = [0] * PARTITIONS
        self.leaders = [1] * PARTITIONS
        self.options: dict[str, Any] = {}
        if looks_at_all:
            services = world.manager.hosted._services
            world.engine = FetchEngine(services, world.manager, world.sessions, 1 << 20, selects_by_rack=True)
            self.options["rack_id"] = EMPTY_HERE
        self.session_id = 0
        self.session_epoch = 0
        self.waiting: Deferred[FetchResponse] | None = None
        self.answers: list[Any] = []

    def note(self, response: FetchResponse) -> None:
        parts = encode_parts(response, 17)
        self.answers.append(
            b"".join(bytes(each) if not hasattr(each, "read") else each.read() for each in parts)
        )
        if response.error_code:
            self.session_id = self.session_epoch = 0
        else:
            self.session_id = response.session_id
            self.session_epoch = self.session_epoch + 1 if response.session_id else 0

    def take(self) -> None:
        if self.waiting is not None and self.waiting.done:
            self.note(self.waiting.result())
            self.waiting = None

    def fetch(self, named: dict[int, tuple[int, int, int]], max_wait_ms: int, read_committed: bool) -> None:
        if self.waiting is not None:
            self.world.time.advance(WAIT_MS)
            self.take()
        if not self.session_id:
            named = {each: named.get(each, (0, -1, -1)) for each in range(PARTITIONS)}
        asked = [
            want(self.world, each, offset, current_leader_epoch=epoch, last_fetched_epoch=fetched)
            for each, (offset, epoch, fetched) in named.items()
        ]
        response = fetch(
            self.world,
            *asked,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            max_wait_ms=max_wait_ms,
            read_committed=read_committed,
            **self.options,
        )
        if isinstance(response, Deferred):
            self.waiting = response
            self.take()
        else:
            self.note(response)

    def produce(self, partition: int, is_open: bool) -> None:
        options = transactional(7) if is_open and not self.world.log("t", partition).producer_count else {}
        self.world.produce("t", partition, **options)
        self.take()

    def delete(self, partition: int, offset: int) -> None:
        log = self.world.log("t", partition)
        log.increment_log_start_offset(min(offset, log.high_watermark))

    def elect(self, partition: int, leader: int) -> None:
        self.epochs[partition] += 1
        self.leaders[partition] = leader
        image = self.world.image
        topic = image.topics["t"]
        partitions = {
            each: partition_image(
                replicas=(1,) if self.leaders[each] == 1 else (1, 2), leader=self.leaders[each], epoch=epoch
            )
            for each, epoch in enumerate(self.epochs)
        }
        changed = replace(topic, partitions=partitions)
        self.world.publish(replace(image, topics={"t": changed}, topics_by_id={changed.id: changed}))
        self.take()

    def seen(self) -> tuple[Any, ...]:
        counters = [
            [getattr(traffic, name) for name in TopicTraffic.__slots__]
            for traffic in self.world.manager.hosted.traffic.sums()
        ]
        return self.answers, self.waiting is None, counters


index = st.integers(0, PARTITIONS - 1)
offsets = st.sampled_from([1, 1, 1, 0, 2, 3])
asked_for = st.tuples(offsets, st.sampled_from([-1, 0, 0, 1]), st.sampled_from([-1, -1, 0, 1]))
named = st.dictionaries(index, asked_for)
steps = st.one_of(
    st.tuples(st.just("fetch"), named, st.sampled_from([0, WAIT_MS]), st.booleans()),
    st.tuples(st.just("fetch"), st.just({}), st.sampled_from([0, WAIT_MS]), st.booleans()),
    st.tuples(st.just("produce"), index, st.booleans()),
    st.tuples(st.just("delete"), index, offsets),
    st.tuples(st.just("elect"), index, st.sampled_from([1, 1, 2])),
)


@given(st.lists(steps, min_size=3, max_size=12))
@settings(max_examples=400, deadline=None)
def test_partitions_without_news_are_answered_and_counted_as_if_each_was_looked_at(
    taken: list[tuple[Any, ...]],
) -> None:
    plain, whole = Reader(looks_at_all=False), Reader(looks_at_all=True)
    for each in (plain, whole):
        for partition in range(PARTITIONS):
            each.produce(partition, False)
        at_the_end = {partition: (1, partition - 1, -1) for partition in range(PARTITIONS)}
        each.fetch(at_the_end, 0, False)
    for name, *arguments in taken:
        for each in (plain, whole):
            getattr(each, name)(*arguments)
        assert plain.seen() == whole.seen()


@pytest.mark.parametrize("looks_at_all", [False, True])
@pytest.mark.parametrize("name", [name for name in CachedPartition.__slots__ if name.startswith("told_")])
def test_a_consumer_that_was_told_otherwise_is_not_passed_over(name: str, looks_at_all: bool) -> None:
    reader = Reader(looks_at_all=looks_at_all)
    for _ in range(3):
        reader.fetch({}, 0, False)
    without_news = len(reader.answers[-1])
    session = reader.world.engine.sessions.get(reader.session_id)
    assert session is not None
    setattr(next(iter(session.partitions.values())), name, -7)
    reader.fetch({}, 0, False)
    assert len(reader.answers[-1]) > without_news
    reader.fetch({}, 0, False)
    assert len(reader.answers[-1]) == without_news
