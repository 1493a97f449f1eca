"""The assignor "sticky" of streams groups: which member runs which task.

Active tasks stay with who has them, or go to who has a standby of them, up to an equal share for each member. The rest go to
the least loaded processes. Standbys are kept in the same way, and never two of one task in one process. Among equally
loaded processes the order of Java's collections decides, so that the result is Kafka's. Follows Kafka's StickyTaskAssignor.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import Meter, string_order
from kafkacompat.group.streams.tasks_tuple import Tasks, TasksTuple
from kafkacompat.ids import hash_capacity, hash_place, in_hash_order, java_string_hash

HASH_NS = 2_500
"""An id, to be put into the order of its hash."""
MEMBER_NS = 3_000
KNOWN_NS = 800
"""A task that a member has, or of which it has told the offset."""
CANDIDATE_NS = 400
"""A member with a state of a task, to be compared with the others."""
TASK_NS = 4_000
"""A task that is given to a member."""
LOOK_NS = 200
"""A task that is only looked at."""

TaskId = tuple[int, int]
"""The place of its subtopology in the order of their ids, and its partition."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskMemberSpec:
    """What the assignor knows of a member."""

    process_id: str
    active: Tasks = field(default_factory=dict)
    """Tasks that the member has now, which may not be what it is to have."""
    standby: Tasks = field(default_factory=dict)
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Subtopology id -> partition -> the sum of the offsets in the state of the task that the member has on its disk."""


@dataclass(frozen=True, slots=True)
class TaskGroupSpec:
    """What the assignor knows of a group."""

    members: Mapping[str, TaskMemberSpec]
    task_counts: Mapping[str, int]
    """Subtopology id -> number of its tasks."""
    stateful: frozenset[str]
    """The subtopologies that have a state. The others need no standbys."""
    standby_replicas: int = 0


def assign(spec: TaskGroupSpec) -> Generator[int, None, dict[str, TasksTuple]]:
    """Return the target assignment by member id. Yields the cost of each step, like the assignors of consumer groups."""
    if not spec.members:
        return {}
    assignment = _Assignment(spec)
    yield from assignment.look_at_members()
    yield from assignment.assign_active()
    yield from assignment.assign_standby()
    return (yield from assignment.result())


class _Queue(Generic[T]):
    """Java's PriorityQueue: which of several equally loaded ones comes first depends on the places in its heap."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, T]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, load: float, item: T) -> None:
        heap = self._heap
        at = len(heap)
        heap.append((load, item))
        while at:
            above = (at - 1) >> 1
            if load >= heap[above][0]:
                break
            heap[at] = heap[above]
            at = above
        heap[at] = (load, item)

    def poll(self) -> T:
        heap = self._heap
        first = heap[0][1]
        last = heap.pop()
        if not heap:
            return first
        at, count = 0, len(heap)
        while at < count >> 1:
            below = 2 * at + 1
            if below + 1 < count and heap[below][0] > heap[below + 1][0]:
                below += 1
            if last[0] <= heap[below][0]:
                break
            heap[at] = heap[below]
            at = below
        heap[at] = last
        return first


class _Process:
    """A process of the application, with some members of the group."""

    __slots__ = ("_by_load", "_task_count", "counts", "load", "tasks")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Member id -> number of tasks."""
        self.tasks: set[TaskId] = set()
        self._task_count = 0
        self.load = 0.0
        """Tasks per member."""
        self._by_load: _Queue[str] | None = None

    def add_to(self, member_id: str, task: TaskId) -> int:
        """Return how many tasks the member has then."""
        self._by_load = None
        return self._add(member_id, task)

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Return the member, and how many tasks it has then."""
        if len(self.counts) == 1:
            (member_id,) = self.counts
            return member_id, self._add(member_id, task)
        if self._by_load is None:
            self._by_load = _Queue()
            for member_id in in_hash_order(list(self.counts)):
                self._by_load.add(self.counts[member_id], member_id)
        member_id = self._by_load.poll()
        count = self._add(member_id, task)
        self._by_load.add(count, member_id)
        return member_id, count

    def _add(self, member_id: str, task: TaskId) -> int:
        self.tasks.add(task)
        self.counts[member_id] += 1
        self._task_count += 1
        self.load = self._task_count / len(self.counts)
        return self.counts[member_id]


class _Share:
    """How many tasks each member may have. Once one has that many, the rest is shared among the others."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = self._rounded_up()

    def now_has(self, count: int) -> None:
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = self._rounded_up()

    def _rounded_up(self) -> int:
        return 0 if self._members == 0 else -(-self._tasks // self._members)


class _Assignment:
    def __init__(self, spec: TaskGroupSpec) -> None:
        self._spec = spec
        self._subtopologies = sorted(spec.task_counts, key=string_order)
        self._places = {subtopology_id: place for place, subtopology_id in enumerate(self._subtopologies)}
        counts = spec.task_counts
        active = sum(counts.values())
        standby = spec.standby_replicas * sum([counts[subtopology_id] for subtopology_id in spec.stateful])
        self._active_share = _Share(active, len(spec.members))
        self._share = _Share(active + standby, len(spec.members))
        self._processes: dict[str, _Process] = {}
        self._was_active: dict[TaskId, str] = {}
        """Task -> member."""
        self._was_standby: dict[TaskId, list[str]] = {}
        """Task -> members that have a state of it, the best of them first."""
        self._active: dict[str, list[TaskId]] = {member_id: [] for member_id in spec.members}
        self._standby: dict[str, list[TaskId]] = {member_id: [] for member_id in spec.members}
        self._meter = Meter()

    # --- what members have

    def look_at_members(self) -> Generator[int, None, None]:
        candidates: dict[TaskId, list[tuple[bool, int, str]]] = {}
        members = self._spec.members
        for member_id in (yield from self._in_hash_order(members, hash_capacity(len(members)))):
            member = members[member_id]
            self._processes.setdefault(member.process_id, _Process()).counts[member_id] = 0
            known = 0
            for task in self._ids(member.active):
                self._was_active[task] = member_id
                known += 1
            standby = set(self._ids(member.standby))
            for task in [*standby, *[task for task in self._ids(member.offsets) if task not in standby]]:
                offset = member.offsets.get(self._subtopologies[task[0]], {}).get(task[1], 0)
                candidates.setdefault(task, []).append((task not in standby, -offset, member_id))
                known += 1
            if cost := self._meter.spend(MEMBER_NS + KNOWN_NS * known):
                yield cost
        for task, those in candidates.items():
            those.sort(key=_is_later)
            self._was_standby[task] = [member_id for _, _, member_id in those]
            if cost := self._meter.spend(KNOWN_NS * len(those)):
                yield cost

    def _ids(self, tasks: Mapping[str, Iterable[int]]) -> Iterator[TaskId]:
        """Of subtopologies that are still there."""
        for subtopology_id, partitions in tasks.items():
            place = self._places.get(subtopology_id)
            if place is not None:
                for partition in partitions:
                    yield place, partition

    def _in_hash_order(self, ids: Iterable[str], capacity: int) -> Generator[int, None, list[str]]:
        places = {}
        for each in ids:
            places[each] = hash_place(java_string_hash(each), capacity)
            if cost := self._meter.spend(HASH_NS):
                yield cost
        return sorted(places, key=places.__getitem__)

    def _by_partition(self, only: frozenset[str] | None = None) -> Iterator[TaskId]:
        """All tasks, or those of some subtopologies, in ascending order of their partitions, then of the subtopologies."""
        counts = self._counts(only)
        for partition in range(max(counts, default=0)):
            for place, count in enumerate(counts):
                if partition < count:
                    yield place, partition

    def _downwards(self, only: frozenset[str]) -> Iterator[TaskId]:
        counts = self._counts(only)
        for partition in reversed(range(max(counts, default=0))):
            for place in reversed(range(len(counts))):
                if partition < counts[place]:
                    yield place, partition

    def _counts(self, only: frozenset[str] | None) -> list[int]:
        counts = self._spec.task_counts
        return [
            counts[subtopology_id] if only is None or subtopology_id in only else 0
            for subtopology_id in self._subtopologies
        ]

    # --- active tasks

    def assign_active(self) -> Generator[int, None, None]:
        left = []
        for task in self._by_partition():
            former = self._was_active.get(task)
            if former is None or not self._may_run(former, task):
                left.append(task)
            if cost := self._meter.spend(TASK_NS):
                yield cost
        rest = set()
        for task in left:
            candidates = self._was_standby.get(task, ())
            former = self._least_loaded(candidates, None)
            if former is None or not self._may_run(former, task):
                rest.add(task)
            if cost := self._meter.spend(TASK_NS + CANDIDATE_NS * len(candidates)):
                yield cost
        queue = yield from self._by_load()
        for task in self._by_subtopology():
            if cost := self._meter.spend(LOOK_NS):
                yield cost
            if task not in rest:
                continue
            process = queue.poll()
            member_id, count = process.add_to_least_loaded(task)
            self._active[member_id].append(task)
            self._active_share.now_has(count)
            self._share.now_has(count)
            queue.add(process.load, process)
            if cost := self._meter.spend(TASK_NS):
                yield cost

    def _may_run(self, member_id: str, task: TaskId) -> bool:
        """Give the active task to the member, unless it has its share."""
        process = self._process_of(member_id)
        if process.counts[member_id] >= self._active_share.each:
            return False
        count = process.add_to(member_id, task)
        self._active[member_id].append(task)
        self._active_share.now_has(count)
        self._share.now_has(count)
        return True

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._spec.members[member_id].process_id]

    def _by_subtopology(self) -> Iterator[TaskId]:
        for place, count in enumerate(self._counts(None)):
            for partition in range(count):
                yield place, partition

    def _by_load(self) -> Generator[int, None, _Queue[_Process]]:
        capacity = 1
        while capacity < len(self._spec.members):
            capacity *= 2
        # Kafka adds processes by computeIfAbsent, which looks at the room before it adds, and adds in front.
        capacity = hash_capacity(len(self._processes) - 1, capacity)
        queue: _Queue[_Process] = _Queue()
        for process_id in (yield from self._in_hash_order(reversed(self._processes), capacity)):
            process = self._processes[process_id]
            queue.add(process.load, process)
        return queue

    def _least_loaded(self, member_ids: Sequence[str], standby: TaskId | None) -> str | None:
        """`standby`: the task of which the member's process must have nothing yet. None if that does not matter."""
        found = None
        load, count = 0.0, 0
        for member_id in member_ids:
            process = self._process_of(member_id)
            if standby is not None and standby in process.tasks:
                continue
            has = process.counts[member_id]
            if found is None or (process.load < load and has < count):
                found, load, count = member_id, process.load, has
        return found

    # --- standby tasks

    def assign_standby(self) -> Generator[int, None, None]:
        replicas = self._spec.standby_replicas
        if not replicas:
            return
        missing: dict[TaskId, int] = {}
        for task in self._downwards(self._spec.stateful):
            for replica in range(replicas):
                if not self._may_stand_by(task):
                    missing[task] = replicas - replica
                    break
            candidates = self._was_standby.get(task, ())
            if cost := self._meter.spend((TASK_NS + CANDIDATE_NS * len(candidates)) * replicas):
                yield cost
        queue = yield from self._by_load()
        for task in sorted(missing, reverse=True):
            for _ in range(missing[task]):
                if not self._add_standby(queue, task):
                    break  # every process has the task already
            if cost := self._meter.spend(TASK_NS * missing[task]):
                yield cost

    def _may_stand_by(self, task: TaskId) -> bool:
        """Give a standby of the task to a member that has its state, unless that has its share."""
        former = self._was_active.get(task)
        if former is not None:
            process = self._process_of(former)
            if task not in process.tasks and process.counts[former] < self._share.each:
                self._stand_by(process, former, task)
                return True
        former = self._least_loaded(self._was_standby.get(task, ()), task)
        if former is None:
            return False
        process = self._process_of(former)
        if process.counts[former] >= self._share.each:
            return False
        self._stand_by(process, former, task)
        return True

    def _stand_by(self, process: _Process, member_id: str, task: TaskId) -> None:
        self._share.now_has(process.add_to(member_id, task))
        self._standby[member_id].append(task)

    def _add_standby(self, queue: _Queue[_Process], task: TaskId) -> bool:
        """Give a standby to the least loaded process that has nothing of the task, if there is one."""
        looked_at = []
        found = False
        while queue and not found:
            process = queue.poll()
            looked_at.append(process)
            if task not in process.tasks:
                member_id, count = process.add_to_least_loaded(task)
                self._standby[member_id].append(task)
                self._share.now_has(count)
                found = True
        for process in reversed(looked_at):
            queue.add(process.load, process)
        return found

    def result(self) -> Generator[int, None, dict[str, TasksTuple]]:
        found = {}
        for member_id in self._spec.members:
            active, standby = self._active[member_id], self._standby[member_id]
            found[member_id] = TasksTuple(self._tasks(active), self._tasks(standby))
            if cost := self._meter.spend(MEMBER_NS + LOOK_NS * (len(active) + len(standby))):
                yield cost
        return found

    def _tasks(self, ids: list[TaskId]) -> Tasks:
        by_place: dict[int, list[int]] = {}
        for place, partition in ids:
            by_place.setdefault(place, []).append(partition)
        return {self._subtopologies[place]: frozenset(by_place[place]) for place in sorted(by_place)}


def _is_later(candidate: tuple[bool, int, str]) -> tuple[bool, int]:
    return candidate[:2]
