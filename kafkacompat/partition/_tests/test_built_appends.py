"""A batch that the node has built is appended as `append` appends it, which looks at each record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import LedPartitions
from kafkacompat.partition._tests.test_plain_appends import CHANGES, NAMES, change, facts_of, state, world
from kafkacompat.partition.service import ProduceResult
from kafkacompat.records._tests.examples import examples
from kafkacompat.records.batch import build_plain_batch

SETTINGS: list[dict[str, Any]] = [
    {"message_timestamp_type": "LogAppendTime"},
    {"compression_type": "lz4"},
    {"compression_type": "uncompressed"},
    {"max_message_bytes": 100},
    {"flush_messages": 1},
    {"message_timestamp_before_max_ms": 0},
    {"cleanup_policy": ("compact",)},
    {"min_insync_replicas": 2},
]


class Step(NamedTuple):
    place: int
    """In NAMES."""
    sizes: list[int]
    """Of the values. -1 is a tombstone."""
    sequence: int
    changed: tuple[int, str] | None
    config: dict[str, Any]
    """What changes in the settings of the topic before."""
    fails: bool
    """The file cannot be written."""


steps = st.builds(
    Step,
    st.integers(0, len(NAMES) - 1),
    st.lists(st.sampled_from([-1, 0, 1, 100, 2000]), min_size=1, max_size=4),
    st.sampled_from([-1, 0]),
    st.none() | st.tuples(st.integers(0, 4), st.sampled_from(CHANGES)),
    st.just({}) | st.sampled_from(SETTINGS),
    st.sampled_from([False, False, False, True]),
)
USUAL = Step(0, [1], -1, None, {}, False)


def appended(made: LedPartitions, step: Step, is_looked_at: bool) -> Any:
    """(error, offset of the first record, whether the high watermark is above the batch)."""
    name = TopicPartition(*NAMES[step.place])
    pairs = [(b"key", None if size < 0 else b"v" * size) for size in step.sizes]
    batch = build_plain_batch(pairs, made.time.now_ms(), step.sequence)
    if not is_looked_at:
        found = made.manager.append_built(name.topic, batch, facts_of(batch, name.partition, 0))
        if type(found) is tuple:
            return 0, *found
        if found is not None:
            assert isinstance(found, ProduceResult)
            return found.error, found.base_offset, False
    result = made.manager.append(name, batch, -1, 13, True)
    core = made.manager.by_name.get(name)
    return (
        result.error,
        result.base_offset,
        result.error == 0 and core is not None and core.log.high_watermark > result.last_offset,
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, min_size=1, max_size=6))
@example([USUAL, USUAL])
@example([USUAL, USUAL._replace(fails=True), USUAL])
@example([USUAL, *[USUAL._replace(config=each) for each in SETTINGS], USUAL])
@example([USUAL, USUAL._replace(changed=(0, "is_held_back")), USUAL])
@example([USUAL._replace(place=2), USUAL._replace(place=2), USUAL._replace(place=3)])
def test_a_built_batch_is_appended_as_one_that_is_looked_at(done: list[Step]) -> None:
    found = []
    for is_looked_at in (True, False):
        made = world()
        told: list[Any] = []
        made.manager.wakeups.watch(lambda core, told=told: told.append(("advanced", core.topic_partition)))
        made.manager.wakeups.watch_appends(
            lambda core, told=told: told.append(("appended", core.topic_partition))
        )
        outcomes = []
        for step in done:
            name = TopicPartition(*NAMES[step.place])
            if step.changed is not None:
                change(made, *step.changed)
            core: Any = made.manager.by_name.get(name)
            if core is not None and step.config:
                core.log.config = replace(core.log.config, **step.config)
            made.disk.failing = "{}-{}/".format(*name) if step.fails else None
            outcomes.append(appended(made, step, is_looked_at))
            made.disk.failing = None
            made.time.advance(1)
        found.append((outcomes, told, state(made)))
    assert found[0] == found[1]


def test_the_next_batch_of_a_partition_is_not_looked_at() -> None:
    made = world()
    batch = build_plain_batch([(b"key", b"value")], made.time.now_ms())
    facts = facts_of(batch, 0, 0)
    assert made.manager.append_built("a", batch, facts) is None  # the first one begins the epoch
    made.manager.append(TopicPartition("a", 0), bytes(batch), -1, 13, True)
    assert made.manager.append_built("a", batch, facts) == (1, True)
    made.manager.by_name[TopicPartition("a", 0)].is_held_back = True
    assert made.manager.append_built("a", batch, facts) == (2, False)
