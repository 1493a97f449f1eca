"""The plain forms of Fetch: a request and a response that name at most one partition, and nothing unusual. They have a
fixed layout, so one unpack or pack stands for the walk of a generated codec. Most fetches of paced loads are plain.

What is not plain is left to the generated codec, which alone decides about errors. The bytes and the messages are the same.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.wire.primitives import ByteSequence

    RequestEncoder: TypeAlias = Callable[[FetchRequest, bytearray], None]
    ResponseEncoder: TypeAlias = Callable[[FetchResponse, bytearray, list[Any]], bytearray]
    ResponseDecoder: TypeAlias = Callable[[ByteSequence, int], tuple[Any, int]]

FIRST_REQUEST_VERSION = 15
"""From this version on the state of a replica is in a tag."""
FIRST_RESPONSE_VERSION = 13
"""From this version on topics have ids, and no names."""

ONE = 2
"""The count of a compact array."""
NAMES_NONE = Layout(">iiibii4s")
NAMES_ONE = Layout(">iiibiiB16sBiiqiqi5s")
"""All of a plain request: wait, bounds, isolation level and session; a topic with a partition; the counts that follow."""
FOLLOWER_NAMES_NONE = Layout(">iiibii4s2siqB")
FOLLOWER_NAMES_ONE = Layout(">iiibiiB16sBiiqiqi5s2siqB")
"""The same of a follower, whose id and epoch are in a tag."""
FOLLOWER_SIZES = frozenset((FOLLOWER_NAMES_NONE.size, FOLLOWER_NAMES_ONE.size))
STATE = Layout(">2siqB")
"""The tag, and the number of tags within it."""
NO_TOPICS = b"\1\1\1\0"
"""Neither topics nor forgotten ones, no rack, no tags."""
NO_MORE = b"\0\0\1\1\0"
"""The same behind a partition, which has no tags, and neither has its topic."""
STATE_TAG = b"\1\x0d"
"""Its number and its size."""
FOLLOWER_NO_TOPICS = b"\1\1\1\1"
FOLLOWER_NO_MORE = b"\0\0\1\1\1"
"""The same with one tag."""

ANSWERS_NONE = Layout(">ihi2s")
NO_ANSWERS = b"\1\0"
"""No topics, and no tags."""
ANSWERS_ONE = Layout(">ihiB16sBihqqqBi")
"""A plain response up to the length of the records: time, error and session; a topic with a partition."""
NO_TAGS = b"\0\0\0"
"""Behind the records: of the partition, the topic and the response."""
LENGTH_BYTES = 2
"""A shorter response than one with a length of so many bytes is not plain."""
COPIED_MAX = 1024
"""Bytes of records that are not a part of their own."""
IN_TWO_BYTES = 1 << 14
PACKED_MAX = IN_TWO_BYTES - 2
"""Bytes of records of which the length takes two bytes at most."""
SHORT_LENGTH, LENGTH = Layout(">B"), Layout(">BB")

_no_directory = FetchPartition().replica_directory_id
_no_high_watermark = FetchPartition().high_watermark
_new = object.__new__


def request_encoder(general: RequestEncoder) -> RequestEncoder:
    """Tries the plain form first. From FIRST_REQUEST_VERSION on."""

    def encode(message: FetchRequest, out: bytearray) -> None:
        topics, state = message.topics, message.replica_state
        if (
            len(topics) > 1
            or message.forgotten_topics_data
            or message.rack_id
            or message.cluster_id is not None
            or message.replica_id != -1
            or state is None
            or (state.replica_id == -1 and state.replica_epoch == -1)
        ):
            general(message, out)
            return
        try:
            if not topics:
                out += FOLLOWER_NAMES_NONE.pack(
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    message.session_id,
                    message.session_epoch,
                    FOLLOWER_NO_TOPICS,
                    STATE_TAG,
                    state.replica_id,
                    state.replica_epoch,
                    0,
                )
                return
            topic = topics[0]
            (one,) = topic.partitions
            if one.replica_directory_id == _no_directory and one.high_watermark == _no_high_watermark:
                out += FOLLOWER_NAMES_ONE.pack(
                    message.max_wait_ms,
                    message.min_bytes,
                    message.max_bytes,
                    message.isolation_level,
                    message.session_id,
                    message.session_epoch,
                    ONE,
                    topic.topic_id,
                    ONE,
                    one.partition,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.last_fetched_epoch,
                    one.log_start_offset,
                    one.partition_max_bytes,
                    FOLLOWER_NO_MORE,
                    STATE_TAG,
                    state.replica_id,
                    state.replica_epoch,
                    0,
                )
                return
        except (StructError, AttributeError, TypeError, ValueError):
            pass
        general(message, out)

    return encode


def packed_response(
    session_id: int,
    topic_id: bytes,
    partition: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    names_aborted: bool,
    records: bytes,
) -> bytes:
    """A response with up to PACKED_MAX bytes of records of one partition, and no error. `names_aborted`: it says that there are no
    aborted transactions among them."""
    length = len(records) + 1
    return b"".join(
        (
            ANSWERS_ONE.pack(
                0,
                0,
                session_id,
                ONE,
                topic_id,
                ONE,
                partition,
                0,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                names_aborted,
                -1,
            ),
            SHORT_LENGTH.pack(length) if length < 128 else LENGTH.pack(length & 127 | 128, length >> 7),
            records,
            NO_TAGS,
        )
    )


def response_parts_encoder(general: ResponseEncoder) -> ResponseEncoder:
    """Tries the plain form first. From FIRST_RESPONSE_VERSION on."""

    def encode(message: FetchResponse, out: bytearray, parts: list[Any]) -> bytearray:
        topics = message.responses
        if len(topics) > 1 or message.node_endpoints:
            return general(message, out, parts)
        if not topics:
            try:
                out += ANSWERS_NONE.pack(
                    message.throttle_time_ms, message.error_code, message.session_id, NO_ANSWERS
                )
            except (StructError, TypeError):
                return general(message, out, parts)
            return out
        topic = topics[0]
        try:
            (one,) = topic.partitions
            records = one.records
            if one.aborted_transactions or one.diverging_epoch or one.current_leader or one.snapshot_id:
                return general(message, out, parts)
            length = len(records) + 1
            head = ANSWERS_ONE.pack(
                message.throttle_time_ms,
                message.error_code,
                message.session_id,
                ONE,
                topic.topic_id,
                ONE,
                one.partition_index,
                one.error_code,
                one.high_watermark,
                one.last_stable_offset,
                one.log_start_offset,
                0 if one.aborted_transactions is None else 1,
                one.preferred_read_replica,
            )
        except (StructError, AttributeError, TypeError, ValueError):
            return general(message, out, parts)
        if length >= IN_TWO_BYTES:
            return general(message, out, parts)
        out += head
        if length < 128:
            out.append(length)
        else:
            out.append(length & 127 | 128)
            out.append(length >> 7)
        if length <= COPIED_MAX + 1 and isinstance(records, (bytes, bytearray, memoryview)):
            out += records
            out += NO_TAGS
            return out
        if length > 1:
            parts.append(out)
            parts.append(records)
            return bytearray(NO_TAGS)
        out += NO_TAGS
        return out

    return encode


def response_decoder(general: ResponseDecoder) -> ResponseDecoder:
    """Tries the plain form first. From FIRST_RESPONSE_VERSION on."""
    least = ANSWERS_ONE.size + LENGTH_BYTES

    def decode(buffer: ByteSequence, position: int = 0) -> tuple[Any, int]:
        if len(buffer) - position < least:
            return general(buffer, position)
        message: Any = _new(FetchResponse)
        topic: Any = _new(FetchableTopicResponse)
        one: Any = _new(PartitionData)
        (
            message.throttle_time_ms,
            message.error_code,
            message.session_id,
            topics,
            topic.topic_id,
            partitions,
            one.partition_index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            aborted,
            one.preferred_read_replica,
        ) = ANSWERS_ONE.unpack_from(buffer, position)
        start = position + ANSWERS_ONE.size
        length = buffer[start]
        start += 1
        if length > 127:
            more = buffer[start]
            length = length & 127 | more << 7
            start += 1
            if more > 127:
                return general(buffer, position)
        end = start + length - 1
        if (
            topics != ONE
            or partitions != ONE
            or aborted > 1
            or not length
            or buffer[end : end + len(NO_TAGS)] != NO_TAGS
        ):
            return general(buffer, position)
        one.aborted_transactions = [] if aborted else None
        one.diverging_epoch = one.current_leader = one.snapshot_id = None
        one.records = memoryview(buffer)[start:end]
        topic.topic = ""
        topic.partitions = [one]
        message.responses = [topic]
        message.node_endpoints = []
        return message, end + len(NO_TAGS)

    return decode
