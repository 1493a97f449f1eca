"""What the records say about changed topics is what a walk over all topics finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kafkacompat.controller.image import ChangedTopic, MetadataImage, changed_topics, is_next
from kafkacompat.controller.metadata_delta import Replayer
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.no_op_record import NoOpRecord
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

FIRST, SECOND = b"\x01" * 16, b"\x02" * 16


def applied(base: MetadataImage, *messages: Message) -> MetadataImage:
    replayer = Replayer(base)
    replayer.apply([(message.API_KEY or 0, message) for message in messages])
    return replayer.publish(base.offset + len(messages), 1)


def topic(topic_id: bytes, name: str) -> tuple[Message, Message]:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        eligible_leader_replicas=[2],
        directories=[],
    )
    return TopicRecord(name=name, topic_id=topic_id), partition


def change(topic_id: bytes) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)


def walked(old: MetadataImage, new: MetadataImage) -> set[tuple[bytes, int, int]]:
    ids = old.topics_by_id.keys() | new.topics_by_id.keys()
    pairs = [(each, old.topics_by_id.get(each), new.topics_by_id.get(each)) for each in ids]
    return {(each, id(former), id(present)) for each, former, present in pairs if former is not present}


def told(old: MetadataImage, new: MetadataImage) -> set[tuple[bytes, int, int]]:
    found = changed_topics(old, new)
    keyed = [((each.former or each.present).id, *map(id, each)) for each in found]  # type: ignore[union-attr]  # one of both
    assert len(set(keyed)) == len(keyed)
    deleted = [each.present is None for each in found]
    assert deleted == sorted(deleted, reverse=True)
    return set(keyed)


def random_records(chance: random.Random, ids: list[bytes]) -> list[Message]:
    """Records that fit an image with these topics. Changes `ids`."""
    records: list[Message] = []
    for _ in range(chance.randrange(4)):
        kind = chance.randrange(5)
        if kind == 0 or not ids:
            made = chance.randbytes(16)
            ids.append(made)
            records += topic(made, made.hex())
        elif kind == 1:
            records.append(RemoveTopicRecord(topic_id=ids.pop(chance.randrange(len(ids)))))
        elif kind == 2:
            records.append(ClearElrRecord(topic_name=""))
        elif kind == 3:
            records.append(NoOpRecord())
        else:
            records.append(change(chance.choice(ids)))
    return records


@pytest.mark.parametrize("seed", range(20))
def test_the_records_name_what_a_walk_finds(seed: int) -> None:
    chance = random.Random(seed)
    ids: list[bytes] = []
    images = [applied(MetadataImage(), NoOpRecord())]
    for _ in range(30):
        images.append(applied(images[-1], *random_records(chance, ids)))
        old, new = images[-2:]
        assert told(old, new) == walked(old, new)
        if old.topics is not new.topics:
            assert is_next(old, new)
        skipped = chance.choice(images)
        assert told(skipped, new) == walked(skipped, new)


def test_of_ten_thousand_topics_those_of_the_records_are_looked_at() -> None:
    created = [
        record for number in range(10_000) for record in topic(number.to_bytes(16, "big"), f"t{number}")
    ]
    old = applied(MetadataImage(), *created)
    changed = (7).to_bytes(16, "big")
    new = applied(old, change(changed))
    assert new.topic_changes.ids == (changed,)
    assert changed_topics(old, new) == [ChangedTopic(old.topics["t7"], new.topics["t7"])]


def test_a_topic_that_is_made_again_is_deleted_first() -> None:
    old = applied(MetadataImage(), *topic(FIRST, "t"))
    new = applied(old, RemoveTopicRecord(topic_id=FIRST), *topic(SECOND, "t"))
    former, present = old.topics["t"], new.topics["t"]
    assert changed_topics(old, new) == [ChangedTopic(former, None), ChangedTopic(None, present)]


def test_a_topic_made_and_removed_in_one_batch_is_no_change() -> None:
    old = applied(MetadataImage(), NoOpRecord())
    new = applied(old, *topic(FIRST, "t"), RemoveTopicRecord(topic_id=FIRST))
    assert changed_topics(old, new) == []


def test_a_topic_whose_partitions_come_with_the_next_batch_is_new_now() -> None:
    old = applied(MetadataImage(), NoOpRecord())
    made, _ = topic(FIRST, "t")
    new = applied(old, made)
    assert changed_topics(old, new) == [ChangedTopic(None, new.topics["t"])]


def test_an_image_with_the_same_topics_passes_the_changes_on() -> None:
    """An image is published once more when the quorum's level rises, and may take the place of the one before."""
    old = applied(MetadataImage(), *topic(FIRST, "t"))
    replaced = applied(applied(old, change(FIRST)), NoOpRecord())
    assert is_next(old, replaced)
    assert told(old, replaced) == walked(old, replaced)


def test_a_first_image_and_one_of_a_snapshot_are_walked() -> None:
    old = applied(MetadataImage(), *topic(FIRST, "t"))
    loaded = applied(MetadataImage(), *topic(FIRST, "t"), *topic(SECOND, "u"))
    for former in (MetadataImage(), old):
        assert not is_next(former, loaded)
        assert told(former, loaded) == walked(former, loaded)


def test_images_keep_no_earlier_ones() -> None:
    first = applied(MetadataImage(), *topic(FIRST, "t"))
    second = applied(first, change(FIRST))
    assert second.topic_changes.since is first.topic_changes.state
    assert type(second.topic_changes.since) is object
    assert second == replace(second, topic_changes=first.topic_changes)
