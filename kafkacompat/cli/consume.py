"""`kafkacompat consume`: the records of a topic as lines, from the beginning, an offset, a time, or from now on."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from kafkacompat.cli.client import Cluster, add_bootstrap, check
from kafkacompat.cli.failure import CommandFailed
from kafkacompat.cli.output import Progress, failing_clearly
from kafkacompat.records.batch import BatchCorrupt, has_valid_crc, iterate_batches
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Headers, Record, RecordMalformed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.list_offsets_response import ListOffsetsResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

EARLIEST, LATEST = -2, -1
FETCH_VERSION = 12
"""The newest version of Fetch that names topics instead of giving their ids."""
WAIT_MS = 500
MAX_BYTES = 8 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
FIELDS = ("offset", "partition", "timestamp", "key", "headers", "value")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("topic")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning", action="store_true", help="from the first record kept (default: from now on)"
    )
    start.add_argument("--offset", type=int, help="from this offset in every partition read")
    start.add_argument(
        "--since", metavar="TIME", help="from the first record at or after an ISO time or ms since 1970"
    )
    parser.add_argument("--partition", type=int, action="append", help="only this partition; may be repeated")
    parser.add_argument("--max-messages", type=positive, metavar="N", help="stop after N records")
    parser.add_argument("--until-end", action="store_true", help="stop at the end that the topic has now")
    parser.add_argument(
        "--print",
        default="value",
        metavar="FIELDS",
        help=f"comma list of {', '.join(FIELDS)} (default %(default)s)",
    )
    parser.add_argument("--separator", default="\t", help="between fields (default: tab)")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return int(text)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    line = renderer(arguments.print.split(","), arguments.separator.encode())
    with Cluster(arguments.bootstrap) as cluster:
        reader = Reader(cluster, arguments.topic, arguments.partition)
        reader.seek(starting_timestamp(arguments), arguments.offset)
        ends = reader.offsets(LATEST) if arguments.until_end else None
        progress = Progress(f"from {arguments.topic}") if not sys.stdout.isatty() else None
        count = size = 0
        out = sys.stdout.buffer
        try:
            for partition, records in reader.batches(ends):
                if arguments.max_messages is not None:
                    records = records[: arguments.max_messages - count]
                out.write(b"".join([line(partition, offset, record) for offset, record in records]))
                out.flush()
                count += len(records)
                size += sum([len(record.value or b"") for _, record in records])
                if progress is not None:
                    progress.update(count, size)
                if arguments.max_messages is not None and count >= arguments.max_messages:
                    break
        finally:
            if progress is not None:
                progress.finish(count, size)
    return 0


def starting_timestamp(arguments: argparse.Namespace) -> int:
    """What ListOffsets takes: a special value, or milliseconds since 1970."""
    if arguments.since is None:
        return EARLIEST if arguments.from_beginning else LATEST
    if arguments.since.isdigit():
        return int(arguments.since)
    try:
        return int(datetime.datetime.fromisoformat(arguments.since).timestamp() * 1000)
    except ValueError as error:
        raise CommandFailed(f"--since takes an ISO time or milliseconds, not {arguments.since!r}") from error


RECORDS_AT_ONCE = 1000


class Reader:
    """Reads the partitions of one topic without a group, each from its leader, in turn."""

    def __init__(self, cluster: Cluster, topic: str, only: list[int] | None) -> None:
        self._cluster = cluster
        (self._topic,) = cluster.metadata([topic]).topics
        check(self._topic.error_code, f"topic {topic}")
        self._leaders = leaders_of(self._topic, only)
        self._positions: dict[int, int] = {}

    def seek(self, timestamp_ms: int, offset: int | None) -> None:
        if offset is not None:
            self._positions = dict.fromkeys(self._leaders, offset)
            return
        self._positions = self.offsets(timestamp_ms)
        if any(position < 0 for position in self._positions.values()):
            ends = self.offsets(LATEST)
            for partition, position in self._positions.items():
                if position < 0:
                    self._positions[partition] = ends[partition]

    def offsets(self, timestamp_ms: int) -> dict[int, int]:
        """ListOffsets of every partition; -1 where no record is that late."""
        found = {}
        for leader, partitions in self._by_leader().items():
            asked = [
                ListOffsetsPartition(partition_index=number, timestamp=timestamp_ms) for number in partitions
            ]
            topic = ListOffsetsTopic(name=self._topic.name or "", partitions=asked)
            answer = self._cluster.node(leader).call(ListOffsetsRequest(topics=[topic]), ListOffsetsResponse)
            for result in answer.topics[0].partitions:
                check(result.error_code, f"{self._topic.name}-{result.partition_index}")
                found[result.partition_index] = result.offset
        return found

    def batches(self, ends: dict[int, int] | None) -> Iterator[tuple[int, list[tuple[int, Record]]]]:
        """(partition, [(offset, record)]) for ever, or until each partition has reached its end."""
        while True:
            done = set()
            if ends is not None:
                done = {number for number in self._leaders if self._positions[number] >= ends[number]}
                if len(done) == len(self._leaders):
                    return
            for leader, partitions in self._by_leader().items():
                wanted = [number for number in partitions if number not in done]
                if not wanted:
                    continue
                for partition, records in self._fetch(leader, wanted):
                    if ends is not None and records and records[-1][0] >= ends[partition]:
                        records = [each for each in records if each[0] < ends[partition]]
                    if records:
                        yield partition, records

    def _fetch(self, leader: int, partitions: list[int]) -> Iterator[tuple[int, list[tuple[int, Record]]]]:
        asked = [
            FetchPartition(
                partition=number,
                fetch_offset=self._positions[number],
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
            for number in partitions
        ]
        topic = FetchTopic(topic=self._topic.name or "", partitions=asked)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=0,
            session_epoch=-1,
            topics=[topic],
        )
        answer = self._cluster.node(leader).call(request, FetchResponse, max_version=FETCH_VERSION)
        check(answer.error_code, "fetch")
        for response in answer.responses:
            for result in response.partitions:
                number = result.partition_index
                if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    first, last = self.offsets(EARLIEST)[number], self.offsets(LATEST)[number]
                    raise CommandFailed(
                        f"{self._topic.name}-{number} has the offsets from {first} up to {last}, "
                        f"not {self._positions[number]}"
                    )
                check(result.error_code, f"{self._topic.name}-{number}")
                try:
                    yield from self._batches_of(number, memoryview(result.records or b""))
                except (BatchCorrupt, RecordMalformed, DecompressionFailed) as error:
                    raise CommandFailed(
                        f"{self._topic.name}-{number} is corrupt at offset {self._positions[number]}: {error}"
                    ) from error

    def _batches_of(self, partition: int, data: memoryview) -> Iterator[tuple[int, list[tuple[int, Record]]]]:
        for header in iterate_batches(data):
            batch = data[header.position : header.position + header.size]
            if not has_valid_crc(batch, header):
                raise BatchCorrupt("the batch's checksum does not fit its bytes")
            if not header.is_control:
                position = self._positions[partition]
                wanted = (each for each in records_of(batch, header) if each[0] >= position)
                # A batch of a kilobyte can unfold to millions of records.
                while records := list(islice(wanted, RECORDS_AT_ONCE)):
                    self._positions[partition] = records[-1][0] + 1
                    yield partition, records
            self._positions[partition] = max(self._positions[partition], header.last_offset + 1)

    def _by_leader(self) -> dict[int, list[int]]:
        grouped: dict[int, list[int]] = {}
        for number, leader in self._leaders.items():
            grouped.setdefault(leader, []).append(number)
        return grouped


def leaders_of(topic: MetadataResponseTopic, only: list[int] | None) -> dict[int, int]:
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    missing = [number for number in only or [] if number not in leaders]
    if missing:
        raise CommandFailed(f"topic {topic.name} has partitions 0 to {len(leaders) - 1}, not {missing[0]}")
    return {number: leader for number, leader in sorted(leaders.items()) if only is None or number in only}


Line: TypeAlias = Callable[[int, int, Record], bytes]


def renderer(fields: list[str], separator: bytes) -> Line:
    """(partition, offset, record) -> a line of these fields; CommandFailed for an unknown one."""
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise CommandFailed(f"--print knows {', '.join(FIELDS)}, not {', '.join(map(repr, unknown))}")
    if fields == ["value"]:
        return lambda partition, offset, record: (NULL if record.value is None else record.value) + b"\n"
    parts = [PARTS[field] for field in fields]

    def line(partition: int, offset: int, record: Record) -> bytes:
        return separator.join([part(partition, offset, record) for part in parts]) + b"\n"

    return line


def time_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; the number itself where no calendar has it; null for a record without a time."""
    if timestamp_ms < 0:
        return "null"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat("T", "milliseconds")


def headers_text(headers: Headers) -> bytes:
    return b",".join([name.encode() + b"=" + (NULL if value is None else value) for name, value in headers])


NULL = b"null"
PARTS: dict[str, Line] = {
    "offset": lambda partition, offset, record: str(offset).encode(),
    "partition": lambda partition, offset, record: str(partition).encode(),
    "timestamp": lambda partition, offset, record: time_text(record.timestamp_ms).encode(),
    "key": lambda partition, offset, record: NULL if record.key is None else record.key,
    "headers": lambda partition, offset, record: headers_text(record.headers),
    "value": lambda partition, offset, record: NULL if record.value is None else record.value,
}
