"""The history of the lag of groups: a point for each look in turn, within bounds, and none while nothing is known."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console.core.lag_history import MAX_GROUPS, MAX_POINTS, SAMPLE_MS, LagHistory, lags_of
from kafkacompat.console.core.snapshot import GroupEpochs, GroupSeen, ShareGroupSeen, ShareStand


def test_a_group_has_a_point_for_each_sample_in_which_its_lag_is_known() -> None:
    history = LagHistory()
    for number in range(4):
        at_ms = 5 + number * SAMPLE_MS
        assert history.is_due(at_ms)
        history.add(at_ms, {"a": number} if number != 2 else {"b": 9})
        assert not history.is_due(at_ms + SAMPLE_MS - 1)
    assert history.of("a") == [(5, 0), (5 + SAMPLE_MS, 1), (5 + 3 * SAMPLE_MS, 3)]
    assert history.of("b") == [(5 + 2 * SAMPLE_MS, 9)]
    assert history.of("unknown") == []


def test_points_and_groups_are_bounded_and_a_group_that_is_gone_makes_room() -> None:
    history = LagHistory()
    many = {f"g{number:04}": number for number in range(MAX_GROUPS + 5)}
    history.add(0, many)
    for number in range(1, MAX_POINTS + 10):
        history.add(number * SAMPLE_MS, {"g0000": number})
    points = history.of("g0000")
    assert (len(points), points[-1]) == (MAX_POINTS, ((MAX_POINTS + 9) * SAMPLE_MS, MAX_POINTS + 9))
    assert history.of("g0001") == []
    history.add((MAX_POINTS + 10) * SAMPLE_MS, {f"g{MAX_GROUPS + 1}": 1})
    assert history.of(f"g{MAX_GROUPS + 1}")


def test_points_from_before_a_pause_go_after_two_hours_too() -> None:
    history = LagHistory()
    for number in (0, 1, MAX_POINTS, MAX_POINTS + 1):
        history.add(number * SAMPLE_MS, {"a": number})
    assert [lag for _, lag in history.of("a")] == [MAX_POINTS, MAX_POINTS + 1]


def test_a_clock_that_was_set_back_starts_the_history_anew() -> None:
    history = LagHistory()
    history.add(50 * SAMPLE_MS, {"a": 1})
    assert history.is_due(3)
    history.add(3, {"a": 2})
    assert history.of("a") == [(3, 2)]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)))))
def test_times_always_grow(samples: list[tuple[int, dict[str, int]]]) -> None:
    history = LagHistory()
    for at_ms, lags in samples:
        history.add(at_ms, lags)
    for group in "abc":
        times = [at_ms for at_ms, _ in history.of(group)]
        assert times == sorted(set(times))


def test_lags_are_those_of_consumer_and_share_groups() -> None:
    seen = snapshot(
        topic("t", partition(0, latest=10), partition(1, latest=None)),
        groups=(
            GroupSeen("known", "consumer", "stable", 1, 1, {("t", 0): 4, ("t", 1): 1}),
            GroupSeen("unknown", "consumer", "stable", 1, 1, {("t", 1): 1}),
        ),
    )
    stands = {("t", 0): ShareStand(0, 3), ("t", 1): ShareStand(None, None)}
    shared = ShareGroupSeen("shared", "stable", 0, 1, GroupEpochs(0, 0), stands)
    assert lags_of(replace(seen, share_groups=(shared,))) == {"known": 6, "shared": 3}
