"""The quick check of a body against the plain decoder: equal verdicts, whatever the bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.records.check import check_whole
from kafkacompat.records.record import Record, RecordMalformed, encode_records, iterate_records

BASE_MS = 1_700_000_000_000

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=2).map(tuple)


@st.composite
def mixed_records(draw: st.DrawFn) -> list[Record]:
    parts = draw(
        st.lists(
            st.tuples(st.integers(-200, 40000), maybe_bytes, maybe_bytes, headers), min_size=1, max_size=12
        )
    )
    return [Record(i, BASE_MS + ms, key, value, h) for i, (ms, key, value, h) in enumerate(parts)]


@st.composite
def uniform_records(draw: st.DrawFn) -> list[Record]:
    """Runs, as loads send them, with breaks in size and time at random places."""
    out: list[Record] = []
    timestamp_ms = BASE_MS
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.none() | st.binary(max_size=70))
        size = draw(st.integers(0, 140))
        step = draw(st.integers(0, 40))
        for _ in range(draw(st.integers(1, 90))):
            out.append(Record(len(out), timestamp_ms, key, bytes(size)))
            timestamp_ms += step
    return out


def reference(body: bytes, count: int) -> tuple[bool, int, int, bool]:
    try:
        records = list(iterate_records(body, count, 0))
    except RecordMalformed:
        return False, 0, 0, False
    if [r.offset_delta for r in records] != list(range(count)):
        return False, 0, 0, False
    times = [r.timestamp_ms for r in records]
    return True, min(times), max(times), any(r.key is None for r in records)


def agree(body: bytes, count: int) -> bool:
    """Hold both verdicts equal; whether the body was sound."""
    sound, least, greatest, null_key = reference(body, count)
    try:
        facts = check_whole(body, count)
    except RecordMalformed:
        assert not sound
        return False
    assert sound
    assert facts.greatest_timestamp_delta == greatest
    assert facts.has_null_key == null_key
    assert facts.least_timestamp_delta == least if least < 0 else 0 <= facts.least_timestamp_delta <= least
    return True


@given(st.one_of(mixed_records(), uniform_records()))
def test_sound_bodies_pass(records: list[Record]) -> None:
    assert agree(bytes(encode_records(records, BASE_MS)), len(records))


@settings(max_examples=400)
@given(st.one_of(mixed_records(), uniform_records()), st.data())
def test_one_changed_byte_gives_equal_verdicts(records: list[Record], data: st.DataObject) -> None:
    """A malformed record is refused wherever in the batch it lies, in a run of equal sizes too."""
    body = encode_records(records, BASE_MS)
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    agree(bytes(body), len(records))


@given(st.one_of(mixed_records(), uniform_records()), st.data())
def test_cut_or_lengthened_bodies_are_malformed(records: list[Record], data: st.DataObject) -> None:
    body = bytes(encode_records(records, BASE_MS))
    assert not agree(body[: data.draw(st.integers(0, len(body) - 1))], len(records))
    assert not agree(body + data.draw(st.binary(min_size=1, max_size=5)), len(records))


@given(uniform_records(), st.data())
def test_a_wrong_offset_delta_in_a_run_is_refused(records: list[Record], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    wrong = data.draw(st.integers(0, 300).filter(lambda delta: delta != at))
    records[at] = records[at]._replace(offset_delta=wrong)
    assert not agree(bytes(encode_records(records, BASE_MS)), len(records))


@given(st.binary(max_size=60), st.integers(1, 4))
def test_random_bytes_give_equal_verdicts(body: bytes, count: int) -> None:
    agree(body, count)


def test_every_structural_byte_of_a_long_run_counts() -> None:
    records = [Record(i, BASE_MS + i // 3, b"key", bytes(90)) for i in range(200)]
    body = encode_records(records, BASE_MS)
    value = bytes(90)
    at, places = 0, []
    while (found := body.find(value, at)) >= 0:
        # Between two values lies all that is structure; of a value its ends.
        places += [*range(at, found + 1), found + len(value) - 1]
        at = found + len(value)
    for place in [*places, *range(at, len(body))]:
        changed = bytearray(body)
        changed[place] ^= 1
        agree(bytes(changed), len(records))
