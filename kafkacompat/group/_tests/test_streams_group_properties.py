"""Streams groups under random members, sessions that run out, and coordinators that start again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kafkacompat.group._tests.streamers import CHANGELOG, GROUP, Streamer, StreamsWorld, described, topology
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.streams_group_mutants import RARE_STREAMS_GROUP_MUTANTS
from kafkacompat.wire.errors import ErrorCode as E

STEPS, SEEDS = 60, 25
MEMBERS = ("a1", "a2", "b1", "b2", "c1")
"""The first letter is the process."""
ALL = {("0", 0), ("0", 1), ("0", 2)}
GONE = (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.GROUP_ID_NOT_FOUND)


def step(chance: Random, world: StreamsWorld, members: list[Streamer]) -> None:
    member = chance.choice(members)
    what = chance.random()
    if what < 0.1:
        world.restart()
    elif what < 0.2:
        world.time.advance(chance.choice((100, 5_000, 20_000)))
    elif member.epoch == 0 or what < 0.25:
        member.join()
    elif what < 0.32:
        member.leave()
        member.epoch = 0
    elif member.beat().error_code in GONE:
        member.epoch = 0


def check_that_nobody_shares_an_active_task(world: StreamsWorld, members: list[Streamer]) -> None:
    found: dict[Any, str] = {}
    group = described(world)[0]
    if group.error_code:
        return
    for member in group.members:
        for tasks in member.assignment.active_tasks:
            for partition in tasks.partitions:
                assert (
                    found.setdefault((tasks.subtopology_id, partition), member.member_id) == member.member_id
                )
    known = {member.member_id: member.member_epoch for member in group.members}
    running: dict[tuple[str, int], str] = {}
    for each in members:
        if each.epoch and known.get(each.member_id) == each.epoch:
            for task in each.active:
                assert running.setdefault(task, each.member_id) == each.member_id


def members_of(world: StreamsWorld) -> Any:
    group: Any = machine_of(world.coordinator._shards.shard_for(GROUP)).groups.get(GROUP)
    return None if group is None else dict(group.members)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_tasks_are_active_once_and_a_group_left_alone_comes_to_rest(seed: int) -> None:
    live(seed)


@pytest.mark.parametrize("plant", RARE_STREAMS_GROUP_MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any) -> None:
    """These are rare in the simulation. Here a coordinator ends after each step."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(SEEDS):
            try:
                live(seed)
            except AssertionError:
                faults.take()
                return
    pytest.fail(f"{plant.__name__} survives {SEEDS} seeds")


def live(seed: int) -> None:
    chance = Random(seed)
    world = StreamsWorld(
        delay_ms=chance.choice((0, 3000)),
        interval_ms=chance.choice((0, 1000)),
        **{"num.standby.replicas": chance.choice((0, 1))},
    )
    world.create(app_store_changelog=3)
    told = topology("t", changelog=CHANGELOG)
    members = [Streamer(world, each, told, process=each[0]) for each in MEMBERS]
    for _ in range(STEPS):
        step(chance, world, members)
        check_that_nobody_shares_an_active_task(world, members)
        before, held = described(world), members_of(world)
        world.restart()
        assert members_of(world) == held
        for each in (before[0], (after := described(world))[0]):
            for member in each.members:
                member.task_offsets, member.task_end_offsets = [], []
        assert described_without_order(after) == described_without_order(before)
    for each in members:
        each.join()
    for _ in range(12):
        world.time.advance(1000)
        for each in members:
            if each.beat().error_code in GONE:
                each.join()
    (group,) = described(world)
    assert (group.group_id, group.group_state) == (GROUP, "Stable")
    assert set().union(*[each.active for each in members]) == ALL
    assert sum(len(each.active) for each in members) == len(ALL)


def described_without_order(groups: Any) -> Any:
    """Partition counts of internal topics are known to a coordinator only after a heartbeat."""
    group = groups[0]
    if group.topology is not None:
        for subtopology in group.topology.subtopologies:
            for topic in subtopology.state_changelog_topics:
                topic.partitions = 0
    return group
