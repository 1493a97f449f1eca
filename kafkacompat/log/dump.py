"""Files of a log as text, for people: batches, records, indexes, snapshots, checkpoints.

The functions give the lines that `kafkacompat dump` prints. A damaged file gives the lines up to the damage, then a
line that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from kafkacompat.ids import is_base_offset, uuid_to_text
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from kafkacompat.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, TransactionIndex
from kafkacompat.log.producer_snapshots import decode_snapshot
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.compression import CODEC_NAMES, DecompressionFailed
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record, RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Disk

Describe: TypeAlias = Callable[[Record, bool], str]
"""(record, whether it is a control record) -> description of its contents in words."""
OFFSET_FILES = frozenset({RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_FILE})


def dump_file(disk: Disk, path: str, *, records: bool = False, payloads: bool = False) -> Iterator[str]:
    """Lines for any file of a log directory, chosen by file name. Raises ValueError for an unknown kind."""
    describe = as_text if payloads else None
    yield from dump_bytes(path.rpartition("/")[2], disk.read_bytes(path), records=records, describe=describe)


def dump_bytes(
    name: str,
    data: Buffer,
    *,
    records: bool = False,
    describe: Describe | None = None,
    reached: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """Like `dump_file`, for bytes in memory, for example a mapped file. `describe` describes a record in words.
    `reached` is called with the position after each batch."""
    base_offset = int(name[:20]) if is_base_offset(name[:20]) else 0
    if name.endswith((".log", ".checkpoint")):
        yield from dump_batches(data, records=records, describe=describe, reached=reached)
    elif name.endswith(".timeindex"):
        times = TimeIndex(base_offset, _whole_entries(data, TIME_ENTRY_SIZE))
        for index, (timestamp_ms, offset) in enumerate(map(times.entry, range(len(times)))):
            if index and timestamp_ms == 0 and offset == base_offset:
                break
            yield f"timestamp: {timestamp_ms} offset: {offset}"
    elif name.endswith(".index"):
        positions = OffsetIndex(base_offset, _whole_entries(data, OFFSET_ENTRY_SIZE))
        for index, (offset, position) in enumerate(map(positions.entry, range(len(positions)))):
            if index and offset == base_offset:
                break
            yield f"offset: {offset} position: {position}"
    elif name.endswith(".txnindex"):
        for entry in TransactionIndex(base_offset, bytes(data)).entries():
            yield (
                f"producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
                f"lastStableOffset: {entry.last_stable_offset}"
            )
    elif name.endswith(".snapshot"):
        for producer in decode_snapshot(bytes(data)):
            last = producer.batches[-1] if producer.batches else None
            yield (
                f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
                f"coordinatorEpoch: {producer.coordinator_epoch} "
                f"currentTxnFirstOffset: {producer.transaction_first_offset} "
                f"lastTimestamp: {producer.last_timestamp_ms} "
                f"lastSequence: {last.last_sequence if last else -1} lastOffset: {last.last_offset if last else -1}"
            )
    elif name == LEADER_EPOCH_FILE:
        for epoch, start_offset in parse_epochs(bytes(data)):
            yield f"leaderEpoch: {epoch} startOffset: {start_offset}"
    elif name == PARTITION_METADATA_FILE:
        yield f"topicId: {uuid_to_text(parse_partition_metadata(bytes(data)))}"
    elif name in OFFSET_FILES:
        for (topic, partition), offset in sorted(parse_offsets(bytes(data)).items()):
            yield f"topic: {topic} partition: {partition} offset: {offset}"
    else:
        raise ValueError(f"{name} is no file that can be dumped")


def _whole_entries(data: Buffer, size: int) -> bytes:
    """The complete entries of an index. Kafka preallocates the index of the active segment, so the file may end in
    zeros, cut at any byte."""
    return bytes(data[: len(data) - len(data) % size])


def dump_batches(
    data: Buffer,
    *,
    records: bool,
    describe: Describe | None = None,
    reached: Callable[[int], None] | None = None,
) -> Iterator[str]:
    end = 0
    try:
        for header in iterate_batches(data):
            batch = data[header.position : header.position + header.size]
            yield _batch_line(header, has_valid_crc(batch, header))
            end = header.position + header.size
            if records:
                try:
                    for offset, record in records_of(batch, header):
                        yield _record_line(offset, record, header.is_control, describe)
                except (RecordMalformed, DecompressionFailed) as error:
                    yield f"damaged records in the batch at position {header.position}: {error}"
            if reached is not None:
                reached(end)
    except BatchCorrupt as error:
        yield f"damaged after position {end}: {error}"
        return
    if end < len(data):
        yield f"damaged after position {end}: {len(data) - end} bytes are no whole batch"


def _batch_line(header: BatchHeader, valid: bool) -> str:
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {str(header.is_transactional).lower()} "
        f"isControl: {str(header.is_control).lower()} position: {header.position} "
        f"{'LogAppendTime' if header.is_log_append_time else 'CreateTime'}: {header.max_timestamp_ms} "
        f"size: {header.size} magic: {header.magic} "
        f"compresscodec: {CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else header.codec} crc: {header.crc} "
        f"isvalid: {str(valid).lower()}"
    )


def _record_line(offset: int, record: Record, is_control: bool, describe: Describe | None) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    line = f"| offset: {offset} timestamp: {record.timestamp_ms} keySize: {key_size} valueSize: {value_size}"
    line += f" headerKeys: [{','.join(name for name, _ in record.headers)}]"
    if is_control:
        kind = parse_control_key(record.key)
        line += f" controlType: {ControlType(kind).name if kind in list(ControlType) else kind}"
    return f"{line} {describe(record, is_control)}".rstrip() if describe is not None else line


def as_text(record: Record, is_control: bool) -> str:
    """Key and value as UTF-8. Empty for a control record, whose bytes are not text."""
    if is_control:
        return ""
    key, value = (
        None if part is None else part.decode("utf-8", "replace") for part in (record.key, record.value)
    )
    return f"key: {key} payload: {value}"
