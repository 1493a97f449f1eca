"""Bytes as text, JSON, hex and internal records, also truncated and misleading ones."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.core.decoding import MAX_INDENTED_TIMES, decoded
from kafkacompat.console.core.internal_records import TOLD_BYTES, internal_key, internal_value
from kafkacompat.console.core.log_directories import sizes_in
from kafkacompat.console.core.snapshot import ReplicaSize
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkacompat.wire.primitives import write_uvarint


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        (b"caf\xc3\xa9\n", "text", "café\n"),
        (b'{"b":1,"a":[2]}', "json", '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'),
        (b'{"b":', "text", '{"b":'),
        (b"17", "text", "17"),
        (b"\xff\x00A", "hex", "000000  ff 00 41" + " " * 39 + "  ..A"),
        (b"a\x00b", "hex", "000000  61 00 62" + " " * 39 + "  a.b"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    shown = decoded(data, 1000)
    assert (shown["kind"], shown["text"], shown["truncated"]) == (kind, text, False)
    assert shown["size_bytes"] == len(data or b"")


def test_a_cut_through_a_character_stays_text() -> None:
    assert decoded("aé".encode(), 2) == {"kind": "text", "text": "a", "size_bytes": 3, "truncated": True}


@given(st.one_of(st.binary(max_size=200), st.text(max_size=60).map(str.encode)), st.integers(1, 250))
def test_any_bytes_are_shown_within_the_bound(data: bytes, bound: int) -> None:
    shown = decoded(data, bound)
    assert shown["truncated"] == (len(data) > bound)
    assert json.loads(json.dumps(shown)) == shown
    if shown["kind"] == "text":
        assert data.startswith(shown["text"].encode())


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["\ud800", "a\udfffb", "\udc00\ud83d"]),
    ),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.text(), inside, max_size=3)),
    max_leaves=6,
)


@given(JSON_VALUES, st.integers(1, 300))
def test_any_json_is_shown_as_text_that_can_be_sent(value: object, bound: int) -> None:
    shown = decoded(json.dumps([value]).encode(), bound)
    assert json.loads(json.dumps(shown, ensure_ascii=False).encode()) == shown


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"a":"\\ud800"}', '{\n  "a": "\ufffd"\n}'),
        (b'{"\\udfff":1}', '{\n  "\ufffd": 1\n}'),
        (b'["\\ud83d\\ude00"]', '[\n  "\U0001f600"\n]'),
    ],
)
def test_half_a_surrogate_pair_in_json_is_the_sign_for_an_unknown_letter(value: bytes, said: str) -> None:
    shown = decoded(value, 1000)
    assert (shown["kind"], shown["text"]) == ("json", said)


@pytest.mark.parametrize("number", ["1.10", "1e999", "-0", "1E+2", "9" * 5_000])
def test_numbers_are_shown_as_they_are_written(number: str) -> None:
    value = f"[{number}]"
    shown = decoded(value.encode(), 10_000)
    assert (shown["kind"], shown["text"], shown["raw"]) == ("json", f"[\n  {number}\n]", value)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "01", "1."])
def test_what_is_no_json_is_text(number: str) -> None:
    value = f"[{number}]"
    assert (decoded(value.encode(), 99)["kind"], decoded(value.encode(), 99)["text"]) == ("text", value)


def test_names_that_come_twice_are_shown_twice() -> None:
    shown = decoded(b'{"a":1,"a":{},"b":[],"c":[{"d":"e, [f]: \\"g\\""}]}', 999)
    assert shown["text"].splitlines() == [
        "{",
        '  "a": 1,',
        '  "a": {},',
        '  "b": [],',
        '  "c": [',
        "    {",
        '      "d": "e, [f]: \\"g\\""',
        "    }",
        "  ]",
        "}",
    ]


@given(JSON_VALUES)
def test_indented_json_is_what_the_library_would_make_of_it(value: object) -> None:
    """For values that this code writes in the same form as the library."""
    written = json.dumps([value], ensure_ascii=False)
    shown = decoded(written.encode(errors="surrogatepass"), 100_000)
    if shown["kind"] == "json":
        assert shown["text"] == json.dumps([value], ensure_ascii=False, indent=2)


@pytest.mark.parametrize("depth", [200, 900, 2_000, 100_000])
def test_deeply_nested_json_does_not_grow_beyond_measure_when_it_is_indented(depth: int) -> None:
    value = b"[" * depth + b"]" * depth
    shown = decoded(value, 1_000_000)
    assert shown["kind"] == "text" or len(shown["text"]) <= len(value) * MAX_INDENTED_TIMES
    assert shown["text"].replace(" ", "").replace("\n", "") == value.decode()


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


OFFSET_KEY = b"\x00\x01" + text("group") + text("topic") + struct.pack(">i", 3)


def test_a_committed_offset_is_told_by_its_definition() -> None:
    assert json.loads(internal_key("__consumer_offsets", OFFSET_KEY) or "") == {
        "type": "OffsetCommitKey",
        "version": 0,
        "data": {"group": "group", "topic": "topic", "partition": 3},
    }
    value = struct.pack(">hqi", 3, 77, -1) + text("note") + struct.pack(">q", 1_000)
    flexible = struct.pack(">hqi", 4, 77, -1) + b"\x05note" + struct.pack(">q", 1_000) + b"\x00"
    fields = {"offset": 77, "leaderEpoch": -1, "metadata": "note", "commitTimestamp": 1_000}
    for each, version, more in ((value, 3, {}), (flexible, 4, {"topicId": "AAAAAAAAAAAAAAAAAAAAAA"})):
        said = json.loads(internal_value("__consumer_offsets", OFFSET_KEY, each) or "")
        assert said == {"type": "OffsetCommitValue", "version": version, "data": fields | more}


def test_a_transaction_is_told_in_words() -> None:
    key = b"\x00\x00" + text("tx-1")
    assert json.loads(internal_key("__transaction_state", key) or "")["data"] == {"transactionalId": "tx-1"}
    value = struct.pack(">hqhibbqq", 1, 9, 2, 60_000, 4, 0, 1_000, 900) + b"\x00"
    said = json.loads(internal_value("__transaction_state", key, value) or "")["data"]
    assert (said["producerId"], said["producerEpoch"]) == (9, 2)
    assert said["transactionStatus"] == "CompleteCommit"


def test_a_value_of_an_unknown_version_or_cut_short_is_left() -> None:
    value = struct.pack(">hqi", 3, 77, -1) + text("note") + struct.pack(">q", 1_000)
    assert internal_value("__consumer_offsets", OFFSET_KEY, b"\x00\x05" + value[2:]) is None
    assert internal_value("__consumer_offsets", OFFSET_KEY, value[:-1]) is None


@given(
    st.sampled_from(["__consumer_offsets", "__transaction_state"]),
    st.binary(max_size=40),
    st.binary(max_size=40),
)
def test_internal_bytes_of_any_kind_are_told_or_left(topic: str, key: bytes, value: bytes) -> None:
    for said in (internal_key(topic, key), internal_value(topic, key, value)):
        assert said is None or isinstance(json.loads(said), dict)


@pytest.mark.parametrize("length", [b"\x85\x80\x80\x80\x80\x00", b"\xff" * 100, b"\xff\xff\xff\xff\x7f"])
def test_a_length_of_more_than_five_bytes_or_beyond_the_value_is_left(length: bytes) -> None:
    """A length is read up to its bound, however long the value is."""
    value = struct.pack(">hqi", 4, 77, -1) + length + b"note" + struct.pack(">q", 1_000) + b"\x00"
    assert internal_value("__consumer_offsets", OFFSET_KEY, value) is None


def test_a_long_value_is_left() -> None:
    for length, is_told in ((100, True), (TOLD_BYTES, False)):
        value = bytearray(struct.pack(">hqi", 4, 77, -1))
        write_uvarint(value, length + 1)
        value += b"n" * length + struct.pack(">q", 1) + b"\0"
        assert (internal_value("__consumer_offsets", OFFSET_KEY, bytes(value)) is not None) is is_told


@pytest.mark.parametrize("topic", ["logs.raw", "__consumer_offsets_too"])
def test_other_topics_are_not_taken_for_internal_ones(topic: str) -> None:
    assert internal_key(topic, OFFSET_KEY) is None


def log_directories(error: int = 0, whole: int = 0) -> DescribeLogDirsResponse:
    partitions = [
        DescribeLogDirsPartition(partition_index=number, partition_size=size)
        for number, size in ((0, 1_000), (1, 50))
    ]
    topics = [DescribeLogDirsTopic(name="t", partitions=partitions)]
    results = [
        DescribeLogDirsResult(log_dir="/data", topics=topics),
        DescribeLogDirsResult(log_dir="/more", error_code=error),
    ]
    return DescribeLogDirsResponse(error_code=whole, results=results)


def test_sizes_of_logs_are_read_from_the_answer() -> None:
    assert sizes_in(log_directories(), 4) == [ReplicaSize(4, "t", 0, 1_000), ReplicaSize(4, "t", 1, 50)]


def test_a_refused_answer_of_sizes_is_an_error() -> None:
    with pytest.raises(CommandFailed, match="log directories: CLUSTER_AUTHORIZATION_FAILED"):
        sizes_in(log_directories(whole=31), 1)
    with pytest.raises(CommandFailed, match="log directories: KAFKA_STORAGE_ERROR"):
        sizes_in(log_directories(error=56), 1)
