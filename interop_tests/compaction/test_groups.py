"""__consumer_offsets is compacted: the records of a deleted group disappear, and none of them comes back."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    EAGER_OFFSETS,
    WAIT_S,
    cleaned_to,
    committed,
    read_messages,
    wait_until_clean,
)
from interop_tests.harness.broker import BrokerProcess
from interop_tests.storage.contents import consumer

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
OFFSETS = "__consumer_offsets"
PARTITIONS = 100
NO_OFFSET = -1001


def group_of(key: bytes | None) -> str:
    """The keys of offsets (versions 0 and 1) and of groups (version 2) begin with the group."""
    assert key is not None
    version, length = struct.unpack_from(">hh", key)
    assert version in (0, 1, 2)
    return key[4 : 4 + length].decode()


def test_a_deleted_group_is_gone_for_good(make_broker: MakeBroker) -> None:
    broker = make_broker(EAGER_CLEANER | EAGER_OFFSETS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("read", PARTITIONS, 1)])["read"].result(WAIT_S)
    places = [TopicPartition("read", partition, 7) for partition in range(PARTITIONS)]

    def commit(group: str, times: int) -> None:
        with consumer(broker.bootstrap, **{"group.id": group}) as member:
            for _ in range(times):
                member.commit(offsets=places, asynchronous=False)

    for group in ("gone", "again", "stays"):
        commit(group, 3)
    for future in admin.delete_consumer_groups(["gone", "again"]).values():
        future.result(WAIT_S)
    commit("again", 1)
    for _ in range(2):
        commit("busy", 150)  # enough to close a segment
        wait_until_clean(broker.data_dir, OFFSETS)
        clean = cleaned_to(broker.data_dir, OFFSETS)
        left = [
            message
            for message in read_messages(broker.bootstrap, OFFSETS)
            if message.offset < clean and group_of(message.key) == "gone"
        ]
        assert [message for message in left if message.value is not None] == []
        assert len(left) >= PARTITIONS, "tombstones stay for a day, so that nobody misses them"
        broker.kill()
        broker.start()
        found = {
            group: set(committed(broker.bootstrap, group, "read", PARTITIONS))
            for group in ("gone", "again", "stays", "busy")
        }
        assert found == {"gone": {NO_OFFSET}, "again": {7}, "stays": {7}, "busy": {7}}
        listed = admin.list_consumer_groups().result(WAIT_S)
        assert {group.group_id for group in listed.valid} == {"again", "stays", "busy"}
