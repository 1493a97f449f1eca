"""Bounds of the codecs, the parts of responses, the primitives, and the cost of importing a message."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.wire import primitives
from kafkacompat.wire.apis import (
    group_record_classes,
    metadata_record_class,
    share_record_classes,
    transaction_record_classes,
)
from kafkacompat.wire.codec import decode, encode, encode_parts
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.generate import main
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.mark.parametrize(
    "count", [b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00", b"\xff\xff\xff\xfe", b"\x80\0\0\0"]
)
def test_absurd_array_lengths_are_refused_before_allocation(count: bytes) -> None:
    with pytest.raises(WireError):
        decode(MetadataRequest, 4, count + b"\0" * 20)


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x7f", b"\x80"]
)
def test_absurd_compact_lengths_are_refused(count: bytes) -> None:
    """A varint longer than five bytes, or with more than 32 bits, is not a length."""
    with pytest.raises(WireError):
        decode(MetadataRequest, 9, count)


def test_a_tag_past_the_end_is_refused() -> None:
    with pytest.raises(WireError, match="tagged field"):
        decode(MetadataRequest, 9, b"\0\0\0\0\1\5\x7fab")


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError):
        decode(MetadataRequest, 4, b"\0\0\0\1\0\2\xff\xfe\0")


def test_every_truncation_is_refused() -> None:
    topics = [MetadataRequestTopic(name="a" * 200), MetadataRequestTopic(name=None, topic_id=b"i" * 16)]
    whole = encode(MetadataRequest(topics=topics), 12)
    for length in range(len(whole)):
        with pytest.raises(WireError):
            decode(MetadataRequest, 12, whole[:length])


def test_bytes_after_a_body_are_ignored() -> None:
    message = MetadataRequest(topics=None)
    assert decode(MetadataRequest, 9, encode(message, 9) + b"more") == message


def test_null_and_empty_topics_differ() -> None:
    """Metadata depends on this distinction."""
    assert decode(MetadataRequest, 9, encode(MetadataRequest(topics=None), 9)).topics is None
    assert decode(MetadataRequest, 9, encode(MetadataRequest(topics=[]), 9)).topics == []


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 4),
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), 4),
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), 9),
        (ProduceRequest(timeout_ms=1 << 31), 9),
    ],
)
def test_a_value_that_cannot_be_encoded_is_our_own_bug(message: Message, version: int) -> None:
    with pytest.raises(EncodeError):
        encode(message, version)


class Slice:
    """Stands for a slice of a file: it has a length but no bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetch_reply(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=value) for i, value in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_leave_as_parts_of_their_own(version: int) -> None:
    large, slice_ = bytes(5000), Slice(100_000)
    topics = [
        FetchableTopicResponse(
            topic="t", partitions=fetch_reply(large, b"small", slice_, None).responses[0].partitions
        )
    ]
    if version > 12:
        topics[0].topic_id, topics[0].topic = b"t" * 16, ""
    reply = FetchResponse(responses=topics)
    parts = encode_parts(reply, version, bytearray(b"HEAD"))
    assert parts[0][:4] == b"HEAD"
    assert [type(part) for part in parts] == [bytearray, bytes, bytearray, Slice, bytearray]
    assert parts[1] is large
    assert parts[3] is slice_
    topics[0].partitions[2].records = bytes(100_000)
    assert b"".join(part if isinstance(part, bytes | bytearray) else bytes(len(part)) for part in parts)[
        4:
    ] == encode(reply, version)


def test_a_slice_of_nothing_is_no_part() -> None:
    assert [type(part) for part in encode_parts(fetch_reply(Slice(0)), 13)] == [bytearray]


def test_a_slice_needs_parts() -> None:
    with pytest.raises(EncodeError):
        encode(fetch_reply(Slice(5)), 13)


def test_decoded_records_are_the_input_itself() -> None:
    partition = PartitionProduceData(index=1, records=b"r" * 100)
    data = bytearray(
        encode(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 9)
    )
    records = decode(ProduceRequest, 9, memoryview(data)).topic_data[0].partition_data[0].records
    data[data.index(b"r")] = ord("R")
    assert bytes(records[:2]) == b"Rr"


@given(st.integers(min_value=0, max_value=(1 << 32) - 1))
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)
    assert len(out) <= 5
    assert primitives.read_uvarint(out, 0) == (value, len(out))
    assert primitives.uvarint_size(value) == len(out)


@given(st.one_of(st.none(), st.text(max_size=100)))
def test_strings_round_trip(text: str | None) -> None:
    wide, compact = bytearray(b"x"), bytearray(b"x")
    primitives.write_nullable_string(wide, text)
    primitives.write_compact_nullable_string(compact, text)
    assert primitives.read_nullable_string(wide, 1) == (text, len(wide))
    assert primitives.read_compact_nullable_string(compact, 1) == (text, len(compact))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 4, b"\x80" * 11])
def test_broken_varints_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        primitives.read_uvarint(data, 0)


def test_records_are_found_by_type() -> None:
    assert metadata_record_class(5).__name__ == "PartitionChangeRecord"
    assert [cls.__name__ for cls in group_record_classes(2)] == ["GroupMetadataKey", "GroupMetadataValue"]
    assert [cls.__name__ for cls in transaction_record_classes(0)] == [
        "TransactionLogKey",
        "TransactionLogValue",
    ]
    assert [cls.__name__ for cls in share_record_classes(1)] == ["ShareUpdateKey", "ShareUpdateValue"]
    with pytest.raises(KeyError):
        group_record_classes(18)


def test_generated_modules_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_one_message_imports_only_itself() -> None:
    """Besides the one that has plain forms."""
    code = (
        "import sys; import kafkacompat.wire.headers, kafkacompat.wire.codec;"
        "import kafkacompat.wire.messages.vote_request;"
        "names = (m.removeprefix('kafkacompat.wire.messages.') for m in sys.modules);"
        "print(*sorted({'fetch_request', 'fetch_response', 'vote_request', 'vote_response', 'produce_request', 'construct'}"
        " & set(names)), sum(m.startswith('kafkacompat.wire.messages.') for m in sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["fetch_request", "fetch_response", "vote_request", "3"]
