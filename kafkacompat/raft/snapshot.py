"""Snapshot files of the metadata log (`<end offset>-<epoch>.checkpoint`), files with the same framing, and those beside the log.

It converts between bytes and framed record values with quorum state. The meaning of records is unknown here. The
layout is that of KIP-630: a control batch with the header (and KRaftVersion and Voters from kraft.version 1 on), data
batches, a control batch with the footer.

SnapshotStore finds the snapshots at a start, freezes, serves and fetches them in pieces, and deletes them. File names, and
`.part` for an incomplete fetch, are Kafka's.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft import control_records
from kafkacompat.raft.contracts import RECORDS_A_STEP
from kafkacompat.raft.packing import MAX_BATCH_BYTES, PackedValues
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.control import ControlType, build_control_batch, parse_control_key
from kafkacompat.records.record import Record, RecordMalformed
from kafkacompat.records.scan import walk_records
from kafkacompat.tasks import TURN_COST, Work, at_once
from kafkacompat.wire.errors import WireError

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Disk, File

CONTROL_RECORDS_MOST = 1000
"""Control records of one batch, which is read in one step. The largest batch written here has three."""
FROZEN_MODE = 0o400
"""Of a snapshot, as in Apache Kafka. It never changes, and has the keys of SCRAM users."""
CHECKPOINT_SUFFIX = ".checkpoint"
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint\Z")
_LEFT_BY_KAFKA = re.compile(r"[0-9]{20}-[0-9]{10}(-[0-9]+\.checkpoint\.part|\.checkpoint\.deleted)\Z")
"""What a killed Apache Kafka leaves: a snapshot that it was writing or fetching, and one that it was about to delete."""


class BrokenSnapshot(Exception):
    """The file is not a complete snapshot. The message describes the flaw."""


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a snapshot, with records as framed values."""

    values: Sequence[bytes] = ()
    last_contained_timestamp_ms: int = 0
    kraft_version: int = 0
    voters: tuple[VoterNode, ...] = ()


def snapshot_file_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020d}-{epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch), or None for any other file."""
    match = _NAME.match(name)
    return (int(match[1]), int(match[2])) if match else None


def pack_values(
    values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int
) -> Iterator[bytearray]:
    """Data batches of at most MAX_BATCH_BYTES, all with the same timestamp."""
    while values:
        packed = PackedValues()
        taken = packed.add(values, max_bytes=MAX_BATCH_BYTES)
        yield packed.batch(base_offset, epoch, timestamp_ms)
        base_offset += taken
        values = values[taken:]


class SnapshotFormat:
    """Assembles a snapshot's bytes: `add` values in order, then `finish`."""

    __slots__ = ("_epoch", "_now_ms", "_offset", "_packed", "_parts")

    def __init__(
        self,
        epoch: int,
        now_ms: int,
        last_contained_timestamp_ms: int,
        kraft_version: int,
        voters: tuple[VoterNode, ...],
    ) -> None:
        self._epoch = epoch
        self._now_ms = now_ms
        head = [control_records.snapshot_header(last_contained_timestamp_ms)]
        if kraft_version >= 1:
            head.append(control_records.kraft_version(kraft_version))
        if kraft_version >= 1 and voters:
            head.append(control_records.voters(voters))
        self._parts: list[bytearray] = []
        self._packed = PackedValues()
        self._offset = 0
        self._control(head)

    def _control(self, values: list[tuple[int, bytes]]) -> None:
        batch = build_control_batch(
            values, base_offset=self._offset, leader_epoch=self._epoch, timestamp_ms=self._now_ms
        )
        self._parts.append(batch)
        self._offset += len(values)

    def add(self, values: Sequence[bytes]) -> None:
        while values:
            taken = self._packed.add(values, max_bytes=MAX_BATCH_BYTES)
            values = values[taken:]
            if values:
                self._close_batch()

    def _close_batch(self) -> None:
        if self._packed.count:
            self._parts.append(self._packed.batch(self._offset, self._epoch, self._now_ms))
            self._offset += self._packed.count
            self._packed = PackedValues()

    def finish(self) -> list[bytearray]:
        """The file in parts."""
        self._close_batch()
        self._control([control_records.snapshot_footer()])
        return self._parts


def format_snapshot(content: SnapshotContent, epoch: int, now_ms: int) -> bytes:
    built = SnapshotFormat(
        epoch, now_ms, content.last_contained_timestamp_ms, content.kraft_version, content.voters
    )
    built.add(content.values)
    return b"".join(built.finish())


def batch_records(data: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of one batch in `data`, which must be valid and uncompressed as in the metadata log. Raises
    BrokenSnapshot otherwise."""
    batch = data[header.position : header.position + header.size]
    if header.magic != 2 or header.codec or not has_valid_crc(batch, header):
        raise BrokenSnapshot(
            f"the batch at byte {header.position} is compressed, of an old format or has a wrong crc"
        )
    if header.is_control and header.record_count > CONTROL_RECORDS_MOST:
        raise BrokenSnapshot(
            f"the control batch at byte {header.position} has {header.record_count} records, "
            f"of which {CONTROL_RECORDS_MOST} are read"
        )
    try:
        # Metadata records have no headers; bytes in their place are ignored.
        yield from walk_records(bytes(batch[HEADER_SIZE:]), header.record_count, header.base_timestamp_ms, 0)
    except RecordMalformed as error:
        raise BrokenSnapshot(f"the batch at byte {header.position}: {error}") from error


def parse_snapshot(data: bytes) -> SnapshotContent:
    """Raises BrokenSnapshot if header or footer are missing or a batch is damaged."""
    return at_once(parse_in_steps(data))


def parse_in_steps(data: bytes) -> Work[SnapshotContent]:
    view = memoryview(data)
    values: list[bytes] = []
    timestamp: int | None = None
    kraft_version = 0
    voters: tuple[VoterNode, ...] = ()
    ended = False
    position = 0
    try:
        for header in iterate_batches(view):
            position = header.position + header.size
            if ended:
                raise BrokenSnapshot("there is a batch after the footer")
            records = batch_records(view, header)
            while not header.is_control:
                part = [record.value or b"" for record in islice(records, RECORDS_A_STEP)]
                values += part
                if len(part) < RECORDS_A_STEP:
                    break
                yield TURN_COST
            for record in records:
                value = record.value or b""
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


PART_SUFFIX = ".part"
UNWRITTEN_SUFFIX = ".tmp"
"""Of Disk.write_atomic."""


class SnapshotStore:
    """The snapshots of one `__cluster_metadata-0`. Raises OSError."""

    __slots__ = ("_disk", "_part", "directory")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._part: File | None = None

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        return posixpath.join(self.directory, snapshot_file_name(*snapshot_id))

    def found(self) -> list[OffsetAndEpoch]:
        """Ascending ids."""
        names = self._disk.list_directory(self.directory)
        parsed = [each for name in names if (each := parse_snapshot_name(name)) is not None]
        return sorted(OffsetAndEpoch(*each) for each in parsed)

    def drop_parts(self) -> None:
        """Delete the part files of interrupted fetches."""
        for name in self._disk.list_directory(self.directory):
            if name.endswith(PART_SUFFIX) and parse_snapshot_name(name.removesuffix(PART_SUFFIX)) is not None:
                self._disk.remove(posixpath.join(self.directory, name))

    def drop_unwritten(self) -> None:
        """Delete what a killed process left of snapshots that it wrote or deleted. For a start, when none is being written."""
        for name in self._disk.list_directory(self.directory):
            whole = name.removesuffix(UNWRITTEN_SUFFIX)
            is_ours = whole != name and parse_snapshot_name(whole) is not None
            if is_ours or _LEFT_BY_KAFKA.match(name):
                self._disk.remove(posixpath.join(self.directory, name))

    def size(self, snapshot_id: OffsetAndEpoch) -> int:
        return self._disk.file_size(self.path(snapshot_id))

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Raises BrokenSnapshot."""
        return parse_snapshot(self._disk.read_bytes(self.path(snapshot_id)))

    def read_piece(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return self._disk.read_bytes(self.path(snapshot_id), position, max_bytes)

    def freeze(self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]) -> int:
        """Write the snapshot. It is durable under its name when this returns its size. Blocks; for a worker."""
        data = b"".join(parts)
        self._disk.write_atomic(self.path(snapshot_id), data, mode=FROZEN_MODE)
        return len(data)

    def remove(self, snapshot_id: OffsetAndEpoch) -> None:
        """It may already have been deleted with older ones."""
        with suppress(FileNotFoundError):
            self._disk.remove(self.path(snapshot_id))

    def drop_older(self, snapshot_id: OffsetAndEpoch) -> None:
        for each in self.found():
            if each < snapshot_id:
                self._disk.remove(self.path(each))

    # A snapshot that is being fetched.

    def write_part(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Position 0 starts a new file. Pieces come in order."""
        if position == 0:
            self.close_part()
            self.drop_parts()
            self._part = self._disk.open(self.path(snapshot_id) + PART_SUFFIX, create=True)
        if self._part is None or self._part.size() != position:
            raise ValueError(f"a piece at {position} does not follow what is there of snapshot {snapshot_id}")
        self._part.write_now(data)

    def read_part(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """The complete fetched bytes. Blocks; for a worker."""
        return self._disk.read_bytes(self.path(snapshot_id) + PART_SUFFIX)

    def close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def drop_part(self, snapshot_id: OffsetAndEpoch) -> None:
        self._disk.remove(self.path(snapshot_id) + PART_SUFFIX)
