"""Random lives of a share-partition, beside a model of one entry for each offset.

Both always agree. Beyond that, no record is with two members within its lock, delivery counts only rise while a leader
leads, an acceptance that is persisted is for ever, and the start offset moves over nothing that someone still needs. In a
group with a dead-letter topic no undeliverable record is archived before its dead letter, and none that was accepted has one.
"""

from __future__ import annotations

import pytest

from kafkacompat.share._tests.share_partition_life import SharePartitionLife

SEEDS = 50
STEPS = 150
MEMBERS = ("a", "b", "c")
ROUNDS_TO_DRAIN = 500


def live(world: SharePartitionLife) -> None:
    choose = world.random
    member = choose.choice(MEMBERS)
    roll = choose.random()
    if roll < 0.32:
        world.fetch(member)
    elif roll < 0.62:
        world.acknowledge(member)
    elif roll < 0.78:
        world.answer(succeeds=choose.random() < 0.8)
    elif roll < 0.82:
        world.write_letter()
    elif roll < 0.88:
        world.pass_time(choose.choice([1, 20, 60, 120]))
    elif roll < 0.93:
        world.grow(choose.randrange(1, 4))
    elif roll < 0.95:
        world.release(member)
    elif roll < 0.965:
        world.compact()
    elif roll < 0.975:
        world.move_log_start()
    elif roll < 0.99:
        world.change_settings()
    else:
        world.lead()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life(seed: int) -> None:
    world = SharePartitionLife(seed)
    world.check()
    for _ in range(STEPS):
        live(world)
        world.check()
    drain(world)


def drain(world: SharePartitionLife) -> None:
    """Members that accept everything come to the end of the log, whatever happened before."""
    for _ in range(ROUNDS_TO_DRAIN):
        while world.writes:
            world.answer()
            world.check()
        while world.letters:
            world.write_letter()
            world.check()
        if world.is_drained():
            return
        world.fetch("a")
        world.accept_all("a")
        world.pass_time(40)
        world.check()
    raise AssertionError(f"stuck at {world.partition.start_offset} of {world.log_end}")
