"""Static members (KIP-345): they return under their instance id, keep their partitions, and fence the former member
id."""

from __future__ import annotations

from typing import Any

from kafkacompat.coordinator._tests.clients import RANGE, beat, commit, join, leave, subscription, sync
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.wire.errors import ErrorCode as E


def static_group(world: LeadingCoordinator, *instances: str, **options: Any) -> list[str]:
    """A stable group of these instances. The first is the leader."""
    waiting = [join(world, instance=instance, **options) for instance in instances]
    world.time.advance(6_000)
    answers = [each.result() for each in waiting]
    ids = [answer.member_id for answer in answers]
    parked = [
        sync(world, each, 1, instance=name) for each, name in list(zip(ids, instances, strict=True))[1:]
    ]
    plan = {each: each.encode() for each in ids}
    assert sync(world, ids[0], 1, plan, instance=instances[0]).assignment == ids[0].encode()
    assert all(each.result().error_code == 0 for each in parked)
    return ids


def test_a_static_member_joins_at_once_under_an_id_of_its_instance() -> None:
    world = LeadingCoordinator()
    (member_id,) = static_group(world, "one")
    assert member_id.startswith("one-")
    assert beat(world, member_id, 1, instance="one") == E.NONE


def test_coming_back_without_an_id_takes_the_old_place_without_a_rebalance() -> None:
    world = LeadingCoordinator()
    leader, follower = static_group(world, "one", "two")
    back = join(world, instance="two", protocols=(("range", subscription("other")),))
    assert (back.error_code, back.generation_id, back.leader, back.members) == (0, 1, leader, [])
    assert (back.skip_assignment, back.member_id != follower) == (False, True)
    assert sync(world, back.member_id, 1, instance="two").assignment == follower.encode()
    assert beat(world, leader, 1, instance="one") == E.NONE


def test_the_old_id_is_fenced() -> None:
    world = LeadingCoordinator()
    _, follower = static_group(world, "one", "two")
    join(world, instance="two")
    assert beat(world, follower, 1, instance="two") == E.FENCED_INSTANCE_ID
    assert beat(world, follower, 1) == E.UNKNOWN_MEMBER_ID
    assert sync(world, follower, 1, instance="two").error_code == E.FENCED_INSTANCE_ID
    assert commit(world, 1, member_id=follower, generation=1, instance="two") == E.FENCED_INSTANCE_ID
    refused = join(world, follower, instance="two")
    assert (refused.error_code, refused.protocol_name) == (E.FENCED_INSTANCE_ID, None)
    assert join(world, "x", instance="three").error_code == E.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    world = LeadingCoordinator()
    static_group(world, "one", "two")
    back = join(world, instance="one", version=9)
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_before_version_9_it_is_told_of_its_former_self_as_leader() -> None:
    world = LeadingCoordinator()
    leader, _ = static_group(world, "one", "two")
    back = join(world, instance="one", version=8)
    assert (back.leader, back.members, back.skip_assignment) == (leader, [], False)
    assert back.member_id != leader


def test_a_change_of_the_selected_protocol_rebalances() -> None:
    world = LeadingCoordinator()
    both = (("range", subscription("t")), ("sticky", subscription("t")))
    static_group(world, "one", protocols=both)
    back = join(world, instance="one", protocols=(both[1], both[0]))
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_coming_back_while_the_plan_is_awaited_rebalances_and_fences_the_parked_call() -> None:
    world = LeadingCoordinator()
    waiting = [join(world, instance="one"), join(world, instance="two")]
    world.time.advance(6_000)
    leader, follower = (each.result().member_id for each in waiting)
    synced = sync(world, follower, 1, instance="two")
    back = join(world, instance="two")
    assert synced.result().error_code == E.FENCED_INSTANCE_ID
    again = join(world, leader, RANGE, instance="one")
    assert again.generation_id == back.result().generation_id == 2


def test_coming_back_while_its_own_join_is_parked_fences_that_call() -> None:
    world = LeadingCoordinator()
    first = join(world, instance="one")
    second = join(world, instance="one")
    refused = first.result()
    assert (refused.error_code, refused.protocol_name, refused.leader) == (E.FENCED_INSTANCE_ID, None, "")
    world.time.advance(6_000)
    assert second.result().error_code == 0
    assert [each.group_instance_id for each in second.result().members] == ["one"]


def test_static_members_that_do_not_rejoin_stay_in_the_plan_until_their_session_ends() -> None:
    world = LeadingCoordinator()
    leader, absent = static_group(world, "one", "two", session=60_000, rebalance=10_000)
    waiting = join(world, leader, instance="one", session=60_000, rebalance=10_000)
    world.time.advance(10_000)
    assert {each.member_id for each in waiting.result().members} == {leader, absent}
    assert sync(world, leader, 2, {leader: b"x", absent: b"y"}, instance="one").assignment == b"x"
    assert sync(world, absent, 2, instance="two").assignment == b"y"


def test_when_only_absent_static_members_are_left_the_join_waits_for_their_sessions() -> None:
    world = LeadingCoordinator()
    leader, other = static_group(world, "one", "two", session=30_000, rebalance=8_000)
    leave(world, ("", "one"))
    world.time.advance(8_000)
    assert beat(world, other, 1, instance="two") == E.REBALANCE_IN_PROGRESS
    world.time.advance(40_000)
    assert beat(world, other, 1, instance="two") == E.UNKNOWN_MEMBER_ID
    assert leader


def test_an_administrator_removes_a_static_member_by_its_instance_alone() -> None:
    world = LeadingCoordinator()
    static_group(world, "one", "two")
    answer = leave(world, ("", "two"), ("", "three"), ("wrong", "one"))
    assert answer.error_code == 0
    assert [each.error_code for each in answer.members] == [0, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID]
    assert [each.group_instance_id for each in answer.members] == ["two", "three", "one"]


def test_a_pending_dynamic_id_cannot_join_with_an_instance() -> None:
    world = LeadingCoordinator()
    member_id = join(world).member_id
    assert join(world, member_id, instance="one").error_code == E.UNKNOWN_SERVER_ERROR


def test_a_replacement_that_cannot_be_written_leaves_the_old_member_in_place() -> None:
    world = LeadingCoordinator()
    leader, follower = static_group(world, "one", "two")
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    refused = join(world, instance="two")
    assert (refused.error_code, refused.generation_id, refused.leader) == (
        E.COORDINATOR_NOT_AVAILABLE,
        1,
        leader,
    )
    world.partitions.refusal = None
    assert beat(world, follower, 1, instance="two") == E.NONE
    world.time.advance(10_000)
    assert beat(world, follower, 1, instance="two") == E.UNKNOWN_MEMBER_ID


def test_static_members_survive_a_restart() -> None:
    world = LeadingCoordinator()
    leader, follower = static_group(world, "one", "two")
    world.restart()
    assert beat(world, follower, 1, instance="two") == E.NONE
    back = join(world, instance="two")
    assert (back.generation_id, back.leader) == (1, leader)
