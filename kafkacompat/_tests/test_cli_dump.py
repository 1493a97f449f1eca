"""`kafkacompat dump` on files made here: decoding by topic, damage, indexes held against their log."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kafkacompat.__main__ import main
from kafkacompat.cli.decoding import as_hex, as_text, describer
from kafkacompat.cli.index_check import check_offset_index, check_time_index, segment_outline
from kafkacompat.controller.records import MetadataRecord, frame
from kafkacompat.log.index import OffsetIndex, TimeIndex
from kafkacompat.records.batch import build_batch
from kafkacompat.records.control import build_end_transaction_marker, control_key
from kafkacompat.records.record import Record
from kafkacompat.wire.codec import encode
from kafkacompat.wire.messages.leader_change_message import LeaderChangeMessage
from kafkacompat.wire.messages.offset_commit_key import OffsetCommitKey
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue
from kafkacompat.wire.messages.topic_record import TopicRecord

KEY = b"\0\1" + encode(OffsetCommitKey(group="g", topic="t", partition=3), 0)
VALUE = b"\0\3" + encode(OffsetCommitValue(offset=42, leader_epoch=1, metadata="m", commit_timestamp=7), 3)


def shown(directory: str, key: bytes | None, value: bytes | None, values: str = "auto") -> str:
    return describer(directory, values)(Record(0, 0, key, value), False)


def payload(text: str) -> dict[str, object]:
    """The JSON after 'payload: '."""
    found: dict[str, object] = json.loads(text.split("payload: ", 1)[1])
    return found


def test_offsets_are_decoded_by_name() -> None:
    text = shown("__consumer_offsets-12", KEY, VALUE)
    assert '"type": "OffsetCommitKey"' in text
    assert payload(text) == {
        "type": "OffsetCommitValue",
        "version": 3,
        "data": {"offset": 42, "leaderEpoch": 1, "metadata": "m", "commitTimestamp": 7},
    }


def test_a_forgotten_offset_has_a_null_payload() -> None:
    assert shown("__consumer_offsets-12", KEY, None).endswith("payload: null")


def test_metadata_is_decoded_by_name() -> None:
    record = frame(MetadataRecord(TopicRecord(name="t", topic_id=bytes(15) + b"\7"), 0))
    assert payload(shown("__cluster_metadata-0", None, record)) == {
        "type": "TopicRecord",
        "version": 0,
        "data": {"name": "t", "topicId": "AAAAAAAAAAAAAAAAAAAABw"},
    }


@pytest.mark.parametrize(
    ("directory", "key", "value"),
    [
        ("__consumer_offsets-0", None, b"x"),
        ("__consumer_offsets-0", b"\0", b"x"),
        ("__consumer_offsets-0", b"\x7f\x7fabc", b"x"),
        ("__consumer_offsets-0", KEY, b"\0\x63"),
        ("__consumer_offsets-0", KEY[:-3], VALUE),
        ("__transaction_state-0", b"\0\0\0\5ab", b"\0\0"),
        ("__cluster_metadata-0", None, None),
        ("__cluster_metadata-0", None, b"\2\2\0"),
        ("__cluster_metadata-0", None, b"\1\xff\xff\xff\xff\xff\xff"),
        ("__cluster_metadata-0", None, b"\1\x63\0"),
        ("__cluster_metadata-0", None, b""),
    ],
)
def test_what_cannot_be_decoded_is_shown_as_bytes(
    directory: str, key: bytes | None, value: bytes | None
) -> None:
    text = shown(directory, key, value)
    assert f"payload: {as_hex(value)} (not decoded: " in text


def test_other_topics_are_text_and_hex_where_asked() -> None:
    assert shown("my-topic-0", b"k", "é\n".encode()) == "key: k payload: é\\n"
    assert shown("my-topic-0", b"k", b"\xff", "hex") == "key: 0x6b payload: 0xff"
    assert shown("__consumer_offsets-0", b"\0\1", None, "hex") == "key: 0x0001 payload: null"
    assert as_text(b"\xffa\x00") == "\\xffa\\x00"


def test_control_records_are_decoded() -> None:
    describe = describer("t-0", "auto")
    marker = Record(0, 0, control_key(1), struct.pack(">hi", 0, 9))
    assert describe(marker, True) == "coordinatorEpoch: 9"
    change = Record(0, 0, control_key(2), encode(LeaderChangeMessage(version=0, leader_id=5), 0))
    assert '"leaderId": 5' in describe(change, True)
    assert "not decoded" in describe(Record(0, 0, control_key(77), b""), True)


def batch(offset: int, timestamp_ms: int, values: list[bytes]) -> bytes:
    records = [Record(number, timestamp_ms, None, value) for number, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=0))


FIRST, SECOND = batch(10, 1000, [b"a", b"b"]), batch(12, 900, [b"c"])


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition's directory: two batches at offsets 10 to 12 with true indexes."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    stem = f"{10:020d}"
    (directory / f"{stem}.log").write_bytes(FIRST + SECOND)
    offsets, times = OffsetIndex(10), TimeIndex(10)
    offsets.append(12, len(FIRST))
    times.maybe_append(1000, 11)
    (directory / f"{stem}.index").write_bytes(offsets.data)
    (directory / f"{stem}.timeindex").write_bytes(times.data)
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 10\n")
    return directory


def test_a_directory_is_dumped_file_by_file(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(partition), "--values"]) == 0
    out = capsys.readouterr().out
    assert out.count("Dumping ") == 4
    assert "baseOffset: 12 lastOffset: 12 count: 1" in out
    assert "offset: 11 timestamp: 1000 keySize: -1 valueSize: 1 headerKeys: [] key: null payload: b" in out
    assert f"offset: 12 position: {len(FIRST)}" in out
    assert "timestamp: 1000 offset: 11" in out
    assert "leaderEpoch: 0 startOffset: 10" in out


def test_a_true_directory_has_no_findings(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--check", str(partition)]) == 0
    assert capsys.readouterr().out == ""


def test_preallocated_zeros_are_no_entries(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka's active segment has index files of full size, zero after the last entry."""
    for ending in ("index", "timeindex"):
        with open(partition / f"{10:020d}.{ending}", "ab") as index:
            index.write(bytes(24 * 1000))
    assert main(["dump", "--check", str(partition)]) == 0
    assert main(["dump", str(partition)]) == 0
    assert capsys.readouterr().out.count("position: ") == 3


def test_lies_of_indexes_are_found(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{10:020d}.index").write_bytes(struct.pack(">ii", 2, 5))
    (partition / f"{10:020d}.timeindex").write_bytes(struct.pack(">qi", 5000, 1))
    assert main(["dump", "--check", str(partition)]) == 1
    out = capsys.readouterr().out
    assert "no batch begins at position 5" in out
    assert "no batch has a timestamp as late as 5000" in out


def test_damage_is_found(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(FIRST + SECOND)
    damaged[len(FIRST) - 1] ^= 1
    (partition / f"{10:020d}.log").write_bytes(damaged[:-4])
    assert main(["dump", "--check", str(partition / f"{10:020d}.log")]) == 1
    out = capsys.readouterr().out
    assert "isvalid: false" in out
    assert "damaged records in the batch at position 0: " in out
    assert f"damaged after position {len(FIRST)}: {len(SECOND) - 4} bytes are no whole batch" in out


def test_a_check_goes_on_past_a_file_that_cannot_be_read(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged snapshot or checkpoint hides nothing of the files after it."""
    (partition / f"{0:020d}.snapshot").write_bytes(b"\0\1nonsense")
    (partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 1")
    (partition / f"{10:020d}.index").write_bytes(struct.pack(">ii", 2, 5))
    (partition / "partition.metadata").write_bytes(b"")
    (partition / "some.index").write_bytes(b"")
    assert main(["dump", "--check", str(partition)]) == 1
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.partition(": ")[0].rpartition("/")[2] for line in lines] == [
        f"{0:020d}.snapshot",
        f"{10:020d}.index",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "some.index",
    ]
    assert "the last line has no end" in lines[2]
    assert told.err == "7 files checked, 5 findings\n"


def test_entries_out_of_order_are_found() -> None:
    ends, latest = segment_outline(FIRST + SECOND)
    assert ends == {0: 11, len(FIRST): 12}
    assert latest == {11: 1000, 12: 1000}
    data = struct.pack(">iiii", 2, len(FIRST), 1, 0)
    assert any("not after" in line for line in check_offset_index(10, data, ends))
    data = struct.pack(">qiqi", 1000, 1, 900, 2)
    assert any("before the one before" in line for line in check_time_index(10, data, latest))
    assert list(check_offset_index(10, b"123", ends)) == ["3 bytes are not whole entries of 8"]
    wrong = struct.pack(">ii", 1, len(FIRST))
    assert any("ends at offset 12, not 11" in line for line in check_offset_index(10, wrong, ends))


def test_an_entry_of_an_earlier_kafka_for_several_batches_is_true() -> None:
    """Followers appended all batches of an answer at once, with one entry for them."""
    log = FIRST + SECOND + batch(13, 900, [b"d"]) + batch(14, 900, [b"e"])
    ends, _ = segment_outline(log)
    third, fourth = sorted(ends)[2:]
    assert list(check_offset_index(10, struct.pack(">iiii", 2, 0, 4, third), ends)) == []
    assert list(check_offset_index(10, struct.pack(">ii", 4, 0), ends)) == []
    overlapping = struct.pack(">iiii", 3, 0, 4, third)
    assert any("ends at offset 11, not 13" in line for line in check_offset_index(10, overlapping, ends))
    no_end = struct.pack(">ii", 0, 0)
    assert any("ends at offset 11, not 10" in line for line in check_offset_index(10, no_end, ends))
    too_late = struct.pack(">ii", 3, fourth)
    assert any("ends at offset 14, not 13" in line for line in check_offset_index(10, too_late, ends))


def test_markers_are_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = build_end_transaction_marker(
        committed=False, coordinator_epoch=4, producer_id=7, producer_epoch=1, timestamp_ms=5
    )
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(marker)
    assert main(["dump", "--values", "auto", str(path)]) == 0
    assert "controlType: ABORT coordinatorEpoch: 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("README", b"", "is not named like a segment"),
        ("leader-epoch-checkpoint", b"7\n", "version '7'"),
        ("00000000000000000000.snapshot", b"\0\1nonsense", "00000000000000000000.snapshot: "),
        ("00000000000000000000.txnindex", b"123", "not whole entries of 34"),
    ],
)
def test_files_that_cannot_be_dumped_are_named_in_one_line(
    name: str, content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["dump", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_missing_files_and_empty_directories_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", str(tmp_path / "gone.log")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert main(["dump", str(tmp_path)]) == 1
    assert "contains no segment" in capsys.readouterr().err
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    assert main(["dump", str(tmp_path)]) == 0
