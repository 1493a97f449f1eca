"""The assignors hold nobody up, and their result does not depend on the process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given

from kafkacompat.group._tests.consumer.groups import (
    A,
    check_complete,
    groups,
    member,
    run,
    spec_of,
    topic,
)
from kafkacompat.group.consumer import range_assignor, uniform_assignor
from kafkacompat.group.consumer.assignor import STEP_NS, Assign, GroupSpec, Meter, assign_to_one

ASSIGNORS = pytest.mark.parametrize(
    "assign", [range_assignor.assign, uniform_assignor.assign], ids=["range", "uniform"]
)
STEP_US = STEP_NS // 1000


def large_group(members: int, topics: int, partitions: int, *, homogeneous: bool) -> GroupSpec:
    ids = [topic(number) for number in range(topics)]
    return spec_of(
        {
            f"m{number}": member(*(ids if homogeneous or number % 2 else ids[: topics // 2]))
            for number in range(members)
        },
        dict.fromkeys(ids, partitions),
    )


@ASSIGNORS
@pytest.mark.parametrize(
    ("members", "topics", "partitions", "homogeneous"),
    [
        (1000, 1, 10_000, True),
        (1000, 100, 100, True),
        (1000, 1000, 10, True),
        (1000, 2, 5000, False),
        (1000, 100, 100, False),
    ],
)
def test_a_large_group_is_assigned_in_steps(
    assign: Assign, members: int, topics: int, partitions: int, homogeneous: bool
) -> None:
    spec = large_group(members, topics, partitions, homogeneous=homogeneous)
    costs: list[int] = []
    check_complete(spec, run(assign(spec), costs))
    assert costs
    assert all(STEP_US <= cost <= 2 * STEP_US for cost in costs), costs


@ASSIGNORS
def test_the_estimates_grow_with_the_subscriptions(assign: Assign) -> None:
    """A million subscriptions of members to topics take some ten ms, even though there are few partitions."""
    assert sum(assign(large_group(1000, 1000, 1, homogeneous=False))) > 10 * STEP_US


@ASSIGNORS
@pytest.mark.parametrize("homogeneous", [True, False])
@given(earlier=groups(), now=groups())
def test_a_single_member_gets_what_every_assignor_would_give_it(
    assign: Assign, homogeneous: bool, earlier: GroupSpec, now: GroupSpec
) -> None:
    """Whatever it had of a larger group before. One that names topics and has an expression does not count as homogeneous."""
    had = next(iter(run(assign(earlier)).values()))
    name, one = next(iter(now.members.items()))
    counts = now.partition_counts | {A: 0}
    spec = GroupSpec({name: replace(one, assigned=had)}, counts, homogeneous)
    assert assign_to_one(spec) == run(assign(spec))


def test_a_meter_tells_the_cost_of_a_step_when_it_is_over() -> None:
    meter = Meter()
    assert [meter.spend(STEP_NS // 2) for _ in range(4)] == [0, STEP_US, 0, STEP_US]


PROGRAM = """
from kafkacompat.group._tests.consumer.groups import run
from kafkacompat.group._tests.consumer.test_assignor_steps import large_group
from kafkacompat.group.consumer import range_assignor, uniform_assignor
for module in (range_assignor, uniform_assignor):
    for homogeneous in (True, False):
        target = run(module.assign(large_group(7, 12, 5, homogeneous=homogeneous)))
        print([(name, [(topic, sorted(numbers)) for topic, numbers in each.items()]) for name, each in target.items()])
"""


def test_the_order_of_sets_does_not_matter() -> None:
    """Topic ids are in sets, and the order of a set depends on the process."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == 4
