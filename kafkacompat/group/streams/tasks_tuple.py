"""The tasks of a member of a streams group, in their three roles. A task is a partition of a subtopology.

Follows Kafka's TasksTuple and TasksTupleWithEpochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import string_order

Tasks: TypeAlias = "Mapping[str, frozenset[int]]"
"""Subtopology id -> partitions. Never changed in place."""
TasksWithEpochs: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Subtopology id -> partition -> the member epoch at which the task was assigned. Never changed in place."""

NO_TASKS: Tasks = {}


@dataclass(frozen=True, slots=True)
class TasksTuple:
    """What a member is to have, or says that it has."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def count(self) -> int:
        return sum(map(len, (*self.active.values(), *self.standby.values(), *self.warmup.values())))

    def contains_any(self, other: TasksTupleWithEpochs) -> bool:
        """Whether both have a task in the same role."""
        return (
            any(
                not partitions.isdisjoint(other.active.get(subtopology_id, ()))
                for subtopology_id, partitions in self.active.items()
            )
            or _overlap(self.standby, other.standby)
            or _overlap(self.warmup, other.warmup)
        )

    def has_same_tasks(self, other: TasksTupleWithEpochs) -> bool:
        return (
            self.warmup == other.warmup
            and self.standby == other.standby
            and self.active.keys() == other.active.keys()
            and all(
                partitions == other.active[subtopology_id].keys()
                for subtopology_id, partitions in self.active.items()
            )
        )


@dataclass(frozen=True, slots=True)
class TasksTupleWithEpochs:
    """What a member has been given. Only active tasks have an epoch: nothing is committed for the others."""

    active: TasksWithEpochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def count(self) -> int:
        return sum(map(len, (*self.active.values(), *self.standby.values(), *self.warmup.values())))

    def standby_and_warmup(self) -> Tasks:
        return _united(self.standby, self.warmup) if self.warmup else self.standby

    def merged_with(self, other: TasksTupleWithEpochs) -> TasksTupleWithEpochs:
        active = {
            **self.active,
            **{
                subtopology_id: {**self.active.get(subtopology_id, {}), **epochs}
                for subtopology_id, epochs in other.active.items()
            },
        }
        return TasksTupleWithEpochs(
            active, _united(self.standby, other.standby), _united(self.warmup, other.warmup)
        )


def _overlap(one: Tasks, other: Tasks) -> bool:
    return any(
        not partitions.isdisjoint(other.get(subtopology_id, ())) for subtopology_id, partitions in one.items()
    )


def _united(one: Tasks, other: Tasks) -> Tasks:
    added = {
        subtopology_id: one.get(subtopology_id, frozenset()) | partitions
        for subtopology_id, partitions in other.items()
    }
    return {**one, **added}


NOTHING = TasksTuple()
NOTHING_ASSIGNED = TasksTupleWithEpochs()


# --- from and to the structures of requests, responses and records, which all have the same fields


def tasks_of(structs: Iterable[Any]) -> dict[str, frozenset[int]]:
    return {struct.subtopology_id: frozenset(struct.partitions) for struct in structs}


def tasks_with_epochs_of(structs: Iterable[Any], member_epoch: int) -> dict[str, dict[int, int]]:
    """A record without assignment epochs has the member's epoch for them."""
    found = {}
    for struct in structs:
        epochs = struct.assignment_epochs
        if epochs is None or len(epochs) != len(struct.partitions):
            epochs = [member_epoch] * len(struct.partitions)
        found[struct.subtopology_id] = dict(zip(struct.partitions, epochs, strict=True))
    return found


def sorted_tasks(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, list[int]]]:
    """Subtopology ids and partitions, both in ascending order."""
    return [
        (subtopology_id, sorted(tasks[subtopology_id])) for subtopology_id in sorted(tasks, key=string_order)
    ]
