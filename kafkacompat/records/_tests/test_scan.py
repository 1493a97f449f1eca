"""Both implementations of the scan compared with a simple decoder, and with each other: equal results and equal rows
for any bytes."""

from __future__ import annotations

import struct
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacompat.records import scan as scanning
from kafkacompat.records._tests.bombs import record, record_of_headers, records_of_headers, tiny_records
from kafkacompat.records._tests.examples import examples
from kafkacompat.records._tests.plain_decoder import decoded
from kafkacompat.records.limits import BatchLimits, RecordLimitExceeded
from kafkacompat.records.record import Record, RecordMalformed, encode_records
from kafkacompat.records.scan import (
    ALL_AT_ONCE,
    ANY_OFFSET,
    COLUMNS_AT_ONCE,
    END,
    FIELDS,
    HEADERS_UNSEEN,
    KEY,
    KEY_END,
    OFFSET,
    Columns,
    column,
    cut_in_python,
    find_in_python,
    scan_in_python,
    shifted,
    walk_records,
)
from kafkacompat.records.validate import BodyFacts, Unfinished, check_records

BASE_MS = 1_700_000_000_000
COMPILED = scanning._scan
compiled_only = pytest.mark.skipif(COMPILED is None, reason="no compiler built kafkacompat.records._scan")
both_gaits = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

maybe_bytes = st.none() | st.binary(max_size=40) | st.just(b"long" * 50) | st.just(b"longer" * 3000)
headers = st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=2).map(tuple)
one_record = st.builds(
    Record,
    st.just(0),
    st.integers(-200, 40000) | st.integers(-(2**62), 2**62),
    maybe_bytes,
    maybe_bytes,
    headers,
)
"""Deliberately unusual varints: too long, cut off, negative, near the bounds of 32 and 64 bits."""
odd_varint = st.sampled_from(
    [
        b"\x80" * n + last
        for n in range(11)
        for last in (b"\0", b"\1", b"\x02", b"\x0f", b"\x10", b"\x7f", b"")
    ]
    + [b"\xff" * n + last for n in range(11) for last in (b"\0", b"\1", b"\x0e", b"\x0f", b"\x7f", b"")]
)


@st.composite
def sound_bodies(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Mixed records, and runs of similar records."""
    runs = draw(
        st.lists(st.tuples(one_record, st.integers(1, 70), st.integers(0, 40)), min_size=1, max_size=5)
    )
    made: list[Record] = []
    for one, times, step_ms in runs:
        for number in range(times):
            made.append(
                one._replace(offset_delta=len(made), timestamp_ms=one.timestamp_ms + number * step_ms)
            )
    return bytes(encode_records(made, 0)), made


@st.composite
def hostile_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Valid bodies with bytes changed, removed or inserted; records of unusual varints; noise."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=80)), draw(st.integers(1, 9))
    if kind == 1:
        parts = [
            record(b"\0" + b"".join(draw(st.lists(odd_varint, max_size=7))))
            for _ in range(draw(st.integers(1, 5)))
        ]
        return b"".join(parts), len(parts)
    data, made = draw(sound_bodies())
    body = bytearray(data[:4000])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3) | odd_varint)
    return bytes(body), len(made) if kind == 2 else max(len(made) + draw(st.integers(-2, 2)), 1)


@pytest.fixture(params=["python", pytest.param("compiled", marks=compiled_only)])
def gait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(scanning, "_scan", None)
    return str(request.param)


def checked(body: bytes, count: int) -> BodyFacts | None:
    """In one step and in steps of one unit: the same result."""
    reached: BodyFacts | Unfinished
    try:
        facts = check_records(body, count)
    except RecordMalformed:
        facts = None
    try:
        reached = check_records(body, count, units=1)
        while isinstance(reached, Unfinished):
            reached = check_records(body, count, units=1, since=reached)
    except RecordMalformed:
        assert facts is None
        return None
    assert isinstance(facts, BodyFacts)
    assert facts[:3] == reached[:3]
    return facts


def agree(body: bytes, count: int) -> bool:
    """Compare the result and the records with the simple decoder's. Returns whether the body was valid."""
    try:
        records = decoded(body, count)
    except RecordMalformed:
        with pytest.raises(RecordMalformed):
            list(walk_records(body, count, 0))
        assert checked(body, count) is None
        return False
    assert list(walk_records(body, count, 0)) == records
    facts = checked(body, count)
    if [each.offset_delta for each in records] != list(range(count)):
        assert facts is None
        return False
    assert facts is not None
    times = [each.timestamp_ms for each in records]
    assert facts.least_timestamp_delta == min(0, *times)
    assert facts.greatest_timestamp_delta == max(times)
    assert facts.has_null_key == any(each.key is None for each in records)
    return True


@both_gaits
@given(sound_bodies())
def test_sound_bodies_pass(gait: str, made: tuple[bytes, list[Record]]) -> None:
    body, records = made
    assert agree(body, len(records))
    first = next(walk_records(body, len(records), 5))
    assert first == records[0]._replace(timestamp_ms=records[0].timestamp_ms + 5)


@settings(both_gaits, max_examples=400)
@given(hostile_bodies())
def test_hostile_bodies_get_equal_verdicts(gait: str, made: tuple[bytes, int]) -> None:
    """A malformed record is refused at any position in the batch."""
    agree(*made)


@both_gaits
@given(sound_bodies(), st.data())
def test_cut_or_lengthened_bodies_are_malformed(
    gait: str, made: tuple[bytes, list[Record]], data: st.DataObject
) -> None:
    body, count = made[0], len(made[1])
    assert not agree(body[: data.draw(st.integers(0, len(body) - 1))], count)
    assert not agree(body + data.draw(st.binary(min_size=1, max_size=5)), count)
    if count > 1:
        assert not agree(body, count - 1)
    assert not agree(body, count + 1)


@compiled_only
@settings(max_examples=examples(1000))
@given(
    hostile_bodies() | sound_bodies().map(lambda made: (made[0], len(made[1]))),
    st.sampled_from([HEADERS_UNSEEN, 0, 1, 9, 1 << 62]),
    st.sampled_from([ANY_OFFSET, 0, 3]),
    st.data(),
)
def test_the_compiled_gait_reads_what_the_other_reads(
    made: tuple[bytes, int], headers_a_record: int, first_offset: int, data: st.DataObject
) -> None:
    """The same records up to the same position, from any start to any end. It stops where the Python implementation
    raises."""
    body, count = made
    position = data.draw(st.just(0) | st.integers(0, len(body)))
    end = data.draw(st.just(len(body)) | st.integers(position, len(body)))
    given_to_both = (position, end, first_offset, count, ALL_AT_ONCE, headers_a_record, True)
    found: Any = COMPILED.scan(body, *given_to_both)
    try:
        expected = scan_in_python(body, *given_to_both)
    except (RecordMalformed, RecordLimitExceeded):
        assert found[:2] == (position, 0)
        assert found[7] == b""
        return
    assert found[:2] == expected[:2]
    assert found[3:7] == expected[3:7]
    assert expected[7] is not None
    assert found[7] == bytes(expected[7])
    for first, last in ((0, END), (KEY, KEY_END)):
        assert COMPILED.cut(body, found[7], first, last) == cut_in_python(body, expected[7], first, last)


@compiled_only
@both_gaits
@given(
    sound_bodies() | hostile_bodies(),
    st.integers(-200, 300) | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 6),
    st.data(),
)
def test_both_gaits_find_the_same_record(
    made: tuple[bytes, Any], timestamp: int, offset: int, data: st.DataObject
) -> None:
    body, count = made[0], made[1] if isinstance(made[1], int) else len(made[1])
    position = data.draw(st.just(0) | st.integers(0, len(body)))
    given_to_both = (body, position, len(body), count, timestamp, offset)
    found: Any = COMPILED.find(*given_to_both)
    try:
        expected = find_in_python(*given_to_both)
    except RecordMalformed:
        expected = position, 0, None
    assert found == expected


def test_the_first_record_at_or_after_a_time_and_an_offset_is_found(gait: str) -> None:
    count = 1000
    records = [Record(at, 10 * (at % 300), b"k", b"v" * (at % 5)) for at in range(count)]
    body = bytes(encode_records(records, 0))
    for timestamp, offset in ((0, 0), (2990, 0), (2990, 300), (1, 0), (500, 51), (10, 999), (3000, 0)):
        wanted = [
            (each.timestamp_ms, each.offset_delta)
            for each in records
            if each.timestamp_ms >= timestamp and each.offset_delta >= offset
        ]
        after, looked_at, found = scanning.find(body, 0, len(body), count, timestamp, offset)
        assert found == (wanted[0] if wanted else None)
        assert looked_at == (wanted[0][1] + 1 if wanted else count)
        assert scanning.find(body, 0, len(body), looked_at - 1, timestamp, offset)[1:] == (
            looked_at - 1,
            None,
        )
        if looked_at < count:
            # From there on, the next one.
            assert scanning.find(body, after, len(body), 1, -1, 0)[2] == (
                records[looked_at].timestamp_ms,
                looked_at,
            )
    with pytest.raises(RecordMalformed):
        scanning.find(body, 0, 5, 1, 0, 0)
    assert scanning.find(body, 0, len(body) - 1, count, 3000, 0)[1:] == (count - 1, None)


@compiled_only
def test_the_compiled_gait_refuses_places_outside_the_data() -> None:
    body = bytes(encode_records([Record(0, 0, b"k", b"v")], 0))
    for position, end in ((-1, len(body)), (0, len(body) + 1), (5, 4), (1 << 62, 1 << 62)):
        with pytest.raises(ValueError, match="outside"):
            COMPILED.scan(body, position, end, 0, 1, 1, 0, True)
        with pytest.raises(ValueError, match="outside"):
            COMPILED.find(body, position, end, 1, 0, 0)
    with pytest.raises(OverflowError):
        COMPILED.scan(body, 0, 1 << 64, 0, 1, 1, 0, True)
    for row in ((10, 10), (-1, 3), (4, 3), (0, 1 << 62)):
        with pytest.raises(ValueError, match="outside"):
            COMPILED.cut(body, struct.pack("8q", *row, *[0] * 6), 0, 1)
    for field in (-1, FIELDS):
        with pytest.raises(ValueError, match="field"):
            COMPILED.cut(body, b"", field, 0)
        with pytest.raises(ValueError, match="field"):
            COMPILED.cut(body, b"", 0, field)
    assert COMPILED.cut(body, bytes(8 * FIELDS - 1), 0, 1) == []


@compiled_only
def test_the_compiled_gait_counts_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen records or headers take no longer than one unit of the Python implementation."""
    count = 1000
    body = bytes(encode_records([Record(i, 0, None, b"v", (("h", None),)) for i in range(count)], 0))
    facts = check_records(body, count)
    assert isinstance(facts, BodyFacts)
    assert facts.units == 2 * count // 16
    steps = 1
    reached = check_records(body, count, units=5)
    while isinstance(reached, Unfinished):
        steps += 1
        reached = check_records(body, count, units=5, since=reached)
    assert steps == 2 * count // 16 // 5


def test_headers_are_bounded(gait: str) -> None:
    body = record_of_headers(5)
    assert check_records(body, 1, BatchLimits(headers_a_record=5))
    with pytest.raises(RecordLimitExceeded, match="a record of 5 headers, of which 4 are taken"):
        check_records(body, 1, BatchLimits(headers_a_record=4))
    with pytest.raises(RecordLimitExceeded, match="a batch with more than 4 headers"):
        check_records(body, 1, BatchLimits(headers=4))
    # The headers of all steps are counted together.
    reached = check_records(bytes(records_of_headers(40, 1)), 40, BatchLimits(headers=39), units=1)
    with pytest.raises(RecordLimitExceeded, match="more than 39"):  # noqa: PT012
        while isinstance(reached, Unfinished):
            reached = check_records(bytes(records_of_headers(40, 1)), 40, BatchLimits(headers=39), 1, reached)


def test_a_batch_holds_as_many_records_as_its_header_says(gait: str) -> None:
    body = bytes(encode_records([Record(i, 0, b"key", b"value") for i in range(3)], 0))
    for read in (Columns, check_records, lambda body, count: list(walk_records(body, count, 0))):
        for wrong, count in ((body, 2), (body + b"\0", 3), (body, 4), (body[:-1], 3)):
            with pytest.raises(RecordMalformed):
                read(wrong, count)


def test_a_value_beyond_its_record_is_refused(gait: str) -> None:
    body = bytearray(encode_records([Record(i, 0, b"key", b"value") for i in range(3)], 0))
    assert body[8] == 2 * len(b"value")
    body[8] += 4
    for read in (Columns, check_records, lambda body, count: list(walk_records(body, count, 0, 0))):
        with pytest.raises(RecordMalformed, match="parts end"):
            read(bytes(body), 3)


@both_gaits
@given(sound_bodies(), st.integers(1, 400), st.integers(-9, 9))
def test_columns_agree_with_records(
    gait: str, made: tuple[bytes, list[Record]], gap: int, by_ms: int
) -> None:
    """For dense offsets and for offsets with gaps."""
    records = [each._replace(offset_delta=each.offset_delta * gap) for each in made[1]]
    body = bytes(encode_records(records, 0))
    columns = Columns(body, len(records))
    assert columns.keys() == [one.key for one in records]
    assert columns.offset_deltas() == [one.offset_delta for one in records]
    assert columns.timestamp_deltas() == [one.timestamp_ms for one in records]
    assert columns.null_values() == [at for at, one in enumerate(records) if one.value is None]
    assert columns.has_null_values == any(one.value is None for one in records)
    assert columns.has_null_keys == any(one.key is None for one in records)
    parts = columns.records()
    assert b"".join(parts) == body
    for one, part in zip(records, parts, strict=True):
        assert list(walk_records(shifted(part, by_ms), 1, by_ms)) == [one]


@both_gaits
@given(hostile_bodies())
def test_columns_refuse_what_a_decoder_refuses_before_the_headers(gait: str, made: tuple[bytes, int]) -> None:
    body, count = made
    try:
        records = decoded(body, count, headers_seen=False)
    except RecordMalformed:
        with pytest.raises(RecordMalformed):
            Columns(body, count)
        return
    assert Columns(body, count).keys() == [one.key for one in records]
    assert list(walk_records(body, count, 0, 0)) == records


def test_many_records_are_scanned_in_pieces(gait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled code lets no other thread continue until it ends."""
    count = 2 * COLUMNS_AT_ONCE + 1
    body = bytes(tiny_records(count))
    asked = []
    scan = scanning.scan

    def counting(data: bytes, position: int, end: int, first: int, most: int, *others: Any) -> Any:
        asked.append(most)
        return scan(data, position, end, first, most, *others)

    monkeypatch.setattr(scanning, "scan", counting)
    assert Columns(body, count).offset_deltas() == list(range(count))
    assert asked == [COLUMNS_AT_ONCE, COLUMNS_AT_ONCE, 1]


def test_negative_offset_deltas_are_refused_where_they_are_asked_for(gait: str) -> None:
    columns = Columns(bytes(encode_records([Record(-1, 0, b"k", None)], 0)), 1)
    assert columns.keys() == [b"k"]
    with pytest.raises(RecordMalformed, match="negative"):
        columns.offset_deltas()


def test_records_before_a_malformed_one_are_given(gait: str) -> None:
    """A dump shows the records before the damage."""
    body = bytes(encode_records([Record(i, i, b"k", b"v") for i in range(600)], 0))
    walk = walk_records(body[:-1], 600, 0)
    assert [each.offset_delta for each in islice(walk, 599)] == list(range(599))
    with pytest.raises(RecordMalformed):
        next(walk)


def test_rows_tell_each_field(gait: str) -> None:
    body = bytes(encode_records([Record(7, 9, None, b"value")], 0))
    found = scanning.scan(body, 0, len(body), ANY_OFFSET, 1, 1, HEADERS_UNSEEN, True)
    assert found[7] is not None
    assert column(found[7], OFFSET) == [7]
    assert list(memoryview(found[7]).cast("B").cast("q")) == [0, 9, 7, 5, -1, 6, 11, 12]
