"""The simple assignor of share groups: examples that no order of a hash map decides, and random groups that change."""

from __future__ import annotations

import random
import sys
from collections.abc import Generator

import pytest

from kafkacompat.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec, assign
from kafkacompat.tasks import at_once

Shares = dict[str, dict[bytes, frozenset[int]]]


def topic(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


CALLS_MAX = 20_000
"""Of functions in one step: about 10 ms."""

T, U, V = topic("t"), topic("u"), topic("v")


def assigned(
    subscriptions: dict[str, str], counts: dict[str, int], former: Shares | None = None
) -> dict[str, dict[str, list[int]]]:
    """`subscriptions`: member -> topics, one letter each. `counts`: topic -> partitions that have a state."""
    return told(shares(subscriptions, counts, former or {}))


def shares(subscriptions: dict[str, str], counts: dict[str, int], former: Shares) -> Shares:
    members = {
        member: ShareMemberSpec(
            frozenset(topic(name) for name in topics if name in counts), former.get(member, {})
        )
        for member, topics in subscriptions.items()
    }
    assignable = {topic(name): range(count) for name, count in counts.items()}
    homogeneous = len({each.topic_ids for each in members.values()}) == 1
    return at_once(assign(ShareGroupSpec(members, assignable, homogeneous)))


def told(found: Shares) -> dict[str, dict[str, list[int]]]:
    return {
        member: {topic_id.decode().rstrip("\0"): sorted(partitions) for topic_id, partitions in each.items()}
        for member, each in found.items()
    }


def test_nobody_subscribes_to_anything() -> None:
    assert assigned({"a": "", "b": ""}, {}) == {"a": {}, "b": {}}


def test_nothing_has_a_state() -> None:
    assert assigned({"a": "t", "b": "t"}, {"t": 0}) == {"a": {}, "b": {}}


def test_one_member_has_everything() -> None:
    assert assigned({"a": "tu"}, {"t": 3, "u": 1}) == {"a": {"t": [0, 1, 2], "u": [0]}}


@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_all_members_share_the_only_partition(members: int) -> None:
    names = [f"m{index}" for index in range(members)]
    assert assigned(dict.fromkeys(names, "t"), {"t": 1}) == {name: {"t": [0]} for name in names}


def test_twice_as_many_members_as_partitions() -> None:
    found = assigned(dict.fromkeys("abcd", "t"), {"t": 2})
    assert sorted(index for each in found.values() for index in each["t"]) == [0, 0, 1, 1]
    assert all(len(each["t"]) == 1 for each in found.values())


def test_members_with_different_subscriptions_share_each_topic_on_its_own() -> None:
    found = assigned({"a": "t", "b": "tu", "c": "u"}, {"t": 2, "u": 1})
    assert found["c"] == {"u": [0]}
    assert found["b"]["u"] == [0]
    assert sorted(found["a"]["t"] + found["b"]["t"]) == [0, 1]


def test_a_member_that_joins_takes_from_those_with_too_many() -> None:
    former = {"a": {T: frozenset({0, 1})}}
    found = assigned({"a": "t", "b": "t"}, {"t": 2}, former)
    assert {tuple(each["t"]) for each in found.values()} == {(0,), (1,)}


def test_what_a_member_does_not_subscribe_to_is_taken() -> None:
    former = {"a": {T: frozenset({0}), U: frozenset({0})}, "b": {T: frozenset({1})}}
    assert assigned({"a": "t", "b": "t"}, {"t": 2}, former) == {"a": {"t": [0]}, "b": {"t": [1]}}
    found = assigned({"a": "t", "b": "u"}, {"t": 2, "u": 1}, former)
    assert (found["a"]["t"], found["b"]["u"]) == ([0, 1], [0])
    assert found["b"]["t"] == []


def test_nothing_changes_without_a_reason() -> None:
    former = {"a": {T: frozenset({1})}, "b": {T: frozenset({0})}}
    assert assigned({"a": "t", "b": "t"}, {"t": 2}, former) == {"a": {"t": [1]}, "b": {"t": [0]}}


def test_a_new_partition_goes_to_those_with_too_few() -> None:
    former = {"a": {T: frozenset({0, 1})}, "b": {T: frozenset({2})}}
    found = assigned({"a": "t", "b": "t"}, {"t": 4}, former)
    assert found == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


@pytest.mark.parametrize("homogeneous", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_group_that_changes_has_everything_assigned(seed: int, homogeneous: bool) -> None:
    chance = random.Random(seed)
    counts = {"t": chance.randint(1, 5), "u": chance.randint(1, 5), "v": 0}
    members: dict[str, str] = {}
    former: Shares = {}
    for made in range(30):
        if chance.random() < 0.6 or not members:
            members[f"m{made}"] = "tuv" if homogeneous else chance.choice(("t", "u", "tu", "tuv"))
        else:
            del members[chance.choice(list(members))]
        if chance.random() < 0.3:
            counts[chance.choice("tuv")] += 1
        if not members:
            continue
        found = shares(members, counts, {name: each for name, each in former.items() if name in members})
        check(members, counts, found)
        assert shares(members, counts, found) == found
        former = found


def check(members: dict[str, str], counts: dict[str, int], found: Shares) -> None:
    assert found.keys() == members.keys()
    having: dict[tuple[str, int], int] = {}
    for member, each in told(found).items():
        for name, partitions in each.items():
            assert not partitions or name in members[member]
            for index in partitions:
                assert index < counts[name]
                having[name, index] = having.get((name, index), 0) + 1
    subscribed = {name for topics in members.values() for name in topics}
    assert having.keys() == {(name, index) for name in subscribed for index in range(counts[name])}
    homogeneous = len(set(members.values())) == 1
    if homogeneous and having:
        most = -(-len(members) // len(having))
        assert max(having.values()) <= most


def calls_in_steps(steps: Generator[int, None, Shares]) -> tuple[Shares, list[int]]:
    """The value, and the calls of functions in each step: more than the costs can tell that it says itself."""
    counts: list[int] = []
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    while True:
        calls = 0
        sys.setprofile(count)
        try:
            next(steps)
        except StopIteration as end:
            return end.value, counts
        finally:
            sys.setprofile(None)
            counts.append(calls)


@pytest.mark.parametrize("homogeneous", [True, False])
def test_no_step_grows_with_the_partitions(homogeneous: bool) -> None:
    """One member has 20,000 partitions of 20 topics, another one joins and takes half of them."""
    topics = [topic(f"t{number}") for number in range(20)]
    assignable = {topic_id: range(1_000) for topic_id in topics}
    one = ShareMemberSpec(frozenset(topics), {})
    found, counts = calls_in_steps(assign(ShareGroupSpec({"one": one}, assignable, homogeneous)))
    assert max(counts) <= CALLS_MAX
    members = {"one": ShareMemberSpec(frozenset(topics), found["one"]), "two": one}
    found, counts = calls_in_steps(assign(ShareGroupSpec(members, assignable, homogeneous)))
    assert max(counts) <= CALLS_MAX
    assert [sum(map(len, each.values())) for each in found.values()] == [10_000, 10_000]


def test_a_large_group_is_assigned_in_short_steps() -> None:
    members = {f"m{index}": ShareMemberSpec(frozenset((T, U)), {}) for index in range(1_000)}
    spec = ShareGroupSpec(members, {T: range(3_000), U: range(3_000)}, homogeneous=True)
    costs = list(assign(spec))
    assert len(costs) > 3
    assert max(costs) < 10_000
