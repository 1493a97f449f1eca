"""The assignor "range": ranges in the members' order, and co-partitioning."""

from __future__ import annotations

from hypothesis import given

from kafkacompat.group._tests.consumer.groups import (
    A,
    B,
    C,
    after,
    check_complete,
    group,
    groups,
    member,
    run,
    sizes,
    spec_of,
    without,
)
from kafkacompat.group.consumer.assignor import GroupSpec, string_order
from kafkacompat.group.consumer.range_assignor import assign


def test_each_topic_is_cut_into_ranges_of_which_the_first_are_longer() -> None:
    spec = group({A: 3, B: 3}, m0=member(A, B), m1=member(A, B))
    assert run(assign(spec)) == {"m0": {A: {0, 1}, B: {0, 1}}, "m1": {A: {2}, B: {2}}}


def test_members_that_are_too_many_get_nothing() -> None:
    spec = group({A: 2}, m2=member(A), m1=member(A), m0=member(A))
    assert run(assign(spec)) == {"m0": {A: {0}}, "m1": {A: {1}}, "m2": {}}


def test_static_members_come_first_and_in_the_order_of_their_instance_ids() -> None:
    before = group({A: 3}, m=member(A), y=member(A, instance_id="i1"), z=member(A, instance_id="i0"))
    assert run(assign(before)) == {"z": {A: {0}}, "y": {A: {1}}, "m": {A: {2}}}
    restarted = group({A: 3}, m=member(A), b=member(A, instance_id="i0"), c=member(A, instance_id="i1"))
    assert run(assign(restarted)) == {"b": {A: {0}}, "c": {A: {1}}, "m": {A: {2}}}


def test_members_with_different_topics_share_each_topic_between_its_subscribers() -> None:
    spec = group({A: 3, B: 3, C: 3}, m0=member(A, B), m1=member(C), m2=member(B, C))
    assert run(assign(spec)) == {
        "m0": {A: {0, 1, 2}, B: {0, 1}},
        "m1": {C: {0, 1}},
        "m2": {B: {2}, C: {2}},
    }


def test_a_topic_without_metadata_is_ignored() -> None:
    assert run(assign(group({A: 1}, m0=member(A, B)))) == {"m0": {A: {0}}}
    assert run(assign(group({A: 1}, m0=member(A, B), m1=member(B)))) == {"m0": {A: {0}}, "m1": {}}


def test_a_group_without_members_or_subscriptions() -> None:
    assert run(assign(group({A: 1}))) == {}
    assert run(assign(group({A: 1}, m0=member()))) == {"m0": {}}


def test_members_are_in_javas_order_of_strings() -> None:
    spec = spec_of({"\ue000": member(A), "\U0001f600": member(A)}, {A: 1})
    assert run(assign(spec)) == {"\ue000": {}, "\U0001f600": {A: {0}}}


def test_strings_are_sorted_as_java_sorts_them() -> None:
    """A character beyond U+FFFF is two surrogates, which come before U+E000."""
    assert sorted(["\ue000", "\U0001f600", "a"], key=string_order) == ["a", "\U0001f600", "\ue000"]


@given(groups())
def test_every_partition_has_one_owner(spec: GroupSpec) -> None:
    check_complete(spec, run(assign(spec)))


@given(groups())
def test_a_members_partitions_of_a_topic_are_one_range_and_within_one_of_the_others(spec: GroupSpec) -> None:
    target = run(assign(spec))
    for topic_id in spec.partition_counts:
        subscribed = [name for name, each in spec.members.items() if topic_id in each.topic_ids]
        shares = [target[name].get(topic_id, frozenset()) for name in subscribed]
        assert all(share == set(range(min(share), max(share) + 1)) for share in shares if share)
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


@given(groups(homogeneous=True))
def test_topics_of_equal_size_are_co_partitioned(spec: GroupSpec) -> None:
    counts = spec.partition_counts
    for assignment in run(assign(spec)).values():
        by_count = {counts[topic_id]: partitions for topic_id, partitions in assignment.items()}
        assert all(partitions == by_count[counts[topic_id]] for topic_id, partitions in assignment.items())


@given(groups())
def test_earlier_assignments_do_not_matter(spec: GroupSpec) -> None:
    target = run(assign(spec))
    assert run(assign(after(spec, target))) == target


@given(groups(homogeneous=True))
def test_a_lost_member_leaves_the_rest_balanced(spec: GroupSpec) -> None:
    left = without(spec, next(iter(spec.members)))
    target = run(assign(left))
    check_complete(left, target)
    counts = sizes(target)
    topics = len(spec.partition_counts)
    assert not counts or max(counts.values()) - min(counts.values()) <= topics
