"""Control records: the keys that give the type of a control batch, and the value of a transaction's end marker.

The caller passes the values of raft's control records as bytes. Follows KIP-98 (markers) and KIP-595 (raft types).
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record, RecordMalformed

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def control_key(control_type: int) -> bytes:
    return _KEY.pack(0, control_type)


def parse_control_key(key: bytes | None) -> int:
    """The type number, which may be missing in ControlType. Raises RecordMalformed for an invalid key."""
    if key is None or len(key) < _KEY.size:
        raise RecordMalformed("a control record's key has at least 4 bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise RecordMalformed(f"a control record's key of version {version}")
    return int(control_type)


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker, or None for control records of other types."""
    control_type = parse_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise RecordMalformed("a transaction marker's value has at least 6 bytes")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise RecordMalformed(f"a transaction marker of version {version}")
    return EndTransactionMarker(control_type == ControlType.COMMIT, coordinator_epoch)


def build_end_transaction_marker(
    *,
    committed: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction in one partition."""
    key = control_key(ControlType.COMMIT if committed else ControlType.ABORT)
    record = Record(0, timestamp_ms, key, _MARKER.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_control_batch(
    values: Sequence[tuple[int, bytes]], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytearray:
    """A control batch of raft: (type, value) pairs, without a producer."""
    records = [Record(i, timestamp_ms, control_key(kind), value) for i, (kind, value) in enumerate(values)]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)
