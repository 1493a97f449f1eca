"""Requests that wait for many partitions: the cost of one partition's move does not grow with the number of awaited
partitions."""

from __future__ import annotations

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.fakes import World, broker_image, partition_image, topic_image
from kafkacompat.partition.core import PartitionCore
from kafkacompat.wire.errors import ErrorCode

COUNT = 60
AWAITED = [TopicPartition("t", index) for index in range(COUNT)]
LOOKS_A_MOVE = 3


class Looks:
    """Counts the checks of a leader."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = PartitionCore.check_leader

        def counted(core: PartitionCore, epoch: int) -> ErrorCode:
            self.count += 1
            return original(core, epoch)

        patch.setattr(PartitionCore, "check_leader", counted)


def replicated() -> World:
    partitions = {index: partition_image(replicas=(1, 2)) for index in range(COUNT)}
    world = World(topic_image("t", partitions), brokers=[broker_image(1), broker_image(2)])
    for index in range(COUNT):
        world.produce("t", index, acks=-1)
    world.settle()
    return world


def test_an_append_to_many_looks_at_the_partition_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = replicated()
    waiting = world.manager.when_replicated(dict.fromkeys(AWAITED, 1), 1000)
    assert waiting is not None
    looks = Looks(monkeypatch)
    for each in AWAITED:
        assert not waiting.done
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1)
    assert waiting.result() == dict.fromkeys(AWAITED, ErrorCode.NONE)
    assert COUNT <= looks.count <= LOOKS_A_MOVE * COUNT


def test_a_deletion_from_many_looks_at_the_partition_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = replicated()
    for each in AWAITED:
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1)
    waiting = world.manager.delete_records(dict.fromkeys(AWAITED, 1), 1000)
    looks = Looks(monkeypatch)
    for each in AWAITED:
        assert not waiting.done
        world.manager.follower_fetched(world.manager.by_name[each], 2, 1, 1)
    assert waiting.result() == dict.fromkeys(AWAITED, (ErrorCode.NONE, 1))
    assert COUNT <= looks.count <= LOOKS_A_MOVE * COUNT
