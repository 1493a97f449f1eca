"""What a cleaning leaves of one batch.

Duty: decide by offset map and transactions, build the batch anew where it loses records or gets a delete horizon. Must not know:
files. A batch that loses nothing is handed back as it lies; offsets, sequence, epochs and the last offset never change. Batches
beyond the map are not opened. Follows KIP-534: a tombstone, or the marker of a transaction without data, gets a horizon in its
batch's base timestamp the first time it is met and goes in the first cleaning after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, pairwise
from operator import ge
from typing import TYPE_CHECKING, NamedTuple, cast

from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchCorrupt,
    assemble,
    has_valid_crc,
)
from kafkacompat.records.columns import Columns, read_bounds, read_columns, shifted, timestamp_delta
from kafkacompat.records.legacy import iterate_legacy

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.offset_map import OffsetMap
    from kafkacompat.log.cleaner.survivors import Survivors
    from kafkacompat.log.cleaner.transactions import CleanedTransactions
    from kafkacompat.ports import Buffer
    from kafkacompat.records.batch import BatchHeader
    from kafkacompat.records.record import Record
    from kafkacompat.records.stencils import Stencils

NO_TIMESTAMP = -1
RECORDS_MOST = 5_000_000
"""Of one batch. No client writes nearly as many, and what is produced here may not have more by default."""
UNKNOWN = -1
"""What the offset map says of a key that it does not know."""


class LastRecord(NamedTuple):
    """Of an active producer: the last offset of its last data batch (-1 when only a marker is known) and its epoch."""

    last_data_offset: int
    epoch: int


class Kept(NamedTuple):
    """What goes into the cleaned segment for a batch."""

    data: Buffer
    last_offset: int
    max_timestamp_ms: int


def key_of_control(body: bytes, count: int) -> bytes | None:
    """The key of a control batch's first record; None when it has none."""
    return read_columns(body, count).keys[0] if count else None


class TooLargeHere(Exception):
    """A batch unfolds to more than may be opened in the broker's own process."""


def open_body(header: BatchHeader, batch: memoryview, bytes_most: int) -> bytes:
    """TooLargeHere for more bytes than that, where a batch may have more elsewhere."""
    try:
        return codecs.decompress(header.codec, batch[HEADER_SIZE:], bytes_most)
    except codecs.DecompressedTooLarge:
        if bytes_most < codecs.UNPACKED_BYTES_MAX:
            raise TooLargeHere from None
        raise


def open_legacy(header: BatchHeader, batch: memoryview, bytes_most: int) -> Iterator[tuple[int, Record]]:
    """As `iterate_legacy`; raises as `open_body`."""
    try:
        yield from iterate_legacy(batch, header, bytes_most)
    except codecs.DecompressedTooLarge:
        if bytes_most < codecs.UNPACKED_BYTES_MAX:
            raise TooLargeHere from None
        raise


def check_count(header: BatchHeader) -> None:
    """BatchCorrupt for more records than are taken apart: what is made of each takes a hundred bytes and more."""
    if header.record_count > RECORDS_MOST:
        raise BatchCorrupt(
            f"the batch at offset {header.base_offset} has {header.record_count} records, "
            f"of which the cleaner takes {RECORDS_MOST}"
        )


class BatchFilter:
    """For one cleaning. BatchCorrupt, RecordMalformed and DecompressionFailed when a batch cannot be opened, TooLargeHere."""

    __slots__ = (
        "_bytes_most",
        "_delete_retention_ms",
        "_last_records",
        "_map",
        "_now_ms",
        "_round_end",
        "_stencils",
        "_survivors",
        "_transactions",
        "retain_legacy_deletes",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        survivors: Survivors,
        stencils: Stencils,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        round_end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        bytes_most: int = codecs.UNPACKED_BYTES_MAX,
    ) -> None:
        """`round_end_offset`: the batch that ends there stays, empty if need be. `bytes_most`: what one may unfold to."""
        self._bytes_most = bytes_most
        self._map = offset_map
        self._survivors = survivors
        self._stencils = stencils
        self._transactions = transactions
        self._last_records = last_records
        self._round_end = round_end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.retain_legacy_deletes = True
        """Whether tombstones of the old formats, which have no horizon, still stay."""

    def filter(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """What stays of exactly one batch; None when it goes."""
        if header.magic != 2:
            return self._filter_legacy(header, batch)
        if header.attributes & CONTROL_BIT:
            return self._filter_control(header, batch)
        if self._transactions.on_data(header):
            return self._emptied(header)
        if not header.record_count:
            return self._emptied(header)
        if header.base_offset > self._map.latest_offset:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        check_count(header)
        survivors, count = self._survivors, header.record_count
        if (
            survivors.start <= header.base_offset
            and header.last_offset <= survivors.end
            and header.last_offset_delta == count - 1
        ):
            marks = survivors.between(header.base_offset, header.last_offset)
            if 1 not in marks:
                return self._emptied(header)
            if not survivors.may_hold_tombstones(header.base_offset):
                if 0 not in marks:
                    return Kept(batch, header.last_offset, header.max_timestamp_ms)
                records = self._cut(header, batch, None)
                return self._rebuilt(header, batch, list(compress(records, marks)), False)
        body = open_body(header, batch, self._bytes_most)
        if header.last_offset < survivors.start:
            unreplaced = self._unreplaced(body, count)
            if unreplaced is not None:
                if True not in unreplaced:
                    return self._emptied(header)
                if False not in unreplaced:
                    return Kept(batch, header.last_offset, header.max_timestamp_ms)
                records = self._cut(header, batch, body)
                return self._rebuilt(header, batch, list(compress(records, unreplaced)), False)
        columns = read_columns(body, count)
        self._stencils.learn(body, count, columns.keys, bool(columns.null_values))
        keep = self._records_to_keep(header, columns)
        kept = keep.count(True)
        if not kept:
            return self._emptied(header)
        has_tombstone = any(keep[at] for at in columns.null_values)
        new_horizon = has_tombstone and header.delete_horizon_ms < 0
        if kept == len(keep) and not new_horizon:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        rest = [body[at:to] for at, to in compress(pairwise(columns.bounds), keep)]
        return self._rebuilt(header, batch, rest, new_horizon)

    def _unreplaced(self, body: bytes, count: int) -> list[bool] | None:
        """Of a body of the clean part the records that the dirty part has none for; None when tombstones may be among them."""
        found = self._stencils.keys(body, 0, len(body), count)
        if found is None or found[1]:
            return None
        return [offset == UNKNOWN for offset in self._map.find(found[0])]

    def _cut(self, header: BatchHeader, batch: memoryview, body: bytes | None) -> Iterable[bytes]:
        """Its records, each with its length."""
        count = header.record_count
        if body is None and header.attributes & CODEC_MASK:
            body = open_body(header, batch, self._bytes_most)
        data: Buffer = batch if body is None else body
        start = HEADER_SIZE if body is None else 0
        records = self._stencils.records(data, start, len(data), count)
        if records is not None:
            return records
        if body is None:
            body = open_body(header, batch, self._bytes_most)
        return [body[at:to] for at, to in pairwise(read_bounds(body, count))]

    def _records_to_keep(self, header: BatchHeader, columns: Columns) -> list[bool]:
        base, count = header.base_offset, header.record_count
        deltas: Sequence[int] = columns.offset_deltas
        offsets: Sequence[int]
        if deltas[-1] == count - 1:
            offsets = range(base, base + count)
        else:
            offsets = [base + delta for delta in deltas]
        if columns.has_null_keys:
            # Without a key nothing can be said to replace a record; Kafka lets go of those up to the map's end.
            keys = [b"" if key is None else key for key in columns.keys]
            keep = list(map(ge, offsets, self._map.find(keys)))
            for at, key in enumerate(columns.keys):
                if key is None:
                    keep[at] = False
        else:
            keep = list(map(ge, offsets, self._map.find(cast("list[bytes]", columns.keys))))
        if columns.null_values and 0 <= header.delete_horizon_ms <= self._now_ms:
            for at in columns.null_values:
                keep[at] = False
        if header.last_offset > self._map.latest_offset:
            latest = self._map.latest_offset
            keep = [kept or offset > latest for kept, offset in zip(keep, offsets, strict=True)]
        return keep

    def _filter_control(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        body = open_body(header, batch, self._bytes_most)
        empty_transaction = self._transactions.on_control(header, key_of_control(body, header.record_count))
        horizon_ms = header.delete_horizon_ms
        if not header.record_count or (empty_transaction and 0 <= horizon_ms <= self._now_ms):
            return self._emptied(header)
        if not empty_transaction or horizon_ms >= 0:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        bounds = read_columns(body, header.record_count).bounds
        return self._rebuilt(header, batch, [body[at:to] for at, to in pairwise(bounds)], True)

    def _emptied(self, header: BatchHeader) -> Kept | None:
        """The header alone, where it is a producer's last or the round's last batch, else nothing."""
        if not self._is_last_of_producer(header) and header.last_offset + 1 != self._round_end:
            return None
        attributes = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        data = assemble(
            b"",
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=attributes,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=NO_TIMESTAMP,
            max_timestamp_ms=header.max_timestamp_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=0,
        )
        return Kept(data, header.last_offset, header.max_timestamp_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _rebuilt(
        self,
        header: BatchHeader,
        batch: memoryview,
        records: list[bytes],
        new_horizon: bool,
    ) -> Kept:
        """Of these records, one at least."""
        if not has_valid_crc(batch, header):
            # A new crc would hide the damage.
            raise BatchCorrupt(f"the crc of the batch at offset {header.base_offset} is wrong")
        base_ms = header.base_timestamp_ms
        if header.is_log_append_time:
            max_timestamp_ms = header.max_timestamp_ms
        else:
            # Most batches' timestamps rise, so the last record's may already be the highest there is.
            max_timestamp_ms = base_ms + timestamp_delta(records[-1], 0)
            if max_timestamp_ms != header.max_timestamp_ms:
                max_timestamp_ms = base_ms + max([timestamp_delta(record, 0) for record in records])
        attributes = header.attributes & 0x7FFF
        if new_horizon:
            horizon_ms = self._now_ms + self._delete_retention_ms
            records = [shifted(record, horizon_ms - base_ms) for record in records]
            base_ms = horizon_ms
            attributes |= DELETE_HORIZON_BIT
        codec = attributes & CODEC_MASK
        data = assemble(
            codecs.compress(codec, b"".join(records)) if codec else records,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=attributes,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_timestamp_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=len(records),
        )
        return Kept(data, header.last_offset, max_timestamp_ms)

    def _filter_legacy(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """A message of an old format stays whole while anything in it does: nobody writes them any more."""
        latest = self._map.latest_offset
        for offset, record in open_legacy(header, batch, self._bytes_most):
            if offset > latest:
                break
            if record.key is None or offset < self._map.find([record.key])[0]:
                continue
            if record.value is not None or self.retain_legacy_deletes:
                break
        else:
            return None
        return Kept(batch, header.last_offset, header.max_timestamp_ms)
