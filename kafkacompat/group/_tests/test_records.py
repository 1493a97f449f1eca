"""Records of `__consumer_offsets` compared byte for byte with those of Kafka 4.3.0, and records that cannot be read."""

from __future__ import annotations

import pytest

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.group.classic.classic_group import empty_group_record, group_metadata_record
from kafkacompat.group.group_metadata_manager import restored_group
from kafkacompat.group.records import (
    CONSUMER_MESSAGES,
    GROUP_METADATA,
    LEGACY_OFFSET_COMMIT,
    MODERN_MESSAGES,
    OFFSET_COMMIT,
    SHARE_MESSAGES,
    ConsumerGroupRecord,
    GroupMetadataRecord,
    OffsetAndMetadata,
    OffsetRecord,
    ShareGroupRecord,
    StreamsGroupRecord,
    decode_record,
    encode_record,
)
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kafkacompat.wire.tables import GROUP_RECORDS

TOPIC_ID = bytes.fromhex("380ff20b2d68423fb29990a362e23f6e")
OFFSET_KEY = bytes.fromhex("0001 000d 66616374732d636c6173736963 0008 66616374732d7431 00000001")
OFFSET_VALUE = bytes.fromhex(
    "0004 0000000000000003 00000000 01 000001a1fbea1785 01 00 10 380ff20b2d68423fb29990a362e23f6e"
)
TRANSACTIONAL_VALUE = bytes.fromhex("0004 0000000000000001 ffffffff 01 000001a1fbea15cc 00")
GROUP_KEY = bytes.fromhex("0002 000d 66616374732d636c6173736963")
NEW_GROUP_VALUE = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fbea171e 00000000")
EMPTIED_GROUP_VALUE = bytes.fromhex("0003 0008 636f6e73756d6572 00000002 ffff ffff 000001a1fbea171e 00000000")


def test_a_commit_is_written_as_kafka_writes_it() -> None:
    value = OffsetAndMetadata(offset=3, leader_epoch=0, commit_timestamp=0x1A1FBEA1785, topic_id=TOPIC_ID)
    assert encode_record(OffsetRecord("facts-classic", "facts-t1", 1, value)) == (OFFSET_KEY, OFFSET_VALUE)
    without_id = OffsetAndMetadata(offset=1, commit_timestamp=0x1A1FBEA15CC)
    assert encode_record(OffsetRecord("facts-classic", "facts-t1", 1, without_id))[1] == TRANSACTIONAL_VALUE
    assert encode_record(OffsetRecord("facts-classic", "facts-t1", 1, None)) == (OFFSET_KEY, None)


def test_a_commit_is_read_as_kafka_wrote_it() -> None:
    record = decode_record(OFFSET_KEY, OFFSET_VALUE)
    assert isinstance(record, OffsetRecord)
    assert (record.group_id, record.topic, record.partition) == ("facts-classic", "facts-t1", 1)
    assert record.value is not None
    assert (record.value.offset, record.value.leader_epoch, record.value.metadata) == (3, 0, "")
    assert (record.value.commit_timestamp, record.value.topic_id) == (0x1A1FBEA1785, TOPIC_ID)


def test_an_explicit_expiry_is_written_in_version_1() -> None:
    value = OffsetAndMetadata(
        offset=7, leader_epoch=4, metadata="m", commit_timestamp=100, expire_timestamp=200, topic_id=TOPIC_ID
    )
    key, data = encode_record(OffsetRecord("g", "t", 0, value))
    assert data == bytes.fromhex("0001 0000000000000007 0001 6d 0000000000000064 00000000000000c8")
    record = decode_record(key, data)
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert (record.value.expire_timestamp, record.value.leader_epoch) == (200, -1)


@pytest.mark.parametrize(
    ("value", "offset", "epoch"),
    [
        ("0000 0000000000000005 0000 0000000000000001", 5, -1),
        ("0002 0000000000000005 0000 0000000000000001", 5, -1),
        ("0003 0000000000000005 00000002 0000 0000000000000001", 5, 2),
    ],
)
def test_older_values_of_commits_are_read(value: str, offset: int, epoch: int) -> None:
    record = decode_record(OFFSET_KEY, bytes.fromhex(value))
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert (record.value.offset, record.value.leader_epoch) == (offset, epoch)


def test_a_commit_of_the_oldest_key_type_is_read() -> None:
    record = decode_record(
        b"\0\0" + OFFSET_KEY[2:], bytes.fromhex("0000 0000000000000005 0001 6d 0000000000000009")
    )
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert (record.value.offset, record.value.metadata, record.value.commit_timestamp) == (5, "m", 9)


def test_groups_are_written_as_kafka_writes_them() -> None:
    assert encode_record(empty_group_record("facts-classic", 0x1A1FBEA171E)) == (GROUP_KEY, NEW_GROUP_VALUE)
    emptied = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=0x1A1FBEA171E,
        members=[],
    )
    assert encode_record(GroupMetadataRecord("facts-classic", emptied)) == (GROUP_KEY, EMPTIED_GROUP_VALUE)
    assert encode_record(GroupMetadataRecord("facts-classic", None)) == (GROUP_KEY, None)
    assert decode_record(GROUP_KEY, EMPTIED_GROUP_VALUE) == GroupMetadataRecord("facts-classic", emptied)


def test_a_classic_group_keeps_each_field_of_its_record() -> None:
    """Through its bytes, the load, and the record that the loaded group writes."""
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        current_state_timestamp=1,
        members=[member],
    )
    for made, plain in ((value, GroupMetadataValue()), (member, MemberMetadata())):
        for name in made.field_names():
            assert getattr(made, name) != getattr(plain, name), (
                f"{name} has its default here, so nothing shows its loss"
            )
    key, data = encode_record(GroupMetadataRecord("g", value))
    record = decode_record(key, data)
    assert record == GroupMetadataRecord("g", value)
    group = restored_group("g", value)
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    assert group_metadata_record(group, assignments) == record


@pytest.mark.parametrize("record_type", range(24))
def test_every_known_type_but_the_unused_is_recognised(record_type: int) -> None:
    key = record_type.to_bytes(2, "big") + b"\0\1g" + b"\0\1t\0\0\0\0"
    record = decode_record(key, None)
    if record_type in (9, 18):
        assert record is None
    elif record_type in (0, 1):
        assert isinstance(record, OffsetRecord)
    elif record_type == 2:
        assert isinstance(record, GroupMetadataRecord)
    else:
        assert isinstance(record, (ConsumerGroupRecord, ShareGroupRecord, StreamsGroupRecord))
        assert (record.group_id, record.key.API_KEY, record.value) == ("g", record_type, None)
        assert isinstance(record, ConsumerGroupRecord) == (record_type in CONSUMER_MESSAGES)
        assert isinstance(record, ShareGroupRecord) == (record_type in SHARE_MESSAGES)


@pytest.mark.parametrize("record_type", [24, 99, -1])
def test_unknown_types_are_passed_over(record_type: int) -> None:
    assert decode_record(record_type.to_bytes(2, "big", signed=True) + b"anything", b"x") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], OFFSET_VALUE),
        (OFFSET_KEY, b"\0"),
        (OFFSET_KEY, b"\0\5" + OFFSET_VALUE[2:]),
        (OFFSET_KEY, OFFSET_VALUE[:-3]),
        (GROUP_KEY, b"\0\5" + NEW_GROUP_VALUE[2:]),
        (GROUP_KEY, NEW_GROUP_VALUE[:-1]),
        (GROUP_KEY, b"\xff\xff"),
    ],
)
def test_known_types_that_cannot_be_read_fail_the_load(key: bytes, value: bytes) -> None:
    with pytest.raises(LoadFailure):
        decode_record(key, value)


def test_each_kind_of_record_is_read() -> None:
    classic = {LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA}
    assert GROUP_RECORDS.keys() == classic | MODERN_MESSAGES.keys()
    for number, (key, value) in MODERN_MESSAGES.items():
        assert (key.__name__, value.__name__) == GROUP_RECORDS[number]
