"""Bodies cut up by learnt lengths: the same as a walk finds, or nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.records.columns import read_bounds, read_keys
from kafkacompat.records.record import Record, encode_records
from kafkacompat.records.stencils import KEY_LENGTHS_MOST, LEARN_MOST, LENGTHS_MOST, Stencils

FRONT = b"in front"
record = st.builds(
    Record,
    st.just(0),
    st.sampled_from([0, 1, -64, 64, 8191, 8192, 1 << 20, 1 << 40, -(1 << 33)]),
    st.sampled_from([b"k", b"key", b"other", b"ninebytes", b"x" * 63, b"\x00\x80\xff"]),
    st.one_of(
        st.none(),
        st.sampled_from([b"", b"v", b"value", b"v" * 57, b"w" * 63, b"v" * 130, b"v" * 8200]),
        st.binary(max_size=3),
    ),
    st.sampled_from([(), (), (("h", b"1"),), (("name", None), ("other", b"\x80" * 70))]),
)


def encoded(records: list[Record]) -> bytes:
    return bytes(encode_records([one._replace(offset_delta=at) for at, one in enumerate(records)], 0))


def ask(stencils: Stencils, body: bytes, count: int) -> object:
    """The keys; both questions are checked against a walk."""
    keys, has_null_keys, nulls = read_keys(body, count)
    records = [body[at:to] for at, to in pairwise(read_bounds(body, count))]
    found = stencils.keys(memoryview(FRONT + body + b"more"), len(FRONT), len(FRONT) + len(body), count)
    if found is not None:
        assert list(found[0]) == keys
        assert not has_null_keys
        assert found[1] or not nulls
    else:
        stencils.learn(body, count, keys, nulls)
    cut = stencils.records(body, 0, len(body), count)
    assert cut is None or cut == records
    return found


@pytest.mark.costly
@settings(max_examples=120)
@given(st.lists(st.lists(record, min_size=1, max_size=90), min_size=1, max_size=12))
def test_what_is_cut_is_what_a_walk_finds(bodies: list[list[Record]]) -> None:
    stencils = Stencils()
    for body in bodies:
        ask(stencils, encoded(body), len(body))


def test_bodies_like_those_before_are_cut() -> None:
    stencils = Stencils()
    made = [Record(0, at, b"key-%04d" % at, b"v" * (100 + at % 7)) for at in range(300)]
    assert ask(stencils, encoded(made), 300) is None
    for first in range(0, 200, 9):
        found = stencils.keys(
            encoded(made[first : first + 90]), 0, len(encoded(made[first : first + 90])), 90
        )
        assert found == ([one.key for one in made[first : first + 90]], False)


def test_keys_of_several_lengths_and_tombstones_are_cut_once_they_were_met() -> None:
    stencils = Stencils()
    made = [
        Record(0, at, b"user-%d" % at, None if at % 9 == 5 else b"v" * (at % 5 + 20))
        for at in range(7, 1500, 7)
    ]
    count = len(made)
    assert ask(stencils, encoded(made), count) is None
    assert ask(stencils, encoded(made), count) == ([one.key for one in made], True)
    full = [one for one in made if one.value is not None]
    assert ask(stencils, encoded(full), len(full)) == ([one.key for one in full], False)


@pytest.mark.parametrize("at", [0, 10, 19])
@pytest.mark.parametrize(
    "odd",
    [
        Record(0, 0, b"key", b"of a new length"),
        Record(0, 0, b"a longer key", b"v"),
        Record(0, 0, b"key", None),
        Record(0, 1 << 33, b"key", b"valu"),
        Record(0, 0, None, b"value"),
    ],
)
def test_one_record_that_fits_nothing_is_enough_to_walk(odd: Record, at: int) -> None:
    stencils = Stencils()
    made = [Record(0, 0, b"key", b"v" * (1 + number % 5)) for number in range(20)]
    ask(stencils, encoded(made), 20)
    assert ask(stencils, encoded(made), 20) is not None
    assert ask(stencils, encoded([*made[:at], odd, *made[at + 1 :]]), 20) is None
    assert ask(stencils, encoded(made), 20) is None, "learns first"
    assert ask(stencils, encoded(made), 20) is not None


def test_a_wrong_count_and_a_torn_body_are_refused() -> None:
    stencils = Stencils()
    made = [Record(0, 0, b"key", b"v" * (10 + number % 5)) for number in range(20)]
    body = encoded(made)
    ask(stencils, body, 20)
    for wrong, count in ((body, 19), (body, 21), (body[:-1], 20), (body + b"\x00", 20), (body + b"\x00", 21)):
        again = Stencils()
        ask(again, body, 20)
        assert again.keys(wrong, 0, len(wrong), count) is None
        assert again.records(wrong, 0, len(wrong), count) is None


def test_a_key_never_reaches_beyond_its_record() -> None:
    """Whatever a record's inside looks like: lengths of records that could be too short for the key are not used."""
    for timestamp in (b"\x00", b"\x80\x80\x00", b"\x80\x00"):
        for offset in (b"\x00", b"\x80\x00", b"\x80\x80\x00"):
            for size in range(1, 20):
                inside = (b"\x00" + timestamp + offset + b"\x06key\x02v\x00")[:size]
                body = bytes((2 * len(inside),)) + inside
                stencils = Stencils()
                stencils.learn(body, 1, [b"key"], False)
                found = stencils.keys(body + b"\x06key\x02v\x00" * 3, 0, len(body), 1)
                assert found is None or found == ([b"key"], False)
                two = body + body + b"\x06key\x02v\x00" * 3
                found = stencils.keys(two, 0, 2 * len(body), 2)
                fits = size >= len(b"\x00" + timestamp + offset + b"\x06key\x02")
                assert found == (([b"key"] * 2, False) if fits else None)


@pytest.mark.parametrize("by_key", [False, True])
def test_too_many_lengths_are_given_up(by_key: bool) -> None:
    stencils = Stencils()
    different = (KEY_LENGTHS_MOST if by_key else LENGTHS_MOST) + 1
    made = [
        Record(0, 0, b"k" * (1 + at if by_key else 3), b"v" * (40 - at if by_key else at))
        for at in range(different)
    ]
    for _ in range(3):
        assert ask(stencils, encoded(made), len(made)) is None
    assert (stencils.records(encoded(made), 0, len(encoded(made)), len(made)) is not None) == by_key


@pytest.mark.parametrize("key", [b"", b"k" * 64])
def test_keys_that_no_pattern_can_tell_are_given_up(key: bytes) -> None:
    stencils = Stencils()
    made = [Record(0, 0, key, b"v" * (1 + at % 3)) for at in range(9)]
    for _ in range(3):
        assert ask(stencils, encoded(made), 9) is None
    assert stencils.records(encoded(made), 0, len(encoded(made)), 9) is not None


def test_trying_ends_when_it_never_helps() -> None:
    """Null keys are never cut; each try that fails is followed by more bodies to learn from, until no more is tried."""
    stencils = Stencils()
    tries = 0
    body = encoded([Record(0, 0, None, b"v"), Record(0, 0, b"k", b"vv")])
    for _ in range(3 * LEARN_MOST):
        tries += stencils._left == 0 and not stencils._given_up
        assert ask(stencils, body, 2) is None
    assert tries == LEARN_MOST.bit_length()
