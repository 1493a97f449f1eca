"""Plans of `kafkacompat reassign` and `node remove`: balanced, rack aware, moving little; and Kafka's JSON form of them."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafkacompat.cli.plan import (
    Plan,
    balanced_plan,
    changes_of,
    copies_of,
    evacuation_plan,
    plan_from_json,
    plan_to_json,
)
from kafkacompat.failure import CommandFailed


@st.composite
def assignments(draw: st.DrawFn) -> tuple[Plan, list[int]]:
    """Topics on brokers, and the brokers that are wanted: enough for the largest partition."""
    brokers = list(range(1, draw(st.integers(1, 7)) + 1))
    current: Plan = {}
    for topic in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, len(brokers)))
        for number in range(draw(st.integers(1, 9))):
            current[f"t{topic}", number] = tuple(draw(st.permutations(brokers)))[:size]
    largest = max(map(len, current.values()))
    candidates = draw(st.permutations([*brokers, 8, 9]))
    return current, candidates[: draw(st.integers(largest, len(candidates)))]


def spread(counts: Counter[int], brokers: list[int]) -> int:
    return max(counts[each] for each in brokers) - min(counts[each] for each in brokers)


@given(assignments())
def test_replicas_are_within_one_of_each_other_by_topic_and_in_all(case: tuple[Plan, list[int]]) -> None:
    current, brokers = case
    plan = balanced_plan(current, brokers)
    assert plan.keys() == current.keys()
    for where, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[where])
        assert set(replicas) <= set(brokers)
    assert spread(Counter(each for replicas in plan.values() for each in replicas), brokers) <= 1
    for topic in {topic for topic, _ in plan}:
        mine = [replicas for where, replicas in plan.items() if where[0] == topic]
        assert spread(Counter(each for replicas in mine for each in replicas), brokers) <= 1


@given(assignments())
def test_a_balanced_cluster_stays_as_it_is(case: tuple[Plan, list[int]]) -> None:
    plan = balanced_plan(*case)
    assert balanced_plan(plan, case[1]) == plan


@given(assignments())
def test_leaders_are_spread_as_well_as_replicas_allow(case: tuple[Plan, list[int]]) -> None:
    """Compared with every choice there is: leadership may have to go by way of a third broker."""
    plan = balanced_plan(*case)
    assume(math.prod(map(len, plan.values())) <= 3_000)

    def unevenness(leaders: Iterable[int]) -> int:
        return sum(count**2 for count in Counter(leaders).values())

    best = min(unevenness(leaders) for leaders in itertools.product(*plan.values()))
    assert unevenness(replicas[0] for replicas in plan.values()) == best


def test_a_new_broker_gets_its_share_and_no_other_replica_moves() -> None:
    current = {("t", number): (1 + number % 3, 1 + (number + 1) % 3) for number in range(12)}
    plan = balanced_plan(current, [1, 2, 3, 4])
    copies = copies_of(current, plan)
    assert set(copies.values()) == {(4,)}
    assert len(copies) == 6


@given(assignments(), st.lists(st.sampled_from("abc"), min_size=9, max_size=9))
@settings(max_examples=200)
def test_partitions_lie_in_as_many_racks_as_they_can(case: tuple[Plan, list[int]], names: list[str]) -> None:
    current, brokers = case
    racks = dict(enumerate(names, 1))
    for replicas in balanced_plan(current, brokers, racks).values():
        possible = min(len(replicas), len({racks[each] for each in brokers}))
        assert len({racks[each] for each in replicas}) == possible


def test_racks_of_only_some_brokers_are_not_regarded() -> None:
    current = {("t", number): (1, 2) for number in range(3)}
    racks = {1: "a", 2: "a", 3: None}
    assert balanced_plan(current, [1, 2, 3], racks) == balanced_plan(current, [1, 2, 3])


@pytest.mark.parametrize("size", [1, 3])
def test_the_number_of_replicas_can_change(size: int) -> None:
    current = {("t", number): (1, 2) for number in range(6)}
    plan = balanced_plan(current, [1, 2, 3], replication_factor=size)
    assert {len(replicas) for replicas in plan.values()} == {size}
    with pytest.raises(CommandFailed, match="t-0 has 4 replicas; 3 brokers are too few"):
        balanced_plan(current, [1, 2, 3], replication_factor=4)


def test_a_leaving_broker_is_replaced_and_nothing_else_moves() -> None:
    current = {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 4), ("u", 0): (4, 1), ("u", 1): (3,)}
    plan = evacuation_plan(current, 4, [1, 2, 3])
    assert plan.keys() == {("t", 1), ("u", 0)}
    assert set(plan["t", 1]) == {1, 2, 3}
    assert plan["t", 1][:2] == (2, 3)
    assert 4 not in plan["u", 0]
    with pytest.raises(CommandFailed, match="too few"):
        evacuation_plan(current, 4, [1, 2])


@given(assignments())
def test_the_json_form_is_read_as_it_was_written(case: tuple[Plan, list[int]]) -> None:
    assert plan_from_json(plan_to_json(case[0])) == case[0]


def test_a_file_of_kafkas_tool_is_read() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"t","partition":2,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    )
    assert plan_from_json(text) == {("t", 2): (3, 1)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "does not have the form"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"version": 1, "partitions": []}', "lists no partition"),
        ('{"version": 1, "partitions": [7]}', "is not an object"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "needs topic"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "needs topic"),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "one repeated",
        ),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "empty"),
    ],
)
def test_plans_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(CommandFailed, match=reason):
        plan_from_json(text)


def test_a_partition_named_twice_and_directories_are_refused() -> None:
    one = {"topic": "t", "partition": 0, "replicas": [1]}
    with pytest.raises(CommandFailed, match="t-0 more than once"):
        plan_from_json(json.dumps({"version": 1, "partitions": [one, one]}))
    with pytest.raises(CommandFailed, match="directories"):
        plan_from_json(json.dumps({"version": 1, "partitions": [{**one, "log_dirs": ["/data"]}]}))


def test_changes_are_what_is_not_so_yet() -> None:
    current = {("t", 0): (1, 2), ("t", 1): (2, 1)}
    assert changes_of(current, {("t", 0): (1, 2), ("t", 1): (1, 2)}) == {("t", 1): (1, 2)}
    with pytest.raises(CommandFailed, match="u-0, which does not exist"):
        changes_of(current, {("u", 0): (1,)})
