"""A plain Fetch is answered as by the way for all requests: the same bytes, sessions and counters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.api import fetch
from kafkacompat.api._tests.kit import Api, pauseless
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.meters import RequestMeters
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import partition_image, topic_image
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

VERSIONS = range(12, 19)
PARTITIONS = 2
WAIT_MS = 500
Step = Any


def world(is_plain: bool) -> Api:
    api = Api(topic_image("t", {0: partition_image(), 1: partition_image(replicas=(1, 2, 3))}))
    api.dispatcher = ApiDispatcher(api.node, pauseless(api.world.time), meters=RequestMeters())
    for version in VERSIONS:
        route = api.dispatcher._route(1, version)
        assert route.parse_plain is fetch.parse_plain
        if not is_plain:
            route.parse_plain = None
    return api


def some_partition(index: int, offset: int, leader_epoch: int, last_epoch: int, most: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=most,
    )


class Consumer:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.session = self.epoch = 0
        self.seen: list[Any] = []
        self.waits: Pending | None = None

    def take(self, version: int, reply: Any) -> None:
        parts = b"".join(bytes(part) if not hasattr(part, "read") else part.read() for part in reply)
        self.seen.append(parts)
        answer = self.api.decoded([parts], 1, version)
        self.epoch = 0 if answer.error_code or not answer.session_id else self.epoch + 1
        self.session = answer.session_id

    def send(self, version: int, *words: Any) -> None:
        self.begin(version, *words)
        if self.waits is not None:
            self.api.world.produce("t", 1)
            self.api.world.time.advance(WAIT_MS)
            reply, self.waits = self.waits.reply.result(), None
            self.take(version, reply)

    def begin(
        self,
        version: int,
        partitions: list[tuple[int, int, int, int, int]],
        is_known: bool,
        is_lost: bool,
        wait_ms: int,
        least: int,
        most: int,
        isolation: int,
        other: dict[str, Any],
    ) -> None:
        topic_id = self.api.world.image.topics["t"].id if is_known else b"?" * 16
        of_topic = FetchTopic(
            topic="t" if is_known else "other",
            topic_id=topic_id,
            partitions=[some_partition(*each) for each in partitions],
        )
        fields = {
            "session_id": self.session,
            "session_epoch": self.epoch + 1 if is_lost else self.epoch,
            "max_wait_ms": wait_ms,
            "min_bytes": least,
            "max_bytes": most,
            "isolation_level": isolation,
            "topics": [of_topic] if partitions or is_lost else [],
            **other,
        }
        if version < 15:
            fields.pop("replica_state", None)
        if fields.pop("forgets", False):
            fields["forgotten_topics_data"] = [ForgottenTopic(topic="t", topic_id=topic_id, partitions=[0])]
        reply = self.api.raw(self.api.frame(FetchRequest(**fields), version))
        if isinstance(reply, Pending):
            self.waits = reply
        else:
            self.take(version, reply)

    def state(self) -> Any:
        world, sessions = self.api.world, self.api.world.sessions
        cores = [world.manager.by_name[TopicPartition("t", index)] for index in range(PARTITIONS)]
        meters = self.api.dispatcher._meters
        assert meters is not None
        return (
            [[getattr(core.traffic, name) for name in TopicTraffic.__slots__] for core in cores],
            [
                (session.id, session.epoch, [vars_of(each) for each in session.partitions.values()])
                for session in sessions._sessions.values()
            ],
            [(name, meter.requests, list(meter.errors)) for name, meter in sorted(meters.kinds.items())],
        )


class CountedReads:
    def __init__(self, try_read: Any) -> None:
        self.try_read = try_read
        self.count = 0

    def __call__(self, position: int, length: int) -> Any:
        self.count += 1
        return self.try_read(position, length)


def vars_of(each: Any) -> Any:
    return [getattr(each, name) for name in type(each).__slots__]


a_partition = st.tuples(
    st.integers(0, PARTITIONS),
    st.integers(-1, 4),
    st.sampled_from([-1, -1, -1, -5, 0, 1, 9]),
    st.sampled_from([-1, -1, -1, 0, 3]),
    st.sampled_from([1 << 20, 1 << 20, 1, 0, -1]),
)
usual = st.sampled_from([{}] * 4 + [{"replica_state": ReplicaState(replica_id=2, replica_epoch=1)}] * 2)
odd = st.sampled_from(
    [
        {"rack_id": "r"},
        {"forgets": True},
        {"replica_state": ReplicaState(replica_id=2, replica_epoch=1)},
        {"cluster_id": "cluster"},
    ]
)
a_fetch = st.tuples(
    st.sampled_from([*VERSIONS, 15, 16, 17, 17, 18]),
    st.one_of(st.lists(a_partition, max_size=1), st.lists(a_partition, max_size=3)),
    st.sampled_from([True] * 5 + [False]),
    st.sampled_from([False] * 9 + [True]),
    st.sampled_from([0, 0, WAIT_MS]),
    st.sampled_from([1, 1, 0, 100, 10_000]),
    st.sampled_from([1 << 20, 1 << 30, 1, 0]),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.one_of(usual, usual, odd),
)
steps = st.lists(st.one_of(a_fetch, a_fetch, st.integers(0, PARTITIONS - 1)), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_both_ways_answer_the_same(taken: list[Step]) -> None:
    plain, other = Consumer(world(True)), Consumer(world(False))
    for each in (plain, other):
        for step in taken:
            if isinstance(step, int):
                each.api.world.produce("t", step)
            else:
                each.send(*step)
    assert plain.seen == other.seen
    assert plain.state() == other.state()


@pytest.mark.parametrize("state", [None, ReplicaState(replica_id=2, replica_epoch=1)])
@pytest.mark.parametrize("names_one", [True, False])
def test_a_frame_that_differs_in_a_byte_is_answered_the_same(
    names_one: bool, state: ReplicaState | None
) -> None:
    """Also what has the size of a plain one, and is not."""
    one = FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(partition=0, partition_max_bytes=99)])
    topics = [one] if names_one else []
    body = bytearray(encode(FetchRequest(session_epoch=0, topics=topics, replica_state=state), 17))
    for position, was in enumerate(body):
        for changed in {was ^ 1, was ^ 2, was ^ 255, (was + 1) % 256}:
            body[position] = changed
            seen = []
            for is_plain in (True, False):
                api = world(is_plain)
                frame = request_header_bytes(1, 17, 7, "test") + body
                try:
                    answer = api.raw(frame)
                except WireError as error:
                    answer = str(error)
                seen.append(answer if isinstance(answer, (list, str)) else type(answer))
            assert seen[0] == seen[1], (position, changed)
        body[position] = was


@pytest.mark.parametrize("names_one", [True, False])
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", range(15, 19))
def test_what_a_consumer_mostly_sends_is_plain(version: int, isolation: int, names_one: bool) -> None:
    api = world(True)
    api.dispatcher._route(1, version).decode = None  # type: ignore[assignment]
    consumer = Consumer(api)
    partitions = [(0, 0, -1, -1, 1 << 20)] if names_one else []
    consumer.send(version, partitions, True, False, 0, 1, 1 << 20, isolation, {})
    assert consumer.epoch == 1


@pytest.mark.parametrize("names_one", [True, False])
@pytest.mark.parametrize("version", range(15, 19))
def test_what_a_follower_mostly_sends_is_plain(version: int, names_one: bool) -> None:
    api = world(True)
    api.dispatcher._route(1, version).decode = None  # type: ignore[assignment]
    follower = Consumer(api)
    partitions = [(1, 0, 0, -1, 1 << 20)] if names_one else []
    state = ReplicaState(replica_id=2, replica_epoch=1)
    follower.send(version, partitions, True, False, 0, 1, 1 << 20, 0, {"replica_state": state})
    assert follower.epoch == 1
    meters = api.dispatcher._meters
    assert meters is not None
    assert meters.kinds["FetchFollower"].requests == 1


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize(("is_follower", "has_session"), [(True, True), (False, True), (False, False)])
def test_what_one_partition_ends_is_packed(is_follower: bool, has_session: bool, isolation: int) -> None:
    """Both followers of a partition share what is read for the first."""
    seen = []
    for is_plain in (True, False):
        api = world(is_plain)
        index = 1 if is_follower else 0
        states = (
            [ReplicaState(replica_id=each, replica_epoch=1) for each in (2, 3)] if is_follower else [None]
        )
        readers = []
        for state in states:
            reader = Consumer(api)
            other = {"replica_state": state}
            for wait_ms in (0, WAIT_MS):
                if not has_session:
                    reader.epoch = -1
                partitions = [] if wait_ms and has_session else [(index, 0, 0, -1, 1 << 20)]
                body = {"partitions": partitions, "wait_ms": wait_ms, "other": other}
                reader.begin(
                    17, is_known=True, is_lost=False, least=1, most=1 << 20, isolation=isolation, **body
                )
            assert reader.waits is not None
            readers.append(reader)
        if is_plain:
            for version in VERSIONS:
                api.dispatcher._route(1, version).encode_in_parts = None  # type: ignore[assignment]
        file = api.world.log("t", index).segments[-1].file
        reads = file.try_read = CountedReads(file.try_read)
        api.world.produce("t", index)
        for reader in readers:
            assert reader.waits is not None
            reader.take(17, reader.waits.reply.result())
        if is_plain:
            assert reads.count == 1
        seen.append(([reader.seen for reader in readers], readers[0].state()))
    assert seen[0] == seen[1]
