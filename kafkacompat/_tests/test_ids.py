"""Text forms and hashes that files, people and clients share with Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.deferred import Deferred
from kafkacompat.ids import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    is_base_offset,
    is_reserved_uuid,
    java_string_hash,
    parse_int,
    partition_for_key,
    timeline_place,
    uuid_from_text,
    uuid_to_text,
)


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_22_characters_of_base64url_and_back(raw: bytes) -> None:
    text = uuid_to_text(raw)
    assert len(text) == 22
    assert "=" not in text
    assert uuid_from_text(text) == raw


def test_known_uuids() -> None:
    assert uuid_to_text(ZERO_UUID) == "A" * 22
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert is_reserved_uuid((99).to_bytes(16, "big"))
    assert not is_reserved_uuid((100).to_bytes(16, "big"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("\u0661", 1),
    ],
)
def test_a_whole_number_is_what_java_reads(text: str, number: int) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_0", "+", "- 1", "2147483648", "-2147483649", "1.0", "0x1", "\u00b2", "9" * 5000],
)
def test_a_text_that_java_does_not_read_is_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_int(text)


def test_long_numbers_and_base_offsets() -> None:
    assert parse_int("9223372036854775807", 63) == 2**63 - 1
    with pytest.raises(ValueError, match="64 bits"):
        parse_int("9223372036854775808", 63)
    assert is_base_offset("00000000000000000007")
    for text in ("", "0000000000000000000x", "\u00b2" * 20, "\u0661" * 20):
        assert not is_base_offset(text)


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 44, "not a uuid at all!"])
def test_a_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_text(text)


@pytest.mark.parametrize(
    ("group", "partition"), [("facts-classic", 46), ("facts-consumer", 20), ("facts-txg", 15)]
)
def test_a_group_lives_where_kafka_puts_it(group: str, partition: int) -> None:
    assert partition_for_key(group, 50) == partition


def test_the_hash_counts_utf_16_units_and_its_lowest_value_is_zero() -> None:
    assert java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for_key("polygenelubricants", 50) == 0


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 64, 65, 32_767])
def test_the_hash_of_a_long_name_is_that_of_its_characters_one_by_one(length: int) -> None:
    name = "".join(chr(97 + position * position % 26) for position in range(length))
    expected = 0
    for character in name:
        expected = (31 * expected + ord(character)) & 0xFFFFFFFF
    assert java_string_hash(name) & 0xFFFFFFFF == expected


def test_a_deferred_value_reaches_those_who_asked_before_and_after() -> None:
    seen: list[int] = []
    deferred: Deferred[int] = Deferred()
    deferred.on_done(lambda done: seen.append(done.result()))
    doubled = deferred.then(lambda value: value * 2)
    deferred.resolve(3)
    deferred.on_done(lambda done: seen.append(done.result() + 1))
    assert seen == [3, 4]
    assert doubled.result() == 6
    with pytest.raises(RuntimeError):
        deferred.resolve(4)


def test_a_failure_passes_through() -> None:
    deferred: Deferred[int] = Deferred()
    following = deferred.then(lambda value: value + 1)
    deferred.fail(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        following.result()


@pytest.mark.parametrize(
    ("added", "listed"),
    [
        ("a b", "b a"),
        (
            "0202c1 01817a 4baf67 e08fdf 482133 555d27 f8a796 1525d9 fcf105 30c018 0fc69e cf5774",
            "fcf105 555d27 4baf67 0202c1 1525d9 cf5774 482133 01817a 30c018 f8a796 e08fdf 0fc69e",
        ),
    ],
)
def test_the_order_of_kafkas_tables_with_snapshots(added: str, listed: str) -> None:
    """What a TimelineHashMap of Apache Kafka 4.4.0 listed."""
    texts = added.split()[::-1]
    assert sorted(texts, key=timeline_place(len(texts))) == listed.split()
