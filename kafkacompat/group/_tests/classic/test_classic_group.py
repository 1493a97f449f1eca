"""The transition table and the counts of a classic group."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kafkacompat.group.classic.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    InvalidTransition,
    Protocols,
)
from kafkacompat.group.consumer_protocol import MalformedSubscription, subscribed_topics
from kafkacompat.wire.errors import ErrorCode

S = ClassicGroupState
EVERY = list(ClassicGroupState)
ALLOWED = {
    (S.PREPARING_REBALANCE, S.EMPTY),
    (S.STABLE, S.PREPARING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE),
    (S.EMPTY, S.PREPARING_REBALANCE),
    (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.STABLE),
} | {(state, S.DEAD) for state in EVERY}


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(EVERY, EVERY)), ids=lambda state: state.value
)
def test_every_pair_of_states_is_allowed_or_refused(before: S, after: S) -> None:
    group = ClassicGroup("g", before)
    if (before, after) in ALLOWED:
        group.transition_to(after, 5)
        assert (group.state, group.previous_state, group.current_state_timestamp_ms) == (after, before, 5)
    else:
        with pytest.raises(InvalidTransition):
            group.transition_to(after, 5)
        assert group.state is before


@pytest.mark.parametrize("state", EVERY, ids=lambda state: state.value)
def test_a_rebalance_may_begin_where_the_table_says_so(state: S) -> None:
    assert ClassicGroup("g", state).can_rebalance() == ((state, S.PREPARING_REBALANCE) in ALLOWED)


def member(
    name: str, protocols: Protocols, instance: str | None = None, rebalance_ms: int = 10
) -> ClassicGroupMember:
    return ClassicGroupMember(name, instance, "c", "/h", rebalance_ms, 10, "consumer", protocols)


def test_the_protocol_is_common_to_all_and_chosen_by_vote() -> None:
    group = ClassicGroup("g")
    group.add(member("a", (("only-a", b""), ("range", b""), ("sticky", b""))))
    group.add(member("b", (("sticky", b""), ("range", b""))))
    group.add(member("c", (("sticky", b""), ("range", b""), ("only-c", b""))))
    assert group.select_protocol() == "sticky"
    group.remove("b")
    group.state = S.STABLE
    assert group.supports_protocols("consumer", (("range", b""),))
    assert not group.supports_protocols("consumer", (("only-a", b""),))
    assert not group.supports_protocols("connect", (("range", b""),))


def test_a_protocol_is_selected_without_a_look_at_what_one_member_alone_speaks() -> None:
    """The other members may name any number of protocols."""
    group = ClassicGroup("g")
    group.add(member("a", (("range", b""),)))
    for index in range(5):
        own = tuple((f"only-{index}-{each}", b"") for each in range(50))
        group.add(member(f"b{index}", (*own, ("range", b""))))
    looked: list[str] = []

    class Counts(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            looked.append(name)
            return super().__getitem__(name)

        def items(self) -> Any:
            raise AssertionError("every protocol of every member is looked at")

    group._supported = Counts(group._supported)
    assert group.select_protocol() == "range"
    assert looked == ["range"]


def test_an_empty_group_takes_any_protocol_but_none() -> None:
    group = ClassicGroup("g")
    assert group.supports_protocols("connect", (("v1", b""),))
    assert not group.supports_protocols("", (("v1", b""),))
    assert not group.supports_protocols("connect", ())


def test_the_rebalance_timeout_is_the_longest_of_the_members() -> None:
    group = ClassicGroup("g")
    assert group.rebalance_timeout_ms() == 0
    group.add(member("a", (("r", b""),), rebalance_ms=70))
    group.add(member("b", (("r", b""),), rebalance_ms=50))
    assert group.rebalance_timeout_ms() == 70
    group.remove("a")
    assert (group.rebalance_timeout_ms(), group.leader_id) == (50, "b")


def test_members_are_known_by_id_and_instances_by_their_present_id() -> None:
    group = ClassicGroup("g")
    group.add(member("a", (("r", b""),)))
    group.add(member("i-1", (("r", b""),), instance="i"))
    group.pending_sync.add("i-1")
    group.replace_static_member("i", "i-1", "i-2")
    assert group.validate_member("a", None) is ErrorCode.NONE
    assert group.validate_member("x", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_member("i-1", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.validate_member("i-2", "i") is ErrorCode.NONE
    assert group.validate_member("a", "other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_are_read_from_any_version_of_the_subscription() -> None:
    front = b"\0\0\0\2" + b"\0\1t" + b"\0\2uu"
    assert subscribed_topics(b"\0\0" + front + b"\xff\xff\xff\xff") == ["t", "uu"]
    assert subscribed_topics(b"\0\3" + front + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\5\xff\xff") == ["t", "uu"]


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\5ab",
        b"\0\0\0\0\0\1\xff\xffab",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_what_is_no_subscription_is_refused(metadata: bytes) -> None:
    with pytest.raises(MalformedSubscription):
        subscribed_topics(metadata)


def test_a_consumer_group_with_unreadable_metadata_counts_as_subscribed_to_everything() -> None:
    group = ClassicGroup("g")
    group.add(member("a", (("range", b"rubbish"),)))
    group.state = S.PREPARING_REBALANCE
    group.init_next_generation(0)
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")
