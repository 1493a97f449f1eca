"""The sticky assignor of tasks: what Kafka's own class answers, and what holds for every group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.group.consumer.assignor import STEP_NS
from kafkacompat.group.streams.sticky_task_assignor import (
    CANDIDATE_NS,
    KNOWN_NS,
    TaskGroupSpec,
    TaskMemberSpec,
    assign,
)
from kafkacompat.group.streams.tasks_tuple import TasksTuple

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_assignments.jsonl").read_text("utf-8").splitlines()
]
"""Random groups, and what StickyTaskAssignor of Apache Kafka 4.4.0 answered when it was called with them."""


def assigned(spec: TaskGroupSpec) -> dict[str, TasksTuple]:
    steps = assign(spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, TasksTuple] = end.value
            return found


def tasks(told: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in told.items()}


def spec_of(group: dict[str, Any]) -> TaskGroupSpec:
    return TaskGroupSpec(
        {
            member["id"]: TaskMemberSpec(
                member["process"],
                tasks(member["active"]),
                tasks(member["standby"]),
                {
                    subtopology_id: {int(partition): offset for partition, offset in offsets.items()}
                    for subtopology_id, offsets in member["offsets"].items()
                },
            )
            for member in group["members"]
        },
        {subtopology_id: count for subtopology_id, count, _ in group["topology"]},
        frozenset(subtopology_id for subtopology_id, _, is_stateful in group["topology"] if is_stateful),
        group["standbys"],
    )


@pytest.mark.parametrize("case", range(len(CASES)))
def test_tasks_are_assigned_as_by_kafka(case: int) -> None:
    expected = {
        member_id: TasksTuple(tasks(active), tasks(standby))
        for member_id, (active, standby) in CASES[case]["assignment"].items()
    }
    assert assigned(spec_of(CASES[case]["group"])) == expected


def test_the_order_of_the_members_does_not_matter() -> None:
    spec = spec_of(CASES[0]["group"])
    turned = TaskGroupSpec(
        dict(reversed(spec.members.items())), spec.task_counts, spec.stateful, spec.standby_replicas
    )
    assert assigned(turned) == assigned(spec)


def test_a_group_of_nobody_has_no_assignment() -> None:
    assert assigned(TaskGroupSpec({}, {"0": 3}, frozenset({"0"}), 1)) == {}


def test_who_has_most_of_a_state_gets_its_task() -> None:
    members = {
        "a": TaskMemberSpec("p"),
        "b": TaskMemberSpec("q", offsets={"0": {0: 10}}),
        "c": TaskMemberSpec("r", offsets={"0": {0: 20}}),
    }
    assert assigned(TaskGroupSpec(members, {"0": 1}, frozenset({"0"})))["c"].active == {"0": frozenset({0})}


@st.composite
def groups(draw: st.DrawFn) -> TaskGroupSpec:
    counts = draw(st.dictionaries(st.sampled_from("012"), st.integers(1, 6), min_size=1))
    some = st.dictionaries(
        st.sampled_from([*counts, "gone"]), st.frozensets(st.integers(0, 7), min_size=1), max_size=3
    )
    members = draw(
        st.dictionaries(
            st.sampled_from("abcdefgh"),
            st.builds(
                TaskMemberSpec,
                st.sampled_from("pqr"),
                some,
                some,
                st.dictionaries(
                    st.sampled_from([*counts]),
                    st.dictionaries(st.integers(0, 7), st.integers(0, 2**40), max_size=3),
                ),
            ),
            min_size=1,
        )
    )
    return TaskGroupSpec(
        members, counts, draw(st.frozensets(st.sampled_from([*counts]))), draw(st.integers(0, 2))
    )


@given(groups())
def test_each_task_runs_once_and_no_process_has_it_twice(spec: TaskGroupSpec) -> None:
    result = assigned(spec)
    assert result.keys() == spec.members.keys()
    ran: list[tuple[str, int]] = []
    stands_by: list[tuple[str, int]] = []
    in_process: list[tuple[str, str, int]] = []
    for member_id, target in result.items():
        assert not target.warmup
        for role, found in ((target.active, ran), (target.standby, stands_by)):
            for subtopology_id, partitions in role.items():
                assert partitions
                found += [(subtopology_id, partition) for partition in partitions]
                process_id = spec.members[member_id].process_id
                in_process += [(process_id, subtopology_id, partition) for partition in partitions]
    every = {
        (subtopology_id, partition)
        for subtopology_id, count in spec.task_counts.items()
        for partition in range(count)
    }
    assert sorted(ran) == sorted(every)
    assert len(in_process) == len(set(in_process))
    processes = {member.process_id for member in spec.members.values()}
    replicas = min(spec.standby_replicas, len(processes) - 1)
    assert {task: stands_by.count(task) for task in stands_by} == (
        {task: replicas for task in every if task[0] in spec.stateful} if replicas else {}
    )


def test_members_with_offsets_of_a_task_are_a_cost_of_its_assignment() -> None:
    """Each is looked at for each task."""
    tasks, members = 200, 50
    offsets = {"0": dict.fromkeys(range(tasks), 1)}

    def cost(told: Mapping[str, Mapping[int, int]]) -> int:
        specs = {str(number): TaskMemberSpec(str(number), offsets=told) for number in range(members)}
        return sum(assign(TaskGroupSpec(specs, {"0": tasks}, frozenset({"0"}))))

    known = tasks * members * 2 * KNOWN_NS // 1000
    looked_at = tasks * members * CANDIDATE_NS // 1000
    assert cost(offsets) - cost({}) > known + looked_at - STEP_NS // 1000
