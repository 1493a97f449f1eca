"""Elections outside the in-sync sets, and leaders of the quorum, are counted once each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from kafkacompat.controller.controller_meters import ControllerMeters
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.ids import NO_LEADER

TOPIC_ID = b"t" * 16
LED = PartitionRegistration(
    replicas=(1, 2, 3),
    directories=(b"d" * 16,) * 3,
    isr=(1,),
    removing_replicas=(),
    adding_replicas=(),
    eligible_leader_replicas=(2,),
    last_known_elr=(),
    leader=1,
    leader_recovering=False,
    leader_epoch=1,
    partition_epoch=1,
)


def image(partition: PartitionRegistration) -> MetadataImage:
    topic = TopicImage("t", TOPIC_ID, {0: partition})
    return MetadataImage(topics={"t": topic}, topics_by_id={TOPIC_ID: topic})


def counted(*partitions: PartitionRegistration) -> tuple[int, int]:
    """(unclean, eligible) elections on the way from one state of a partition to the next."""
    meters = ControllerMeters()
    images = [MetadataImage(), *map(image, partitions)]
    for old, new in pairwise(images):
        meters.on_image(old, new)
        meters.on_image(new, new)
    return meters.unclean_elections, meters.eligible_elections


def test_elections_are_told_apart() -> None:
    in_sync = replace(LED, isr=(1, 3))
    assert counted(LED) == (0, 0)
    assert counted(in_sync, replace(in_sync, leader=3)) == (0, 0)
    assert counted(LED, replace(LED, leader=2, isr=(2,), eligible_leader_replicas=())) == (0, 1)
    unclean = replace(LED, leader=3, isr=(3,), eligible_leader_replicas=(), leader_recovering=True)
    assert counted(LED, unclean) == (1, 0)
    assert counted(LED, replace(LED, leader=NO_LEADER)) == (0, 0)
    recovered = replace(unclean, leader_recovering=False, partition_epoch=2)
    assert counted(LED, unclean, recovered) == (1, 0)


def test_each_leader_that_comes_is_counted() -> None:
    meters = ControllerMeters()
    for leader_id in (NO_LEADER, 1, NO_LEADER, 2):
        meters.leader_changed(leader_id)
    assert meters.new_active_controllers == 2
