"""Every request parked by the group coordinator is answered once, however its wait ends. Over real logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.api.delete_groups import HANDLER as DELETE
from kafkacompat.coordinator._tests.clients import (
    HEARTBEAT,
    commit,
    fetch,
    join,
    leave,
    sync,
)
from kafkacompat.coordinator._tests.real_log import NAME, RealWorld
from kafkacompat.deferred import Deferred
from kafkacompat.group._tests.test_offsets import OFFSET_DELETE
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

REBALANCE_MS = 20_000
SESSION_MS = 10_000
LONGEST_MS = 300_000
"""No request may wait longer than a member that has not joined before."""

Parked = Callable[[RealWorld], Any]


def stable(world: RealWorld, size: int = 2) -> list[str]:
    """A committed group of static members, which need no member id first."""
    waiting = [
        join(world, instance=f"i{index}", session=SESSION_MS, rebalance=REBALANCE_MS) for index in range(size)
    ]
    world.follow()
    world.time.advance(6_000)
    ids = [each.result().member_id for each in waiting]
    parked = [sync(world, each, 1, instance=f"i{index}") for index, each in enumerate(ids) if index]
    plan = sync(world, ids[0], 1, dict.fromkeys(ids, b"a"), instance="i0")
    world.follow()
    assert all(each.result().error_code == 0 for each in [*parked, plan])
    return ids


def first_join(world: RealWorld) -> Any:
    return join(world)


def first_join_of_a_static_member(world: RealWorld) -> Any:
    return join(world, instance="one", session=SESSION_MS, rebalance=REBALANCE_MS)


def join_that_waits_for_others(world: RealWorld) -> Any:
    ids = stable(world)
    return join(world, ids[0], instance="i0", session=SESSION_MS, rebalance=REBALANCE_MS)


def join_that_replaces(world: RealWorld) -> Any:
    stable(world)
    return join(world, instance="i1", session=SESSION_MS, rebalance=REBALANCE_MS)


def sync_that_waits_for_the_plan(world: RealWorld) -> Any:
    ids = stable(world)
    again = join(world, ids[0], instance="i0", session=SESSION_MS, rebalance=REBALANCE_MS)
    other = join(world, ids[1], instance="i1", session=SESSION_MS, rebalance=REBALANCE_MS)
    generation = other.generation_id
    assert again.result().generation_id == generation
    return sync(world, ids[1], generation, instance="i1")


def sync_whose_plan_is_being_written(world: RealWorld) -> Any:
    waiting = join(world, instance="one", session=SESSION_MS, rebalance=REBALANCE_MS)
    world.follow()
    world.time.advance(6_000)
    member = waiting.result().member_id
    return sync(world, member, 1, {member: b"a"}, instance="one")


def heartbeat_behind_a_write(world: RealWorld) -> Any:
    ids = stable(world)
    commit(world, 5, member_id=ids[0], generation=1, instance="i0")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=ids[0], group_instance_id="i0")
    return world.call(HEARTBEAT, request, 4)


def offset_commit(world: RealWorld) -> Any:
    return commit(world, 5)


def offset_fetch_behind_a_write(world: RealWorld) -> Any:
    commit(world, 5)
    return fetch(world)


def offset_delete(world: RealWorld) -> Any:
    commit(world, 5)
    world.follow()
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        ],
    )
    return world.call(OFFSET_DELETE, request, 0)


def leave_of_the_last(world: RealWorld) -> Any:
    (member,) = stable(world, 1)
    return leave(world, (member, "i0"))


def delete_groups(world: RealWorld) -> Any:
    commit(world, 5)
    world.follow()
    return world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 2)


PARKED: list[Parked] = [
    first_join,
    first_join_of_a_static_member,
    join_that_waits_for_others,
    join_that_replaces,
    sync_that_waits_for_the_plan,
    sync_whose_plan_is_being_written,
    heartbeat_behind_a_write,
    offset_commit,
    offset_fetch_behind_a_write,
    offset_delete,
    leave_of_the_last,
    delete_groups,
]


def errors_in(answer: Any) -> set[int]:
    """Every error code in an answer, at any level."""
    found = {int(answer.error_code)} if getattr(answer, "error_code", None) is not None else set()
    for name in ("members", "groups", "topics", "partitions", "results"):
        for each in getattr(answer, name, ()):
            found |= errors_in(each)
    return found


class Watched:
    """The answers of a parked request."""

    def __init__(self, parked: Parked) -> None:
        self.world = RealWorld(followed=True)
        self.answers: list[Any] = []
        waiting = parked(self.world)
        assert isinstance(waiting, Deferred)
        assert not waiting.done
        waiting.on_done(lambda done: self.answers.append(done.result()))

    def errors(self) -> set[int]:
        (answer,) = self.answers
        return errors_in(answer)

    def live_on(self) -> None:
        """Continue: a second answer is an error, which is reported."""
        for _ in range(3):
            core = self.world.manager.by_name.get(NAME)
            if core is not None and core.is_leader:
                self.world.follow()
            self.world.time.advance(LONGEST_MS)
        assert len(self.answers) == 1


@pytest.mark.parametrize("parked", PARKED)
def test_the_follower_has_it_or_the_others_come(parked: Parked) -> None:
    watched = Watched(parked)
    for _ in range(REBALANCE_MS // 1_000):
        watched.world.follow()
        watched.world.time.advance(1_000)
    assert watched.errors() <= {E.NONE, E.MEMBER_ID_REQUIRED, E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS}
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_its_time_passes(parked: Parked) -> None:
    """No follower fetches any more."""
    watched = Watched(parked)
    watched.world.time.advance(REBALANCE_MS + SESSION_MS)
    assert watched.errors() - {E.NONE, E.MEMBER_ID_REQUIRED} or parked in (
        first_join_of_a_static_member,
        join_that_waits_for_others,
    )
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_another_node_leads(parked: Parked) -> None:
    watched = Watched(parked)
    watched.world.resign()
    watched.world.time.advance(1_000)
    assert E.NOT_COORDINATOR in watched.errors()
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_another_node_leads_and_then_this_one_again(parked: Parked) -> None:
    watched = Watched(parked)
    watched.world.resign()
    watched.world.lead_again()
    watched.world.time.advance(1_000)
    assert E.NOT_COORDINATOR in watched.errors()
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_the_topic_is_deleted(parked: Parked) -> None:
    watched = Watched(parked)
    watched.world.delete_offsets_topic()
    watched.world.time.advance(1_000)
    assert E.NOT_COORDINATOR in watched.errors()
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_the_coordinator_stops(parked: Parked) -> None:
    """A request that waits for replicas keeps its own timeout. One that waits for members is answered at once."""
    watched = Watched(parked)
    watched.world.coordinator.stop()
    waits_for_members = parked in (join_that_waits_for_others, sync_that_waits_for_the_plan)
    assert len(watched.answers) == 1 or not waits_for_members
    watched.world.time.advance(5_000)
    assert watched.errors() - {E.NONE}
    watched.live_on()


@pytest.mark.parametrize("parked", PARKED)
def test_the_log_takes_nothing_more(parked: Parked) -> None:
    watched = Watched(parked)
    watched.world.refuse_appends()
    watched.world.time.advance(REBALANCE_MS + SESSION_MS)
    assert len(watched.answers) == 1
    watched.live_on()


@pytest.mark.parametrize(
    "parked", [first_join, offset_commit, offset_fetch_behind_a_write, offset_delete, delete_groups]
)
@pytest.mark.parametrize("anew", [False, True])
def test_the_group_is_deleted_meanwhile(parked: Parked, anew: bool) -> None:
    watched = Watched(parked)
    world = watched.world
    world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 2)
    if anew:
        join(world, instance="new", session=SESSION_MS, rebalance=REBALANCE_MS)
    world.follow()
    world.time.advance(6_000)
    assert len(watched.answers) == 1
    watched.live_on()
