"""The compiled walks over a plain Produce do what those in Python do. The logs are real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from copy import copy
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.compiled import OFF, SWITCH
from kafkacompat.config import LogConfig
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition
from kafkacompat.partition import plain_appends
from kafkacompat.partition._tests.kit import (
    LedPartitions,
    batch_of,
    broker_image,
    partition_image,
    topic_image,
)
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.plain_appends import (
    append_known_in_python,
    compiled,
    find_cores_in_python,
    takes_batches_in_python,
)
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.records._tests.examples import examples
from kafkacompat.records.batch import HEADER
from kafkacompat.records.compression import CODEC_OF_SETTING
from kafkacompat.records.plain_produce import BatchFacts, PlainAllowance, PlainFacts
from kafkacompat.records.validate import STEP_UNITS

needs_compiler = pytest.mark.skipif(compiled is None, reason="no compiler built kafkacompat.partition._plain")
NAMES = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]


def world() -> LedPartitions:
    """`a` has no followers. In `b` one partition has, and another one has lost all of them."""
    made = LedPartitions(
        topic_image("a", 2),
        topic_image(
            "b", {0: partition_image(replicas=(1, 2)), 1: partition_image(replicas=(1, 2), isr=(1,))}
        ),
        topic_image("c", 1),
        brokers=[broker_image(1), broker_image(2)],
    )
    made.log("b", 1).config = LogConfig(min_insync_replicas=2)
    made.log("c", 0).config = LogConfig(max_message_bytes=100)
    return made


def facts_of(batch: bytearray, index: int, start: int, is_read: bool = True) -> BatchFacts:
    header = HEADER.unpack_from(batch)
    attributes, _, base_ms, latest_ms, producer_id, epoch, sequence, count = header[5:]
    size = len(batch)
    return (
        index,
        start,
        start + size,
        size,
        attributes & 7,
        count,
        base_ms,
        latest_ms,
        producer_id,
        epoch,
        sequence,
        int(is_read),
    )


def plain(asked: list[tuple[str, int, bytearray]], acks: int = -1) -> tuple[memoryview, int, PlainFacts]:
    """What `append_plain` takes."""
    frame = bytearray()
    topics: list[Any] = []
    for name in dict.fromkeys(name for name, _, _ in asked):
        named = []
        for topic, index, batch in asked:
            if topic == name:
                is_read = HEADER.unpack_from(batch)[5] & 7 == 0
                named.append(facts_of(batch, index, len(frame), is_read))
                frame += batch
        codecs = 0
        for facts in named:
            codecs |= 1 << facts[4]
        summary = (
            max(facts[3] for facts in named),
            codecs,
            min(facts[6] for facts in named),
            max(facts[7] for facts in named),
            0,
        )
        topics.append((name, named, summary))
    all_read = all(facts[11] for _, named, _ in topics for facts in named)
    return memoryview(frame), 9, (0, acks, 500, STEP_UNITS, all_read, topics)


class Step(NamedTuple):
    asked: list[tuple[int, int, dict[str, int]]]
    """(place in NAMES, size of the value, producer)."""
    acks: int
    changes: list[tuple[int, str]]
    fails: int | None
    """The partition whose file cannot be written."""


CHANGES = ["is_leader", "is_read_only", "is_ending_mirror", "is_held_back", "alone", "is_durable", "config"]
steps = st.builds(
    Step,
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 1, 2, 3, 4]),
            st.sampled_from([1, 1, 200]),
            st.sampled_from([{}, {}, {"compression": 3}])
            | st.builds(
                lambda who, sequence: {"producer_id": who, "producer_epoch": 0, "base_sequence": sequence},
                st.integers(0, 1),
                st.integers(0, 3),
            ),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda each: each[0],
    ),
    st.sampled_from([-1, -1, 1]),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(CHANGES)), max_size=1),
    st.sampled_from([None, None, None, 0, 1, 2]),
)


def change(made: LedPartitions, place: int, name: str) -> None:
    core: Any = made.manager.by_name[TopicPartition(*NAMES[place])]
    if name == "config":
        core.log.config = replace(core.log.config)
    elif name == "is_durable":
        core.log.is_durable = not core.log.is_durable
    else:
        setattr(core, name, not getattr(core, name))


def done(made: LedPartitions, step: Step) -> Any:
    for place, name in step.changes:
        change(made, place, name)
    now_ms = made.time.now_ms()
    asked = [
        (*NAMES[place], batch_of(b"v" * size, now_ms=now_ms, **producer))
        for place, size, producer in step.asked
    ]
    if step.fails is not None:
        made.disk.failing = "{}-{}/".format(*NAMES[step.fails])
    try:
        return made.manager.append_plain(*plain(asked, step.acks))
    finally:
        made.disk.failing = None


def state(made: LedPartitions) -> Any:
    found = []
    for name in NAMES:
        core = made.manager.by_name.get(TopicPartition(*name))
        if core is None:
            found.append(None)
            continue
        log: Any = core.log
        found.append(
            (
                core.is_leader,
                [bytes(made.disk.open(each.stem + ".log").read_cold(0, each.size)) for each in log.segments],
                (log.log_end_offset, log.high_watermark, log.producer_count),
                [getattr(core.traffic, counter) for counter in TopicTraffic.__slots__],
            )
        )
    return found


def use(patch: pytest.MonkeyPatch, gait: tuple[Any, ...] | None) -> None:
    assert gait is not None
    for name, function in zip(("find_cores", "append_known"), gait, strict=False):
        patch.setattr(plain_appends, name, function)


IN_PYTHON = find_cores_in_python, append_known_in_python, takes_batches_in_python
ALL = Step([(0, 1, {}), (1, 1, {}), (2, 1, {})], 1, [], None)
FAILS = ALL._replace(fails=1)


@needs_compiler
@settings(max_examples=examples(120), deadline=None)
@given(st.lists(steps, min_size=1, max_size=6))
@example([ALL, ALL, FAILS, ALL])
@example([ALL, ALL, ALL._replace(changes=[(1, "is_held_back")]), ALL._replace(changes=[(0, "is_durable")])])
@example([ALL, ALL, ALL._replace(acks=-1), ALL._replace(asked=[(3, 1, {})], acks=-1)])
def test_both_gaits_do_the_same(done_steps: list[Step]) -> None:
    found = []
    for gait in (IN_PYTHON, compiled):
        made = world()
        told: list[Any] = []
        made.manager.wakeups.watch(lambda core, told=told: told.append(("advanced", core.topic_partition)))
        made.manager.wakeups.watch_appends(
            lambda core, told=told: told.append(("appended", core.topic_partition))
        )
        with pytest.MonkeyPatch.context() as patch:
            use(patch, gait)
            outcomes = [done(made, step) for step in done_steps]
        found.append((outcomes, told, state(made)))
    assert found[0] == found[1]


@pytest.mark.parametrize("gait", [IN_PYTHON, compiled], ids=["python", "compiled"])
def test_the_usual_batches_are_appended_in_one_walk(gait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if gait is None:
        pytest.skip("no compiler built kafkacompat.partition._plain")
    made = world()
    walks: list[int] = []

    def counted(*arguments: Any) -> bool | None:
        walks.append(len(arguments[3]))
        are_done: bool | None = gait[1](*arguments)
        return are_done

    use(monkeypatch, (gait[0], counted))
    for _ in range(3):
        answer = done(made, ALL._replace(asked=[(0, 1, {}), (1, 1, {})]))
        assert answer is not None
    # The first batch of each log needs a closer look, and each walk begins at the first batch without a result.
    assert walks == [0, 1, 2, 0, 0]
    assert [made.log("a", index).log_end_offset for index in range(2)] == [3, 3]
    assert answer == ([(2, 0), (2, 0)], {})


def prepared() -> tuple[LedPartitions, list[Any], list[Any]]:
    """A world whose next batches need no closer look, and the arguments of both walks."""
    made = world()
    done(made, ALL)
    batch = batch_of(b"v", now_ms=made.time.now_ms())
    frame, _, request = plain([("a", 0, bytearray(batch)), ("a", 1, bytearray(batch))])
    topics = request[5]
    by_name = made.manager.by_name
    cores = [by_name[TopicPartition("a", index)] for index in range(2)]
    return (
        made,
        [by_name, None, topics, INTERNAL_TOPICS, True, made.time.now_ms(), []],
        [frame, cores, topics[0][1], [], {}, lambda core, is_duplicate: None],
    )


NOW_MS = 1_700_000_000_000
JUDGING = [
    "cleanup_policy",
    "compression_type",
    "flush_messages",
    "max_decompressed_message_bytes",
    "max_message_bytes",
    "message_timestamp_after_max_ms",
    "message_timestamp_before_max_ms",
    "message_timestamp_type",
]
HOSTILE: list[Any] = [None, -1, 1 << 31, 1 << 70, True, 1.5, "x", b"", (), [], {}]


@needs_compiler
def test_the_prepared_walks_append() -> None:
    """What the tests below change of them is what makes the difference."""
    assert compiled is not None
    made, finding, appending = prepared()
    assert compiled[0](*finding)
    assert finding[6] == appending[1]
    assert compiled[1](*appending)
    assert appending[3] == [(1, 0), (1, 0)]
    assert list(appending[4].values()) == appending[1]
    assert [made.log("a", index).high_watermark for index in range(2)] == [2, 2]


@needs_compiler
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("place", range(7))
def test_hostile_arguments_of_the_first_walk(place: int, value: Any) -> None:
    """The compiled one finds no more than the other."""
    found = []
    for gait in (IN_PYTHON, compiled):
        assert gait is not None
        _, finding, _ = prepared()
        finding[place] = copy(value)
        with suppress(TypeError, ValueError, AttributeError, LookupError):
            found.append(gait[0](*finding) and [core.topic_partition for core in finding[6]])
    assert not found[1:] or found[1] in (found[0], False)


@needs_compiler
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("place", range(5))
def test_hostile_arguments_of_the_second_walk(place: int, value: Any) -> None:
    """The compiled one appends no more than the other."""
    ends = []
    for gait in (IN_PYTHON, compiled):
        assert gait is not None
        made, _, appending = prepared()
        appending[place] = copy(value)
        with suppress(TypeError, AttributeError, LookupError):
            gait[1](*appending)
        ends.append([made.log("a", at).log_end_offset for at in range(2)])
    assert ends[1] in (ends[0], [1, 1])


@needs_compiler
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("place", range(12))
def test_hostile_facts(place: int, value: Any) -> None:
    """Both gaits append such a batch, or none of them does."""
    assert compiled is not None
    ends = []
    for gait in (IN_PYTHON, compiled):
        made, finding, appending = prepared()
        facts = list(appending[2][0])
        facts[place] = value
        appending[2][0] = tuple(facts)
        outcome: Any = None
        with suppress(TypeError, ValueError):
            outcome = gait[0](*finding), len(finding[6])
        with suppress(TypeError, ValueError):
            gait[1](*appending)
        ends.append((outcome, appending[3], [made.log("a", at).log_end_offset for at in range(2)]))
    assert ends[0] == ends[1]


@needs_compiler
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("place", range(3))
def test_hostile_topics(place: int, value: Any) -> None:
    """The compiled walk finds no more than the other."""
    found = []
    for gait in (IN_PYTHON, compiled):
        assert gait is not None
        _, finding, _ = prepared()
        topic = list(finding[2][0])
        topic[place] = copy(value)
        finding[2][0] = tuple(topic)
        with suppress(TypeError, ValueError, AttributeError, LookupError):
            found.append(gait[0](*finding) and [core.topic_partition for core in finding[6]])
    assert not found[1:] or found[1] in (found[0], False)


@needs_compiler
@pytest.mark.parametrize("topic", [None, (), ("a", []), ["a", [], ()], ("a", (), ())], ids=repr)
def test_what_is_no_topic(topic: Any) -> None:
    assert compiled is not None
    _, finding, _ = prepared()
    finding[2].append(topic)
    with pytest.raises(TypeError, match="a topic is a tuple"):
        compiled[0](*finding)


@pytest.mark.parametrize("gait", [IN_PYTHON, compiled], ids=["python", "compiled"])
def test_topics_by_id_and_internal_ones(gait: Any) -> None:
    if gait is None:
        pytest.skip("no compiler built kafkacompat.partition._plain")
    _, finding, appending = prepared()
    _, batches, summary = finding[2][0]
    finding[1] = {b"a": NamedTopic("a"), b"internal": NamedTopic(next(iter(INTERNAL_TOPICS)))}
    outcomes = []
    for asked in (b"a", b"unknown", b"internal"):
        finding[2], finding[6] = [(asked, batches, summary)], []
        outcomes.append((gait[0](*finding), finding[6]))
    assert outcomes == [(True, appending[1]), (False, []), (False, [])]
    finding[1], finding[2] = None, [(next(iter(INTERNAL_TOPICS)), batches, summary)]
    assert not gait[0](*finding)


class NamedTopic(NamedTuple):
    name: str


times = st.sampled_from(
    [0, 1, 1000, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 1000, (1 << 63) - 1, -(1 << 63)]
)
any_config = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from([("delete",), ("compact",), ("delete", "compact"), ()]),
    compression_type=st.sampled_from(["producer", "producer", "uncompressed", "lz4", "zstd", "unknown"]),
    flush_messages=st.sampled_from([(1 << 63) - 1, (1 << 63) - 1, 1]),
    max_decompressed_message_bytes=st.sampled_from([1 << 30, 0, PlainAllowance.unpacked_bytes]),
    max_message_bytes=st.sampled_from([1 << 20, 100, 99]),
    message_timestamp_after_max_ms=st.sampled_from([(1 << 63) - 1, 0, 1, 1000]),
    message_timestamp_before_max_ms=st.sampled_from([(1 << 63) - 1, 0, 1, 1000]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
)
summaries = st.tuples(
    st.sampled_from([100, 1]), st.sampled_from([1, 1, 2, 8, 9, 16]), times, times, st.sampled_from([0, 1])
)


@needs_compiler
@settings(max_examples=examples(500), deadline=None)
@given(any_config, summaries, times)
def test_both_compare_settings_alike(config: LogConfig, summary: Any, now_ms: int) -> None:
    assert compiled is not None
    assert compiled[2](config, summary, now_ms) == takes_batches_in_python(config, summary, now_ms)


@needs_compiler
@pytest.mark.parametrize("value", [*HOSTILE, ("compact", 7), ...], ids=repr)
@pytest.mark.parametrize("place", [*range(5), "now_ms", *JUDGING])
def test_hostile_settings_and_summaries(place: Any, value: Any) -> None:
    """The same outcome, or an error of the same type."""
    outcomes = []
    for gait in (IN_PYTHON, compiled):
        assert gait is not None
        config, summary, now_ms = LogConfig(), [100, 1, NOW_MS, NOW_MS, 1], NOW_MS
        if place == "now_ms":
            now_ms = value
        elif isinstance(place, int):
            summary[place] = value
        elif value is ...:
            object.__delattr__(config, place)
        else:
            object.__setattr__(config, place, value)
        try:
            outcomes.append(gait[2](config, tuple(summary), now_ms))
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1] or TypeError in outcomes


@needs_compiler
@pytest.mark.parametrize("facts", [None, (), (0,) * 11, (0,) * 13, [0] * 12, "x"], ids=repr)
def test_what_are_no_facts(facts: Any) -> None:
    assert compiled is not None
    made, finding, appending = prepared()
    appending[2][0] = facts
    for function, arguments in ((compiled[0], finding), (compiled[1], appending)):
        with pytest.raises(TypeError, match="tuple of twelve"):
            function(*arguments)
    del appending[2][:]
    with pytest.raises(TypeError, match="tuple of twelve"):
        compiled[1](*appending)
    assert made.log("a", 0).log_end_offset == 1


DECIDING = {"is_leader", "log", "leader_epoch", "traffic", "topic_partition"}
"""Without these nothing is appended."""


@needs_compiler
@pytest.mark.parametrize("value", [None, "x", 7, 1 << 70, (), ...], ids=repr)
@pytest.mark.parametrize("slot", [*Partition.__slots__])
def test_a_slot_of_a_partition_with_something_else(slot: str, value: Any) -> None:
    """Nothing is appended, or the same as in Python."""
    assert compiled is not None
    made, finding, appending = prepared()
    log = made.log("a", 0)
    core = appending[1][0]
    before = getattr(core, slot)
    if value is ...:
        delattr(core, slot)
    else:
        setattr(core, slot, value)
    try:
        took = compiled[0](*finding)
    except (AttributeError, TypeError):
        took = False
    failed = False
    try:
        compiled[1](*appending)
    except (AttributeError, TypeError):
        failed = True
    assert appending[3] == ([] if log.log_end_offset == 1 or failed else [(1, 0), (1, 0)])
    if slot in ("is_leader", "is_read_only", "is_ending_mirror"):
        assert not took
    if slot in DECIDING and not (slot == "topic_partition" and value is not ...):
        assert log.log_end_offset == 1
    setattr(core, slot, before)


@needs_compiler
@pytest.mark.parametrize("value", [None, "x", ...], ids=repr)
@pytest.mark.parametrize("counter", ["produces", "messages_in", "bytes_in"])
def test_a_counter_that_counts_nothing(counter: str, value: Any) -> None:
    """The error is Python's."""
    assert compiled is not None
    outcomes = []
    for gait in (IN_PYTHON, compiled):
        made, _, appending = prepared()
        traffic = appending[1][0].traffic
        if value is ...:
            delattr(traffic, counter)
        else:
            setattr(traffic, counter, value)
        with pytest.raises((AttributeError, TypeError)) as failed:
            gait[1](*appending)
        outcomes.append((failed.type, made.log("a", 0).log_end_offset, appending[3]))
    assert outcomes[0] == outcomes[1]


@needs_compiler
@pytest.mark.parametrize("name", ["set_high_watermark", "append_next"])
def test_an_error_of_the_log_passes_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled is not None
    made, _, appending = prepared()
    problem = ZeroDivisionError()

    def fails(*_: Any) -> None:
        raise problem

    monkeypatch.setattr(type(made.log("a", 0)), name, fails)
    with pytest.raises(ZeroDivisionError):
        compiled[1](*appending)
    assert appending[3] == []


@needs_compiler
def test_no_reference_is_kept() -> None:
    assert compiled is not None
    made, finding, appending = prepared()
    core = appending[1][0]
    kept = (
        core,
        core.log,
        core.traffic,
        appending[2][0],
        appending[0],
        finding[2],
        finding[4],
        core.log.config,
    )

    def counts() -> list[int]:
        return [sys.getrefcount(each) for each in kept]

    compiled[0](*finding)
    compiled[1](*appending)
    before = counts()
    for _ in range(50):
        del finding[6][:], appending[3][:]
        assert compiled[0](*finding)
        assert compiled[1](*appending)
    assert counts() == before
    assert made.log("a", 0).log_end_offset == 52


def test_what_is_compiled_is_used() -> None:
    is_left_out = os.environ.get(SWITCH) == OFF
    assert (compiled is None) == (is_left_out or find_spec("kafkacompat.partition._plain") is None)
    used = plain_appends.find_cores, plain_appends.append_known, plain_appends.takes_batches
    assert used == (compiled or IN_PYTHON)


FROM_ANOTHER_SOURCE = """
import sys
from types import ModuleType

def functions(*told):
    raise {error}("another source")

other = sys.modules["kafkacompat.partition._plain"] = ModuleType("_plain")
other.functions = functions
from kafkacompat.partition import plain_appends
assert plain_appends.find_cores is plain_appends.find_cores_in_python
assert plain_appends.append_known is plain_appends.append_known_in_python
"""


@pytest.mark.parametrize("error", ["AttributeError", "TypeError"])
def test_a_module_that_was_compiled_from_another_source_is_not_used(error: str) -> None:
    """It may know another slot, or take other classes."""
    subprocess.run([sys.executable, "-c", FROM_ANOTHER_SOURCE.format(error=error)], check=True)


@needs_compiler
def test_a_class_without_the_slots_is_refused() -> None:
    from kafkacompat.partition import _plain

    class Other:
        pass

    told = takes_batches_in_python, CODEC_OF_SETTING, PlainAllowance.unpacked_bytes
    classes = [Partition, TopicTraffic, LogConfig]
    for place in range(3):
        with pytest.raises(AttributeError):
            _plain.functions(*classes[:place], Other, *classes[place + 1 :], *told)  # type: ignore[call-arg]
    _, finding, _ = prepared()
    assert compiled is not None
    assert compiled[0](*finding), "the places of the right slots are still known"
