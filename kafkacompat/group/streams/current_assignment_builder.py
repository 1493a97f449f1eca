"""The reconciliation of one member of a streams group: its next tasks on the way to the target (KIP-1071).

A task that goes to another member is first revoked by its owner and then released. A member that has a task in one role
and is to have it in another keeps it, because its process has the state already. Follows Kafka's
CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.streams.streams_group_member import MemberState, StreamsGroupMember
from kafkacompat.group.streams.tasks_tuple import (
    NOTHING_ASSIGNED,
    Tasks,
    TasksTuple,
    TasksTupleWithEpochs,
    TasksWithEpochs,
)
from kafkacompat.wire.errors import ErrorCode

NO_PROCESSES: frozenset[str] = frozenset()
NO_EPOCHS: Mapping[int, int] = {}
NO_PARTITIONS: frozenset[int] = frozenset()

MutableTasks = dict[str, set[int]]
MutableTasksWithEpochs = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a member is reconciled with."""

    target_epoch: int
    target: TasksTuple
    active_process: Callable[[str, int], str | None]
    """The process in which a task is active. None if the task is free."""
    standby_processes: Callable[[str, int], AbstractSet[str]]
    warmup_processes: Callable[[str, int], AbstractSet[str]]
    owned: TasksTuple | None
    """The tasks that the request says the member has, None if it says nothing."""

    def next_of(self, member: StreamsGroupMember) -> StreamsGroupMember:
        """The member after this step, or the same if it cannot go on. Raises OperationRefused FENCED_MEMBER_EPOCH."""
        if member.state is MemberState.STABLE:
            if member.member_epoch == self.target_epoch:
                return member
            return self._towards_target(member, member.member_epoch)
        if member.state is MemberState.UNREVOKED_TASKS:
            if self._owns_any(member.pending_revocation):
                return member
            return self._towards_target(member, member.member_epoch + 1)
        if member.state is MemberState.UNRELEASED_TASKS:
            return self._towards_target(member, member.member_epoch)
        if self.owned is None or not self.owned.is_empty():
            raise OperationRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        return self._towards_target(member, self.target_epoch)

    def _owns_any(self, revoked: TasksTupleWithEpochs) -> bool:
        """Also if the request does not say what the member owns."""
        return self.owned is None or self.owned.contains_any(revoked)

    def _towards_target(self, member: StreamsGroupMember, epoch: int) -> StreamsGroupMember:
        had, target, process_id = member.assigned, self.target, member.process_id

        def runs_elsewhere_here(subtopology_id: str, partition: int) -> bool:
            """Whether another member of this process has the task active."""
            return self.active_process(
                subtopology_id, partition
            ) == process_id and partition not in had.active.get(subtopology_id, ())

        def is_with(
            processes: Callable[[str, int], AbstractSet[str]],
            tasks: Tasks,
            subtopology_id: str,
            partition: int,
        ) -> bool:
            """Whether another member of this process has the task in this role."""
            return process_id in processes(subtopology_id, partition) and partition not in tasks.get(
                subtopology_id, ()
            )

        def active_unreleased(subtopology_id: str, partition: int) -> bool:
            return (
                self.active_process(subtopology_id, partition) is not None
                or is_with(self.standby_processes, had.standby, subtopology_id, partition)
                or is_with(self.warmup_processes, had.warmup, subtopology_id, partition)
            )

        def standby_unreleased(subtopology_id: str, partition: int) -> bool:
            return (
                runs_elsewhere_here(subtopology_id, partition)
                or process_id in self.standby_processes(subtopology_id, partition)
                or is_with(self.warmup_processes, had.warmup, subtopology_id, partition)
            )

        def warmup_unreleased(subtopology_id: str, partition: int) -> bool:
            return (
                self.active_process(subtopology_id, partition) == process_id
                or is_with(self.standby_processes, had.standby, subtopology_id, partition)
                or process_id in self.warmup_processes(subtopology_id, partition)
            )

        active = _Active(had.active, target.active, self.target_epoch, active_unreleased)
        standby = _Replicas(had.standby, target.standby, standby_unreleased)
        warmup = _Replicas(had.warmup, target.warmup, warmup_unreleased)
        standby.take_over(had.active)
        warmup.take_over(had.standby, standby.revoked)
        standby.take_over(had.warmup, warmup.revoked)

        standby.keep_what_becomes_active(target.active)
        warmup.keep_what_becomes_active(target.active)
        revoked = TasksTupleWithEpochs(active.revoked, _frozen(standby.revoked), _frozen(warmup.revoked))
        must_revoke = not revoked.is_empty() and self._owns_any(revoked)
        granted: TasksWithEpochs = {} if must_revoke else active.added
        standby.hold_until_active(target.active, granted)
        warmup.hold_until_active(target.active, granted)
        kept = TasksTupleWithEpochs(active.kept, _frozen(standby.kept), _frozen(warmup.kept))
        if must_revoke:
            return replace(
                member,
                state=MemberState.UNREVOKED_TASKS,
                previous_member_epoch=member.member_epoch,
                member_epoch=epoch,
                assigned=kept,
                pending_revocation=revoked,
            )
        waits = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
        added = TasksTupleWithEpochs(active.added, _frozen(standby.added), _frozen(warmup.added))
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
            previous_member_epoch=member.member_epoch,
            member_epoch=self.target_epoch,
            assigned=kept if added.is_empty() else kept.merged_with(added),
            pending_revocation=NOTHING_ASSIGNED,
        )


class _Active:
    """Active tasks: which are kept, which have to be revoked, and which are added."""

    __slots__ = ("added", "has_unreleased", "kept", "revoked")

    def __init__(
        self,
        present: TasksWithEpochs,
        wanted: Tasks,
        epoch: int,
        is_unreleased: Callable[[str, int], bool],
    ) -> None:
        self.kept: MutableTasksWithEpochs = {}
        self.revoked: MutableTasksWithEpochs = {}
        self.added: MutableTasksWithEpochs = {}
        self.has_unreleased = False
        for subtopology_id in {**wanted, **present}:
            had = present.get(subtopology_id, NO_EPOCHS)
            wants = wanted.get(subtopology_id, NO_PARTITIONS)
            kept = {partition: at for partition, at in had.items() if partition in wants}
            revoked = {partition: at for partition, at in had.items() if partition not in wants}
            missing = [partition for partition in wants if partition not in kept]
            free = [partition for partition in missing if not is_unreleased(subtopology_id, partition)]
            self.has_unreleased = self.has_unreleased or len(free) < len(missing)
            if kept:
                self.kept[subtopology_id] = kept
            if revoked:
                self.revoked[subtopology_id] = revoked
            if free:
                self.added[subtopology_id] = dict.fromkeys(free, epoch)


class _Replicas:
    """Standby or warm-up tasks: which are kept, which have to be revoked, and which are added."""

    __slots__ = ("_had", "added", "has_unreleased", "kept", "revoked")

    def __init__(self, present: Tasks, wanted: Tasks, is_unreleased: Callable[[str, int], bool]) -> None:
        self._had = present
        self.kept: MutableTasks = {}
        self.revoked: MutableTasks = {}
        self.added: MutableTasks = {}
        self.has_unreleased = False
        for subtopology_id in {**wanted, **present}:
            had = present.get(subtopology_id, NO_PARTITIONS)
            wants = wanted.get(subtopology_id, NO_PARTITIONS)
            missing = wants - had
            free = {partition for partition in missing if not is_unreleased(subtopology_id, partition)}
            self.has_unreleased = self.has_unreleased or len(free) < len(missing)
            for tasks, partitions in (
                (self.kept, set(had & wants)),
                (self.revoked, set(had - wants)),
                (self.added, free),
            ):
                if partitions:
                    tasks[subtopology_id] = partitions

    def take_over(
        self, had: Mapping[str, Mapping[int, int] | frozenset[int]], revoked: MutableTasks | None = None
    ) -> None:
        """What the member had in another role is this role's at once. It then need not be revoked from that one."""
        for subtopology_id, partitions in had.items():
            for partition in partitions:
                if partition not in self.added.get(subtopology_id, ()):
                    continue
                _remove(self.added, subtopology_id, partition)
                self.kept.setdefault(subtopology_id, set()).add(partition)
                if revoked is not None:
                    _remove(revoked, subtopology_id, partition)

    def keep_what_becomes_active(self, active: Tasks) -> None:
        """A task that is to be active here need not be given up."""
        for subtopology_id, partitions in self._had.items():
            for partition in partitions & active.get(subtopology_id, NO_PARTITIONS):
                _remove(self.revoked, subtopology_id, partition)

    def hold_until_active(self, active: Tasks, granted: TasksWithEpochs) -> None:
        """A task that is to be active here stays in its role until it is."""
        for subtopology_id, partitions in self._had.items():
            now = granted.get(subtopology_id, NO_EPOCHS)
            for partition in partitions & active.get(subtopology_id, NO_PARTITIONS):
                if partition not in now:
                    self.kept.setdefault(subtopology_id, set()).add(partition)


def _remove(tasks: MutableTasks, subtopology_id: str, partition: int) -> None:
    partitions = tasks.get(subtopology_id)
    if partitions is not None and partition in partitions:
        partitions.discard(partition)
        if not partitions:
            del tasks[subtopology_id]


def _frozen(tasks: MutableTasks) -> dict[str, frozenset[int]]:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in tasks.items()}
