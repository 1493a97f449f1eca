"""Searches records for one request: in one partition or in all of a topic, from the newest to the oldest.

Blocking: called in a worker thread. A request is bounded in records, bytes and time. It says how far it looked, and where to
go on. This module knows no HTTP.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from kafkacompat.console.browse import (
    ASK_TIMEOUT_S,
    PAGE_TIMEOUT_S,
    Found,
    Page,
    bytes_of,
    found_of,
    messages,
    partitions_of,
    reading,
    shown,
    timestamp_of,
)
from kafkacompat.console.core.internal_records import internal_key, internal_value
from kafkacompat.console.core.parameters import ALL, MAX_PARTITIONS_TOGETHER, SearchQuery
from kafkacompat.console.core.search import NOTHING, SEARCHED_BYTES, Amount, Frontier, Hit, Stretch, Wanted
from kafkacompat.console.decoder import Decoder
from kafkacompat.console.failure import BrokerAway, NotRead, NotThere
from kafkacompat.security.cluster_address import ClusterAddress

MAX_RECORDS: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_SECONDS: Final = 4.0
"""After so many records, bytes or seconds a request begins no other stretch."""
MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the records that are kept, of which the newest are shown."""
STRETCH_SECONDS: Final = 2.0
"""A stretch that takes longer is given up for a shorter one."""

Places = dict[int, tuple[int, int]]


def search_page(bootstrap: ClusterAddress, query: SearchQuery, decoder: Decoder | None = None) -> Page:
    """Return the newest records that match, how far was looked, and where to go on. Raises NotThere, NotRead, BrokerAway."""
    with reading(bootstrap, query.uncommitted) as consumer:
        return _search(consumer, query, decoder)


def _search(consumer: Consumer, query: SearchQuery, decoder: Decoder | None = None) -> Page:
    places = _places(consumer, query)
    frontier = Frontier(places, query.limit)
    wanted = Wanted(query.key, query.value, query.from_ms, query.to_ms)
    found: dict[tuple[int, int], Found] = {}
    read = NOTHING
    begun_s = time.monotonic()
    stopped = None
    while (stretch := frontier.next()) is not None:
        kept_bytes = sum(query.value_bytes + each.size_bytes for each in found.values())
        stopped = _stop(read, kept_bytes, time.monotonic() - begun_s)
        if stopped is not None:
            break
        try:
            one = _stretch(consumer, query, wanted, frontier, stretch, begun_s + PAGE_TIMEOUT_S)
        except (NotRead, BrokerAway):
            if not read.records:
                raise
            stopped = "time"
            break
        read = read.plus(one.amount)
        if one.is_whole:
            frontier.looked(stretch, one.amount, one.oldest_ms, one.hits)
            for message in one.messages:
                place = stretch.partition, int(message.offset() or 0)
                found[place] = found_of(message, query, decoder, stretch.partition)
        else:
            frontier.shorten(stretch)
    told = frontier.outcome()
    return {
        "topic": query.topic,
        "partition": ALL if query.partition is None else query.partition,
        "partitions": len(places),
        "records": shown((found[place] for place in told.order), query, decoder),
        "looked": told.amount._asdict(),
        "back_to_ms": told.back_to_ms,
        "left": told.left,
        "stopped": stopped or ("limit" if told.left else None),
        "older": ".".join(map(str, told.ends)) if told.left else None,
    }


def _stop(read: Amount, kept_bytes: int, seconds: float) -> str | None:
    """Return why the request reads no other stretch. None if it does."""
    if read.records >= MAX_RECORDS:
        return "records"
    if read.bytes >= MAX_BYTES or kept_bytes > MAX_KEPT_BYTES:
        return "bytes"
    return "time" if seconds >= MAX_SECONDS else None


@dataclass(slots=True)
class ReadStretch:
    """What was read of a stretch. is_whole: it was not given up. hits and messages: the newest that match, oldest first."""

    amount: Amount
    is_whole: bool
    oldest_ms: int | None = None
    hits: list[Hit] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


def _stretch(
    consumer: Consumer,
    query: SearchQuery,
    wanted: Wanted,
    frontier: Frontier,
    stretch: Stretch,
    deadline_s: float,
) -> ReadStretch:
    kept = deque[tuple[Message, Amount]](maxlen=frontier.room(stretch))
    amount, oldest_ms = NOTHING, None
    late_s = time.monotonic() + STRETCH_SECONDS
    for message in messages(consumer, query.topic, stretch.partition, stretch.start, stretch.end, deadline_s):
        key, value, at_ms = bytes_of(message.key()), bytes_of(message.value()), timestamp_of(message)
        size = len(key or b"") + len(value or b"")
        is_cut = query.value is not None and len(value or b"") > SEARCHED_BYTES
        amount = amount.plus(Amount(1, size, int(is_cut)))
        if (
            wanted.is_in_time(at_ms)
            and (wanted.has_key(key) or wanted.is_key_told(internal_key(query.topic, key)))
            and (wanted.has_text(value) or wanted.is_text_told(internal_value(query.topic, key, value)))
        ):
            kept.append((message, amount))
        if at_ms is not None:
            oldest_ms = at_ms if oldest_ms is None else min(oldest_ms, at_ms)
        is_late = time.monotonic() > late_s and stretch.end - stretch.start > 1
        if is_late or frontier.is_too_long(stretch, amount):
            return ReadStretch(amount, False)
    hits = [
        Hit(timestamp_of(message) or 0, int(message.offset() or 0), amount.minus(until))
        for message, until in kept
    ]
    return ReadStretch(amount, True, oldest_ms, hits, [message for message, _ in kept])


def _places(consumer: Consumer, query: SearchQuery) -> Places:
    """Return the offsets to search of each partition: the first, and the end. Kafka's index of times bounds them."""
    numbers = partitions_of(consumer, query.topic)
    if query.partition is not None:
        if query.partition not in numbers:
            raise NotThere(f"topic {query.topic} has no partition {query.partition}")
        numbers = [query.partition]
    if len(numbers) > MAX_PARTITIONS_TOGETHER:
        raise NotThere(
            f"topic {query.topic} has {len(numbers)} partitions: at most {MAX_PARTITIONS_TOGETHER} are searched together, "
            "so choose one"
        )
    places: Places = {}
    for number in numbers:
        place = TopicPartition(query.topic, number)
        places[number] = consumer.get_watermark_offsets(place, timeout=ASK_TIMEOUT_S)
    firsts = _at(consumer, query.topic, places, query.from_ms)
    lasts = _at(consumer, query.topic, places, query.to_ms)
    for at, (number, (first, end)) in enumerate(places.items()):
        if query.ends is not None:
            # A partition that was added since then is not older.
            end = min(end, query.ends[at]) if at < len(query.ends) else first
        places[number] = max(first, firsts.get(number, first)), min(end, lasts.get(number, end))
    return places


def _at(consumer: Consumer, topic: str, places: Places, time_ms: int | None) -> dict[int, int]:
    """Return the offset of the first record of each partition with this time or a later one, or the end without such a record."""
    if time_ms is None:
        return {}
    asked = [TopicPartition(topic, number, time_ms) for number in places]
    found = {}
    for place in consumer.offsets_for_times(asked, timeout=ASK_TIMEOUT_S):
        if place.error is not None:
            raise KafkaException(place.error)
        found[place.partition] = int(place.offset) if place.offset >= 0 else places[place.partition][1]
    return found
