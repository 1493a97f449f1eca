"""The assignor "uniform": balance first, then members keep what they have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.group._tests.consumer.groups import (
    A,
    B,
    C,
    after,
    chain,
    check_complete,
    group,
    groups,
    groups_with_a_past,
    member,
    moved,
    run,
    sizes,
    spec_of,
    without,
)
from kafkacompat.group.consumer.assignor import GroupSpec
from kafkacompat.group.consumer.uniform_assignor import assign


def spread(counts: dict[str, int]) -> int:
    """The difference between the most and the fewest partitions of a member."""
    return max(counts.values()) - min(counts.values())


def test_new_members_get_equally_many_in_the_groups_order() -> None:
    spec = group({A: 2, B: 4}, m1=member(A, B), m0=member(A, B))
    assert run(assign(spec)) == {"m1": {A: {0, 1}, B: {0}}, "m0": {B: {1, 2, 3}}}


def test_only_the_last_members_get_one_more_if_nobody_has_it() -> None:
    spec = group({A: 5}, m0=member(A), m1=member(A), m2=member(A))
    assert run(assign(spec)) == {"m0": {A: {0}}, "m1": {A: {1, 2}}, "m2": {A: {3, 4}}}


def test_a_member_with_one_partition_more_keeps_it() -> None:
    spec = group(
        {A: 5},
        m0=member(A, assigned={A: [0, 1]}),
        m1=member(A, assigned={A: [2]}),
        m2=member(A, assigned={A: [3, 4]}),
    )
    assert run(assign(spec)) == {"m0": {A: {0, 1}}, "m1": {A: {2}}, "m2": {A: {3, 4}}}


def test_a_new_member_gets_what_is_above_the_quota_of_the_others() -> None:
    spec = group({A: 3, B: 3}, m0=member(A, B, assigned={A: [0, 1, 2], B: [0, 1, 2]}), m1=member(A, B))
    assert run(assign(spec)) == {"m0": {A: {0, 1, 2}}, "m1": {B: {0, 1, 2}}}


def test_new_partitions_come_before_those_that_are_revoked() -> None:
    spec = group({A: 6}, m0=member(A, assigned={A: [0, 1, 2, 3, 4]}), m1=member(A))
    assert run(assign(spec)) == {"m0": {A: {0, 1, 2}}, "m1": {A: {3, 4, 5}}}


@pytest.mark.parametrize("others", [{}, {"m1": member(A, C)}], ids=["same topics", "different topics"])
def test_topics_that_are_gone_or_no_longer_subscribed_are_taken_away(others: dict[str, object]) -> None:
    had = {A: [0], B: [0, 1], C: [0]}
    spec = group({A: 1, B: 2}, m0=member(A, C, assigned=had), **others)  # type: ignore[arg-type]
    assert run(assign(spec))["m0"] == {A: {0}}


@pytest.mark.parametrize("others", [{}, {"m2": member(B)}], ids=["same topics", "different topics"])
def test_of_two_members_with_the_same_partition_the_first_keeps_it(others: dict[str, object]) -> None:
    """No valid record says so, but a partition may not have two owners because of a damaged one."""
    spec = group(
        {A: 4, B: 1},
        m0=member(A, assigned={A: [0, 1]}),
        m1=member(A, assigned={A: [1, 2, 9, -1]}),
        **others,  # type: ignore[arg-type]
    )
    target = run(assign(spec))
    check_complete(spec, target)
    assert target["m0"] == {A: {0, 1}}


def test_members_with_different_topics_share_what_they_have_in_common() -> None:
    spec = group({A: 2, B: 4}, m0=member(A, B), m1=member(B))
    assert run(assign(spec)) == {"m0": {A: {0, 1}, B: {3}}, "m1": {B: {0, 1, 2}}}


def test_topics_with_the_most_partitions_for_a_subscriber_come_first() -> None:
    """Those with few then fill up what is uneven."""
    spec = group({B: 1, A: 2}, m0=member(A, B), m1=member(A, B), m2=member())
    assert run(assign(spec)) == {"m0": {A: {0}, B: {0}}, "m1": {A: {1}}, "m2": {}}


def test_members_without_partitions_of_the_topic_are_passed_over() -> None:
    """m0 has the most partitions of the subscribers of B, but none of B."""
    spec = group(
        {A: 5, B: 3},
        m0=member(A, B, assigned={A: [0, 2, 3, 4]}),
        m1=member(A, B, assigned={A: [1], B: [0, 1, 2]}),
        m2=member(B),
    )
    assert run(assign(spec)) == {
        "m0": {A: {0, 2, 3}},
        "m1": {A: {1, 4}, B: {0}},
        "m2": {B: {1, 2}},
    }


def test_a_group_without_members_or_subscriptions() -> None:
    assert run(assign(group({A: 1}))) == {}
    assert run(assign(group({A: 1}, m0=member()))) == {"m0": {}}
    assert run(assign(group({A: 1}, m0=member(), m1=member(B)))) == {"m0": {}, "m1": {}}


@given(groups_with_a_past(assign))
def test_every_partition_has_one_owner(spec: GroupSpec) -> None:
    check_complete(spec, run(assign(spec)))


@given(groups_with_a_past(assign, homogeneous=True))
def test_members_with_the_same_topics_have_equally_many_within_one(spec: GroupSpec) -> None:
    assert spread(sizes(run(assign(spec)))) <= 1


@given(groups_with_a_past(assign))
def test_no_partition_could_move_to_a_subscriber_with_fewer(spec: GroupSpec) -> None:
    target = run(assign(spec))
    loads = sizes(target)
    for name, assignment in target.items():
        for topic_id in assignment:
            subscribed = [other for other, each in spec.members.items() if topic_id in each.topic_ids]
            assert loads[name] - min(loads[other] for other in subscribed) <= 1


@given(groups_with_a_past(assign))
def test_a_second_run_changes_nothing(spec: GroupSpec) -> None:
    target = run(assign(spec))
    assert run(assign(after(spec, target))) == target


@given(groups_with_a_past(assign, homogeneous=True), st.data())
def test_a_lost_member_moves_only_what_it_had(spec: GroupSpec, data: st.DataObject) -> None:
    target = run(assign(spec))
    lost = data.draw(st.sampled_from(list(spec.members)))
    left = without(after(spec, target), lost)
    now = run(assign(left))
    check_complete(left, now)
    del target[lost]
    assert not moved(target, now)


@given(groups_with_a_past(assign, homogeneous=True))
def test_a_new_member_moves_only_what_it_gets(spec: GroupSpec) -> None:
    target = run(assign(spec))
    before = after(spec, target)
    one = next(iter(spec.members.values()))
    grown = replace(before, members={**before.members, "new": replace(one, assigned={})})
    now = run(assign(grown))
    assert len(moved(target, now)) == sizes(now)["new"]


@given(groups_with_a_past(assign, homogeneous=True))
def test_members_that_have_too_many_keep_as_many_as_they_may(spec: GroupSpec) -> None:
    """Nobody gives up a partition of a subscribed topic unless it is above the quota."""
    target = run(assign(spec))
    most = max(sizes(target).values())
    for name, each in spec.members.items():
        had = {
            (topic_id, partition)
            for topic_id, partitions in each.assigned.items()
            if topic_id in each.topic_ids and topic_id in spec.partition_counts
            for partition in partitions
        }
        has = {(topic_id, partition) for topic_id, numbers in target[name].items() for partition in numbers}
        assert len(had & has) >= min(len(had), most - 1)


@given(groups())
def test_the_two_algorithms_agree_on_sizes_where_both_apply(spec: GroupSpec) -> None:
    """Members with the same topics are a special case of members with different topics."""
    same = next(iter(spec.members.values())).topic_ids
    members = {name: replace(each, topic_ids=same) for name, each in spec.members.items()}
    homogeneous = spec_of(members, spec.partition_counts)
    ours = sizes(run(assign(homogeneous)))
    others = sizes(run(assign(replace(homogeneous, homogeneous=False))))
    assert sorted(ours.values()) == sorted(others.values())


def test_a_chain_of_topics_is_balanced_in_rounds() -> None:
    target = run(assign(chain(4, 20)))
    assert list(sizes(target).values()) == [18, 17, 16, 15, 14]


def test_the_number_of_rounds_is_limited() -> None:
    """More rounds would bring a long chain closer to balance, but each takes time."""
    spec = chain(8, 300)
    target = run(assign(spec))
    assert spread(sizes(target)) > 8
    check_complete(spec, target)
    assert spread(sizes(run(assign(after(spec, target))))) < spread(sizes(target))
