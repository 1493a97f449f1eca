"""Batches of states are combined as Kafka's PersisterStateBatchCombiner does it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.share.service import StateBatch
from kafkacompat.share.state import batches as module
from kafkacompat.share.state.batches import NO_BATCHES, Batches, are_sound, combine, combining, taking
from kafkacompat.tasks import at_once

COMBINED_BY_KAFKA = (Path(__file__).parent / "combined_by_kafka.txt").read_text("ascii").splitlines()
"""Batches so far, new ones, start offset, and what Kafka's class makes of them. Chosen so that in most of them two
neighbours stay although they could be joined, before or after."""

BATCH = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 3),
)
CHANGES = st.lists(
    st.tuples(st.lists(BATCH, max_size=6), st.sampled_from([-1, -1, 0, 3, 7, 15, 40])), max_size=5
)


def parsed(text: str) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*map(int, each.split(","))) for each in text.split(";") if each)


def by_offset(batches: Iterable[StateBatch]) -> dict[int, tuple[int, int]]:
    """(delivery count, state) of each offset. Batches must not overlap."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        assert first <= last
        for offset in range(first, last + 1):
            assert offset not in found
            found[offset] = (count, state)
    return found


@pytest.mark.parametrize("line", COMBINED_BY_KAFKA)
def test_equal_to_kafka(line: str) -> None:
    so_far, new, start_offset, expected = line.split("|")
    taken = at_once(taking(parsed(so_far)))
    assert combine(taken, parsed(new), int(start_offset)).items == parsed(expected)


@given(CHANGES)
def test_each_offset_has_the_highest_of_its_states(changes: list[tuple[list[StateBatch], int]]) -> None:
    state = NO_BATCHES
    model: dict[int, tuple[int, int]] = {}
    for new, start_offset in changes:
        state = combine(state, new, start_offset)
        for first, last, delivery, count in new:
            for offset in range(first, last + 1):
                model[offset] = max(model.get(offset, (count, delivery)), (count, delivery))
        model = {offset: rank for offset, rank in model.items() if offset >= start_offset}
        assert by_offset(state.items) == model
        assert list(state.items) == sorted(state.items)


@given(CHANGES)
def test_what_new_batches_do_not_touch_need_not_be_looked_at(
    changes: list[tuple[list[StateBatch], int]],
) -> None:
    state = NO_BATCHES
    for new, start_offset in changes:
        whole = combine(Batches(state.items, is_joined=False), new, start_offset)
        state = combine(state, new, start_offset)
        assert state == whole
        neighbours = zip(state.items, state.items[1:], strict=False)
        assert state.is_joined == all(
            low.last_offset + 1 != high.first_offset or low[2:] != high[2:] for low, high in neighbours
        )
        assert at_once(taking(state.items)) == state


def test_batches_of_a_record_that_are_in_disorder_are_combined() -> None:
    found = at_once(taking([StateBatch(5, 9, 2, 1), StateBatch(0, 6, 0, 2)]))
    assert found.items == (StateBatch(0, 6, 0, 2), StateBatch(7, 9, 2, 1))


def test_a_batch_must_not_end_before_it_begins() -> None:
    assert are_sound([StateBatch(1, 1, 0, 0)])
    assert not are_sound([StateBatch(1, 1, 0, 0), StateBatch(3, 2, 0, 0)])


def test_many_batches_are_combined_in_steps() -> None:
    new = [StateBatch(2 * each, 2 * each, 2, 1) for each in range(10 * module.COMBINED_A_STEP)]
    costs = list(combining(NO_BATCHES, new, -1))
    assert len(costs) >= 10
    assert max(costs) < 4_000
