"""Dead letters of a share group: the records that tell where an undeliverable record came from (KIP-1191), and when those that
wait to be written have waited long enough.

Pure. `dead_letter_queue` reads the source and writes to the topic.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, build_batch, iterate_batches
from kafkacompat.records.compression import DecompressionFailed, unpack
from kafkacompat.records.record import Record, RecordMalformed, encode_record
from kafkacompat.records.scan import walk_records

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Buffer
    from kafkacompat.records.batch import BatchHeader
    from kafkacompat.share.service import SharePartitionKey

INTERNAL_PREFIX = "__"
RECORDS_AT_ONCE = 500
"""Dead letters in one batch."""
UNPACKED_BYTES_MAX = 16 << 20
"""A batch that expands to more is not opened, whatever the topic takes: its dead letters tell only where they came from."""
RECORD_OVERHEAD_BYTES = 10
"""The length prefix and the varints that depend on the place in the batch."""


ATTEMPTS = 5
BACKOFF_MS = 1_000
"""After the first attempt that fails; twice as long after each further one."""
TIMEOUT_MS = 10_000
"""Of one request, and for the replicas."""
HELD_MAX_MS = 30_000
"""A range that is older is given up at its next failure, whichever attempt that is: its records are in flight meanwhile,
and with enough of them the group stands still."""
GIVEN_UP_AT_ONCE = 50
"""Ranges in one turn of the loop."""


class Cause(Enum):
    """Why a record is not delivered any more. The text is that of Kafka's header."""

    CLIENT_REJECT = "Offset rejected by client."
    DELIVERY_COUNT_EXCEEDED = "Offset delivery count exceeded the threshold."


class DeadLetters(NamedTuple):
    """Records of a share-partition with the same fate. Both offsets belong to the range."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """The settings that hold for a group now."""

    topic: str = ""
    """errors.deadletterqueue.topic.name of the group. Empty: no dead letters."""
    copies_records: bool = False
    """errors.deadletterqueue.copy.record.enable of the group."""
    prefix: str = "dlq."
    """errors.deadletterqueue.topic.name.prefix of the broker."""
    creates_topics: bool = False
    """errors.deadletterqueue.auto.create.topics.enable of the broker."""


def flaw_of_topic(policy: DeadLetterPolicy, exists: bool, is_enabled: bool) -> str | None:
    """Why the group's topic takes no dead letters, None if it does. `is_enabled`:
    errors.deadletterqueue.group.enable of the topic."""
    name = policy.topic
    if name.startswith(INTERNAL_PREFIX):
        return f"errors.deadletterqueue.topic.name {name!r} begins with {INTERNAL_PREFIX}"
    if policy.prefix and not name.startswith(policy.prefix):
        return (
            f"errors.deadletterqueue.topic.name {name!r} does not begin with "
            f"errors.deadletterqueue.topic.name.prefix {policy.prefix!r}"
        )
    if not exists and not policy.creates_topics:
        return f"topic {name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
    if exists and not is_enabled:
        return f"errors.deadletterqueue.group.enable of topic {name} is false"
    return None


class Source(NamedTuple):
    """What a dead letter copies. The record's own headers are not copied, as in Kafka."""

    key: bytes | None = None
    value: bytes | None = None


NO_SOURCE = Source()


class Sources(NamedTuple):
    records: Mapping[int, Source]
    """By offset, as far as they are there and can be opened."""
    last_offset: int
    """What lies behind it was not looked for."""


def sources_in(data: Buffer, first_offset: int, last_offset: int, max_bytes: int) -> Sources:
    """The records of these offsets in the complete batches of `data`. A compressed batch that expands to more than
    `max_bytes`, which is what the dead-letter topic takes, has none, as in Kafka."""
    found: dict[int, Source] = {}
    known = last_offset
    left = UNPACKED_BYTES_MAX
    try:
        for header in iterate_batches(data):
            known = header.last_offset
            if header.base_offset > last_offset:
                break
            if header.last_offset < first_offset or header.is_control or header.magic != 2:
                continue
            batch = memoryview(data)[header.position : header.position + header.size]
            bound = min(max_bytes, UNPACKED_BYTES_MAX) if header.codec else UNPACKED_BYTES_MAX
            try:
                body = unpack(header.codec, batch[HEADER_SIZE:], bound)
            except DecompressionFailed:
                # As much may have been unpacked in vain.
                left -= bound
            else:
                left -= len(body)
                with contextlib.suppress(RecordMalformed):
                    _take(found, header, body, first_offset, last_offset)
            if left <= 0:
                # Each of the next batches may be as large.
                break
    except BatchCorrupt:
        known = last_offset
    return Sources(found, known)


def _take(
    found: dict[int, Source],
    header: BatchHeader,
    body: bytes | bytearray,
    first_offset: int,
    last_offset: int,
) -> None:
    for record in walk_records(body, header.record_count, header.base_timestamp_ms, 0):
        offset = header.base_offset + record.offset_delta
        if offset > last_offset:
            break
        if offset >= first_offset:
            found[offset] = Source(record.key, record.value)


class Written(NamedTuple):
    batch: bytearray
    next_offset: int
    """The first source offset that is not in the batch."""


def build(
    group_id: str,
    source: TopicPartition,
    letters: DeadLetters,
    from_offset: int,
    sources: Sources,
    max_bytes: int,
    now_ms: int,
) -> Written:
    """A batch of dead letters from `from_offset` on. It has at least one, and otherwise at most `max_bytes` and none of
    records that were not looked for.

    A copied record that alone is larger becomes a dead letter without its contents.
    """
    records: list[Record] = []
    size = HEADER_SIZE
    end = min(letters.last_offset, from_offset + RECORDS_AT_ONCE - 1, max(sources.last_offset, from_offset))
    for offset in range(from_offset, end + 1):
        told = tuple(_headers(group_id, source, offset, letters))
        copied = sources.records.get(offset, NO_SOURCE)
        if len(copied.key or b"") + len(copied.value or b"") > max_bytes:
            copied = NO_SOURCE
        record = Record(len(records), now_ms, copied.key, copied.value, told)
        own = _size(record, now_ms)
        if HEADER_SIZE + own > max_bytes and copied is not NO_SOURCE:
            record = Record(len(records), now_ms, None, None, told)
            own = _size(record, now_ms)
        if records and size + own > max_bytes:
            break
        records.append(record)
        size += own
    return Written(build_batch(records), from_offset + len(records))


def _size(record: Record, now_ms: int) -> int:
    return len(encode_record(record, now_ms)) + RECORD_OVERHEAD_BYTES


def _headers(
    group_id: str, source: TopicPartition, offset: int, letters: DeadLetters
) -> Sequence[tuple[str, bytes]]:
    return (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", str(source.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", group_id.encode("utf-8", "replace")),
        ("__dlq.errors.delivery.count", str(letters.delivery_count).encode()),
        ("__dlq.errors.message", letters.cause.value.encode()),
    )


class Delivery:
    """A range of dead letters on its way."""

    __slots__ = (
        "answer",
        "failures_before",
        "is_wanted",
        "key",
        "letters",
        "next_offset",
        "since_ms",
        "source",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        source: TopicPartition,
        letters: DeadLetters,
        is_wanted: Callable[[], bool],
        failures_before: int,
        since_ms: int,
    ) -> None:
        self.key = key
        self.source = source
        self.letters = letters
        self.next_offset = letters.first_offset
        self.is_wanted = is_wanted
        self.failures_before = failures_before
        """Of the queue, when this range came."""
        self.since_ms = since_ms
        self.answer: Deferred[bool] = Deferred()


class Deliveries:
    """The ranges of one share-partition, in order. The first one is on its way. Those that came first are over first."""

    __slots__ = (
        "failures",
        "failures_before_success",
        "is_request_failing",
        "last_reason",
        "succeeded_at_ms",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        """Bounded by the records in flight of the share-partition."""
        self.failures = 0
        self.failures_before_success = 0
        """At the last success, after which all have their attempts and their time again."""
        self.succeeded_at_ms = 0
        self.last_reason = ""
        self.is_request_failing = False
        """Whether the last attempt that failed had sent a Produce request."""

    def failed(self, reason: str, has_sent: bool) -> None:
        """An attempt has failed, for all that wait: they go to the same partition."""
        self.failures += 1
        self.last_reason = reason
        self.is_request_failing = has_sent

    def succeeded(self, now_ms: int) -> None:
        self.failures_before_success = self.failures
        self.succeeded_at_ms = now_ms

    def delay_ms(self) -> int:
        """Until the next attempt."""
        attempts = self.attempts_of(self.waiting[0])
        return BACKOFF_MS << attempts - 1 if attempts else 0

    def attempts_of(self, delivery: Delivery) -> int:
        """How many attempts have failed for the range."""
        return self.failures - max(delivery.failures_before, self.failures_before_success)

    def is_at_last_attempt(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether the range is given up if the present attempt fails too."""
        held_ms = now_ms - max(delivery.since_ms, self.succeeded_at_ms)
        return self.attempts_of(delivery) >= ATTEMPTS - 1 or held_ms >= HELD_MAX_MS

    def is_over(self, delivery: Delivery, now_ms: int) -> bool:
        attempts = self.attempts_of(delivery)
        held_ms = now_ms - max(delivery.since_ms, self.succeeded_at_ms)
        return attempts >= ATTEMPTS or (attempts > 0 and held_ms >= HELD_MAX_MS)
