"""`kafkacompat produce`: send lines of standard input to a topic. All in-sync replicas have acknowledged them when the
command ends."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.cli.output import Progress, failing_clearly
from kafkacompat.cli.sender import Sender
from kafkacompat.client.blocking import Cluster
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import partition_of_key
from kafkacompat.records.compression import CODEC_NAMES
from kafkacompat.records.record import Record

CODECS = {name: codec for codec, name in enumerate(CODEC_NAMES)}
READ_BYTES = 256 * 1024
"""Minimum input for one round of requests. A batch stays below the default max.message.bytes."""
LINE_BYTES_MAX = 64 * 1024 * 1024
BATCH_BYTES = 900_000
RECORD_OVERHEAD = 32
"""An upper bound for the lengths and deltas in a record."""

Pair: TypeAlias = tuple[bytes | None, bytes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("topic", help="created if the broker has auto.create.topics.enable")
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="the text before it in a line is the record's key, which determines the partition",
    )
    parser.add_argument("--partition", type=int, metavar="N", help="all records to this partition")
    parser.add_argument(
        "--compression",
        choices=CODECS,
        default="none",
        help="compression of the batches (default %(default)s)",
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.key_separator == "":
        raise CommandFailed("--key-separator takes at least one character")
    with Cluster(address_of(arguments)) as cluster:
        sender = Sender(cluster, arguments.topic)
        if arguments.partition is not None and not 0 <= arguments.partition < sender.partition_count:
            raise CommandFailed(
                f"topic {arguments.topic} has partitions 0 to {sender.partition_count - 1}, not {arguments.partition}"
            )
        progress = Progress(f"to {arguments.topic}")
        count = size = read = 0
        try:
            for turn, lines in enumerate(line_batches(sys.stdin.fileno())):
                now_ms = time.time_ns() // 1_000_000
                separator = arguments.key_separator
                pairs: list[Pair] = [
                    (None, line) if separator is None else split(line, separator.encode()) for line in lines
                ]
                end = first_without_key(pairs) if getattr(arguments, "is_key_required", False) else None
                shares = by_partition(pairs[:end], sender.partition_count, turn, arguments.partition)
                for partition, share in shares.items():
                    for part in bounded(share, BATCH_BYTES):
                        sender.send(partition, records_of(part, now_ms), CODECS[arguments.compression])
                        count += len(part)
                        size += sum(len(value) for _, value in part)
                progress.update(count, size)
                if end is not None:
                    line = lines[end].decode(errors="replace")
                    raise CommandFailed(f"No key separator found on line number {read + end + 1}: '{line}'")
                read += len(lines)
        finally:
            progress.finish(count, size)
            if not getattr(arguments, "is_quiet", False):
                print(f"{count} records acknowledged", file=sys.stderr)
    return 0


def first_without_key(pairs: Iterable[Pair]) -> int | None:
    return next((position for position, (key, _) in enumerate(pairs) if key is None), None)


def by_partition(
    pairs: Iterable[Pair], partition_count: int, turn: int, only: int | None
) -> dict[int, list[Pair]]:
    """Return records by partition: by the hash of the key, as in Kafka's clients. Records without a key go to one
    partition, in turn."""
    shares: dict[int, list[Pair]] = {}
    for pair in pairs:
        key = pair[0]
        if only is not None:
            chosen = only
        elif key is None:
            chosen = turn % partition_count
        else:
            chosen = partition_of_key(key, partition_count)
        shares.setdefault(chosen, []).append(pair)
    return shares


def bounded(pairs: list[Pair], batch_bytes: int) -> Iterator[list[Pair]]:
    """Yield runs of records with at most that total size. A larger record is alone in its run."""
    start = size = 0
    for position, (key, value) in enumerate(pairs):
        record_size = len(key or b"") + len(value) + RECORD_OVERHEAD
        if position > start and size + record_size > batch_bytes:
            yield pairs[start:position]
            start, size = position, 0
        size += record_size
    yield pairs[start:]


def records_of(pairs: list[Pair], now_ms: int) -> list[Record]:
    return [Record(number, now_ms, key, value, ()) for number, (key, value) in enumerate(pairs)]


def line_batches(descriptor: int) -> Iterator[list[bytes]]:
    """Yield lines without line ends as they arrive. All lines that are available form one list, without waiting for more."""
    held = b""
    while True:
        chunks = [held]
        size = 0
        while size < READ_BYTES and (size == 0 or select.select([descriptor], [], [], 0)[0]):
            chunk = os.read(descriptor, READ_BYTES)
            if not chunk:
                rest = b"".join(chunks)
                if rest:
                    yield [line.removesuffix(b"\r") for line in rest.removesuffix(b"\n").split(b"\n")]
                return
            chunks.append(chunk)
            size += len(chunk)
        *lines, held = b"".join(chunks).split(b"\n")
        if len(held) > LINE_BYTES_MAX:
            raise CommandFailed(f"a line is longer than {LINE_BYTES_MAX} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]


def split(line: bytes, separator: bytes) -> Pair:
    """Return (key, value). A line without the separator has no key."""
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)
