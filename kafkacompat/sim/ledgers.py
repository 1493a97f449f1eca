"""The records that the oracles of a simulated cluster keep about partitions: committed batches, leaders, and replicas'
last states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports.logs import LogRefused
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.compaction_oracle import Content, KeyLedger
from kafkacompat.sim.retention_oracle import StartLedger
from kafkacompat.sim.topics import is_compacted
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ports import Log

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


class Ledger:
    """Everything that was ever committed in one partition, and its leaders."""

    def __init__(self, name: TopicPartition, starts: StartLedger) -> None:
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
        self.keys: KeyLedger | None = KeyLedger() if is_compacted(name.topic) else None
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
    """Yield the batches that overlap [start, end)."""
    offset = max(start, log.log_start_offset)
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
