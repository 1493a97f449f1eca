"""`kafkacompat consume`: the records of a topic as lines, from the beginning, an offset, a time, or from now on."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator

from kafkacompat.cli.client import Cluster, CommandFailed, add_bootstrap, check
from kafkacompat.cli.output import Progress, failing_clearly
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
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
    parser.add_argument("--max-messages", type=int, metavar="N", help="stop after N records")
    parser.add_argument("--until-end", action="store_true", help="stop at the end that the topic has now")
    parser.add_argument(
        "--print", default="value", metavar="FIELDS", help=f"comma list of {', '.join(FIELDS)}"
    )
    parser.add_argument("--separator", default="\t", help="between fields (default: tab)")


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    fields = arguments.print.split(",")
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise CommandFailed(f"--print knows {', '.join(FIELDS)}, not {', '.join(unknown)}")
    with Cluster(arguments.bootstrap) as cluster:
        reader = Reader(cluster, arguments.topic, arguments.partition)
        reader.seek(starting_timestamp(arguments), arguments.offset)
        ends = reader.offsets(LATEST) if arguments.until_end else None
        progress = Progress(f"from {arguments.topic}") if not sys.stdout.isatty() else None
        count = size = 0
        out = sys.stdout.buffer
        for partition, offset, record in reader.records(ends):
            out.write(render(partition, offset, record, fields, arguments.separator))
            count += 1
            size += len(record.value or b"")
            if progress is not None:
                progress.update(count, size)
            else:
                out.flush()
            if count == arguments.max_messages:
                break
        out.flush()
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

    def records(self, ends: dict[int, int] | None) -> Iterator[tuple[int, int, Record]]:
        """(partition, offset, record) for ever, or until each partition has reached its end."""
        while True:
            if ends is not None and all(self._positions[number] >= ends[number] for number in self._leaders):
                return
            for leader, partitions in self._by_leader().items():
                yield from self._fetch(leader, partitions)

    def _fetch(self, leader: int, partitions: list[int]) -> Iterator[tuple[int, int, Record]]:
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
                    raise CommandFailed(
                        f"{self._topic.name}-{number} has no offset {self._positions[number]}"
                    )
                check(result.error_code, f"{self._topic.name}-{number}")
                yield from self._records_of(number, bytes(result.records or b""))

    def _records_of(self, partition: int, data: bytes) -> Iterator[tuple[int, int, Record]]:
        for header in iterate_batches(data):
            if not header.is_control:
                for offset, record in records_of(
                    data[header.position : header.position + header.size], header
                ):
                    if offset >= self._positions[partition]:
                        self._positions[partition] = offset + 1
                        yield partition, offset, record
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


def render(partition: int, offset: int, record: Record, fields: list[str], separator: str) -> bytes:
    """One line."""
    timestamp = datetime.datetime.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC).isoformat(
        "T", "milliseconds"
    )
    texts: dict[str, bytes] = {
        "offset": str(offset).encode(),
        "partition": str(partition).encode(),
        "timestamp": timestamp.encode(),
        "key": b"null" if record.key is None else record.key,
        "headers": b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
        "value": b"null" if record.value is None else record.value,
    }
    return separator.encode().join(texts[field] for field in fields) + b"\n"
