"""Committed batches on their way to the state machine, in log order, once each.

Duty: read what others wrote from the log; tell proposers of this node what became of theirs. Decides nothing: offsets and the
end of leadership are told to it. Knows no record's meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft import control_records
from kafkacompat.raft.batches import BrokenBatch, headers
from kafkacompat.raft.contracts import LoadedBatch, MetadataLog, MetadataLogProblem, StateMachine
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, batch_records
from kafkacompat.records.batch import BatchHeader
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.record import RecordMalformed
from kafkacompat.wire.errors import WireError

READ_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class Own:
    """A batch that this node appended as leader of `epoch`, or a call that waits for all up to `end_offset`."""

    base_offset: int
    end_offset: int
    epoch: int
    timestamp_ms: int = 0
    size_bytes: int = 0
    control: LoadedBatch | None = None
    """Of a control batch: what the machine gets."""
    committed: Callable[[], None] | None = None
    lost: Callable[[], None] | None = None


class Applier:
    def __init__(self, log: MetadataLog, machine: StateMachine, applied: int) -> None:
        self._log = log
        self._machine = machine
        self.applied = applied
        """All below it has gone to the machine."""
        self.last_timestamp_ms = 0
        self._own: deque[Own] = deque()
        """In log order, all behind what others wrote."""
        self._unpublished = False

    def appended(self, own: Own) -> None:
        self._own.append(own)

    @property
    def is_waiting(self) -> bool:
        return bool(self._own)

    def load(self, snapshot_id: OffsetAndEpoch | None, content: SnapshotContent) -> None:
        """The state anew; None for the 0-0 snapshot."""
        end_offset, epoch = snapshot_id if snapshot_id is not None else (0, -1)
        self._machine.load_snapshot(
            LoadedBatch(content.values, end_offset - 1, epoch, content.kraft_version, True)
        )
        self.applied = end_offset
        self.last_timestamp_ms = content.last_contained_timestamp_ms
        self._machine.caught_up()

    def advance(self, offset: int) -> None:
        """Everything below offset is committed. MetadataLogProblem when the log cannot be read."""
        own = self._own
        while True:
            limit = min(offset, own[0].base_offset) if own else offset
            if self.applied < limit:
                if self.applied < self._log.log_start_offset:
                    # A snapshot has taken the log's place meanwhile; it is handed over next.
                    break
                self._apply_read(limit)
            elif own and own[0].end_offset <= offset:
                self._apply_own(own.popleft())
            else:
                break
        if self._unpublished:
            self._unpublished = False
            self._machine.caught_up()

    def _apply_own(self, own: Own) -> None:
        if own.end_offset > own.base_offset:
            self.applied = own.end_offset
            self.last_timestamp_ms = own.timestamp_ms
        if own.control is not None:
            self._machine.apply(own.control)
            self._unpublished = True
        if own.committed is not None:
            if self._unpublished:
                self._unpublished = False
                self._machine.caught_up()
            own.committed()

    def lose(self, last_epoch: int) -> None:
        """The leadership of epochs up to last_epoch is over: the outcome of what it did not commit is unknown."""
        own = self._own
        while own and own[0].epoch <= last_epoch:
            each = own.popleft()
            if each.lost is not None:
                each.lost()

    def _apply_read(self, limit: int) -> None:
        records = self._log.read(self.applied, READ_CHUNK_BYTES, limit, True).records
        view = memoryview(records if isinstance(records, bytes) else records.read())
        before = self.applied
        try:
            for header in headers(view):
                if before <= header.last_offset < limit:
                    self._apply_batch(view, header)
        except (BrokenBatch, BrokenSnapshot, RecordMalformed, WireError) as error:
            raise MetadataLogProblem(f"the metadata log, near offset {self.applied}: {error}") from error
        if self.applied == before:
            raise MetadataLogProblem(f"the metadata log has no whole batch at offset {before}")

    def _apply_batch(self, view: memoryview, header: BatchHeader) -> None:
        kraft_version: int | None = None
        values: list[bytes] = []
        for record in batch_records(view, header):
            if not header.is_control:
                values.append(record.value or b"")
            elif parse_control_key(record.key) == ControlType.KRAFT_VERSION:
                kraft_version = control_records.parse_kraft_version(record.value or b"")
        self.applied = header.last_offset + 1
        self.last_timestamp_ms = header.max_timestamp_ms
        self._unpublished = True
        self._machine.apply(LoadedBatch(values, header.last_offset, header.leader_epoch, kraft_version))
