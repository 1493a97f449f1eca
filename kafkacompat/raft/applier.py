"""Applies committed batches to the state machine, in log order, once each.

Batches of other leaders are read from the log. Proposers on this node are told the outcome of their own batches. It
decides nothing: the driver passes offsets and the end of leadership. The meaning of records is unknown here. A batch
or snapshot with many records is applied in parts, one step of the loop each; later commits wait until it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.ports import passes
from kafkacompat.raft import control_records
from kafkacompat.raft.batches import BrokenBatch, headers
from kafkacompat.raft.contracts import (
    RECORDS_A_STEP,
    LoadedBatch,
    MetadataLog,
    MetadataLogProblem,
    StateMachine,
)
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, batch_records
from kafkacompat.records.batch import BatchHeader
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.record import RecordMalformed
from kafkacompat.tasks import TURN_COST, Work, at_once
from kafkacompat.wire.errors import WireError

READ_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class Own:
    """A batch that this node appended as leader of `epoch`, or a call that waits for everything up to `end_offset`."""

    base_offset: int
    end_offset: int
    epoch: int
    timestamp_ms: int = 0
    size_bytes: int = 0
    control: LoadedBatch | None = None
    """For a control batch: what the machine gets."""
    committed: Callable[[], None] | None = None
    lost: Callable[[], None] | None = None


class Applier:
    def __init__(
        self,
        log: MetadataLog,
        machine: StateMachine,
        later: Callable[[Callable[[], None]], None] | None,
        caught_up: Callable[[], None],
    ) -> None:
        """`later` calls a function in the loop's next turn. None while nothing is served yet: everything is then done
        at once. `caught_up` is called when everything committed so far is applied."""
        self._log = log
        self._machine = machine
        self.later = later
        self._caught_up = caught_up
        self.applied = 0
        """Everything below this offset was passed to the machine."""
        self.last_timestamp_ms = 0
        self._own: deque[Own] = deque()
        """In log order, all after the batches of other leaders."""
        self._unpublished = False
        self._committed = 0
        self._snapshot: tuple[OffsetAndEpoch | None, SnapshotContent] | None = None
        self._work: Work[None] | None = None
        self._lacks = False
        """The present step has ended because something was lacking."""
        self.much_later: Callable[[Callable[[], None]], None] = lambda call: None
        """Continues after a while. Set with `later`."""

    def appended(self, own: Own) -> None:
        self._own.append(own)

    @property
    def is_waiting(self) -> bool:
        return bool(self._own) or self._work is not None

    def load(self, snapshot_id: OffsetAndEpoch | None, content: SnapshotContent) -> None:
        """Replace the state. `snapshot_id` is None for the 0-0 snapshot."""
        if self._work is not None:
            # The snapshot contains the rest of an unfinished batch below it.
            self._work.close()
            self._work = None
        self._snapshot = snapshot_id, content
        self._go_on()

    def advance(self, offset: int, *, is_first: bool = False) -> None:
        """Everything below `offset` is committed. Raises MetadataLogProblem if the log cannot be read.

        With `is_first` the machine publishes, even if nothing is applied that it has not published.
        """
        if is_first:
            self._unpublished = True
        self._committed = max(self._committed, offset)
        self._go_on()

    def _go_on(self) -> None:
        if self._work is None:
            self._work = self._apply_all()
            self._step(self._work)

    def _step(self, work: Work[None]) -> None:
        if work is not self._work:
            return  # a snapshot has replaced it
        if self.later is None:
            at_once(work)
        else:
            try:
                next(work)
            except StopIteration:
                pass
            else:
                if work is self._work:
                    wait = self.much_later if self._lacks else self.later
                    self._lacks = False
                    wait(lambda: self._step(work))
                return
        if work is self._work:
            self._work = None
            self._caught_up()

    def _apply_all(self) -> Work[None]:
        own = self._own
        while True:
            offset = self._committed
            limit = min(offset, own[0].base_offset) if own else offset
            if self._snapshot is not None:
                snapshot, self._snapshot = self._snapshot, None
                yield from self._load(*snapshot)
            elif self.applied < limit:
                if self.applied < self._log.log_start_offset:
                    # A snapshot has replaced the log meanwhile. It is applied next.
                    break
                yield from self._apply_read(limit)
            elif own and own[0].end_offset <= offset:
                self._apply_own(own.popleft())
            else:
                break
        if self._unpublished:
            self._publish()

    def _publish(self) -> None:
        self._unpublished = False
        self._machine.caught_up()

    def _load(self, snapshot_id: OffsetAndEpoch | None, content: SnapshotContent) -> Work[None]:
        end_offset, epoch = snapshot_id if snapshot_id is not None else (0, -1)
        values = content.values
        first = values[:RECORDS_A_STEP]
        self._machine.load_snapshot(LoadedBatch(first, end_offset - 1, epoch, content.kraft_version, True))
        for start in range(RECORDS_A_STEP, len(values), RECORDS_A_STEP):
            yield TURN_COST
            self._machine.apply_part(values[start : start + RECORDS_A_STEP])
        self.applied = end_offset
        self.last_timestamp_ms = content.last_contained_timestamp_ms
        self._publish()

    def _apply_own(self, own: Own) -> None:
        if own.end_offset > own.base_offset:
            self.applied = own.end_offset
            self.last_timestamp_ms = own.timestamp_ms
        if own.control is not None:
            self._machine.apply(own.control)
            self._unpublished = True
        if own.committed is not None:
            if self._unpublished:
                self._publish()
            own.committed()

    def lose(self, last_epoch: int) -> None:
        """The leadership of epochs up to `last_epoch` has ended: the outcome of their uncommitted batches is unknown."""
        own = self._own
        while own and own[0].epoch <= last_epoch:
            each = own.popleft()
            if each.lost is not None:
                each.lost()

    def _apply_read(self, limit: int) -> Work[None]:
        """Apply batches below `limit`, as many as one read returns."""
        while True:
            try:
                records = self._log.read(self.applied, READ_CHUNK_BYTES, limit, True).records
                view = memoryview(records if isinstance(records, bytes) else records.read())
                break
            except OSError as error:
                if self.later is None or not passes(error):
                    raise
            self._lacks = True
            yield TURN_COST
        before = self.applied
        count = 0
        try:
            for header in headers(view):
                if before <= header.last_offset < limit:
                    count = yield from self._apply_batch(view, header, count)
        except (BrokenBatch, BrokenSnapshot, RecordMalformed, WireError) as error:
            raise MetadataLogProblem(f"the metadata log, near offset {self.applied}: {error}") from error
        if self.applied == before:
            raise MetadataLogProblem(f"the metadata log has no whole batch at offset {before}")

    def _apply_batch(self, view: memoryview, header: BatchHeader, count: int) -> Work[int]:
        """Apply one batch. `count` records of this step are already applied; returns the new count."""
        kraft_version: int | None = None
        values: list[bytes] = []
        records = batch_records(view, header)
        if not header.is_control:
            while True:
                values = [record.value or b"" for record in islice(records, RECORDS_A_STEP - count)]
                count += len(values)
                if count < RECORDS_A_STEP:
                    break
                self._machine.apply_part(values)
                values = []
                yield TURN_COST
                count = 0
        for record in records:
            if parse_control_key(record.key) == ControlType.KRAFT_VERSION:
                kraft_version = control_records.parse_kraft_version(record.value or b"")
        self.applied = header.last_offset + 1
        self.last_timestamp_ms = header.max_timestamp_ms
        self._unpublished = True
        self._machine.apply(LoadedBatch(values, header.last_offset, header.leader_epoch, kraft_version))
        return count
