"""Plans for the placement of replicas: balanced, rack aware, with few moves. Also Kafka's JSON form of a plan.

The input is the current replicas and the wanted brokers, the output the wanted replicas. Pure: no connections and no
files. The JSON form is that of kafka-reassign-partitions (version 1).
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from kafkacompat.failure import CommandFailed

TopicPartition = tuple[str, int]
Assignment = Mapping[TopicPartition, Sequence[int]]
Plan = dict[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, preferred leader first."""

PLAN_VERSION = 1


def balanced_plan(
    current: Assignment,
    brokers: Sequence[int],
    racks: Mapping[int, str | None] | None = None,
    replication_factor: int | None = None,
) -> Plan:
    """Place every partition on these brokers. Their numbers of replicas, and of preferred leaders, differ by at most
    one.

    A replica stays where it is unless its broker is not wanted or has too many replicas. If every broker has a rack,
    each partition is placed in as many racks as possible. Raises CommandFailed if there are fewer brokers than
    replicas.
    """
    balancer = _Balancer(current, brokers, racks or {}, replication_factor)
    balancer.balance_topics()
    balancer.balance_brokers()
    balancer.balance_leaders()
    return balancer.plan


def evacuation_plan(
    current: Assignment, leaving: int, remaining: Sequence[int], racks: Mapping[int, str | None] | None = None
) -> Plan:
    """Move only the partitions on the leaving broker. Each of its replicas goes to another broker, the least loaded first."""
    balancer = _Balancer(current, remaining, racks or {}, None)
    return {where: replicas for where, replicas in balancer.plan.items() if leaving in current[where]}


def changes_of(current: Assignment, plan: Plan) -> Plan:
    """Return the part of a plan that differs from the current replicas. Raises CommandFailed for an unknown partition."""
    for topic, number in plan:
        if (topic, number) not in current:
            raise CommandFailed(f"the plan names {topic}-{number}, which does not exist")
    return {where: replicas for where, replicas in plan.items() if tuple(current[where]) != replicas}


def copies_of(current: Assignment, plan: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the brokers that get a new replica of each partition."""
    return {
        where: tuple(each for each in replicas if each not in current[where])
        for where, replicas in plan.items()
        if set(replicas) - set(current[where])
    }


def plan_to_json(plan: Assignment) -> str:
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": PLAN_VERSION, "partitions": partitions})


def plan_from_json(text: str) -> Plan:
    """Parse a plan in the form of kafka-reassign-partitions. log_dirs may only be "any". CommandFailed names the error."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"the plan is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise CommandFailed('the plan does not have the form {"version": 1, "partitions": [...]}')
    if document.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise CommandFailed(f"the plan has version {document['version']!r}; supported is {PLAN_VERSION}")
    plan: Plan = {}
    for entry in document["partitions"]:
        where, replicas = _entry(entry)
        if where in plan:
            raise CommandFailed(f"the plan names {where[0]}-{where[1]} more than once")
        plan[where] = replicas
    if not plan:
        raise CommandFailed("the plan lists no partition")
    return plan


def _entry(entry: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise CommandFailed(f"the plan's entry {entry!r} is not an object")
    topic, number, replicas = (entry.get(name) for name in ("topic", "partition", "replicas"))
    is_whole = (
        isinstance(topic, str)
        and _is_number(number)
        and isinstance(replicas, list)
        and all(_is_number(each) for each in replicas)
    )
    if not is_whole:
        raise CommandFailed(f"the plan's entry {json.dumps(entry)} needs topic, partition and replicas")
    assert isinstance(topic, str)
    assert isinstance(number, int)
    assert isinstance(replicas, list)
    if not replicas or len(set(replicas)) != len(replicas):
        raise CommandFailed(
            f"the plan gives {topic}-{number} the replicas {replicas}: empty, or one repeated"
        )
    if any(each != "any" for each in entry.get("log_dirs") or ()):
        raise CommandFailed(
            f"the plan names directories for {topic}-{number}; only brokers can be chosen here"
        )
    return (topic, number), tuple(replicas)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Balancer:
    """A plan under construction. At first every partition is on wanted brokers only, with as few moves as possible."""

    def __init__(
        self,
        current: Assignment,
        brokers: Sequence[int],
        racks: Mapping[int, str | None],
        replication_factor: int | None,
    ) -> None:
        self._brokers = sorted(set(brokers))
        self._racks: dict[int, str] = {}
        named = {each: racks.get(each) for each in self._brokers}
        if all(rack is not None for rack in named.values()):
            self._racks = {each: rack for each, rack in named.items() if rack is not None}
        self.plan: Plan = {}
        self._of_topic: dict[str, Counter[int]] = {}
        self._of_broker: Counter[int] = Counter()
        sizes = {where: replication_factor or len(replicas) for where, replicas in current.items()}
        for (topic, number), size in sizes.items():
            if size > len(self._brokers):
                raise CommandFailed(
                    f"{topic}-{number} has {size} replicas; {len(self._brokers)} brokers are too few"
                )
        for where, replicas in sorted(current.items()):
            kept = [each for each in replicas if each in named][: sizes[where]]
            self._put(where, tuple(kept))
        for where in sorted(current):
            self._fill(where, sizes[where])
            self._spread_over_racks(where)

    def _put(self, where: TopicPartition, replicas: tuple[int, ...]) -> None:
        before = self.plan.get(where, ())
        counts = self._of_topic.setdefault(where[0], Counter())
        for each in before:
            counts[each] -= 1
            self._of_broker[each] -= 1
        for each in replicas:
            counts[each] += 1
            self._of_broker[each] += 1
        self.plan[where] = replicas

    def _fill(self, where: TopicPartition, size: int) -> None:
        while len(self.plan[where]) < size:
            replicas = self.plan[where]
            taken = {self._racks.get(each) for each in replicas} if self._racks else set()
            chosen = min(
                (each for each in self._brokers if each not in replicas),
                key=lambda each: (self._racks.get(each) in taken, *self._load(where[0], each)),
            )
            self._put(where, (*replicas, chosen))

    def _load(self, topic: str, broker: int) -> tuple[int, int, int]:
        return self._of_topic[topic][broker], self._of_broker[broker], broker

    def _rack_count(self, replicas: Sequence[int]) -> int:
        return len({self._racks[each] for each in replicas}) if self._racks else 0

    def _spread_over_racks(self, where: TopicPartition) -> None:
        """Move replicas that share a rack to racks without a replica."""
        if not self._racks:
            return
        possible = min(len(self.plan[where]), len(set(self._racks.values())))
        while self._rack_count(self.plan[where]) < possible:
            replicas = self.plan[where]
            crowded = Counter(self._racks[each] for each in replicas)
            source = max(
                (each for each in replicas if crowded[self._racks[each]] > 1),
                key=lambda each: self._load(where[0], each),
            )
            target = min(
                (each for each in self._brokers if self._racks[each] not in crowded),
                key=lambda each: self._load(where[0], each),
            )
            self._put(where, tuple(target if each == source else each for each in replicas))

    def balance_topics(self) -> None:
        """Balance each topic: no broker has two replicas more than another, if the racks allow that."""
        for topic, counts in self._of_topic.items():
            self._level(counts, self._partitions_of(topic))

    def balance_brokers(self) -> None:
        """Balance all topics together in the same way. A topic moves a replica only if the topic stays balanced."""

        def giving(source: int, target: int) -> list[TopicPartition]:
            topics = {topic for topic, counts in self._of_topic.items() if counts[source] > counts[target]}
            return [where for where in self.plan if where[0] in topics]

        self._level(self._of_broker, giving)

    def _partitions_of(self, topic: str) -> Callable[[int, int], Sequence[TopicPartition]]:
        mine = [where for where in self.plan if where[0] == topic]
        return lambda _source, _target: mine

    def _level(self, load: Counter[int], candidates: Callable[[int, int], Sequence[TopicPartition]]) -> None:
        moved = True
        while moved:
            moved = False
            by_load = sorted(self._brokers, key=lambda each: (load[each], self._of_broker[each], each))
            for source in reversed(by_load):
                for target in by_load:
                    if load[source] - load[target] < 2:
                        break
                    if self._move_one(source, target, candidates(source, target)):
                        moved = True
                        break
                if moved:
                    break

    def _move_one(self, source: int, target: int, candidates: Sequence[TopicPartition]) -> bool:
        for where in candidates:
            replicas = self.plan[where]
            if source in replicas and target not in replicas:
                after = tuple(target if each == source else each for each in replicas)
                if self._rack_count(after) >= self._rack_count(replicas):
                    self._put(where, after)
                    return True
        return False

    def balance_leaders(self) -> None:
        """Balance preferred leaders to a difference of one, if the replicas allow that. No replica moves."""
        led: Counter[int] = Counter(replicas[0] for replicas in self.plan.values() if replicas)
        while True:
            by_load = sorted(self._brokers, key=lambda each: (led[each], each))
            path = next(
                (
                    found
                    for source in reversed(by_load)
                    if (found := self._path_of_leadership(source, led)) is not None
                ),
                None,
            )
            if path is None:
                return
            for where, target in path:
                replicas = self.plan[where]
                led[replicas[0]] -= 1
                led[target] += 1
                self.plan[where] = (target, *(each for each in replicas if each != target))

    def _path_of_leadership(self, source: int, led: Counter[int]) -> list[tuple[TopicPartition, int]] | None:
        """Return the shortest chain of partitions whose new leaders take one leadership from the source broker.

        The last partition gives one to a broker that leads at least two fewer.
        """
        ways: dict[int, list[tuple[TopicPartition, int]]] = {}
        for where, replicas in self.plan.items():
            for other in replicas[1:]:
                ways.setdefault(replicas[0], []).append((where, other))
        came: dict[int, tuple[int, TopicPartition]] = {}
        seen, queue = {source}, deque([source])
        while queue:
            at = queue.popleft()
            if led[source] - led[at] >= 2:
                path: list[tuple[TopicPartition, int]] = []
                while at != source:
                    before, where = came[at]
                    path.append((where, at))
                    at = before
                return path
            for where, other in ways.get(at, ()):
                if other not in seen:
                    seen.add(other)
                    came[other] = (at, where)
                    queue.append(other)
        return None
