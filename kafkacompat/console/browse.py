"""Reads a page of one partition's records for one request: from an offset, a time, before an offset, or the latest.

Blocking: called in a worker thread. A page is bounded in records, bytes and time. Gaps in the offsets, left by
compaction and transaction markers, are skipped. This module knows no HTTP.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kafkacompat.console.admin import reason_of
from kafkacompat.console.clients import consumer_settings, quiet_logger
from kafkacompat.console.core.columns import cells_of
from kafkacompat.console.core.decoding import (
    JSON_TEXT,
    MAX_INDENTED_TIMES,
    MAX_JSON_BYTES,
    Decoded,
    decoded,
)
from kafkacompat.console.core.internal_records import internal_key, internal_value
from kafkacompat.console.core.newest import Stand, newest_of
from kafkacompat.console.core.parameters import (
    ALL,
    MAX_PARTITIONS_TOGETHER,
    NewestQuery,
    RecordsQuery,
    SearchQuery,
)
from kafkacompat.console.decoder import Decoder, PageDecoder, Told, is_framed
from kafkacompat.console.failure import BrokerAway, NotRead, NotThere
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.apis import COORDINATOR_CLASSES

PAGE_TIMEOUT_S = 8.0
ASK_TIMEOUT_S = 4.0
POLL_S = 0.2
MAX_SCANNED_BACK = 20_000
"""How many offsets a page looks back if compaction has left few records."""
KEY_BYTES = 1_024
MAX_HEADERS = 64
HEADER_BYTES = 512
TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "create time", TIMESTAMP_LOG_APPEND_TIME: "append time"}

GET_HEADERS: Callable[[Message], list[Any] | None] = methodcaller("headers")

Page = dict[str, Any]
Viewed = TypeVar("Viewed")


def records_page(
    bootstrap: ClusterAddress, query: RecordsQuery | NewestQuery, decoder: Decoder | None = None
) -> Page:
    """Return the requested records and where to continue: of a partition, oldest first, or the newest of all, newest first.

    Raises NotThere, NotRead, BrokerAway.
    """
    with reading(bootstrap, query.uncommitted) as consumer:
        if isinstance(query, RecordsQuery):
            return _page(consumer, query, decoder)
        return _newest(consumer, query, decoder)


@contextmanager
def reading(bootstrap: ClusterAddress, uncommitted: bool) -> Iterator[Consumer]:
    """A consumer for one request. What the library raises becomes BrokerAway."""
    consumer = Consumer(consumer_settings(bootstrap, uncommitted), logger=quiet_logger())
    try:
        yield consumer
    except KafkaException as error:
        raise BrokerAway(reason_of(error)) from error
    finally:
        consumer.close()


def _page(consumer: Consumer, query: RecordsQuery, decoder: Decoder | None) -> Page:
    _require_partition(consumer, query)
    place = TopicPartition(query.topic, query.partition)
    earliest, latest = consumer.get_watermark_offsets(place, timeout=ASK_TIMEOUT_S)
    deadline_s = time.monotonic() + PAGE_TIMEOUT_S
    if query.offset is None and query.time_ms is None:
        end = latest if query.before is None else max(earliest, min(query.before, latest))
        records, start = _backwards(
            consumer, query, earliest, end, deadline_s, partial(found_of, decoder=decoder)
        )
        following = end
    else:
        start = _start(consumer, query, earliest, latest)
        records = []
        for message in messages(consumer, query.topic, query.partition, start, latest, deadline_s):
            records.append(found_of(message, query, decoder))
            if len(records) == query.limit:
                break
        following = records[-1].view["offset"] + 1 if len(records) == query.limit else latest
    return {
        "topic": query.topic,
        "partition": query.partition,
        "earliest": earliest,
        "latest": latest,
        "records": shown(records, query, decoder),
        "next_offset": following if following < latest else None,
        "previous_before": start if start > earliest else None,
    }


def _newest(consumer: Consumer, query: NewestQuery, decoder: Decoder | None) -> Page:
    """Read twice: timestamps first, so that of all values only those that are shown are in memory."""
    numbers = partitions_of(consumer, query.topic)
    if len(numbers) > MAX_PARTITIONS_TOGETHER:
        raise NotThere(
            f"topic {query.topic} has {len(numbers)} partitions: at most {MAX_PARTITIONS_TOGETHER} are shown together"
        )
    deadline_s = time.monotonic() + PAGE_TIMEOUT_S
    earliest: dict[int, int] = {}
    stands: dict[int, Stand] = {}
    for place, number in enumerate(numbers):
        first, end = consumer.get_watermark_offsets(
            TopicPartition(query.topic, number), timeout=ASK_TIMEOUT_S
        )
        if query.ends is not None:
            # A partition that was added since then is not older.
            end = max(first, min(end, query.ends[place])) if place < len(query.ends) else first
        one = RecordsQuery(query.topic, number, query.limit, query.value_bytes, columns=query.columns)
        found, start = _backwards(consumer, one, first, end, deadline_s, _when)
        earliest[number], stands[number] = first, Stand(tuple(found), start, end)
    order, ends = newest_of(stands, query.limit)
    found_at: dict[tuple[int, int], Found] = {}
    for number, stand in stands.items():
        offsets = [offset for partition, offset in order if partition == number]
        if offsets:
            one = RecordsQuery(query.topic, number, query.limit, query.value_bytes, columns=query.columns)
            for message in messages(consumer, query.topic, number, min(offsets), stand.end, deadline_s):
                found_at[number, int(message.offset() or 0)] = found_of(message, one, decoder, number)
    return {
        "topic": query.topic,
        "partition": ALL,
        "partitions": len(numbers),
        # One may have been deleted meanwhile.
        "records": shown((found_at[at] for at in order if at in found_at), query, decoder),
        "older": ".".join(str(ends[number]) for number in numbers)
        if any(ends[number] > earliest[number] for number in numbers)
        else None,
    }


def _when(message: Message, query: RecordsQuery) -> tuple[int, int]:
    """Return the timestamp of a record, and its offset."""
    return timestamp_of(message) or 0, int(message.offset() or 0)


def timestamp_of(message: Message) -> int | None:
    """Return milliseconds since 1970. None if the record has no timestamp."""
    kind, timestamp_ms = message.timestamp()
    return timestamp_ms if kind in TIMESTAMP_TYPES else None


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=ASK_TIMEOUT_S).topics.get(topic)
    if found is None or (found.error is not None and not found.partitions):
        raise NotThere(f"there is no topic {topic}")
    return sorted(found.partitions)


def _require_partition(consumer: Consumer, query: RecordsQuery) -> None:
    if query.partition not in partitions_of(consumer, query.topic):
        raise NotThere(f"topic {query.topic} has no partition {query.partition}")


def _start(consumer: Consumer, query: RecordsQuery, earliest: int, latest: int) -> int:
    if query.time_ms is not None:
        asked = [TopicPartition(query.topic, query.partition, query.time_ms)]
        found = consumer.offsets_for_times(asked, timeout=ASK_TIMEOUT_S)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        # A time after the last record has no offset. The page is then the empty one at the end.
        return int(found.offset) if found.offset >= 0 else latest
    return max(earliest, min(query.offset or 0, latest))


def _backwards(
    consumer: Consumer,
    query: RecordsQuery,
    earliest: int,
    end: int,
    deadline_s: float,
    view: Callable[[Message, RecordsQuery], Viewed],
) -> tuple[list[Viewed], int]:
    span = query.limit
    while True:
        start = max(earliest, end - span)
        kept: deque[tuple[int, Viewed]] = deque(maxlen=query.limit)
        for message in messages(consumer, query.topic, query.partition, start, end, deadline_s):
            kept.append((int(message.offset() or 0), view(message, query)))
        if len(kept) == query.limit:
            start = kept[0][0]
        if len(kept) == query.limit or start == earliest or span >= MAX_SCANNED_BACK:
            return [each for _, each in kept], start
        span = min(span * 8, MAX_SCANNED_BACK)


def messages(
    consumer: Consumer, topic: str, partition: int, start: int, end: int, deadline_s: float
) -> Iterator[Message]:
    """Yield the records of a partition from `start` on, before `end`. NotRead or BrokerAway if they do not come in time."""
    if start >= end:
        return
    following, lost = start, False
    consumer.assign([TopicPartition(topic, partition, start)])
    while time.monotonic() < deadline_s:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return
            if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                lost = True
                continue
            raise KafkaException(error)
        offset = message.offset()
        if offset is None or offset >= end:
            return
        yield message
        following, lost = offset + 1, False
        if following >= end:
            return
    if lost:
        raise BrokerAway(f"no more records of {topic}-{partition} in {PAGE_TIMEOUT_S:.0f} s")
    # The library reports no error for a batch that it cannot parse, such as one with a key length below -1. It fetches
    # again and again.
    raise NotRead(
        f"no record of {topic}-{partition} at or after offset {following} arrived in {PAGE_TIMEOUT_S:.0f} s; "
        "if the broker is not slow, the client library cannot read the record there: start after it"
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it is shown without a registry, and of its key and value what is in the wire format of one."""

    view: Page
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


def found_of(
    message: Message,
    query: RecordsQuery | SearchQuery,
    decoder: Decoder | None,
    partition: int | None = None,
) -> Found:
    """Return a record. partition: shown with it."""
    view = record_view(message, query)
    if partition is not None:
        view = {"partition": partition, **view}
    key, value = (
        # Of what is too long to be decoded, as much as tells that.
        data[: MAX_JSON_BYTES + 1] if decoder is not None and data is not None and is_framed(data) else None
        for data in (bytes_of(message.key()), bytes_of(message.value()))
    )
    return Found(view, key, value)


def shown(
    found: Iterable[Found], query: RecordsQuery | NewestQuery | SearchQuery, decoder: Decoder | None
) -> list[Page]:
    """Return the records of a page as a registry's schemas say.

    All of them are read before: a value may take longer to decode than a record may take to arrive.
    """
    if decoder is None:
        return [each.view for each in found]
    of_page = decoder.of_page()
    pages = []
    for each in found:
        tell_by_schema(each.view, each.key, each.value, query, of_page)
        pages.append(each.view)
    return pages


def record_view(message: Message, query: RecordsQuery | SearchQuery) -> Page:
    """Return one record with decoded key, value and headers. cells: what its value has in the columns."""
    key, value = bytes_of(message.key()), bytes_of(message.value())
    shown_key, shown_value = decoded(key, KEY_BYTES), decoded(value, query.value_bytes)
    told_key, told_value = internal_key(query.topic, key), internal_value(query.topic, key, value)
    if told_key is not None:
        shown_key |= {"kind": JSON_TEXT, "text": told_key}
    if told_value is not None:
        shown_value |= {"kind": JSON_TEXT, "text": told_value, "truncated": False}
    headers, unreadable = _headers(message)
    cells = cells_of(told_value if told_value is not None else value, query.columns)
    return {
        "offset": message.offset(),
        "timestamp_ms": timestamp_of(message),
        "timestamp_type": TIMESTAMP_TYPES.get(message.timestamp()[0]),
        "key": shown_key,
        "value": shown_value,
        "cells": cells,
        "headers": [
            {"name": str(name), "value": decoded(bytes_of(content), HEADER_BYTES)}
            for name, content in headers[:MAX_HEADERS]
        ],
        "headers_hidden": max(0, len(headers) - MAX_HEADERS),
        "headers_unreadable": unreadable,
    }


def tell_by_schema(
    view: Page,
    key: bytes | None,
    value: bytes | None,
    query: RecordsQuery | NewestQuery | SearchQuery,
    decoder: PageDecoder,
) -> None:
    """Show in the view of a record what the registry's schemas say of its key and value."""
    if query.topic in COORDINATOR_CLASSES:
        return
    _by_schema(view["key"], decoder.decoded(key), KEY_BYTES)
    told = decoder.decoded(value)
    _by_schema(view["value"], told, query.value_bytes)
    if told is not None and not told.problem:
        view["cells"] = cells_of(told.text, query.columns)


def _by_schema(shown: Decoded, told: Told | None, most_bytes: int) -> None:
    """Show what the schema says. `raw` has the bytes in hex."""
    if told is None:
        return
    if told.problem:
        shown["problem"] = told.problem
        return
    most = most_bytes * MAX_INDENTED_TIMES
    shown |= {
        "kind": JSON_TEXT,
        "text": told.text[:most],
        "truncated": len(told.text) > most,
        "raw": shown["text"],
        "writer": told.writer,
    }


def _headers(message: Message) -> tuple[list[Any], bool]:
    """Return the headers, and whether some could not be read because a header's name is not UTF-8.

    For such a name the library returns an incomplete list together with an error, so the record's headers are not
    shown. After a few calls of message.headers(), the interpreter optimizes its check for that away, and reading the
    list crashes the process. A call through an object is always checked and raises SystemError.
    """
    try:
        return list(GET_HEADERS(message) or []), False
    except (SystemError, UnicodeError):
        return [], True


def bytes_of(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
