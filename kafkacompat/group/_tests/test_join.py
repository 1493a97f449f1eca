"""JoinGroup of dynamic members: every row of Kafka's rules for the classic protocol, through the handler."""

from __future__ import annotations

import pytest

from kafkacompat.coordinator._tests.clients import (
    GROUP,
    RANGE,
    beat,
    form_group,
    join,
    leave,
    member_id_of,
    subscription,
    sync,
)
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.deferred import Deferred
from kafkacompat.group.consumer import conversion
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_coordinator import PROTOCOLS_MAX
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.wire.errors import ErrorCode as E


def parked(answer: object) -> bool:
    return isinstance(answer, Deferred) and not answer.done


def test_a_dynamic_member_is_sent_away_with_an_id_first() -> None:
    answer = join(LeadingCoordinator(), client_id="me", version=4)
    assert answer.error_code == E.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("me-")
    assert len(answer.member_id) == len("me-") + 36
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_joins_at_once(version: int) -> None:
    world = LeadingCoordinator()
    waiting = join(world, version=version)
    assert parked(waiting)
    world.time.advance(3_000)
    answer = waiting.result()
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id


@pytest.mark.parametrize("version", range(10))
def test_a_refusal_names_no_protocol(version: int) -> None:
    answer = join(LeadingCoordinator(), "x", version=version)
    assert (answer.protocol_type, answer.protocol_name) == (None, None if version >= 7 else "")


def test_a_null_client_id_counts_as_empty() -> None:
    assert join(LeadingCoordinator(), client_id=None).member_id.startswith("-")


def test_a_client_whose_member_id_no_response_could_have_is_refused() -> None:
    world = LeadingCoordinator()
    longest = "c" * (32_767 - 37)
    assert join(world, client_id=longest).error_code == E.MEMBER_ID_REQUIRED
    for version in (0, 5, 9):
        assert join(world, client_id=longest + "c", version=version).error_code == E.INVALID_REQUEST
    two_bytes_each = "\u00e9" * (len(longest) // 2 + 1)
    assert join(world, client_id=two_bytes_each).error_code == E.INVALID_REQUEST


def test_the_member_id_of_a_static_member_begins_with_its_instance_id() -> None:
    world = LeadingCoordinator()
    assert join(world, instance="i" * 32_767).error_code == E.INVALID_REQUEST
    assert parked(join(world, instance="i", client_id="c" * 32_767))


def test_an_id_that_is_not_used_within_the_session_is_forgotten() -> None:
    world = LeadingCoordinator()
    member_id = member_id_of(world, session=6_000)
    world.time.advance(6_000)
    assert join(world, member_id).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session", [5_999, 1_800_001, 0, -1])
def test_session_timeouts_out_of_bounds(session: int) -> None:
    assert join(LeadingCoordinator(), session=session).error_code == E.INVALID_SESSION_TIMEOUT


def test_an_empty_group_id_is_refused_first() -> None:
    assert join(LeadingCoordinator(), group="", session=1).error_code == E.INVALID_GROUP_ID


def test_a_known_id_in_an_absent_group_is_unknown() -> None:
    answer = join(LeadingCoordinator(), "somebody")
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "somebody")


@pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
def test_an_empty_group_takes_no_member_without_protocols(
    kind: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    assert (
        join(LeadingCoordinator(), kind=kind, protocols=protocols).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    )


def test_a_protocol_nobody_else_speaks_or_another_type_is_refused() -> None:
    world = LeadingCoordinator()
    form_group(world)
    assert join(world, protocols=(("sticky", b""),)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    many = tuple((f"p{index}", b"") for index in range(PROTOCOLS_MAX)) + RANGE
    assert join(world, protocols=many).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(world, protocols=many[1:]).error_code == E.MEMBER_ID_REQUIRED
    assert join(world, kind="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(world, "client-x", protocols=(("sticky", b""),)).error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_and_every_newcomer_extends_it() -> None:
    world = LeadingCoordinator()
    first = join(world, member_id_of(world))
    world.time.advance(2_000)
    second = join(world, member_id_of(world))
    world.time.advance(1_000)
    assert parked(first)
    assert parked(second)
    world.time.advance(2_999)
    assert parked(first)
    world.time.advance(1)
    assert first.result().generation_id == second.result().generation_id == 1


def test_the_initial_delay_ends_at_the_rebalance_timeout() -> None:
    world = LeadingCoordinator()
    first = join(world, member_id_of(world), rebalance=7_000)
    for _ in range(3):
        world.time.advance(2_300)
        join(world, member_id_of(world, rebalance=7_000), rebalance=7_000)
    assert parked(first)
    world.time.advance(100)
    assert first.result().error_code == 0


def test_an_initial_delay_of_zero_completes_at_once() -> None:
    world = LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0))
    waiting = join(world, member_id_of(world))
    world.time.advance(0)
    assert waiting.result().generation_id == 1


def test_only_the_leader_is_told_of_the_members() -> None:
    world = LeadingCoordinator()
    first, second = member_id_of(world), member_id_of(world)
    waiting = [join(world, first), join(world, second)]
    world.time.advance(6_000)
    leader, follower = waiting[0].result(), waiting[1].result()
    assert leader.leader == follower.leader == first
    assert [each.member_id for each in leader.members] == [first, second]
    assert [each.metadata for each in leader.members] == [RANGE[0][1]] * 2
    assert follower.members == []
    assert (follower.protocol_type, follower.protocol_name, follower.skip_assignment) == (
        "consumer",
        "range",
        False,
    )


def test_a_second_joiner_makes_the_first_join_again() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    second = member_id_of(world)
    waiting = join(world, second)
    assert parked(waiting)
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS
    rejoined = join(world, first)
    assert rejoined.generation_id == waiting.result().generation_id == 2
    assert {each.member_id for each in rejoined.members} == {first, second}


def test_members_that_do_not_come_back_in_time_are_left_behind() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=1_000_000)
    waiting = join(world, first)
    world.time.advance(29_999)
    assert parked(waiting)
    world.time.advance(1)
    answer = waiting.result()
    assert [each.member_id for each in answer.members] == [first]
    assert beat(world, second, 2) == E.UNKNOWN_MEMBER_ID


def test_a_pending_id_holds_the_join_back_until_it_joins_or_expires() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    member_id_of(world, session=6_000)
    waiting = join(world, first)
    assert parked(waiting)
    world.time.advance(6_000)
    assert waiting.result().generation_id == 2


def test_leadership_goes_to_one_who_came() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=1_000_000)
    member_id_of(world, session=1_000_000)
    waiting = join(world, second, (("range", subscription("u")),))
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS
    world.time.advance(30_000)
    assert waiting.result().leader == second


def test_rejoining_while_the_plan_is_awaited() -> None:
    world = LeadingCoordinator()
    first, second = member_id_of(world), member_id_of(world)
    waiting = [join(world, first), join(world, second)]
    world.time.advance(6_000)
    assert waiting[0].result().generation_id == 1
    again = join(world, first)
    assert (again.generation_id, len(again.members)) == (1, 2)
    assert join(world, second).members == []
    changed = join(world, second, (("range", subscription("u")),))
    assert parked(changed)
    assert join(world, first).generation_id == changed.result().generation_id == 2


def test_rejoining_a_stable_group() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2)
    follower = join(world, second)
    assert (follower.generation_id, follower.members, follower.leader) == (1, [], first)
    assert parked(join(world, first))
    assert beat(world, second, 1) == E.REBALANCE_IN_PROGRESS


def test_a_follower_with_new_metadata_makes_the_group_rebalance() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2)
    changed = join(world, second, (("range", subscription("u")),))
    assert parked(changed)
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS


def test_the_rebalance_timer_follows_the_present_members() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, rebalance=20_000, session=1_000_000)
    changed = join(world, second, rebalance=8_000, protocols=(("range", subscription("u")),))
    world.time.advance(20_000)
    assert [each.member_id for each in changed.result().members] == [second]
    assert sync(world, second, 2, {second: b"x"}).error_code == 0
    third = join(world, member_id_of(world), rebalance=8_000)
    world.time.advance(8_000)
    assert third.result().generation_id == 3
    assert beat(world, first, 3) == E.UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_outlives_its_session_but_not_five_minutes() -> None:
    world = LeadingCoordinator()
    form_group(world, session=1_800_000, rebalance=400_000)
    newcomer = join(world, member_id_of(world, session=6_000), session=6_000)
    world.time.advance(299_999)
    assert parked(newcomer)
    world.time.advance(1)
    assert newcomer.result().error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "becomes_classic", [False, True], ids=["after a load", "after it was a consumer group"]
)
def test_a_new_member_keeps_its_five_minutes_if_its_group_is_taken_up_while_it_waits(
    becomes_classic: bool,
) -> None:
    """The steps that give every member a session may come to its group after it."""
    world = LeadingCoordinator()
    form_group(world, session=1_800_000, rebalance=400_000)
    newcomer = join(world, member_id_of(world, session=6_000), session=6_000)
    machine = machine_of(world.coordinator._shard(GROUP))
    group = machine.env.classic_group(GROUP)
    assert group is not None
    if becomes_classic:
        list(conversion._take_up_classic(machine.env, group))
    else:
        list(machine.on_loaded(world.time.now_ms()))
    world.time.advance(299_999)
    assert parked(newcomer)


def test_a_second_join_of_the_same_member_ends_the_first() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    member_id_of(world)
    one = join(world, first)
    two = join(world, first)
    assert one.result().error_code == E.REBALANCE_IN_PROGRESS
    assert parked(two)


def test_group_max_size() -> None:
    world = LeadingCoordinator(GroupSettings(max_size=1))
    (first,) = form_group(world)
    refused = join(world)
    assert (refused.error_code, refused.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert parked(join(world, first)) is False
    assert beat(world, first, 2) == E.NONE


def test_group_max_size_counts_those_who_wait_while_joining() -> None:
    world = LeadingCoordinator(GroupSettings(max_size=2))
    ids = [member_id_of(world) for _ in range(3)]
    waiting = [join(world, each) for each in ids]
    assert waiting[2].error_code == E.GROUP_MAX_SIZE_REACHED
    world.time.advance(6_000)
    assert len(waiting[0].result().members) == 2
    assert waiting[1].result().error_code == 0


def test_a_group_that_becomes_empty_forgets_its_protocol_but_not_its_generation() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    assert leave(world, (first, None)).error_code == 0
    assert join(world, first).error_code == E.UNKNOWN_MEMBER_ID
    waiting = join(world, member_id_of(world, kind="connect"), kind="connect")
    world.time.advance(3_000)
    assert (waiting.result().generation_id, waiting.result().protocol_type) == (3, "connect")


def test_joining_through_the_first_versions_takes_the_session_for_the_rebalance_timeout() -> None:
    world = LeadingCoordinator()
    waiting = join(world, version=0, rebalance=-1, session=6_000)
    world.time.advance(3_000)
    first = waiting.result().member_id
    assert sync(world, first, 1, {first: b""}, version=0, kind=None, name=None).error_code == 0
    second = join(world, version=0, rebalance=-1, session=6_000)
    world.time.advance(6_000)
    assert second.result().generation_id == 2
