"""Dead letters: what they tell, what they copy, how large a batch is, and which topics take them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.records.batch import build_batch, parse_header
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.share import dead_letters
from kafkacompat.share.dead_letters import (
    RECORDS_AT_ONCE,
    Cause,
    DeadLetterPolicy,
    DeadLetters,
    Source,
    Sources,
    Written,
    build,
    flaw_of_topic,
    sources_in,
)

SOURCE = TopicPartition("orders", 5)
REJECTED = DeadLetters(7, 9, 2, Cause.CLIENT_REJECT)
ROOM = 1 << 20


def contents(written: Written) -> list[Record]:
    header = parse_header(written.batch)
    return [record for _, record in records_of(written.batch, header)]


def test_a_dead_letter_tells_where_it_came_from() -> None:
    written = build("workers", SOURCE, REJECTED, 8, Sources({}, 9), ROOM, 1_234)
    first, second = contents(written)
    assert written.next_offset == 10
    assert (first.key, first.value, first.timestamp_ms) == (None, None, 1_234)
    assert first.headers == (
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"5"),
        ("__dlq.errors.offset", b"8"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert dict(second.headers)["__dlq.errors.offset"] == b"9"


def test_a_copy_has_key_and_value_of_the_record() -> None:
    copied = Source(b"k", b"v")
    (record,) = contents(
        build("g", SOURCE, DeadLetters(7, 7, 1, Cause.CLIENT_REJECT), 7, Sources({7: copied}, 7), ROOM, 0)
    )
    assert (record.key, record.value) == (b"k", b"v")
    assert [name for name, _ in record.headers][:2] == ["__dlq.errors.topic", "__dlq.errors.partition"]


def test_a_batch_ends_at_the_topics_largest_batch() -> None:
    letters = DeadLetters(0, 9, 1, Cause.DELIVERY_COUNT_EXCEEDED)
    sources = Sources({offset: Source(None, b"x" * 1_000) for offset in range(10)}, 9)
    from_offset, batches = 0, []
    while from_offset < 10:
        written = build("g", SOURCE, letters, from_offset, sources, 3_000, 0)
        assert len(written.batch) <= 3_000
        batches.append(contents(written))
        from_offset = written.next_offset
    assert [dict(record.headers)["__dlq.errors.offset"] for batch in batches for record in batch] == [
        str(offset).encode() for offset in range(10)
    ]
    assert all(record.value == b"x" * 1_000 for batch in batches for record in batch)
    assert len(batches) == 5


def test_a_record_that_is_too_large_to_copy_is_told_without_its_contents() -> None:
    sources = Sources({0: Source(b"k", b"x" * 5_000)}, 0)
    letters = DeadLetters(0, 0, 1, Cause.CLIENT_REJECT)
    written = build("g", SOURCE, letters, 0, sources, 3_000, 0)
    (record,) = contents(written)
    assert (record.key, record.value, len(record.headers)) == (None, None, 6)
    assert written.next_offset == 1


def test_a_batch_has_a_bounded_number_of_dead_letters() -> None:
    letters = DeadLetters(0, RECORDS_AT_ONCE + 5, 1, Cause.CLIENT_REJECT)
    written = build("g", SOURCE, letters, 0, Sources({}, letters.last_offset), 1 << 30, 0)
    assert written.next_offset == len(contents(written)) == RECORDS_AT_ONCE


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_sources_are_found_in_batches(compression: int) -> None:
    data = bytearray()
    for base in (0, 3, 6):
        records = [Record(delta, 0, b"k", str(base + delta).encode(), (("h", b"1"),)) for delta in range(3)]
        data += build_batch(records, base_offset=base, compression=compression)
    found = sources_in(data, 2, 6, ROOM).records
    assert {offset: source.value for offset, source in found.items()} == {
        2: b"2",
        3: b"3",
        4: b"4",
        5: b"5",
        6: b"6",
    }
    assert found[2] == Source(b"k", b"2")


def test_a_batch_that_cannot_be_opened_has_no_sources() -> None:
    good = build_batch([Record(0, 0, None, b"a")])
    bad = build_batch([Record(0, 0, None, b"b" * 100)], base_offset=1, compression=1)
    bad[61] ^= 0xFF
    assert sources_in(good + bad, 0, 1, ROOM).records == {0: Source(None, b"a")}
    after = build_batch([Record(0, 0, None, b"c")], base_offset=2)
    assert sources_in(good + bad + after, 0, 2, ROOM).records == {
        0: Source(None, b"a"),
        2: Source(None, b"c"),
    }
    assert sources_in(good[:30], 0, 1, ROOM) == ({}, 1)


def test_a_batch_has_no_letters_of_records_that_were_not_looked_for() -> None:
    data = build_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])
    data += build_batch([Record(0, 0, None, b"c")], base_offset=2)[:-1]
    sources = sources_in(data, 0, 4, ROOM)
    assert (list(sources.records), sources.last_offset) == ([0, 1], 1)
    letters = DeadLetters(0, 4, 1, Cause.CLIENT_REJECT)
    assert build("g", SOURCE, letters, 0, sources, ROOM, 0).next_offset == 2
    assert build("g", SOURCE, letters, 3, sources, ROOM, 0).next_offset == 4


@pytest.mark.parametrize(
    ("policy", "exists", "is_enabled", "part"),
    [
        (DeadLetterPolicy("dlq.a"), True, True, None),
        (DeadLetterPolicy("a", prefix=""), True, True, None),
        (DeadLetterPolicy("dlq.a", creates_topics=True), False, False, None),
        (DeadLetterPolicy("__a", prefix=""), True, True, "begins with __"),
        (DeadLetterPolicy("a"), True, True, "does not begin with errors.deadletterqueue.topic.name.prefix"),
        (DeadLetterPolicy("dlq.a"), False, False, "does not exist"),
        (
            DeadLetterPolicy("dlq.a"),
            True,
            False,
            "errors.deadletterqueue.group.enable of topic dlq.a is false",
        ),
        (DeadLetterPolicy("dlq.a", creates_topics=True), True, False, "group.enable"),
    ],
)
def test_topics_that_take_dead_letters(
    policy: DeadLetterPolicy, exists: bool, is_enabled: bool, part: str | None
) -> None:
    flaw = flaw_of_topic(policy, exists, is_enabled)
    assert flaw is None if part is None else part in str(flaw)


def test_batches_that_expand_to_much_are_opened_only_until_that_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may be small and expand to a lot. The others are looked for with the next read."""
    opened: list[int] = []
    real = dead_letters.unpack

    def counting(codec: int, body: Any, bound: int) -> Any:
        unpacked = real(codec, body, bound)
        opened.append(len(unpacked))
        return unpacked

    monkeypatch.setattr(dead_letters, "unpack", counting)
    data = b"".join(
        build_batch([Record(0, 0, None, bytes(5 << 20))], base_offset=at, compression=4) for at in range(20)
    )
    sources = sources_in(data, 0, 19, 8 << 20)
    assert (sorted(sources.records), sources.last_offset) == ([0, 1, 2, 3], 3)
    assert len(opened) == 4
    written = build("g", SOURCE, DeadLetters(0, 19, 1, Cause.CLIENT_REJECT), 0, sources, ROOM, 0)
    assert written.next_offset == 4
    assert len(written.batch) < 10_000, "what is larger than the topic takes is not copied"


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_a_compressed_batch_that_expands_to_more_than_the_topic_takes_is_not_copied(compression: int) -> None:
    small = [Record(delta, 0, None, b"x" * 600) for delta in range(3)]
    data = build_batch(small, base_offset=0, compression=compression)
    data += build_batch(small, base_offset=3)
    assert list(sources_in(data, 0, 5, 1_000).records) == [3, 4, 5]
    assert list(sources_in(data, 0, 5, 2_000).records) == [0, 1, 2, 3, 4, 5]


def test_batches_that_expand_to_more_than_the_topic_takes_are_tried_only_until_that_is_much() -> None:
    data = b"".join(
        build_batch([Record(0, 0, None, bytes(5 << 20))], base_offset=at, compression=4) for at in range(20)
    )
    assert sources_in(data, 0, 19, 4 << 20) == ({}, 3)
