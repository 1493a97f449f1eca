"""Groups for the tests of the assignors: written out, or drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kafkacompat.group.consumer.assignor import Assign, Assignment, GroupSpec, MemberSpec
from kafkacompat.ids import Uuid


def topic(number: int) -> Uuid:
    return number.to_bytes(16, "big")


A, B, C = topic(1), topic(2), topic(3)


def member(
    *topic_ids: Uuid,
    instance_id: str | None = None,
    assigned: Mapping[Uuid, Iterable[int]] | None = None,
) -> MemberSpec:
    owned = {topic_id: frozenset(partitions) for topic_id, partitions in (assigned or {}).items()}
    return MemberSpec(instance_id, None, frozenset(topic_ids), owned)


def group(counts: Mapping[Uuid, int], **members: MemberSpec) -> GroupSpec:
    return spec_of(members, counts)


def spec_of(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> GroupSpec:
    return GroupSpec(dict(members), dict(counts), len({each.topic_ids for each in members.values()}) < 2)


def chain(topics: int, partitions: int) -> GroupSpec:
    """Each member shares one topic with the next one. All but the last have all partitions of theirs."""
    ids = [topic(number) for number in range(topics)]
    members = {
        f"m{number}": member(
            *ids[max(0, number - 1) : number + 1],
            assigned={topic_id: range(partitions) for topic_id in ids[number : number + 1]},
        )
        for number in range(topics + 1)
    }
    return spec_of(members, dict.fromkeys(ids, partitions))


def run(
    steps: Generator[int, None, dict[str, Assignment]], costs: list[int] | None = None
) -> dict[str, Assignment]:
    """The value of a generator of steps. The costs of the steps are added to the list."""
    costs = [] if costs is None else costs
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return end.value


def after(spec: GroupSpec, target: Mapping[str, Assignment]) -> GroupSpec:
    """The group once this target assignment is the previous one."""
    members = {name: replace(each, assigned=target[name]) for name, each in spec.members.items()}
    return replace(spec, members=members)


def without(spec: GroupSpec, *member_ids: str) -> GroupSpec:
    left = {name: each for name, each in spec.members.items() if name not in member_ids}
    return spec_of(left, spec.partition_counts)


def sizes(target: Mapping[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, assignment.values())) for name, assignment in target.items()}


def moved(before: Mapping[str, Assignment], target: Mapping[str, Assignment]) -> set[tuple[Uuid, int]]:
    """The partitions that a member lost."""
    return {
        (topic_id, partition)
        for name, assignment in before.items()
        for topic_id, partitions in assignment.items()
        for partition in partitions - target.get(name, {}).get(topic_id, frozenset())
    }


def check_complete(spec: GroupSpec, target: Mapping[str, Assignment]) -> None:
    """Every partition of a subscribed topic belongs to exactly one member, which subscribes to it."""
    assert list(target) == list(spec.members)
    seen: set[tuple[Uuid, int]] = set()
    for name, assignment in target.items():
        for topic_id, partitions in assignment.items():
            assert topic_id in spec.members[name].topic_ids
            assert partitions
            here = {(topic_id, partition) for partition in partitions}
            assert not here & seen
            seen |= here
    subscribed = {topic_id for each in spec.members.values() for topic_id in each.topic_ids}
    assert seen == {
        (topic_id, partition)
        for topic_id, count in spec.partition_counts.items()
        if topic_id in subscribed
        for partition in range(count)
    }


TOPICS = [topic(number) for number in (1, 2, 3, 1 << 127, 1 << 63)]
NAMES = [*"abcdefgh", "\ue000", "\U0001f600"]
"""The last two are in another order in UTF-16 than by code points."""


@st.composite
def groups(draw: Callable[..., Any], *, homogeneous: bool | None = None) -> GroupSpec:
    """A group without earlier assignments. A subscribed topic may have no metadata."""
    known = draw(st.lists(st.sampled_from(TOPICS), unique=True, min_size=1))
    counts = {topic_id: draw(st.integers(1, 12)) for topic_id in known}
    subscription = st.frozensets(st.sampled_from(TOPICS))
    if homogeneous:
        subscription = st.just(draw(subscription))
    member_ids = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    instance_ids = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(member_ids)))
    members = {
        member_id: member(*draw(subscription), instance_id=instance_id)
        for member_id, instance_id in zip(
            member_ids, [*instance_ids, *[None] * (len(member_ids) - len(instance_ids))], strict=True
        )
    }
    return spec_of(members, counts)


@st.composite
def groups_with_a_past(
    draw: Callable[..., Any], assign: Assign, *, homogeneous: bool | None = None
) -> GroupSpec:
    """A group whose members, topics and subscriptions have changed since its last assignment."""
    earlier = draw(groups(homogeneous=homogeneous))
    target = run(assign(earlier))
    now = draw(groups(homogeneous=homogeneous))
    members = {name: replace(each, assigned=target.get(name, {})) for name, each in now.members.items()}
    counts = {
        topic_id: max(count, earlier.partition_counts.get(topic_id, 0))
        for topic_id, count in now.partition_counts.items()
    }
    return spec_of(members, counts)
