"""SyncGroup, Heartbeat and LeaveGroup, row by row, through the handlers."""

from __future__ import annotations

import pytest

from kafkacompat.coordinator._tests.clients import (
    beat,
    form_group,
    join,
    leave,
    member_id_of,
    subscription,
    sync,
)
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.group._tests.test_join import parked
from kafkacompat.wire.errors import ErrorCode as E


def completing(world: LeadingCoordinator, size: int = 2, **options: int) -> list[str]:
    """A group whose members have joined generation 1 and wait for the assignment."""
    ids = [member_id_of(world) for _ in range(size)]
    waiting = [join(world, each, **options) for each in ids]  # type: ignore[arg-type]
    world.time.advance(6_000)
    assert all(each.result().error_code == 0 for each in waiting)
    return ids


def test_every_member_gets_its_bytes_and_the_forgotten_get_none() -> None:
    world = LeadingCoordinator()
    leader, second, third = completing(world, 3)
    waiting = [sync(world, second, 1), sync(world, third, 1)]
    assert all(parked(each) for each in waiting)
    assert world.coordinator.meters.completed_rebalances.count == 0
    big = bytes(range(256)) * 400
    assert sync(world, leader, 1, {leader: b"\0\1x", second: big, "stranger": b"z"}).assignment == b"\0\1x"
    assert [each.result().assignment for each in waiting] == [big, b""]
    assert world.coordinator.meters.completed_rebalances.count == 1
    answer = sync(world, second, 1)
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (big, "consumer", "range")


def test_refusals_of_sync() -> None:
    world = LeadingCoordinator()
    assert sync(world, "x", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert sync(world, "x", 1, group="").error_code == E.INVALID_GROUP_ID
    leader, second = completing(world)
    assert sync(world, "x", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert sync(world, second, 2).error_code == E.ILLEGAL_GENERATION
    assert sync(world, second, 1, name="sticky").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(world, second, 1, kind="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(world, second, 1, name=None).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert parked(sync(world, second, 1, name=None, kind=None, version=4))
    join(world, leader, (("range", subscription("u")),))
    refused = sync(world, second, 1)
    assert (refused.error_code, refused.assignment, refused.protocol_name) == (
        E.REBALANCE_IN_PROGRESS,
        b"",
        None,
    )


def test_an_empty_group_knows_nobody_to_sync() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    leave(world, (first, None))
    assert sync(world, first, 2).error_code == E.UNKNOWN_MEMBER_ID


def test_a_rebalance_while_followers_wait_sends_them_back_to_join() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world)
    waiting = sync(world, second, 1)
    changed = join(world, leader, (("range", subscription("u")),))
    assert waiting.result().error_code == E.REBALANCE_IN_PROGRESS
    assert parked(changed)


def test_members_that_never_sync_are_evicted() -> None:
    world = LeadingCoordinator()
    leader, silent = completing(world, rebalance=20_000, session=100_000)
    assert sync(world, leader, 1, {leader: b"a"}).error_code == 0
    assert beat(world, silent, 1) == E.NONE
    world.time.advance(20_000)
    assert beat(world, silent, 1) == E.UNKNOWN_MEMBER_ID
    assert beat(world, leader, 1) == E.REBALANCE_IN_PROGRESS


def test_a_leader_without_a_plan_is_evicted_and_its_followers_join_again() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world, rebalance=20_000, session=100_000)
    waiting = sync(world, second, 1)
    world.time.advance(20_000)
    assert waiting.result().error_code == E.REBALANCE_IN_PROGRESS
    assert beat(world, leader, 1) == E.UNKNOWN_MEMBER_ID
    again = join(world, second)
    assert (again.generation_id, again.leader) == (2, second)


def test_a_member_that_waited_for_its_plan_for_longer_than_its_session_has_a_session_from_then_on() -> None:
    """The end of its session is ignored while it waits. Otherwise nothing would notice if it died right after the
    answer."""
    world = LeadingCoordinator()
    leader, second = completing(world, rebalance=60_000, session=10_000)
    waiting = sync(world, second, 1)
    for _ in range(3):
        world.time.advance(5_000)
        assert beat(world, leader, 1) == E.NONE
    sync(world, leader, 1, {leader: b"a", second: b"b"})
    assert waiting.result().assignment == b"b"
    for _ in range(2):
        world.time.advance(5_000)
        told = beat(world, leader, 1)
    assert told == E.REBALANCE_IN_PROGRESS
    assert beat(world, second, 1) == E.UNKNOWN_MEMBER_ID


def test_a_second_sync_of_the_same_member_ends_the_first() -> None:
    world = LeadingCoordinator()
    _, second = completing(world)
    one, two = sync(world, second, 1), sync(world, second, 1)
    assert one.result().error_code == E.REBALANCE_IN_PROGRESS
    assert parked(two)


def test_a_plan_that_cannot_be_written_fails_everybody_and_starts_over() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world)
    waiting = sync(world, second, 1)
    world.partitions.refusal = E.NOT_LEADER_OR_FOLLOWER
    assert sync(world, leader, 1, {leader: b"a", second: b"b"}).error_code == E.NOT_COORDINATOR
    assert waiting.result().error_code == E.NOT_COORDINATOR
    world.partitions.refusal = None
    assert beat(world, leader, 1) == E.REBALANCE_IN_PROGRESS


def test_the_plan_is_handed_out_only_once_it_is_committed() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world)
    follower = sync(world, second, 1)
    world.partitions.held = True
    first = sync(world, leader, 1, {leader: b"a", second: b"b"})
    assert parked(first)
    assert parked(follower)
    world.partitions.release()
    assert (first.result().assignment, follower.result().assignment) == (b"a", b"b")


def test_a_plan_of_a_generation_that_is_over_changes_nothing() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world)
    world.partitions.held = True
    stale = sync(world, leader, 1, {leader: b"a"})
    changed = join(world, second, (("range", subscription("u")),))
    assert stale.result().error_code == E.REBALANCE_IN_PROGRESS
    world.partitions.release()
    assert parked(changed)
    assert beat(world, leader, 1) == E.REBALANCE_IN_PROGRESS


def test_heartbeats_by_state() -> None:
    world = LeadingCoordinator()
    assert beat(world, "x", 1) == E.UNKNOWN_MEMBER_ID
    assert beat(world, "x", 1, group="") == E.INVALID_GROUP_ID
    leader, second = completing(world)
    assert beat(world, leader, 1) == E.NONE
    assert beat(world, leader, 2) == E.ILLEGAL_GENERATION
    assert beat(world, "x", 1) == E.UNKNOWN_MEMBER_ID
    sync(world, second, 1)
    sync(world, leader, 1, {})
    assert beat(world, second, 1) == E.NONE
    join(world, leader)
    assert beat(world, second, 1) == E.REBALANCE_IN_PROGRESS


def test_a_member_that_stays_silent_is_removed_and_the_others_rebalance() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=10_000)
    for _ in range(3):
        world.time.advance(4_000)
        code = beat(world, first, 1)
    assert code == E.REBALANCE_IN_PROGRESS
    assert beat(world, second, 1) == E.UNKNOWN_MEMBER_ID
    assert join(world, first).generation_id == 2


def test_heartbeats_while_rebalancing_keep_the_session() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=10_000, rebalance=30_000)
    join(world, second, (("range", subscription("u")),), rebalance=30_000)
    for _ in range(5):
        world.time.advance(5_000)
        assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS


def test_a_parked_call_counts_as_alive() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=10_000, rebalance=60_000)
    waiting = join(world, second, (("range", subscription("u")),), rebalance=60_000)
    for _ in range(6):
        world.time.advance(9_000)
        beat(world, first, 1)
    assert parked(waiting)
    assert join(world, first).generation_id == waiting.result().generation_id == 2


def test_leaving_by_list() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2)
    answer = leave(world, (second, None), ("x", None), ("", None))
    assert answer.error_code == 0
    assert [each.error_code for each in answer.members] == [0, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS
    assert join(world, first).generation_id == 2


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_the_members_error_is_the_responses(version: int) -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    refused = leave(world, ("x", None), version=version)
    assert (refused.error_code, refused.members) == (E.UNKNOWN_MEMBER_ID, [])
    assert leave(world, (first, None), version=version).error_code == 0
    assert leave(world, ("x", None), group="absent", version=version).error_code == E.UNKNOWN_MEMBER_ID


def test_leaving_an_absent_group() -> None:
    answer = leave(LeadingCoordinator(), ("x", None), group="absent")
    assert (answer.error_code, [each.error_code for each in answer.members]) == (0, [E.UNKNOWN_MEMBER_ID])
    assert leave(LeadingCoordinator(), ("x", None), group="").error_code == E.INVALID_GROUP_ID


def test_a_pending_id_may_leave_and_the_join_goes_on() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    pending = member_id_of(world)
    waiting = join(world, first)
    assert parked(waiting)
    assert leave(world, (pending, None)).members[0].error_code == 0
    assert waiting.result().generation_id == 2


def test_a_leaver_whose_call_is_parked_is_answered() -> None:
    world = LeadingCoordinator()
    leader, second = completing(world)
    waiting = sync(world, second, 1)
    leave(world, (second, None))
    assert waiting.result().error_code == E.UNKNOWN_MEMBER_ID
    rejoin = join(world, leader, (("range", subscription("u")),))
    assert rejoin.generation_id == 2


def test_the_last_to_leave_empties_the_group() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2)
    leave(world, (first, None), (second, None))
    assert beat(world, first, 1) == E.UNKNOWN_MEMBER_ID
    end = world.log().log_end_offset
    world.restart()
    assert world.log().log_end_offset == end
    waiting = join(world, member_id_of(world))
    world.time.advance(3_000)
    assert waiting.result().generation_id == 3
