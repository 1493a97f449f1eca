"""Reading a coordinator's partition back into its machine, a piece at a time.

Duty: batches to records to `replay`, markers to `replay_end_transaction`; stretches of the log read one after another. Must not
know: what the records mean. Records of an unknown kind are counted and passed over, as a broker must that follows a newer one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import LoadFailure, Machine
from kafkacompat.faults import report
from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.compression import decompress
from kafkacompat.records.control import parse_end_transaction_marker
from kafkacompat.records.record import iterate_records
from kafkacompat.wire.errors import WireError

if TYPE_CHECKING:
    from kafkacompat.coordinator.steps import Steps, Work
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Buffer, Log, Timers, Workers

logger = logging.getLogger(__name__)

LOAD_STEP_BYTES = 262_144
"""Bytes read at once."""
LOAD_RETRY_MS = 100
"""Until a read is asked for again that no worker could do, or whether what was read is committed."""
RECORD_COST = 12
BATCH_COST_PER_BYTE = 1 / 200
"""For the checksum, and to unpack."""


class Loader:
    """Replays from `next_offset` on. `skipped` counts records by the first bytes of their key that nobody here knows."""

    __slots__ = ("_machine", "next_offset", "record_count", "skipped")

    def __init__(self, machine: Machine[Any], start_offset: int) -> None:
        self._machine = machine
        self.next_offset = start_offset
        self.record_count = 0
        self.skipped: dict[int, int] = {}
        """Key type -> records."""

    def feed(self, data: Buffer) -> Work:
        """Replay the whole batches in data, record by record; `next_offset` moves with each batch. Raises LoadFailure."""
        try:
            for header in iterate_batches(data):
                if header.last_offset < self.next_offset:
                    continue
                batch = memoryview(data)[header.position : header.position + header.size]
                yield from self._replay_batch(batch, header)
                self.next_offset = header.last_offset + 1
        except (BatchCorrupt, ValueError, WireError) as error:
            raise LoadFailure(f"offset {self.next_offset}: {error}") from error

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> Iterator[int]:
        if header.magic != 2:
            raise LoadFailure(f"offset {header.base_offset}: a batch of the old format {header.magic}")
        if not has_valid_crc(batch, header):
            raise LoadFailure(f"offset {header.base_offset}: the batch's crc does not fit its bytes")
        body: Buffer = batch[HEADER_SIZE:]
        if header.codec:
            body = decompress(header.codec, body)
        yield int(len(body) * BATCH_COST_PER_BYTE)
        machine = self._machine
        for record in iterate_records(body, header.record_count, header.base_timestamp_ms):
            yield RECORD_COST
            offset = header.base_offset + record.offset_delta
            if header.is_control:
                marker = parse_end_transaction_marker(record)
                if marker is not None:
                    machine.replay_end_transaction(
                        header.producer_id, header.producer_epoch, marker.committed, offset
                    )
                continue
            if record.key is None:
                raise LoadFailure(f"offset {offset}: a record without a key")
            decoded = machine.decode(record.key, record.value)
            if decoded is None:
                kind = int.from_bytes(record.key[:2], "big", signed=True)
                self.skipped[kind] = self.skipped.get(kind, 0) + 1
                continue
            machine.replay(decoded, offset, header.producer_id)
            self.record_count += 1


class Loading:
    """One shard's partition read from start to end. `is_wanted` says whether to go on; then `loaded` or `failed` is called."""

    def __init__(
        self,
        log: Log,
        machine: Machine[Any],
        newest_log: Callable[[], Log | None],
        steps: Steps,
        timers: Timers,
        workers: Workers | None,
        step_bytes: int,
        is_wanted: Callable[[], bool],
        loaded: Callable[[Loader], None],
        failed: Callable[[object], None],
    ) -> None:
        """`newest_log`: it may move to another directory meanwhile. `workers` None: cold reads block."""
        self.step_bytes = step_bytes
        self._log = log
        self._newest_log = newest_log
        self._loader = Loader(machine, log.log_start_offset)
        self._steps = steps
        self._timers = timers
        self.workers = workers
        self._is_wanted = is_wanted
        self._loaded = loaded
        self._failed = failed

    def read_on(self) -> None:
        if not self._is_wanted():
            return
        log = self._log = self._newest_log() or self._log
        offset, end_offset = self._loader.next_offset, log.log_end_offset
        if offset >= end_offset:
            self._loaded(self._loader)
            return
        try:
            records = log.read(offset, self.step_bytes, end_offset, True).records
            if isinstance(records, FileSlice):
                cached = records.file.try_read(records.position, records.length)
            else:
                cached = records
        except (BatchCorrupt, LogRefused, OSError) as error:
            self._failed(error)
            return
        if cached is not None:
            self._replay(cached)
            return
        assert isinstance(records, FileSlice)
        if self.workers is None:
            self._replay(records.read())
        else:
            self.workers.submit(records.read).on_done(self._read_cold)

    def _read_cold(self, done: Deferred[bytes]) -> None:
        try:
            data = done.result()
        except OSError as error:
            if self._newest_log() in (None, self._log):
                self._failed(error)
            else:
                self.read_on()
            return
        except Exception as error:  # too many jobs, or our own bug
            logger.error("no worker read a coordinator's partition: %s", error)
            self._timers.call_after(LOAD_RETRY_MS, self.read_on)
            return
        self._replay(data)

    def _replay(self, data: Buffer) -> None:
        self._steps.start("loading a coordinator's partition", self._pieces(data))

    def _pieces(self, data: Buffer) -> Work:
        before = self._loader.next_offset
        try:
            for cost in self._loader.feed(data):
                yield cost
                if not self._is_wanted():
                    return
        except LoadFailure as error:
            self._failed(error)
            return
        except Exception as error:
            report("loading a coordinator's partition", error)
            self._failed(error)
            return
        if self._loader.next_offset > before:
            self.read_on()
        else:
            self._loaded(self._loader)
