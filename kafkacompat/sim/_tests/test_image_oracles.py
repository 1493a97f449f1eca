"""The elections that the metadata's oracles reject."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkacompat._tests.doubles import START_MS
from kafkacompat.controller._tests.clusters import TOPIC_ID, broker, partition
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.coordinator._tests.kit import KeptLog
from kafkacompat.ids import TopicPartition
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.records.validate import validate_produce
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import UNCLEAN
from kafkacompat.sim.committed_metadata import CommittedMetadata
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.image_oracles import ImageOracles
from kafkacompat.sim.partition_history import LogStartHistory, PartitionHistory, Seen
from kafkacompat.sim.partition_oracles import PartitionOracles

IN_SYNC = broker(1)
NAME = TopicPartition("t", 0)


class Cluster:
    """Broker 1 was in sync when the leader died. Broker 2 was not, and is elected."""

    def __init__(self) -> None:
        self.counters = ClusterCounters()
        self.metadata = CommittedMetadata()
        self.tell = None
        machines: dict[int, Any] = {1: SimpleNamespace(life=None)}
        partitions: Any = SimpleNamespace(elected_unclean=lambda key, epoch: None)
        self.oracles = ImageOracles(cast(Any, self), machines, partitions)
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


def test_a_broker_that_is_known_to_be_gone_is_not_passed_over() -> None:
    """A controller moves leadership away from a dead broker at once, and fences the broker when its session expires."""
    cluster = Cluster()
    cluster.oracles.taken_for_gone(IN_SYNC)
    cluster.elect(1)


def test_of_several_batches_nobody_knows_who_was_live_at_which() -> None:
    Cluster().elect(2)


# --- what is written in an epoch


def match(led_by: int, epoch: int, *, seen_epoch: int = 0) -> None:
    """Node 3 has a batch of this epoch, and follows in a later one. It was last seen in `seen_epoch`."""
    leader = SimpleNamespace(leader=lambda key, asked: led_by if asked == epoch else -1)
    oracles = PartitionOracles(cast(Any, SimpleNamespace(metadata=leader)), {})
    log = KeptLog(NAME)
    batch = build_batch([Record(0, 1, b"k", b"v")])
    log.append_as_leader(validate_produce(batch, log.config, START_MS), epoch, START_MS)
    core = SimpleNamespace(
        topic_id=TOPIC_ID, topic_partition=NAME, log=log, is_leader=False, leader_epoch=epoch + 1
    )
    seen = Seen(log)
    seen.epoch = seen_epoch
    oracles._match("a partition", 3, cast(Any, core), seen, PartitionHistory(NAME, LogStartHistory()))


def test_a_leadership_that_begins_and_ends_within_an_event_may_have_written() -> None:
    """One event may bring the images of both."""
    match(led_by=3, epoch=1)


@pytest.mark.parametrize(("led_by", "seen_epoch"), [(1, 0), (-1, 0), (3, 1), (3, 2)])
def test_a_node_that_has_not_led_since_it_was_seen_has_written_nothing(led_by: int, seen_epoch: int) -> None:
    with pytest.raises(Breach, match="log matching"):
        match(led_by=led_by, epoch=1, seen_epoch=seen_epoch)


@pytest.mark.parametrize(
    ("led_by", "leads", "led_before", "found"),
    [
        (3, False, False, 1),
        (1, False, False, None),
        (1, False, True, 0),
        (3, False, True, 1),
        (1, True, False, 2),
    ],
)
def test_what_a_leader_committed_that_was_elected_and_deposed_within_an_event_is_committed(
    led_by: int, leads: bool, led_before: bool, found: int | None
) -> None:
    """Node 3 was seen in epoch 0 and is in epoch 2 now."""
    metadata = CommittedMetadata()
    metadata.leaders[TOPIC_ID, NAME.partition] = {1: led_by}
    oracles = PartitionOracles(cast(Any, SimpleNamespace(metadata=metadata)), {})
    core = SimpleNamespace(topic_id=TOPIC_ID, topic_partition=NAME, is_leader=leads, leader_epoch=2)
    seen = Seen(KeptLog(NAME))
    seen.epoch, seen.is_leader = 0, led_before
    assert oracles._last_led(3, cast(Any, core), seen) == found


def test_the_leaders_of_all_epochs_are_known() -> None:
    cluster = Cluster()
    cluster.elect(batches=2)
    assert cluster.metadata.leader((TOPIC_ID, 0), 6) == 2
    assert cluster.metadata.leader((TOPIC_ID, 0), 7) == -1
