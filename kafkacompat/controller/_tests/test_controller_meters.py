"""Elections outside the in-sync sets, and leaders of the quorum, are counted once each."""

from __future__ import annotations

from itertools import pairwise

from kafkacompat.controller.controller_metrics import ControllerMeters
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_delta import Replayer
from kafkacompat.ids import NO_LEADER
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.no_op_record import NoOpRecord
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

TOPIC_ID = b"t" * 16
MADE = TopicRecord(name="t", topic_id=TOPIC_ID)
LED = PartitionRecord(
    partition_id=0,
    topic_id=TOPIC_ID,
    replicas=[1, 2, 3],
    isr=[1],
    leader=1,
    eligible_leader_replicas=[2],
    directories=[],
)
UNCLEAN = PartitionChangeRecord(
    partition_id=0,
    topic_id=TOPIC_ID,
    leader=3,
    isr=[3],
    eligible_leader_replicas=[],
    leader_recovery_state=1,
)


def applied(base: MetadataImage, *messages: Message) -> MetadataImage:
    replayer = Replayer(base)
    replayer.apply([(message.API_KEY or 0, message) for message in messages])
    return replayer.publish(base.offset + len(messages), 1)


def change(leader: int, isr: list[int] | None = None) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=isr, eligible_leader_replicas=[]
    )


def counted(*batches: tuple[Message, ...]) -> tuple[int, int]:
    """(unclean, eligible) elections that a controller sees which has started before these batches."""
    meters = ControllerMeters()
    images = [applied(MetadataImage(), NoOpRecord())]
    for batch in batches:
        images.append(applied(images[-1], *batch))
    for old, new in pairwise(images):
        meters.on_image(old, new)
        meters.on_image(new, new)
        meters.on_image(new, applied(new, NoOpRecord()))
    return meters.unclean_elections, meters.eligible_elections


def test_elections_are_told_apart() -> None:
    assert counted((MADE, LED)) == (0, 0)
    in_sync = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 3])
    assert counted((MADE, LED), (in_sync,), (change(3),)) == (0, 0)
    assert counted((MADE, LED), (change(2, [2]),)) == (0, 1)
    assert counted((MADE, LED), (UNCLEAN,)) == (1, 0)
    assert counted((MADE, LED), (change(NO_LEADER),)) == (0, 0)
    recovered = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader_recovery_state=0)
    assert counted((MADE, LED), (UNCLEAN,), (recovered,)) == (1, 0)


def test_each_election_between_two_images_is_counted() -> None:
    assert counted((MADE, LED), (UNCLEAN, change(2, [2]), UNCLEAN)) == (2, 0)
    assert counted((MADE, LED), (change(2, [2]), UNCLEAN)) == (1, 1)


def test_elections_before_the_start_are_not_counted() -> None:
    """The log that a start reads, and a snapshot that replaces it, tell of earlier elections too."""
    meters = ControllerMeters()
    started = applied(MetadataImage(), MADE, LED, UNCLEAN)
    meters.on_image(MetadataImage(), started)
    meters.on_image(started, applied(MetadataImage(), MADE, LED, UNCLEAN, change(1, [1]), UNCLEAN))
    assert meters.unclean_elections == 0


def test_each_leader_that_comes_is_counted() -> None:
    meters = ControllerMeters()
    for leader_id in (NO_LEADER, 1, NO_LEADER, 2):
        meters.leader_changed(leader_id)
    assert meters.new_active_controllers == 2
