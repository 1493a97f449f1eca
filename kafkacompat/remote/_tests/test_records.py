"""Records of `__remote_log_metadata` against bytes of Apache Kafka's own classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.ids import uuid_from_text
from kafkacompat.remote.metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from kafkacompat.remote.records import decode_record, encode_record, metadata_partition
from kafkacompat.wire.errors import WireError

GOLDEN = Path(__file__).with_name("golden")
PARTITION = TopicIdPartition(bytes.fromhex("0123456789abcdeffedcba9876543210"), "orders-ü", 12)
SEGMENT = RemoteLogSegmentId(PARTITION, (-5).to_bytes(8, "big", signed=True) + (77).to_bytes(8, "big"))
EPOCHS = ((3, 100), (5, 150), (300, 199))
COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def rows(name: str) -> list[list[str]]:
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def said() -> dict[str, RemoteLogMetadata]:
    """By name in the golden file."""
    begun = (SEGMENT, 100, 200, 1700000000123, 7, 1700000001000, 1234567, EPOCHS)
    return {
        "segment": RemoteLogSegmentMetadata(*begun),
        "segment txn empty": RemoteLogSegmentMetadata(*begun[:3], -1, *begun[4:], txn_idx_empty=True),
        "segment finished": RemoteLogSegmentMetadata(*begun, b"\1\2\3", COPIED, txn_idx_empty=True),
        **{
            f"update {state.name}": RemoteLogSegmentMetadataUpdate(
                SEGMENT, 1700000002000, b"\x09" if state % 2 else None, state, 8
            )
            for state in RemoteLogSegmentState
        },
        **{
            f"delete {state.name}": RemotePartitionDeleteMetadata(PARTITION, state, 1700000003000, 9)
            for state in RemotePartitionDeleteState
        },
    }


def test_records_are_those_of_apache_kafka() -> None:
    written = {name: bytes.fromhex(value) for name, value in rows("records.tsv")}
    assert {name: encode_record(each) for name, each in said().items()} == written
    assert {name: decode_record(each) for name, each in written.items()} == said()


def test_the_partition_of_the_topic_is_that_of_apache_kafka() -> None:
    found = rows("partitions.tsv")
    assert len(found) == 18
    for count, topic_id, partition, expected in found:
        each = TopicIdPartition(uuid_from_text(topic_id), "t", int(partition))
        assert metadata_partition(each, int(count)) == int(expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "truncated"),
        (b"\x00\x00\x00", "frame version 0"),
        (b"\x01\x03\x00", "type 3, version 0"),
        (b"\x01\x00\x01", "type 0, version 1"),
    ],
)
def test_what_is_not_known_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_record(value)


def test_a_state_that_is_not_known_is_refused() -> None:
    value = bytearray(encode_record(said()["update COPY_SEGMENT_FINISHED"]))
    value[-2] = 4
    with pytest.raises(WireError, match="RemoteLogSegmentState 4"):
        decode_record(bytes(value))


def test_a_segment_that_cannot_be_is_refused() -> None:
    value = bytearray(encode_record(said()["segment"]))
    start = value.index((100).to_bytes(8, "big"))
    value[start : start + 8] = (201).to_bytes(8, "big")
    with pytest.raises(WireError, match="from offset 201 to 200"):
        decode_record(bytes(value))


@given(st.data())
def test_any_damage_is_refused_or_read(data: st.DataObject) -> None:
    whole = encode_record(data.draw(st.sampled_from(list(said().values()))))
    value = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if value:
        value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = decode_record(bytes(value))
    except WireError:
        return
    assert decode_record(encode_record(read)) == read
