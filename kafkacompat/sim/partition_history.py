"""What was appended to a partition and committed, and what of it must still be there: everything, or what compaction and
retention must keep.

It shares no code with the broker except the parsers of batches and records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports.logs import LogRefused
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import DELETE_RETENTION_MS, is_compacted
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Log


class Weight(NamedTuple):
    """The size and time of a committed batch."""

    last_offset: int
    size: int
    max_timestamp_ms: int


class LogStartHistory:
    """The starts of one partition. `retention_ms` and `retention_bytes` are -1 without retention by time or size."""

    def __init__(self, retention_ms: int = -1, retention_bytes: int = -1) -> None:
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._weights: dict[int, Weight] = {}
        """By base offset: batches that may still be deleted."""
        self.asked = 0
        """The highest offset up to which a deletion was requested."""
        self.start = 0
        """The highest log start offset with a valid reason."""

    def commit(self, header: BatchHeader) -> None:
        if self._retention_ms >= 0 or self._retention_bytes >= 0:
            weight = Weight(header.last_offset, header.size, header.max_timestamp_ms)
            self._weights[header.base_offset] = weight

    def bytes_from(self, start: int) -> int:
        """The committed bytes from an offset on."""
        return sum(weight.size for weight in self._weights.values() if weight.last_offset >= start)

    def moved(self, where: str, start: int, bytes_left: int, now_ms: int | None) -> bool:
        """Check that a log may begin at `start` with `bytes_left` from there on. Return whether retention has moved
        it. `now_ms` is None if clocks were set."""
        if start <= self.start:
            return False
        before, self.start = self.start, start
        gone = [base for base in self._weights if self._weights[base].last_offset < start]
        if start > self.asked:
            if not gone:
                raise Breach(
                    "log starts move for a reason",
                    f"{where} begins at {start}, others at {before}, asked for was {self.asked}",
                )
            self._check(where, gone, bytes_left, now_ms)
        for base in gone:
            del self._weights[base]
        return start > self.asked

    def _check(self, where: str, gone: list[int], bytes_left: int, now_ms: int | None) -> None:
        """From the newest batch on: each is old enough, or there are enough bytes after it."""
        bytes_behind = bytes_left
        for base in sorted(gone, reverse=True):
            weight = self._weights[base]
            is_old = self._retention_ms >= 0 and (
                now_ms is None or now_ms - weight.max_timestamp_ms > self._retention_ms
            )
            is_surplus = 0 <= self._retention_bytes <= bytes_behind
            if not is_old and not is_surplus and weight.last_offset >= self.asked:
                raise Breach(
                    "log starts move for a reason",
                    f"{where} has let {base} go, of {weight.max_timestamp_ms} at {now_ms}, with {bytes_behind} bytes behind it; "
                    f"it keeps {self._retention_ms} ms and {self._retention_bytes} bytes",
                )
            bytes_behind += weight.size


COMMIT_MARKER = b"\x00\x00\x00\x01"
"""Version and type: the key of a marker's record."""


class Content(NamedTuple):
    """A record of a data batch."""

    key: bytes | None
    value: bytes | None


class Entry(NamedTuple):
    """A committed record."""

    content: Content
    producer_id: int
    """The producer id of a transactional record, otherwise -1."""
    is_marker: bool
    at_us: int


def contents_of(header: BatchHeader, batch: Buffer) -> dict[int, Content]:
    """Return the records of a batch by offset."""
    return {
        offset: Content(
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
        )
        for offset, record in records_of(batch, header)
    }


class KeyHistory:
    """Every record that was committed in one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._by_key: dict[bytes, list[int]] = {}
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        """By producer id: (offset, whether the marker commits)."""

    def commit(self, header: BatchHeader, contents: Mapping[int, Content], at_us: int) -> None:
        producer_id = header.producer_id if header.is_transactional else -1
        for offset, content in contents.items():
            self.entries[offset] = Entry(content, producer_id, header.is_control, at_us)
            if header.is_control:
                is_commit = content.key == COMMIT_MARKER
                self._markers.setdefault(header.producer_id, []).append((offset, is_commit))
            elif content.key is not None:
                self._by_key.setdefault(content.key, []).append(offset)

    def is_final(self, offset: int) -> bool | None:
        """Whether the record is committed by its transaction. None while the transaction is open."""
        producer_id = self.entries[offset].producer_id
        if producer_id < 0:
            return True
        markers = self._markers.get(producer_id, [])
        at = bisect_right(markers, (offset, True))
        return markers[at][1] if at < len(markers) else None

    def _successors(self, offset: int) -> list[int]:
        """Return later records with the same key that are final."""
        key = self.entries[offset].content.key
        if key is None:
            return []
        offsets = self._by_key[key]
        return [each for each in offsets[bisect_right(offsets, offset) :] if self.is_final(each)]

    def may_be_gone(self, offset: int, now_us: int | None) -> bool:
        """Whether the record may be missing. `now_us` is None if clocks were set, so that a tombstone's age is unknown."""
        entry = self.entries[offset]
        if entry.is_marker or self.is_final(offset) is False:
            return True
        if self.is_final(offset) is None:
            return False
        if self._successors(offset):
            return True
        is_old = now_us is None or now_us >= entry.at_us + 1000 * DELETE_RETENTION_MS
        return entry.content.value is None and is_old

    def check(
        self,
        where: str,
        present: Mapping[int, Content],
        end: int,
        now_us: int | None,
        tombstones_met: set[int],
    ) -> None:
        """Check a log below `end`. `tombstones_met` are the tombstones that this log has had since its last truncation."""
        for offset, entry in self.entries.items():
            if offset >= end:
                break
            if offset not in present and not self.may_be_gone(offset, now_us):
                raise Breach(
                    "each key's last value stays", f"{where} has no record at {offset} any more: {entry}"
                )
        for offset, content in present.items():
            if offset >= end or self.entries[offset].is_marker or content.key is None:
                continue
            if self.is_final(offset) is not True:
                continue
            for later in self._successors(offset):
                is_met = later in tombstones_met and self.entries[later].content.value is None
                if is_met and later < end and later not in present and not self._shadowed(later, present):
                    raise Breach(
                        "tombstones are respected",
                        f"{where} has {content} at {offset}, and no more its tombstone of {later}",
                    )

    def _shadowed(self, offset: int, present: Mapping[int, Content]) -> bool:
        """Whether the log has a later record with the same key."""
        return any(each in present for each in self._successors(offset))


READ_BYTES = 1 << 20


class Written(NamedTuple):
    """One batch, on any replica."""

    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    base_sequence: int


class UncleanHistory:
    """For a partition that allows unclean leader elections: their effects."""

    def __init__(self) -> None:
        self.elections: set[int] = set()
        """Leader epochs of those elections."""
        self.line = -1
        """The newest of them in or after which a leader has started. A leader of an earlier epoch may still commit
        records that are lost."""
        self.lost: dict[int, set[Written]] = {}
        """By base offset: batches that were committed and are lost."""

    def begins_with(self, epoch: int) -> int | None:
        """Return the unclean election with which this leader epoch starts a new history, if any."""
        election = max((each for each in self.elections if each <= epoch), default=-1)
        return election if election > self.line else None

    def lose(self, base: int, batch: Written) -> None:
        self.lost.setdefault(base, set()).add(batch)


class PartitionHistory:
    """Everything that was ever committed in one partition, and its leaders."""

    def __init__(self, name: TopicPartition, starts: LogStartHistory) -> None:
        self.name = name
        self.starts = starts
        self.batches: dict[int, Written] = {}
        """By base offset, from 0 without gaps."""
        self.end = 0
        self.ends: list[tuple[int, int]] = []
        """(epoch, end) for each advance of the committed end by the leader of an epoch."""
        self.leaders: dict[int, int] = {}
        """Epoch -> node that became leader in it."""
        self.written: dict[tuple[int, int], Written] = {}
        """(epoch, base offset) -> the batch that its leader appended."""
        self.acknowledged = 0
        self.keys: KeyHistory | None = KeyHistory() if is_compacted(name.topic) else None
        """For a compacted partition."""
        self.contents: dict[tuple[int, int], dict[int, Content]] = {}
        """For a compacted partition: (epoch, base offset) -> the records that its leader appended."""

        self.history = UncleanHistory()

    def is_same(self, known: Written | None, batch: Written) -> bool:
        """Whether both are the same batch, or one is what a cleaning may leave of the other."""
        if known == batch or known is None or self.keys is None:
            return known == batch
        return known == batch._replace(crc=known.crc)

    def was_committed(self, base: int, batch: Written) -> bool:
        """Whether the batch was ever committed, even if an unclean election has lost it since."""
        return self.is_same(self.batches.get(base), batch) or batch in self.history.lost.get(base, ())

    def cut(self, end: int) -> None:
        """An unclean leader's log is shorter: everything from `end` on is no longer committed."""
        for base in [base for base in self.batches if base >= end]:
            self.history.lose(base, self.batches.pop(base))
        self.end = end
        self.ends = [(epoch, min(before, end)) for epoch, before in self.ends]

    def end_before(self, epoch: int) -> int:
        """Return the end offset of the records committed in earlier epochs."""
        return max((end for committed_in, end in self.ends if committed_in < epoch), default=0)


class Seen:
    """One partition on one node, after the node's last event."""

    __slots__ = (
        "cleaned_to",
        "end",
        "epoch",
        "high_watermark",
        "is_leader",
        "log",
        "matched",
        "start",
        "tombstones",
        "unverified",
        "verified",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        """It changes when the replica has moved to another directory."""
        self.end = self.high_watermark = self.start = 0
        self.epoch = -1
        self.is_leader = False
        self.matched = 0
        """Every batch below this offset was compared with the leader's."""
        self.verified = 0
        """Every batch below this offset was compared with the committed one."""
        self.unverified = 0
        """The high watermark that a node remembered after a power loss."""
        self.cleaned_to = -1
        self.tombstones: set[int] = set()
        """For a compacted partition: the tombstones that it has had since its last truncation."""


def opened(log: Log, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches that overlap [start, end), as far as they lie in local files."""
    offset = max(start, log.local_log_start_offset)
    while offset < end:
        data = _read(log, offset)
        before = offset
        for header in iterate_batches(data):
            if header.last_offset < offset:
                continue
            if header.base_offset > offset and not is_compacted(log.topic_partition.topic):
                raise Breach(
                    "nothing is missing above the log start",
                    f"{log.topic_partition} goes from {offset} to {header.base_offset}",
                )
            if header.base_offset >= end:
                return
            yield header, data[header.position : header.position + header.size]
            offset = header.last_offset + 1
        if offset == before:
            raise Breach("log shape", f"{log.topic_partition} has no batch at {offset} below its end")


def _read(log: Log, offset: int) -> memoryview:
    """The batches from `offset` on, also while the indexes of their segment are rebuilt in the background. A client is
    then refused, but an oracle must see every event."""
    try:
        records = log.read(offset, READ_BYTES, log.log_end_offset, True).records
    except LogRefused as refused:
        if refused.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        assert isinstance(log, UnifiedLog)
        return memoryview(
            b"".join(
                segment.read_batch(header)
                for segment in log.segments
                for header in segment.headers()
                if header.last_offset >= offset
            )
        )
    return memoryview(records if isinstance(records, bytes) else records.read())


def batches(log: Log, start: int, end: int) -> Iterator[tuple[int, Written]]:
    """Yield (base offset, batch) for the batches that overlap [start, end)."""
    return ((header.base_offset, written(header)) for header, _ in opened(log, start, end))


def cleaned_to(log: Log) -> int:
    """Return the offset up to which the log was cleaned, or -1 if it never was."""
    assert isinstance(log, UnifiedLog)
    return log.cleaned_to


def written(header: BatchHeader) -> Written:
    return Written(
        header.last_offset, header.leader_epoch, header.crc, header.producer_id, header.base_sequence
    )
