"""The pure parts of the commands: hashing keys, cutting lines, showing records, reading settings."""

from __future__ import annotations

import argparse
import errno
import io
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kafkacompat.__main__ import COMMANDS, main
from kafkacompat.cli import consume, dump, groups, printing, produce, start, topics
from kafkacompat.cli import reader as reading
from kafkacompat.cli.format import check_cluster_id
from kafkacompat.cli.group_member import by_range
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.settings import load_settings, parse_overrides
from kafkacompat.client.blocking import Backoff
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import murmur2, partition_of_key
from kafkacompat.raft.storage import MetaProperties, format_meta_properties, parse_meta_properties
from kafkacompat.records.batch import build_batch, parse_header
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@given(st.binary(max_size=70))
def test_murmur2_is_the_hash_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_partitions_of_keys_are_those_that_apache_kafka_chooses() -> None:
    """Values of Kafka's own murmur2 tests, and the partition as Utils.toPositive gives it."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, signed in known.items():
        assert murmur2(key) == signed & 0xFFFFFFFF
        assert partition_of_key(key, 7) == (signed & 0x7FFFFFFF) % 7


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=40)), min_size=1))
def test_bounded_runs_keep_all_records_in_order_and_within_the_bound(
    pairs: list[tuple[bytes | None, bytes]],
) -> None:
    runs = list(produce.bounded(pairs, 200))
    assert [pair for run in runs for pair in run] == pairs
    for run in runs:
        assert run
        size = sum(len(key or b"") + len(value) + produce.RECORD_OVERHEAD for key, value in run)
        assert size <= 200 or len(run) == 1


def test_batches_hold_the_pairs() -> None:
    pairs = [(b"k", b"v"), (None, b""), (b"", b"x" * 1000)]
    for codec in produce.CODECS.values():
        batch = build_batch(produce.records_of(pairs, 1234), compression=codec)
        read = [(record.key, record.value) for _, record in records_of(batch, parse_header(batch))]
        assert read == pairs


def test_records_with_a_key_go_to_its_partition_and_those_without_stay_together() -> None:
    pairs = [(None, b"1"), (b"a", b"2"), (None, b"3"), (b"b", b"4")]
    shares = produce.by_partition(pairs, 5, 3, None)
    assert shares[3][:1] == [(None, b"1")]
    for partition, share in shares.items():
        for key, _ in share:
            assert partition == (3 if key is None else partition_of_key(key, 5))
    assert produce.by_partition(pairs, 5, 3, 4) == {4: pairs}


def test_split_takes_the_first_separator() -> None:
    assert produce.split(b"a:b:c", b":") == (b"a", b"b:c")
    assert produce.split(b":b", b":") == (b"", b"b")
    assert produce.split(b"b", b":") == (None, b"b")


def lines_through_a_pipe(*writes: bytes) -> list[list[bytes]]:
    """What line_batches makes of writes that arrive one by one."""
    reader, writer = os.pipe()
    found = []
    try:
        batches = produce.line_batches(reader)
        with os.fdopen(writer, "wb", buffering=0) as out:
            for data in writes:
                out.write(data)
                found.append(next(batches))
        return [*found, *batches]
    finally:
        os.close(reader)


def test_lines_are_given_on_as_they_come_and_not_held_for_more() -> None:
    assert lines_through_a_pipe(b"one\ntw", b"o\r\n\nthree") == [[b"one"], [b"two", b""], [b"three"]]


def test_a_last_newline_begins_no_line() -> None:
    assert lines_through_a_pipe(b"a\nb\n") == [[b"a", b"b"]]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b""))))
def test_lines_of_a_file_are_all_there(lines: list[bytes]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as out:
        out.write(b"".join(line + b"\n" for line in lines))
    try:
        assert [line for batch in produce.line_batches(reader) for line in batch] == lines
    finally:
        os.close(reader)


RECORD = Record(0, 1_500_000_000_123, b"key", None, (("h", b"1"), ("n", None)))


def test_lines_show_the_fields_asked_for() -> None:
    assert printing.renderer(["value"], b"\t")(0, 5, RECORD) == b"null\n"
    fields = ["offset", "partition", "timestamp", "key", "headers", "value"]
    shown = printing.renderer(fields, b"|")(2, 5, RECORD)
    assert shown == b"5|2|2017-07-14T02:40:00.123+00:00|key|h=1,n=null|null\n"


def test_unknown_fields_are_named() -> None:
    with pytest.raises(CommandFailed, match="'colour'"):
        printing.renderer(["offset", "colour"], b"\t")


def test_times_outside_the_calendar_are_numbers() -> None:
    assert printing.time_text(-1) == "null"
    assert printing.time_text(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("since", "expected"),
    [("1500000000123", 1_500_000_000_123), ("2017-07-14T02:40:00.123+00:00", 1_500_000_000_123)],
)
def test_since_takes_iso_times_and_milliseconds(since: str, expected: int) -> None:
    arguments = argparse.Namespace(since=since, from_beginning=False)
    assert consume.starting_timestamp(arguments) == expected


def test_times_before_1970_are_no_special_values_of_list_offsets() -> None:
    arguments = argparse.Namespace(since="1969-12-31T23:59:59.999", from_beginning=False)
    assert consume.starting_timestamp(arguments) == 0


@pytest.mark.parametrize("text", ["yesterday", "\u00b2", "9" * 30, "9" * 5000, "-1", "1_0", ""])
def test_other_words_are_refused_with_the_option_that_the_user_gave(text: str) -> None:
    with pytest.raises(CommandFailed, match="--since takes an ISO time"):
        consume.starting_timestamp(argparse.Namespace(since=text, from_beginning=False))
    parser = argparse.ArgumentParser()
    groups.add_arguments(parser)
    arguments = parser.parse_args(["reset", "g", "--topic", "t", f"--to-time={text}"])
    with pytest.raises(CommandFailed, match="--to-time takes an ISO time"):
        groups.new_offsets(cast("reading.Reader", SimpleNamespace(offsets=lambda timestamp: {})), arguments)


def test_settings_of_topics_need_an_equals_sign() -> None:
    assert topics.pairs(["a=b=c", "d="]) == [("a", "b=c"), ("d", "")]
    for bad in ("a", "=b"):
        with pytest.raises(CommandFailed, match="KEY=VALUE"):
            topics.pairs([bad])


def test_overrides_need_an_equals_sign() -> None:
    assert parse_overrides(["a = b=c ", "a=2", "d="]) == {"a": "2", "d": ""}
    for bad in ("a", "=b", " = c"):
        with pytest.raises(ConfigError, match="--override"):
            parse_overrides([bad])


def test_a_missing_settings_file_is_named() -> None:
    with pytest.raises(CommandFailed, match=r"/nowhere/server\.properties: No such file"):
        load_settings("/nowhere/server.properties", [])


def test_cluster_ids_are_any_text_that_kafka_takes_and_come_back_from_the_file() -> None:
    for text in ("MkU3OEVBNTcwNTJENDM2Qk", "a b", " a", "a\n", "a ", "\u00e9", "a=b"):
        check_cluster_id(text)
        written = format_meta_properties(MetaProperties(text, 1, bytes(15) + b"\x07"), 0)
        assert parse_meta_properties(written, "f").cluster_id == text
    for bad in ("", "\udc80", "\U0001f600"):
        with pytest.raises(CommandFailed, match="--cluster-id"):
            check_cluster_id(bad)


def test_log_levels_come_from_option_and_environment() -> None:
    assert start.log_level(False, None) == "WARNING"
    assert start.log_level(True, "") == "INFO"
    assert start.log_level(False, "debug") == "DEBUG"
    assert start.log_level(True, "WARN") == "WARNING"
    with pytest.raises(CommandFailed, match="KAFKACOMPAT_LOG"):
        start.log_level(False, "loud")


def test_tables_are_as_wide_as_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "long"), [("wide cell", 1), ("", "x")])
    assert capsys.readouterr().out == "a          long\nwide cell  1\n           x\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (CommandFailed("no"), 1, "kafkacompat: no\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_failures_are_one_line(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @failing_clearly
    def command(arguments: object) -> int:
        raise error

    assert command(None) == status
    assert capsys.readouterr().err == said


def test_text_files_are_shown_without_their_comments() -> None:
    assert dump.text_of(b"#\n#now\nnode.id=1\n") == ["node.id=1"]
    assert dump.text_of(b'{"leaderId":1,"x":[2]}') == ["leaderId: 1", "x: [2]"]
    assert dump.text_of(b"{torn") == ["{torn"]


def test_progress_is_silent_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkacompat.cli.output import Progress

    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    progress = Progress("to t")
    progress.update(1, 2)
    progress.finish(1, 2)
    assert stream.getvalue() == ""


def test_a_batch_of_very_many_records_is_consumed_in_pieces() -> None:
    most = reading.RECORDS_AT_ONCE
    count = 2 * most + 1
    batch = build_batch([Record(index, 1, None, b"v") for index in range(count)], compression=4)
    reader = reader_of([])
    reader.assign({3: 10})
    pieces = [records for _, records in reader._batches_of(3, PartitionData(records=memoryview(batch)))]
    assert [len(records) for records in pieces] == [most, most - 9]
    assert [offset for records in pieces for offset, _ in records] == list(range(10, count))
    assert reader.positions == {3: count}


def reader_of(answers: list[object]) -> reading.Reader:
    """Of topic t, whose partitions 0 to 3 broker 1 leads. It gets these answers in turn; exceptions are raised."""

    class OneBroker:
        def metadata(self, topics: list[str] | None) -> MetadataResponse:
            partitions = [MetadataResponsePartition(partition_index=each, leader_id=1) for each in range(4)]
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])

        ask_metadata = metadata

        def leader(self, node_id: int, of: str) -> OneBroker:
            assert node_id == 1
            return self

        def call(self, request: object, response_type: object, **_: object) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    return reading.Reader(cast(Any, OneBroker()), "t", [0])


def fetched(data: bytes = b"", error: int = 0) -> FetchResponse:
    partition = PartitionData(partition_index=0, error_code=error, records=memoryview(data))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_reading_goes_on_behind_a_broker_that_went_away_and_a_leader_that_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda self: None)
    batches = [
        bytes(build_batch([Record(0, 1, None, value)], base_offset=at))
        for at, value in enumerate((b"a", b"b"))
    ]
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    reader = reader_of([BrokerAway("gone"), fetched(batches[0]), fetched(error=moved), fetched(batches[1])])
    reader.assign({0: 0})
    read = [record.value for _, records in reader.batches({0: 2}) for _, record in records]
    assert read == [b"a", b"b"]


def test_an_error_that_does_not_pass_ends_the_reading() -> None:
    reader = reader_of([fetched(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    reader.assign({0: 0})
    with pytest.raises(CommandFailed, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        list(reader.batches(None))


def test_what_could_not_be_printed_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's next member prints it."""
    batches = [
        bytes(build_batch([Record(0, 1, None, value)], base_offset=at))
        for at, value in enumerate((b"a", b"b"))
    ]
    reader = reader_of([fetched(batches[0] + batches[1])])
    monkeypatch.setattr(reader, "starts", lambda _: {0: 0})
    committed: list[dict[int, int]] = []
    member = SimpleNamespace(
        join=lambda: [0],
        committed=lambda _: {},
        tend=lambda _: True,
        commit=lambda positions: committed.append(dict(positions)),
        leave=lambda: None,
    )

    def show(_: int, records: reading.Records) -> reading.Records:
        if [record.value for _, record in records] == [b"b"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return records

    printing = SimpleNamespace(is_done=False, show=show)
    with pytest.raises(OSError, match="No space left"):
        consume.read_as_member(cast(Any, member), reader, 0, None, cast(Any, printing))
    assert committed == [{0: 1}]


def test_a_committed_offset_whose_record_is_deleted_begins_where_the_group_would_without_it() -> None:
    """As auto.offset.reset of Kafka's consumer."""
    reader = SimpleNamespace(
        assign=lambda positions: assigned.append(dict(positions)),
        starts=lambda timestamp: {0: 90, 1: 91, 2: 92},
        offsets=lambda timestamp: {0: 10, 1: 10, 2: 10},
        batches=lambda ends: iter(()),
        positions={},
    )
    assigned: list[dict[int, int]] = []
    member = SimpleNamespace(
        join=lambda: [0, 1, 2],
        committed=lambda _: {0: 9, 1: 10},
        commit=lambda positions: None,
        leave=lambda: None,
    )
    printing = SimpleNamespace(is_done=False)
    consume.read_as_member(cast(Any, member), cast(Any, reader), 0, None, cast(Any, printing))
    assert assigned[-1] == {0: 90, 1: 10, 2: 92}


def test_what_is_behind_the_end_is_neither_read_nor_committed() -> None:
    """A batch may go on behind it, and one fetch may bring more: the group's next member reads that."""
    batches = [
        bytes(build_batch([Record(index, 1, None, b"v") for index in range(2)], base_offset=at))
        for at in (0, 2, 4)
    ]
    reader = reader_of([fetched(b"".join(batches))])
    reader.assign({0: 0})
    read = [offset for _, records in reader.batches({0: 3}) for offset, _ in records]
    assert (read, reader.positions) == ([0, 1, 2], {0: 3})


def test_a_partition_that_was_added_after_the_ends_were_looked_up_is_not_read() -> None:
    """A member of a group may get it: the topic may grow while the member joins."""
    reader = reader_of([fetched(bytes(build_batch([Record(0, 1, None, b"v")])))])
    reader.assign({0: 0, 1: 0})
    assert [partition for partition, records in reader.batches({0: 1}) if records] == [0]
    assert reader.positions == {0: 1, 1: 0}


def test_aborted_batches_are_left_out_for_readers_of_what_is_committed() -> None:
    """Up to the marker alone: the producer's next transaction is shown."""
    data = b""
    for offset, value in enumerate((b"aborted", None, b"committed", None)):
        if value is None:
            committed = offset > 2
            batch = build_end_transaction_marker(
                committed=committed, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=1
            )
        else:
            batch = build_batch(
                [Record(0, 1, None, value)],
                producer_id=7,
                producer_epoch=0,
                base_sequence=offset,
                is_transactional=True,
            )
        batch[:8] = offset.to_bytes(8, "big")
        data += bytes(batch)
    result = PartitionData(
        records=memoryview(data), aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)]
    )
    shown = {}
    for level in (reading.READ_UNCOMMITTED, reading.READ_COMMITTED):
        reader = reader_of([])
        reader._isolation_level = level
        reader.assign({0: 0})
        shown[level] = [record.value for _, records in reader._batches_of(0, result) for _, record in records]
        assert reader.positions == {0: 4}
    assert shown == {
        reading.READ_UNCOMMITTED: [b"aborted", b"committed"],
        reading.READ_COMMITTED: [b"committed"],
    }


def test_the_range_assignor_gives_the_first_members_one_more() -> None:
    assert by_range(["b", "a", "c"], 5) == {"a": [0, 1], "b": [2, 3], "c": [4]}
    assert by_range(["b", "a"], 1) == {"a": [0], "b": []}


def test_a_node_whose_standard_output_takes_nothing_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does the end of its process try again, and fail."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as broken:
        monkeypatch.setattr("sys.stdout", broken)
        start.print_line("it serves")
        broken.flush()
    assert "standard output cannot be written" in caplog.text


def parsers_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> set[str]:
    """The names of the parsers that the command makes."""
    made: set[str] = set()
    initialize = argparse.ArgumentParser.__init__

    def counted(self: argparse.ArgumentParser, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        made.add(self.prog)

    monkeypatch.setattr(argparse.ArgumentParser, "__init__", counted)
    with pytest.raises(SystemExit):
        main(words)
    return made


def test_a_command_makes_no_parsers_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take 3 ms of it."""
    assert parsers_of(monkeypatch, "start", "--help") == {"kafkacompat", "kafkacompat start"}


@pytest.mark.parametrize("words", [("--help",), ("-h", "start"), ("unknown",), ()])
def test_help_and_errors_list_all_commands(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {"kafkacompat", *(f"kafkacompat {name}" for name in COMMANDS)}
    assert parsers_of(monkeypatch, *words) == every
