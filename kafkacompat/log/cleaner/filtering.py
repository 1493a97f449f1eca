"""Decides what a cleaning keeps of one batch.

The offset map and the transactions decide. A batch that loses records or gets a delete horizon is rebuilt; any other
kept batch is returned unchanged. Offsets, sequence, epochs and the last offset never change. Batches beyond the map
are not opened. Messages of the old formats become batches of magic 2, as in Kafka. No files are used here. Follows
KIP-534: the first cleaning that meets a tombstone, or the marker of a transaction without data, sets a delete horizon in
its batch's base timestamp. The first cleaning after the horizon drops it.

CleanedTransactionMetadata separates aborted from committed data, batch by batch in log order, and finds markers that nothing
in the log needs any more. A cleaning ends at or below the last stable offset, so every transaction in it has ended. Follows
KIP-98's rules for compacted logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, pairwise, repeat
from operator import ge
from typing import TYPE_CHECKING, NamedTuple

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
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.legacy import iterate_legacy
from kafkacompat.records.record import TIMESTAMP_MAX, as_long, encode_records
from kafkacompat.records.scan import Columns, shifted

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.offset_map import KeptOffsets, OffsetMap
    from kafkacompat.log.index import AbortedTxn
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.ports import Buffer
    from kafkacompat.records.batch import BatchHeader
    from kafkacompat.records.record import Record

NO_TIMESTAMP = -1
RECORDS_MOST = 5_000_000
"""The most records of one batch. Clients write far fewer, and the default bounds for Produce allow no more."""


class LastRecord(NamedTuple):
    """The last batch of an active producer: the last offset of its last data batch (-1 if only a marker is known), and
    its epoch."""

    last_data_offset: int
    epoch: int


def last_records_of(state: ProducerStateManager) -> dict[int, LastRecord]:
    return {
        producer_id: LastRecord(producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
        for producer_id, producer in state.producers.items()
    }


class Kept(NamedTuple):
    """What is written to the cleaned segment for a batch."""

    data: Buffer
    last_offset: int
    max_timestamp_ms: int


def key_of_control(body: bytes, count: int) -> bytes | None:
    """The key of a control batch's first record. None if it has no record."""
    return Columns(body, count).keys()[0] if count else None


class TooLargeHere(Exception):
    """A batch expands to more bytes than the broker's own process may open."""


def open_body(header: BatchHeader, batch: memoryview, bytes_most: int) -> bytes:
    """Decompress a batch's records. Raises TooLargeHere above `bytes_most` if another process may open the batch."""
    try:
        return codecs.decompress(header.codec, batch[HEADER_SIZE:], bytes_most)
    except codecs.DecompressedTooLarge:
        if bytes_most < codecs.UNPACKED_BYTES_MAX:
            raise TooLargeHere from None
        raise


def open_legacy(header: BatchHeader, batch: memoryview, bytes_most: int) -> Iterator[tuple[int, Record]]:
    """Like `iterate_legacy`. Raises like `open_body`."""
    try:
        yield from iterate_legacy(batch, header, bytes_most)
    except codecs.DecompressedTooLarge:
        if bytes_most < codecs.UNPACKED_BYTES_MAX:
            raise TooLargeHere from None
        raise


def check_count(header: BatchHeader) -> None:
    """Raise BatchCorrupt for too many records: each takes at least a hundred bytes when parsed."""
    if header.record_count > RECORDS_MOST:
        raise BatchCorrupt(
            f"the batch at offset {header.base_offset} has {header.record_count} records, "
            f"of which the cleaner takes {RECORDS_MOST}"
        )


def latest_of(base_ms: int, deltas: Sequence[int]) -> int:
    """The latest of some timestamps. A client may have written any base and deltas, and sums that overflow count as in Kafka."""
    latest_ms = base_ms + max(deltas)
    if latest_ms > TIMESTAMP_MAX or base_ms + min(deltas) < -TIMESTAMP_MAX:
        return max([as_long(base_ms + delta) for delta in deltas])
    return latest_ms


class BatchFilter:
    """Filters the batches of one cleaning. If a batch cannot be opened, it raises BatchCorrupt, RecordMalformed,
    DecompressionFailed or TooLargeHere."""

    __slots__ = (
        "_bytes_most",
        "_horizon_ms",
        "_keeps_deletes",
        "_kept_offsets",
        "_last_records",
        "_map",
        "_now_ms",
        "_round_end",
        "_sets_horizons",
        "_transactions",
        "retain_legacy_deletes",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        kept_offsets: KeptOffsets,
        transactions: CleanedTransactionMetadata,
        last_records: Mapping[int, LastRecord],
        *,
        round_end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        keeps_deletes: bool = False,
        bytes_most: int = codecs.UNPACKED_BYTES_MAX,
    ) -> None:
        """`round_end_offset`: the batch that ends there is kept, without records if necessary. `keeps_deletes`: no tombstone
        or marker is dropped, and none gets a delete horizon. `bytes_most` bounds what a batch may expand to.

        A horizon beyond the end of time is not set either, so what would get it stays for ever, as in Kafka."""
        self._keeps_deletes = keeps_deletes
        self._bytes_most = bytes_most
        self._map = offset_map
        self._kept_offsets = kept_offsets
        self._transactions = transactions
        self._last_records = last_records
        self._round_end = round_end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._sets_horizons = not keeps_deletes and self._horizon_ms <= TIMESTAMP_MAX
        self.retain_legacy_deletes = True
        """Whether tombstones of the old message formats are still kept. They have no horizon."""

    def filter(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """What is kept of exactly one batch. None if nothing is."""
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
        kept_offsets, count = self._kept_offsets, header.record_count
        if (
            kept_offsets.start <= header.base_offset
            and header.last_offset <= kept_offsets.end
            and header.last_offset_delta == count - 1
        ):
            marks = kept_offsets.between(header.base_offset, header.last_offset)
            if 1 not in marks:
                return self._emptied(header)
            if not kept_offsets.may_hold_tombstones(header.base_offset):
                if 0 not in marks:
                    return Kept(batch, header.last_offset, header.max_timestamp_ms)
                return self._rebuilt(header, batch, self._columns(header, batch), marks, False)
        columns = self._columns(header, batch)
        keep = self._records_to_keep(header, columns)
        kept = keep.count(True)
        if not kept:
            return self._emptied(header)
        has_tombstone = any(keep[at] for at in columns.null_values())
        new_horizon = has_tombstone and header.delete_horizon_ms < 0 and self._sets_horizons
        if kept == len(keep) and not new_horizon:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        return self._rebuilt(header, batch, columns, keep, new_horizon)

    def _columns(self, header: BatchHeader, batch: memoryview) -> Columns:
        return Columns(open_body(header, batch, self._bytes_most), header.record_count)

    def _records_to_keep(self, header: BatchHeader, columns: Columns) -> list[bool]:
        base, keys = header.base_offset, columns.keys()
        offsets = [base + delta for delta in columns.offset_deltas()]
        keep = list(map(ge, offsets, self._map.find([key or b"" for key in keys])))
        if columns.has_null_keys:
            # A record without a key is never replaced by another. Kafka drops such records up to the end of the map.
            keep = [kept and key is not None for kept, key in zip(keep, keys, strict=True)]
        if (
            columns.has_null_values
            and 0 <= header.delete_horizon_ms <= self._now_ms
            and not self._keeps_deletes
        ):
            for at in columns.null_values():
                keep[at] = False
        if header.last_offset > self._map.latest_offset:
            latest = self._map.latest_offset
            keep = [kept or offset > latest for kept, offset in zip(keep, offsets, strict=True)]
        return keep

    def _filter_control(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        body = open_body(header, batch, self._bytes_most)
        empty_transaction = self._transactions.on_control(header, key_of_control(body, header.record_count))
        horizon_ms = header.delete_horizon_ms
        if not header.record_count:
            return self._emptied(header)
        if not empty_transaction or self._keeps_deletes:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        if 0 <= horizon_ms <= self._now_ms:
            return self._emptied(header)
        if horizon_ms >= 0 or not self._sets_horizons:
            return Kept(batch, header.last_offset, header.max_timestamp_ms)
        return self._rebuilt(header, batch, Columns(body, header.record_count), repeat(True), True)

    def _emptied(self, header: BatchHeader) -> Kept | None:
        """The header without records if it is a producer's last batch or the round's last one. Otherwise None."""
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
        columns: Columns,
        keep: Iterable[int],
        new_horizon: bool,
    ) -> Kept:
        """The batch with only the records to keep, at least one."""
        if not has_valid_crc(batch, header):
            # A new CRC would hide the damage.
            raise BatchCorrupt(f"the crc of the batch at offset {header.base_offset} is wrong")
        base_ms = header.base_timestamp_ms
        if header.is_log_append_time:
            max_timestamp_ms = header.max_timestamp_ms
        else:
            max_timestamp_ms = latest_of(base_ms, list(compress(columns.timestamp_deltas(), keep)))
        records = list(compress(columns.records(), keep))
        attributes = header.attributes & 0x7FFF
        if new_horizon:
            records = [shifted(record, self._horizon_ms - base_ms) for record in records]
            base_ms = self._horizon_ms
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
        """What is kept of a message of an old format, or of those in it, as a batch of magic 2, as in Kafka. Its
        tombstones get a horizon."""
        latest = self._map.latest_offset
        kept = [
            (offset, record)
            for offset, record in open_legacy(header, batch, self._bytes_most)
            if offset > latest
            or (
                record.key is not None
                and offset >= self._map.find([record.key])[0]
                and (record.value is not None or self.retain_legacy_deletes or self._keeps_deletes)
            )
        ]
        if not kept:
            return None
        if not has_valid_crc(batch, header):
            raise BatchCorrupt(f"the crc of the message at offset {header.base_offset} is wrong")
        base_offset = kept[0][0]
        if any(after <= before for (before, _), (after, _) in pairwise(kept)):
            raise BatchCorrupt(f"the messages up to offset {header.base_offset} are not in order")
        records = [record._replace(offset_delta=offset - base_offset) for offset, record in kept]
        base_ms = records[0].timestamp_ms
        max_timestamp_ms = max(record.timestamp_ms for record in records)
        attributes = header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT)
        if any(record.value is None for record in records) and self._sets_horizons:
            base_ms = self._horizon_ms
            attributes |= DELETE_HORIZON_BIT
        body = encode_records(records, base_ms)
        codec = attributes & CODEC_MASK
        data = assemble(
            codecs.compress(codec, body) if codec else body,
            base_offset=base_offset,
            leader_epoch=-1,
            attributes=attributes,
            last_offset_delta=records[-1].offset_delta,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_timestamp_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=len(records),
        )
        return Kept(data, base_offset + records[-1].offset_delta, max_timestamp_ms)


class CleanedTransactionMetadata:
    """`keep_entry` is called with an aborted transaction whose marker is kept because its data was met."""

    __slots__ = (
        "_aborted",
        "_aborted_open",
        "_committed_open",
        "_keeps_entries",
        "_met",
        "_next",
        "keep_entry",
    )

    def __init__(
        self, aborted: Sequence[AbortedTxn], from_offset: int, *, keeps_entries: bool = False
    ) -> None:
        """`aborted` has the aborted transactions of the whole log. Those that ended before `from_offset` are ignored.
        `keeps_entries`: markers are kept whose data was not met, because it may be in the remote storage."""
        self._keeps_entries = keeps_entries
        self._aborted = sorted(
            (entry for entry in aborted if entry.last_offset >= from_offset),
            key=lambda entry: entry.first_offset,
        )
        self._next = 0
        self._aborted_open: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()
        """Producers of open aborted transactions whose data was met."""
        self._committed_open: set[int] = set()
        self.keep_entry: Callable[[AbortedTxn], None] = lambda entry: None

    def on_data(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction and is dropped."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted_open:
            self._met.add(header.producer_id)
            return True
        self._committed_open.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, key: bytes | None) -> bool:
        """Whether a control batch ends a transaction without data. `key` is its first key, None if the batch is empty."""
        self._reach(header.last_offset)
        if key is None:
            return True
        producer_id = header.producer_id
        control_type = parse_control_key(key)
        if control_type == ControlType.ABORT:
            entry = self._aborted_open.pop(producer_id, None)
            if entry is None or not (producer_id in self._met or self._keeps_entries):
                return True
            self._met.discard(producer_id)
            self.keep_entry(entry)
            return False
        if control_type == ControlType.COMMIT:
            if producer_id not in self._committed_open:
                return True
            self._committed_open.discard(producer_id)
        return False

    def _reach(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            entry = aborted[self._next]
            self._next += 1
            self._aborted_open.setdefault(entry.producer_id, entry)
