"""What the records say about changed settings and access control entries is what a walk over all of them finds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.controller.image import MetadataImage, changed_acls, changed_configs
from kafkacompat.controller.metadata_delta import Replayer
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.no_op_record import NoOpRecord
from kafkacompat.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

TOPIC, BROKER = 2, 4
FIRST, SECOND = b"\x01" * 16, b"\x02" * 16


def applied(base: MetadataImage, *messages: Message) -> MetadataImage:
    replayer = Replayer(base)
    replayer.apply([(message.API_KEY or 0, message) for message in messages])
    return replayer.publish(base.offset + len(messages), 1)


def config(name: str, value: str | None, kind: int = TOPIC) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name="retention.ms", value=value)


def entry(acl_id: bytes) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=TOPIC,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def walked(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> set[Any]:
    return {key for key in old.keys() | new.keys() if old.get(key) is not new.get(key)}


def check(old: MetadataImage, new: MetadataImage) -> None:
    configs, acls = changed_configs(old, new), changed_acls(old, new)
    assert len(set(configs)) == len(configs)
    assert set(configs) == walked(old.configs, new.configs)
    if acls is not None:
        assert set(acls) >= walked(old.acls, new.acls)


def random_records(chance: random.Random, topics: dict[str, bytes], acls: list[bytes]) -> list[Message]:
    """Records that fit an image with these topics and entries. Changes both."""
    records: list[Message] = []
    for _ in range(chance.randrange(4)):
        kind = chance.randrange(6)
        if kind == 0:
            made = chance.randbytes(16)
            topics[made.hex()] = made
            records.append(TopicRecord(name=made.hex(), topic_id=made))
        elif kind == 1 and topics:
            name = chance.choice(sorted(topics))
            records.append(RemoveTopicRecord(topic_id=topics.pop(name)))
        elif kind == 2 and topics:
            value = chance.choice([None, "1", "2"])
            records.append(config(chance.choice(sorted(topics)), value))
        elif kind == 3:
            records.append(config(chance.choice(["", "1"]), chance.choice([None, "1"]), BROKER))
        elif kind == 4:
            acls.append(chance.randbytes(16))
            records.append(entry(acls[-1]))
        elif acls:
            records.append(RemoveAccessControlEntryRecord(id=acls.pop(chance.randrange(len(acls)))))
    return records or [NoOpRecord()]


@pytest.mark.parametrize("seed", range(20))
def test_the_records_name_what_a_walk_finds(seed: int) -> None:
    chance = random.Random(seed)
    topics: dict[str, bytes] = {}
    acls: list[bytes] = []
    images = [applied(MetadataImage(), NoOpRecord())]
    for _ in range(40):
        images.append(applied(images[-1], *random_records(chance, topics, acls)))
        old, new = images[-2:]
        check(old, new)
        if old.configs is not new.configs:
            assert new.config_changes.since is old.config_changes.state
        if old.acls is not new.acls:
            assert new.acl_changes.since is old.acl_changes.state
            assert changed_acls(old, new) is not None
        check(chance.choice(images), new)


def test_of_many_those_of_the_records_are_looked_at() -> None:
    names = [f"t{number}" for number in range(2_000)]
    ids = [number.to_bytes(16, "big") for number in range(2_000)]
    old = applied(MetadataImage(), *(config(name, "1") for name in names), *map(entry, ids))
    new = applied(old, config("t7", "2"), RemoveAccessControlEntryRecord(id=ids[7]))
    assert new.config_changes.keys == ((TOPIC, "t7"),)
    assert new.acl_changes.keys == (ids[7],)
    assert (changed_configs(old, new), changed_acls(old, new)) == ([(TOPIC, "t7")], (ids[7],))


def test_a_first_image_and_one_of_a_snapshot_are_walked() -> None:
    old = applied(MetadataImage(), config("t", "1"), entry(FIRST))
    loaded = applied(MetadataImage(), config("u", "1"), entry(SECOND))
    for former in (MetadataImage(), old):
        check(former, loaded)
    assert changed_acls(old, loaded) is None


def test_images_keep_no_earlier_ones_and_what_has_led_to_them_is_no_part_of_them() -> None:
    first = applied(MetadataImage(), config("t", "1"), entry(FIRST))
    second = applied(first, config("t", "2"), entry(SECOND))
    assert type(second.config_changes.since) is type(second.acl_changes.since) is object
    assert second == replace(second, config_changes=first.config_changes, acl_changes=first.acl_changes)
