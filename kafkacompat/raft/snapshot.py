"""Snapshot files of the metadata log (`<end offset>-<epoch>.checkpoint`) and files framed like them.

Duty: bytes <-> the framed record values with quorum state around them. Knows no record's meaning. Layout as KIP-630: a control
batch with the header (and KRaftVersion and Voters from kraft.version 1 on), data batches, a control batch with the footer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafkacompat.raft import control_records
from kafkacompat.raft.voters import Voter
from kafkacompat.records.batch import (
    HEADER_SIZE,
    BatchCorrupt,
    BatchHeader,
    build_batch,
    has_valid_crc,
    iterate_batches,
)
from kafkacompat.records.control import ControlType, build_control_batch, parse_control_key
from kafkacompat.records.record import Record, RecordMalformed, iterate_records
from kafkacompat.wire.errors import WireError

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""One atomic batch of the metadata log or a snapshot, Kafka's bound."""
RECORD_OVERHEAD = 24
CHECKPOINT_SUFFIX = ".checkpoint"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")


class BrokenSnapshot(Exception):
    """The file is no whole snapshot; the message names the flaw."""


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What a snapshot holds, records as their framed values."""

    values: Sequence[bytes] = ()
    last_contained_timestamp_ms: int = 0
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()


def snapshot_file_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020d}-{epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch), None for any other file."""
    match = _NAME.match(name)
    return (int(match[1]), int(match[2])) if match else None


def pack_values(
    values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int
) -> Iterator[bytearray]:
    """Data batches of at most MAX_BATCH_BYTES, all of one timestamp."""
    start = size = 0
    for position, value in enumerate(values):
        needed = len(value) + RECORD_OVERHEAD
        if position > start and size + needed > MAX_BATCH_BYTES - HEADER_SIZE:
            yield _data_batch(values[start:position], base_offset + start, epoch, timestamp_ms)
            start, size = position, 0
        size += needed
    if start < len(values):
        yield _data_batch(values[start:], base_offset + start, epoch, timestamp_ms)


def _data_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    records = [Record(delta, timestamp_ms, None, value) for delta, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch)


def format_snapshot(content: SnapshotContent, epoch: int, now_ms: int) -> bytes:
    head = [control_records.snapshot_header(content.last_contained_timestamp_ms)]
    if content.kraft_version >= 1:
        head += [control_records.kraft_version(content.kraft_version), control_records.voters(content.voters)]
    out = build_control_batch(head, base_offset=0, leader_epoch=epoch, timestamp_ms=now_ms)
    for batch in pack_values(content.values, len(head), epoch, now_ms):
        out += batch
    foot = [control_records.snapshot_footer()]
    offset = len(head) + len(content.values)
    out += build_control_batch(foot, base_offset=offset, leader_epoch=epoch, timestamp_ms=now_ms)
    return bytes(out)


def batch_records(data: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Records of one batch within data, checked and uncompressed as the metadata log's are. BrokenSnapshot otherwise."""
    batch = data[header.position : header.position + header.size]
    if header.magic != 2 or header.codec or not has_valid_crc(batch, header):
        raise BrokenSnapshot(
            f"the batch at byte {header.position} is compressed, of an old format or has a wrong crc"
        )
    try:
        yield from iterate_records(batch[HEADER_SIZE:], header.record_count, header.base_timestamp_ms)
    except RecordMalformed as error:
        raise BrokenSnapshot(f"the batch at byte {header.position}: {error}") from error


def parse_snapshot(data: bytes) -> SnapshotContent:
    """BrokenSnapshot when header or footer are missing or a batch is damaged."""
    view = memoryview(data)
    values: list[bytes] = []
    timestamp: int | None = None
    kraft_version = 0
    voters: tuple[Voter, ...] = ()
    ended = False
    position = 0
    try:
        for header in iterate_batches(view):
            position = header.position + header.size
            if ended:
                raise BrokenSnapshot("there is a batch after the footer")
            for record in batch_records(view, header):
                value = record.value or b""
                if not header.is_control:
                    values.append(value)
                    continue
                kind = parse_control_key(record.key)
                if kind == ControlType.SNAPSHOT_HEADER:
                    timestamp = control_records.parse_snapshot_header(value)
                elif kind == ControlType.SNAPSHOT_FOOTER:
                    ended = True
                elif kind == ControlType.KRAFT_VERSION:
                    kraft_version = control_records.parse_kraft_version(value)
                elif kind == ControlType.KRAFT_VOTERS:
                    voters = control_records.parse_voters(value)
    except (BatchCorrupt, RecordMalformed, WireError) as error:
        raise BrokenSnapshot(str(error)) from error
    if timestamp is None or not ended or position != len(data):
        raise BrokenSnapshot("the header or the footer is missing")
    return SnapshotContent(values, timestamp, kraft_version, voters)
