"""The reconciliation of members of streams groups: what Kafka's own class answers, and what holds for every group."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.group.streams.current_assignment_builder import Reconciliation
from kafkacompat.group.streams.sticky_task_assignor import TaskGroupSpec, TaskMemberSpec, assign
from kafkacompat.group.streams.streams_group_member import MemberState, StreamsGroupMember
from kafkacompat.group.streams.tasks_tuple import NOTHING, TasksTuple, TasksTupleWithEpochs

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_reconciliations.jsonl").read_text("utf-8").splitlines()
]
"""Random members, and what CurrentAssignmentBuilder of Apache Kafka 4.4.0 made of them."""


def tasks(told: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in told.items()}


def with_epochs(told: list[Any]) -> TasksTupleWithEpochs:
    active = {
        subtopology_id: {int(partition): epoch for partition, epoch in epochs.items()}
        for subtopology_id, epochs in told[0].items()
    }
    return TasksTupleWithEpochs(active, tasks(told[1]), tasks(told[2]))


def without_epochs(told: list[Any]) -> TasksTuple:
    return TasksTuple(*map(tasks, told))


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_member_is_reconciled_as_by_kafka(case: int) -> None:
    told, expected = CASES[case]["given"], CASES[case]["next"]
    member = StreamsGroupMember(
        "m",
        member_epoch=told["epoch"],
        previous_member_epoch=told["previous"],
        state=MemberState(told["state"]),
        process_id="p",
        assigned=with_epochs(told["assigned"]),
        pending_revocation=with_epochs(told["pending"]),
    )
    reconciliation = Reconciliation(
        told["targetEpoch"],
        without_epochs(told["target"]),
        lambda subtopology_id, partition: told["active"].get(f"{subtopology_id}_{partition}"),
        lambda subtopology_id, partition: frozenset(told["standby"].get(f"{subtopology_id}_{partition}", ())),
        lambda subtopology_id, partition: frozenset(told["warmup"].get(f"{subtopology_id}_{partition}", ())),
        None if told["owned"] is None else without_epochs(told["owned"]),
    )
    if expected[0] == "FENCED_MEMBER_EPOCH":
        with pytest.raises(OperationRefused) as refused:
            reconciliation.next_of(member)
        assert [refused.value.code.name, refused.value.message] == expected
        return
    state, epoch, previous_epoch, assigned, pending = expected
    assert reconciliation.next_of(member) == replace(
        member,
        state=MemberState(state),
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        assigned=with_epochs(assigned),
        pending_revocation=with_epochs(pending),
    )


class GroupOfWorkers:
    """Members that run what they are given, and report it."""

    def __init__(self, task_counts: dict[str, int], replicas: int) -> None:
        self.task_counts = task_counts
        self.replicas = replicas
        self.epoch = 0
        self.members: dict[str, StreamsGroupMember] = {}
        self.targets: dict[str, TasksTuple] = {}
        self.running: dict[str, TasksTuple] = {}

    def assign(self) -> None:
        """With a new epoch."""
        self.epoch += 1
        members = {
            member_id: TaskMemberSpec(
                member.process_id,
                {
                    subtopology_id: frozenset(epochs)
                    for subtopology_id, epochs in member.assigned.active.items()
                },
                member.assigned.standby,
            )
            for member_id, member in self.members.items()
        }
        steps = assign(TaskGroupSpec(members, self.task_counts, frozenset(self.task_counts), self.replicas))
        try:
            while True:
                next(steps)
        except StopIteration as end:
            self.targets = end.value

    def join(self, member_id: str, process_id: str) -> None:
        self.members[member_id] = StreamsGroupMember(member_id, process_id=process_id)
        self.running[member_id] = NOTHING
        self.assign()
        self.beat(member_id, reports=True)

    def leave(self, member_id: str) -> None:
        del self.members[member_id], self.running[member_id]
        self.assign()

    def beat(self, member_id: str, *, reports: bool) -> None:
        member = self.members[member_id]
        new = Reconciliation(
            self.epoch,
            self.targets.get(member_id, NOTHING),
            self._active_process,
            lambda subtopology_id, partition: self._processes("standby", subtopology_id, partition),
            lambda subtopology_id, partition: self._processes("warmup", subtopology_id, partition),
            self.running[member_id] if reports else None,
        ).next_of(member)
        self.members[member_id] = new
        self.check()

    def obey(self, member_id: str) -> None:
        """Revoke what has to be revoked, and run what is assigned."""
        assigned = self.members[member_id].assigned
        active = {subtopology_id: frozenset(epochs) for subtopology_id, epochs in assigned.active.items()}
        self.running[member_id] = TasksTuple(active, assigned.standby, assigned.warmup)
        self.check()

    def _active_process(self, subtopology_id: str, partition: int) -> str | None:
        for member in self.members.values():
            for held in (member.assigned, member.pending_revocation):
                if partition in held.active.get(subtopology_id, ()):
                    return member.process_id
        return None

    def _processes(self, role: str, subtopology_id: str, partition: int) -> frozenset[str]:
        return frozenset(
            member.process_id
            for member in self.members.values()
            for held in (member.assigned, member.pending_revocation)
            if partition in getattr(held, role).get(subtopology_id, ())
        )

    def check(self) -> None:
        """No task is active at two members, neither by what they were given nor by what they run."""
        for of_members in (
            [[member.assigned.active, member.pending_revocation.active] for member in self.members.values()],
            [[running.active] for running in self.running.values()],
        ):
            active = [
                (subtopology_id, partition)
                for held in of_members
                for each in held
                for subtopology_id, partitions in each.items()
                for partition in partitions
            ]
            assert len(active) == len(set(active))

    def is_at_rest(self) -> bool:
        return all(
            member.is_reconciled_to(self.epoch)
            and self.targets.get(member.member_id, NOTHING).has_same_tasks(member.assigned)
            for member in self.members.values()
        )


PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "r", "e": "r"}
EVENTS = st.tuples(
    st.sampled_from(["join", "leave", "beat", "silent beat", "obey"]), st.sampled_from([*PROCESSES])
)


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from("01"), st.integers(1, 3), min_size=1),
    st.integers(0, 2),
    st.lists(EVENTS, max_size=40),
)
def test_no_task_is_active_twice_and_a_group_left_alone_comes_to_rest(
    task_counts: dict[str, int], replicas: int, events: list[tuple[str, str]]
) -> None:
    group = GroupOfWorkers(task_counts, replicas)
    for event, member_id in events:
        is_there = member_id in group.members
        if event == "join" and not is_there:
            group.join(member_id, PROCESSES[member_id])
        elif event == "leave" and is_there:
            group.leave(member_id)
        elif event == "obey" and is_there:
            group.obey(member_id)
        elif is_there:
            group.beat(member_id, reports=event == "beat")
    for _ in range(12):
        for member_id in group.members:
            group.obey(member_id)
            group.beat(member_id, reports=True)
    assert group.is_at_rest()
