"""The elections that the metadata's oracles reject."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkacompat.controller._tests.clusters import TOPIC_ID, broker, partition
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.sim.cluster_counters import ClusterCounters
from kafkacompat.sim.image_oracles import ImageOracles
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.sim.topics import UNCLEAN

IN_SYNC = broker(1)


class Cluster:
    """Broker 1 was in sync when the leader died. Broker 2 was not, and is elected."""

    def __init__(self) -> None:
        self.counters = ClusterCounters()
        self.machines = {1: SimpleNamespace(life=None)}
        self.partition_oracles = SimpleNamespace(elected_unclean=lambda key, epoch: None)
        self.tell = None
        self.oracles = ImageOracles(cast(Any, self))
        self.image = self.image_of(50, partition(1, 2, 3, isr=(1,), leader=-1))
        self.oracles.published(cast(Any, self), MetadataImage(), self.image)

    def image_of(self, offset: int, state: PartitionRegistration) -> MetadataImage:
        topic = TopicImage(UNCLEAN, TOPIC_ID, {0: state})
        return MetadataImage(
            offset=offset,
            brokers={1: IN_SYNC, 2: broker(2), 3: broker(3)},
            topics={UNCLEAN: topic},
            topics_by_id={TOPIC_ID: topic},
        )

    def elect(self, batches: int) -> None:
        for _ in range(batches):
            self.oracles.applied(cast(Any, self))
        elected = partition(1, 2, 3, isr=(2,), leader_epoch=6, partition_epoch=10)
        self.oracles.published(cast(Any, self), self.image, self.image_of(60, elected))


def test_nobody_in_sync_is_passed_over() -> None:
    with pytest.raises(Breach, match=r"elections are clean: \[1\] are passed over"):
        Cluster().elect(1)


def test_who_is_known_to_be_gone_is_not_passed_over() -> None:
    """A controller moves leadership away from a dead broker at once, and fences the broker when its session expires."""
    cluster = Cluster()
    cluster.oracles.taken_for_gone(IN_SYNC)
    cluster.elect(1)


def test_of_several_batches_nobody_knows_who_was_live_at_which() -> None:
    Cluster().elect(2)
