"""A plain Produce is answered, and its batches are appended, as by the way for all requests: the same bytes in answers and
logs, and the same counters."""

from __future__ import annotations

import errno
import itertools
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.api import dispatch, produce
from kafkacompat.api._tests.kit import Api, pauseless
from kafkacompat.api._tests.test_produce import request
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.meters import RequestMeters
from kafkacompat.api.route import EncodedAnswer
from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.kit import (
    broker_image,
    failing,
    partition_image,
    topic_image,
)
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.ports import LogRefused
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.records import plain_produce as reading
from kafkacompat.records.batch import build_batch
from kafkacompat.records.compression import CODEC_OF_SETTING
from kafkacompat.records.record import Record
from kafkacompat.records.validate import validate_produce
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.skipif(
    reading.compiled is None, reason="no compiler built kafkacompat.records._produce"
)
ALL_VERSIONS = range(3, 14)
TOPICS = {
    "plain": LogConfig(),
    "compacted": LogConfig(cleanup_policy=("compact",)),
    "stamped": LogConfig(message_timestamp_type="LogAppendTime"),
    "small": LogConfig(max_message_bytes=150),
    "packed": LogConfig(compression_type="lz4"),
    "measured": LogConfig(max_decompressed_message_bytes=20),
    "late": LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000),
    "flushed": LogConfig(flush_messages=2),
    "rolled": LogConfig(internal_segment_bytes=400, segment_bytes=400),
}
OF_APPENDS = {"flush_messages", "internal_segment_bytes", "segment_bytes"}
"""The settings above that judge no batch."""
OF_PACKING = {"compression_gzip_level", "compression_lz4_level", "compression_zstd_level"}
"""Settings that are read for batches that a topic packs again, of which there are some above."""


def world(is_timed: bool = True, **options: Any) -> Api:
    """`is_timed`: times are taken of each request, as of the first ones of a node. A plain request of which none are taken is
    answered before anything else is known of it."""
    made = Api(*[topic_image(name, 2) for name in TOPICS], **options)
    for name, config in TOPICS.items():
        for index in range(2):
            made.world.log(name, index).config = config
    made.dispatcher = ApiDispatcher(made.node, pauseless(made.world.time), meters=RequestMeters())
    if not is_timed:
        take_no_times(made)
    return made


def take_no_times(api: Api) -> None:
    for version in ALL_VERSIONS:
        meter = api.dispatcher._route(0, version).meter
        if meter is not None:
            meter.mask = -1


def answered(api: Api, frame: bytearray) -> Any:
    """The bytes of the answer, or what there is in its place."""
    try:
        answer = api.raw(frame)
        if isinstance(answer, Pending):
            for _ in range(9):
                api.world.workers.run()
            api.world.time.advance(40_000)
            answer = answer.reply.result()
    except CloseConnection:
        return CloseConnection
    return None if answer is None else b"".join(map(bytes, answer))


def state(api: Api) -> Any:
    """Everything that a Produce may change."""
    found = []
    for name in TOPICS:
        for index in range(2):
            core = api.world.manager.by_name[TopicPartition(name, index)]
            log = core.log
            assert isinstance(log, UnifiedLog)
            found.append(
                (
                    [
                        bytes(log._disk.open(each.stem + ".log").read_cold(0, each.size))
                        for each in log.segments
                    ],
                    (log.log_end_offset, log.high_watermark, log.producer_count),
                    [list(vars_of(each)) for each in log.active_producers()],
                    [getattr(core.traffic, counter) for counter in TopicTraffic.__slots__],
                )
            )
    meters = [route.meter for key, route in api.dispatcher._routes.items() if key[0] == 0]
    counted = sorted((meter.kind.name, meter.requests) for meter in meters if meter.requests)
    return found, counted, [list(meter.errors) for meter in meters[:1] if any(meter.errors)]


def vars_of(each: Any) -> Any:
    return [getattr(each, name) for name in each.__dataclass_fields__]


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read_frame", reading.read_nothing)


START_MS = Api(topic_image("t")).world.time.now_ms()
HEADERS = (("h", b"1"), ("h", None))
one_batch = st.builds(
    lambda times, key, size, headers, codec, producer: build_batch(
        [Record(at, START_MS + ms, key, b"v" * size, headers) for at, ms in enumerate(times)],
        compression=codec,
        **producer,
    ),
    st.lists(st.sampled_from([0, 0, 500, -500, 2000, -2000, 10**8]), min_size=1, max_size=3),
    st.sampled_from([b"k", b"k", None]),
    st.sampled_from([1, 90]),
    st.sampled_from([(), (), HEADERS]),
    st.sampled_from([0, 0, 0, 3, 4]),
    st.sampled_from([{}])
    | st.builds(
        lambda who, epoch, sequence: {"producer_id": who, "producer_epoch": epoch, "base_sequence": sequence},
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 4),
    ),
)


@st.composite
def some_requests(draw: st.DrawFn) -> list[tuple[ProduceRequest, int]]:
    names = st.lists(st.sampled_from([*TOPICS, "unknown"]), min_size=1, max_size=4, unique=True)
    made = []
    for _ in range(draw(st.integers(1, 5))):
        topics = [
            TopicProduceData(
                name=name,
                topic_id=topic_image(name).id if name in TOPICS else b"?" * 16,
                partition_data=[
                    PartitionProduceData(index=index, records=draw(one_batch))
                    for index in draw(
                        st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=1, max_size=2, unique=True)
                    )
                ],
            )
            for name in draw(names)
        ]
        acks = draw(st.sampled_from([-1, -1, 1, 0]))
        made.append((ProduceRequest(acks=acks, timeout_ms=500, topic_data=topics), draw(st.integers(3, 13))))
    return made


@settings(max_examples=150, deadline=None)
@given(some_requests(), st.booleans())
def test_both_ways_answer_and_append_the_same(sent: list[tuple[ProduceRequest, int]], is_timed: bool) -> None:
    short, usual = world(is_timed), world()
    frames = [short.frame(each, version) for each, version in sent]
    with pytest.MonkeyPatch.context() as patch:
        answers = [answered(short, frame) for frame in frames]
        without(patch)
        assert answers == [answered(usual, frame) for frame in frames]
    assert state(short) == state(usual)


def test_each_setting_that_judges_a_batch_is_that_of_a_topic_here() -> None:
    """The short way judges batches by conditions of its own, to which the test of both ways holds it."""
    read: set[str] = set()

    class Watched(LogConfig):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    names = {each.name for each in fields(LogConfig)}
    records = [
        [Record(0, START_MS + ms, key, b"v" * 90, HEADERS)] for ms in (0, -2000) for key in (b"k", None)
    ]
    changed: set[str] = set()
    for config in [*TOPICS.values(), *[LogConfig(compression_type=name) for name in CODEC_OF_SETTING]]:
        values = {name: getattr(config, name) for name in names}
        changed |= {name for name, value in values.items() if value != getattr(TOPICS["plain"], name)}
        for made, codec in itertools.product(records, (0, 3)):
            with suppress(LogRefused):
                validate_produce(build_batch(made, compression=codec), Watched(**values), START_MS)
    assert read & names - OF_PACKING == changed - OF_APPENDS


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each plain request took the short way to its end."""
    found: list[bool] = []
    append_plain = produce.append_plain

    def noted(*arguments: Any) -> Any:
        answer = append_plain(*arguments)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(produce, "append_plain", noted)
    return found


def of(*topics: str, acks: int = -1, api: Api | None = None, **options: Any) -> ProduceRequest:
    batch = build_batch([Record(0, START_MS, b"k", b"v")], **options)
    return request(*[(name, 0, batch) for name in topics], acks=acks, api=api)


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_the_usual_request_takes_the_short_way(taken: list[bool], version: int, acks: int) -> None:
    api = world()
    answered(api, api.frame(of("plain", "compacted", acks=acks, api=api), version))
    answered(api, api.frame(of("plain", acks=acks, api=api, compression=3), version))
    assert taken == [True, True]
    assert [api.world.log(name, 0).log_end_offset for name in ("plain", "compacted")] == [2, 1]


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("count", [1, 127])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_packed_answer_has_the_bytes_of_the_encoder(
    monkeypatch: pytest.MonkeyPatch, version: int, count: int, is_compiled: bool
) -> None:
    """For counts and lengths of one and of two bytes, too."""
    if not is_compiled:
        monkeypatch.setattr(reading, "packed_answer", reading.packed_in_python)
    name = "n" * count
    topics = [(name if version < 13 else b"i" * 16, [(at,) for at in range(count)], None)]
    results = [(1 << 40 | at, at * 3) for at in range(count)]
    context: Any = type("Context", (), {"throttling": None})()
    packed = produce._answer(None, context, version, topics, results)  # type: ignore[arg-type]
    assert (type(packed) is EncodedAnswer) is (version >= 5)
    message = produce._message(None, context, version, topics, results)  # type: ignore[arg-type]
    route = dispatch.Route(0, version)
    assert route.reply(7, packed) == route.reply(7, message)


@pytest.mark.parametrize("earlier", [0, 1], ids=["first batch", "next batch"])
def test_a_disk_that_fails_in_the_middle_is_told_for_its_partitions(
    monkeypatch: pytest.MonkeyPatch, taken: list[bool], earlier: int
) -> None:
    """The first partition keeps its records. The directory fails with the second one, and the third is on it too."""
    answers = []
    for is_short, is_timed in ((True, True), (True, False), (False, True)):
        api = world(is_timed)
        first, log = api.world.log("plain", 0), api.world.log("compacted", 0)
        with pytest.MonkeyPatch.context() as patch:
            if not is_short:
                without(patch)
            for _ in range(earlier):
                answered(api, api.frame(of("plain", "compacted", api=api), 9))
            file = log.segments[-1].file
            patch.setattr(type(file), "write_now", failing(file, "write_now", OSError(errno.EIO, "no")))
            answers.append(answered(api, api.frame(of("plain", "compacted", "small", api=api), 9)))
        assert (first.log_end_offset, log.log_end_offset) == (earlier + 1, earlier)
        assert log.segments[-1]._may_have_left_bytes
    assert answers[0] == answers[1] == answers[2]
    assert taken == [True] * 2 * (earlier + 1)  # the first batch of a log is not answered at once


def test_a_follower_is_waited_for_and_the_frame_is_let_go(taken: list[bool]) -> None:
    answers = []
    for is_short, is_timed in ((True, True), (True, False), (False, True)):
        api = Api(
            topic_image("t", {0: partition_image(replicas=(1, 2), isr=(1, 2)), 1: partition_image()}),
            brokers=[broker_image(1), broker_image(2)],
        )
        if is_timed:
            api.dispatcher = ApiDispatcher(api.node, pauseless(api.world.time), meters=RequestMeters())
        batch = build_batch([Record(0, START_MS, b"k", b"v")])
        asked = request(("t", 0, batch), api=api, acks=-1)
        asked.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch))
        frame = api.frame(asked, 9)
        with pytest.MonkeyPatch.context() as patch:
            if not is_short:
                without(patch)
            answer = api.raw(frame)
        assert isinstance(answer, Pending)
        assert not answer.blocks
        api.world.manager.follower_fetched(api.world.manager.by_name[TopicPartition("t", 0)], 2, 1)
        answers.append(b"".join(map(bytes, answer.reply.result())))
    assert answers[0] == answers[1] == answers[2]
    assert taken == [True, True]


def test_a_wait_keeps_no_view_of_the_receive_buffer() -> None:
    api = Api(
        topic_image("t", {0: partition_image(replicas=(1, 2), isr=(1, 2))}),
        brokers=[broker_image(1), broker_image(2)],
    )
    frame = bytearray(
        api.frame(request(("t", 0, build_batch([Record(0, START_MS, b"k", b"v")])), acks=-1), 9)
    )
    answer = api.dispatcher.dispatch(api.connection, memoryview(frame))
    assert isinstance(answer, Pending)
    frame.clear()  # raises while a view of it lives


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_usual_request_without_times_needs_nothing_but_its_bytes(
    monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    api, usual = world(is_timed=False), world()
    frame = api.frame(of("plain", "compacted", acks=acks, api=api), 9)
    for each in (api, usual):  # the first batch of a log needs a closer look
        answered(each, bytearray(frame))
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(dispatch, "RequestContext")
        answer = answered(api, bytearray(frame))
    assert answer == answered(usual, bytearray(frame))
    assert state(api) == state(usual)


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_bug_in_the_walk_is_answered_for_each_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_timed: bool
) -> None:
    api = world(is_timed)

    def fails(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ReplicaManager, "append_plain", fails)
    response = api.call(of("plain", "small", api=api), 9)
    assert [one.error_code for topic in response.responses for one in topic.partition_responses] == [-1, -1]
