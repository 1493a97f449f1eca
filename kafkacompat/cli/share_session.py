"""A share session with one leader: fetches acquire records, acknowledgements end or prolong that.

The session is tied to the connection. When either is lost, the leader gives the session's records to other members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kafkacompat.cli.share_member import TopicPartition
from kafkacompat.client.blocking import Connection
from kafkacompat.client.brokers import check, error_name
from kafkacompat.records.batch import BatchCorrupt, has_valid_crc, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from kafkacompat.wire.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kafkacompat.wire.messages.share_fetch_response import AcquiredRecords, PartitionData, ShareFetchResponse

FIRST_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH = 2**31 - 1
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""Whole batches may be acquired, or not one record more than the limit. Brokers of version 1 know only the former."""
MAX_BYTES = 8 * 1024 * 1024
LOST = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class Acknowledgement(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Consecutive offsets of a partition that are acknowledged in the same way."""

    first: int
    last: int
    kind: Acknowledgement


@dataclass(slots=True)
class Acquired:
    """What a fetch acquired in one partition."""

    records: list[tuple[int, int, Record]] = field(default_factory=list)
    """Offset, delivery count and record."""
    gaps: list[Range] = field(default_factory=list)
    """Acquired offsets without a record: compacted, or markers of transactions. They are acknowledged as well."""


class SessionLost(Exception):
    """The leader has no such session any more, or no place for a new one."""


class ShareSession:
    def __init__(self, connection: Connection, group: str, member_id: str) -> None:
        self._connection = connection
        self._group = group
        self._member_id = member_id
        self._epoch = FIRST_EPOCH
        self._partitions: frozenset[TopicPartition] = frozenset()

    @property
    def is_lost(self) -> bool:
        return self._connection.is_lost

    @property
    def can_renew(self) -> bool:
        return self._connection.serves(ApiKey.SHARE_ACKNOWLEDGE, 2)

    def fetch(
        self, partitions: frozenset[TopicPartition], most: int, mode: int, wait_ms: int
    ) -> ShareFetchResponse:
        """Acquire up to about `most` records of these partitions. Raises BrokerAway and SessionLost."""
        added = partitions - self._partitions
        forgotten = self._partitions - partitions
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=most,
            batch_size=most,
            share_acquire_mode=mode if self._connection.serves(ApiKey.SHARE_FETCH, 2) else BATCH_OPTIMIZED,
            topics=[
                FetchTopic(
                    topic_id=topic, partitions=[FetchPartition(partition_index=number) for number in numbers]
                )
                for topic, numbers in by_topic(added)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic, partitions=numbers) for topic, numbers in by_topic(forgotten)
            ],
        )
        answer = self._connection.call(request, ShareFetchResponse)
        self._advance(answer.error_code, answer.error_message)
        self._partitions = partitions
        return answer

    def acknowledge(
        self, ranges: Mapping[TopicPartition, Iterable[Range]], is_last: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition. `is_last` also ends the session and releases all of its records.
        Ranges are in the order of offsets, and either all of them renew or none. Raises BrokerAway and SessionLost."""
        if self._epoch == FIRST_EPOCH:
            if is_last:
                return {}
            raise SessionLost("the session has ended")
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else self._epoch,
            is_renew_ack=any(
                each.kind == Acknowledgement.RENEW for all_of in ranges.values() for each in all_of
            ),
            topics=[
                AcknowledgeTopic(
                    topic_id=topic,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=each.first,
                                    last_offset=each.last,
                                    acknowledge_types=[each.kind],
                                )
                                for each in ranges[topic, number]
                            ],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(ranges)
            ],
        )
        answer = self._connection.call(request, ShareAcknowledgeResponse)
        if is_last:
            self._epoch = FIRST_EPOCH
        else:
            self._advance(answer.error_code, answer.error_message)
        return {
            (topic.topic_id, partition.partition_index): partition.error_code
            for topic in answer.responses
            for partition in topic.partitions
        }

    def _advance(self, code: int, message: str | None) -> None:
        if code in LOST or code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            self._epoch, self._partitions = FIRST_EPOCH, frozenset()
            raise SessionLost(f"share session: {error_name(code)}")
        check(code, f"group {self._group}", message)
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1


def by_topic(partitions: Collection[TopicPartition]) -> Iterator[tuple[bytes, list[int]]]:
    for topic in sorted({topic for topic, _ in partitions}):
        yield topic, sorted(number for each, number in partitions if each == topic)


def acquired_of(data: PartitionData) -> Acquired:
    """Return the records that a fetch acquired. The answer may hold more records than these. Raises BatchCorrupt,
    RecordMalformed and DecompressionFailed."""
    wanted = sorted(data.acquired_records, key=lambda each: each.first_offset)
    found = Acquired()
    if not wanted:
        return found
    whole = memoryview(data.records or b"")
    for header in iterate_batches(whole):
        ours = [
            each
            for each in wanted
            if each.first_offset <= header.last_offset and each.last_offset >= header.base_offset
        ]
        if header.is_control or not ours:
            continue
        batch = whole[header.position : header.position + header.size]
        if not has_valid_crc(batch, header):
            raise BatchCorrupt("the batch's checksum does not match its bytes")
        for offset, record in records_of(batch, header):
            while ours and offset > ours[0].last_offset:
                del ours[0]
            if not ours:
                break
            if offset >= ours[0].first_offset:
                found.records.append((offset, ours[0].delivery_count, record))
    found.gaps = _gaps(wanted, [offset for offset, _, _ in found.records])
    return found


def _gaps(wanted: list[AcquiredRecords], offsets: list[int]) -> list[Range]:
    gaps = []
    at = 0
    for each in wanted:
        following = each.first_offset
        while at < len(offsets) and offsets[at] <= each.last_offset:
            if offsets[at] > following:
                gaps.append(Range(following, offsets[at] - 1, Acknowledgement.GAP))
            following = offsets[at] + 1
            at += 1
        if following <= each.last_offset:
            gaps.append(Range(following, each.last_offset, Acknowledgement.GAP))
    return gaps


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, with neighbours of the same kind joined."""
    found: list[Range] = []
    for each in sorted(ranges):
        if found and found[-1].kind == each.kind and found[-1].last + 1 == each.first:
            found[-1] = Range(found[-1].first, each.last, each.kind)
        else:
            found.append(each)
    return found
