"""A record is in the log, but its wait for the replicas fails: it takes effect anyway, since it may still be
committed.

Only what the log has refused is undone. Over real logs.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.api.delete_groups import HANDLER as DELETE
from kafkacompat.coordinator._tests.clients import (
    beat,
    commit,
    fetch,
    form_group,
    join,
    member_id_of,
    sync,
)
from kafkacompat.coordinator._tests.real_log import RealWorld
from kafkacompat.group._tests.test_offsets import describe
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest

COMMIT_TIMEOUT_MS = 5_000


def code(answer: Any) -> int:
    """The error of an OffsetCommit's only partition."""
    return int(answer.result().topics[0].partitions[0].error_code)


def test_a_group_stays_whose_first_record_was_not_committed_in_time() -> None:
    world = RealWorld(followed=True)
    first = join(world)
    second = join(world).member_id  # the group exists, so this one need not wait for its record
    waiting = join(world, second)
    world.time.advance(3_000)
    joined = waiting.result()
    assert (joined.error_code, joined.generation_id) == (E.NONE, 1)
    plan = sync(world, second, 1, {second: b"all"})
    world.time.advance(COMMIT_TIMEOUT_MS - 3_000)
    assert first.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.follow()
    assert (plan.result().error_code, plan.result().assignment) == (E.NONE, b"all")
    assert beat(world, second, 1) == E.NONE
    committed = commit(world, 7, member_id=second, generation=1)
    world.follow()
    assert code(committed) == E.NONE
    assert fetch(world).committed_offset == 7


def test_an_id_that_nobody_was_told_keeps_nobody_waiting() -> None:
    world = RealWorld(followed=True)
    lost = join(world, session=100_000)
    world.time.advance(COMMIT_TIMEOUT_MS)
    assert lost.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.follow()
    waiting = join(world, member_id_of(world, session=100_000, rebalance=60_000), rebalance=60_000)
    world.time.advance(3_000)
    assert waiting.result().error_code == E.NONE
    leader = waiting.result().member_id
    sync(world, leader, 1, {leader: b"all"})
    world.follow()
    # The next rebalance ends with the present members, without waiting for the lost id.
    assert join(world, leader).generation_id == 2


def test_a_member_that_was_refused_is_not_waited_for() -> None:
    world = RealWorld(followed=True)
    lost = join(world, instance="one", rebalance=300_000)
    other = member_id_of(world)
    waiting = join(world, other)
    world.time.advance(COMMIT_TIMEOUT_MS)
    assert lost.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.follow()
    world.time.advance(3_000)
    assert waiting.result().error_code == E.NONE
    assert [each.group_instance_id for each in waiting.result().members] == [None]


def test_a_group_whose_first_record_was_refused_is_not_there() -> None:
    world = RealWorld(followed=True)
    world.refuse_appends()
    assert join(world).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert join(world, instance="one").error_code == E.COORDINATOR_NOT_AVAILABLE
    world.refuse_appends(False)
    assert [each.group_state for each in describe(world, "g")] == ["Dead"]
    assert len(world.time.pending()) == 1  # the sweep


def test_a_timer_of_a_group_that_is_gone_says_nothing_about_the_next_of_its_name() -> None:
    world = RealWorld()
    form_group(world, 1, session=6_000)
    world.time.advance(6_000)  # its member is gone, and one that requested an id waits
    member_id_of(world, session=1_800_000)
    deleted = world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 2)
    assert [each.error_code for each in deleted.results] == [E.NONE]
    shard = world.coordinator._shards.get(0)
    assert shard is not None
    assert len(shard.timers) == 0
    members = form_group(world, 2, session=60_000, rebalance=8_000)
    changed = join(world, members[0], rebalance=8_000)
    world.time.advance(8_000)
    assert changed.result().error_code == E.NONE
    assert [each.group_state for each in describe(world, "g")] == ["CompletingRebalance"]


def test_a_group_that_is_gone_ends_no_wait_of_the_next_of_its_name() -> None:
    world = RealWorld(followed=True)
    lost = join(world)
    world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 2)
    world.time.advance(COMMIT_TIMEOUT_MS - 1_000)
    joined = join(world, instance="new")
    world.time.advance(1_000)
    assert lost.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.follow()
    world.time.advance(2_000)
    assert (joined.result().error_code, joined.result().generation_id) == (E.NONE, 1)


def test_a_replacement_that_is_in_the_log_holds_though_its_wait_failed() -> None:
    world = RealWorld(followed=True)
    waiting = [join(world, instance=name, session=60_000) for name in ("one", "two")]
    world.follow()
    world.time.advance(6_000)
    leader, follower = (each.result().member_id for each in waiting)
    plan = sync(world, leader, 1, {leader: b"1", follower: b"2"}, instance="one")
    world.follow()
    assert plan.result().error_code == E.NONE
    lost = join(world, instance="two", session=60_000)
    world.time.advance(COMMIT_TIMEOUT_MS)
    assert lost.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.follow()
    held = beat(world, follower, 1, instance="two")
    world.resign()
    world.lead_again()
    # As in the log: the holder of the old id is fenced, both before and after the coordinator moves.
    assert held == beat(world, follower, 1, instance="two") == E.FENCED_INSTANCE_ID


def test_a_replacement_that_was_refused_leaves_the_old_id() -> None:
    world = RealWorld(followed=True)
    waiting = join(world, instance="one", session=60_000)
    world.follow()
    world.time.advance(6_000)
    member = waiting.result().member_id
    sync(world, member, 1, {member: b"1"}, instance="one")
    world.follow()
    world.refuse_appends()
    assert join(world, instance="one").error_code == E.COORDINATOR_NOT_AVAILABLE
    world.refuse_appends(False)
    assert beat(world, member, 1, instance="one") == E.NONE


def test_what_is_in_doubt_is_not_shown_before_it_is_committed() -> None:
    world = RealWorld(followed=True)
    lost = commit(world, 5)
    world.time.advance(COMMIT_TIMEOUT_MS)
    assert code(lost) == E.COORDINATOR_NOT_AVAILABLE
    asked = fetch(world)
    assert not asked.done
    world.time.advance(COMMIT_TIMEOUT_MS)
    assert asked.result().groups[0].error_code == E.NOT_COORDINATOR
    asked = fetch(world)
    world.follow()
    (group,) = asked.result().groups
    assert group.topics[0].partitions[0].committed_offset == 5
    assert fetch(world).committed_offset == 5
