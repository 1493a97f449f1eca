"""Loads a coordinator's partition into its machine, a piece at a time.

It passes records to `replay` and markers to `replay_end_transaction`, and reads the log in stretches. Records of an
unknown kind are counted and skipped, because a newer broker may have written them. The data in a log was never checked
against the bounds of Produce. So a worker opens a batch that is large or expands to much, one per coordinator at a
time. Headers mean nothing here and are not parsed.

What passes is waited for: a read that fails is tried again, less and less often. Only damage ends a load: bytes that are
not those that were written, or that the disk refuses again and again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkacompat.coordinator.core import Damaged, LoadFailure, Machine
from kafkacompat.faults import report
from kafkacompat.ports import FileSlice, LogRefused, passes
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.compression import UNPACKED_BYTES_MAX, DecompressedTooLarge, unpack
from kafkacompat.records.control import parse_end_transaction_marker
from kafkacompat.records.legacy import OpenedMessage
from kafkacompat.records.scan import walk_records
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import WireError

if TYPE_CHECKING:
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.ports import Buffer, Log
    from kafkacompat.records.record import Record
    from kafkacompat.tasks import Limit, Work

logger = logging.getLogger(__name__)

LOAD_STEP_BYTES = 262_144
"""Bytes per read."""
LOAD_RETRY_MS = 100
"""Delay before a read that has failed is tried again, or before checking again whether the loaded records are committed.
It doubles with each failed read in a row."""
RETRY_MAX_MS = 5_000
READ_TRIES = 5
"""Reads at one offset that the disk refuses before its bytes count as damaged. Errors that pass are not counted."""
RECORD_COST = 12
BATCH_COST_PER_BYTE = 1 / 200
"""Cost of the checksum, decompression and slicing, per byte."""
READ_AT_ONCE_BYTES = 8 * 1024 * 1024
"""A larger batch is copied by a worker, even from the page cache."""
AT_ONCE_BYTES = 1024 * 1024
"""A batch up to this size, both compressed and decompressed, is opened in one step."""
LEGACY_AT_ONCE_BYTES = 256 * 1024
"""The same for a message of an old format. When it is opened, the sizes of the messages in it are checked."""
LARGE_VALUE_BYTES = 32 * 1024
"""A larger value is decoded in steps, because it may have thousands of members."""


class LoadCosts(NamedTuple):
    """How a machine's records are loaded."""

    record: int = RECORD_COST
    """Cost of decoding and replaying a small one."""
    large_value_bytes: int = LARGE_VALUE_BYTES
    """Larger values are decoded and replayed in steps."""


USUAL_COSTS = LoadCosts()
Body: TypeAlias = bytes | bytearray | OpenedMessage


def opened(batch: memoryview, header: BatchHeader, bound: int) -> Body:
    """The decompressed records of a batch, after its CRC was checked. Raises Damaged, RecordMalformed,
    DecompressionFailed or DecompressedTooLarge."""
    if not has_valid_crc(batch, header):
        raise Damaged(f"offset {header.base_offset}: the batch's crc does not fit its bytes")
    if header.magic != 2:
        return OpenedMessage(batch, header, bound)
    return unpack(header.codec, batch[HEADER_SIZE:], bound)


class Loader:
    """Replays one partition's log from `next_offset` on. `skipped` counts records with an unknown key type."""

    def __init__(
        self,
        name: object,
        newest_log: Callable[[], Log | None],
        machine: Machine[Any],
        services: CoordinatorServices,
        large: Limit,
        step_bytes: int = LOAD_STEP_BYTES,
        costs: LoadCosts = USUAL_COSTS,
    ) -> None:
        """`name`: the partition, for log lines. `newest_log` returns the log, again because it may move to another directory
        meanwhile. None if this node leads it no more. `large`: whoever may have a large body in memory."""
        self._name = name
        self._newest_log = newest_log
        self._machine = machine
        self._tasks = services.tasks
        self._keep = services.keep
        self._large = large
        self._costs = costs
        self.workers = services.workers
        self.step_bytes = step_bytes
        self.next_offset = 0
        self.record_count = 0
        self.skipped: dict[int, int] = {}
        """Key type -> number of records."""
        self._failures = self._refusals = 0
        """Failed reads in a row, and those of them that do not pass by themselves."""

    async def load(self) -> None:
        """Replay the log up to its end. Raises LoadFailure. After Damaged it may be called again: nothing of the damaged batch
        was replayed."""
        while True:
            log = self._newest_log()
            if log is None:
                await self._tasks.sleep(RETRY_MAX_MS)  # whoever closes the shard ends this
                continue
            # The log may begin later by now: deleted records are not missed.
            self.next_offset = began_at = max(self.next_offset, log.log_start_offset)
            if self.next_offset >= log.log_end_offset:
                return
            try:
                data = await self._read(log)
            except BatchCorrupt as error:
                raise Damaged(f"offset {self.next_offset}: {error}") from error
            except Exception as error:
                if self._newest_log() is log:
                    await self._read_again_later(error)
                continue
            if data is None:
                return  # compaction has removed the last records
            await self._replay(data)
            self._keep()
            if self.next_offset > began_at:
                self._failures = self._refusals = 0
            else:
                await self._read_again_later(OSError(errno.EIO, "the file ends within a batch"))

    async def _read(self, log: Log) -> Buffer | None:
        """The next stretch. None if the log has nothing any more."""
        records = log.read(self.next_offset, self.step_bytes, log.log_end_offset, True).records
        if not isinstance(records, FileSlice):
            return records or None
        if records.length <= READ_AT_ONCE_BYTES:
            cached = records.file.try_read(records.position, records.length)
            if cached is not None:
                return cached
        if self.workers is None:
            return records.read()
        return await self.workers.submit(records.read)

    async def _read_again_later(self, error: Exception) -> None:
        """An error of the disk may pass as well, for example on a network file system, but not if it repeats. A bug in
        kafkacompat is no damage."""
        if isinstance(error, (LogRefused, OSError)) and not passes(error):
            self._refusals += 1
        if self._refusals >= READ_TRIES:
            self._failures = self._refusals = 0
            raise Damaged(f"offset {self.next_offset}: {error}")
        await self._pass_time(error)

    async def _pass_time(self, error: Exception) -> None:
        """Less and less soon."""
        self._failures += 1
        if not self._failures & (self._failures - 1):  # the 1st, 2nd, 4th ... in a row
            logger.warning(
                "%s: the coordinator reads again from offset %d: %s", self._name, self.next_offset, error
            )
            if not (isinstance(error, (LogRefused, OSError)) or passes(error)):
                report(f"loading {self._name}", error)
        await self._tasks.sleep(min(LOAD_RETRY_MS << min(self._failures - 1, 16), RETRY_MAX_MS))

    async def _replay(self, data: Buffer) -> None:
        """Replay the complete batches in `data`, record by record. `next_offset` moves with each batch. Raises LoadFailure."""
        try:
            for header in iterate_batches(data):
                if header.last_offset < self.next_offset:
                    continue
                batch = memoryview(data)[header.position : header.position + header.size]
                body = _opened_at_once(batch, header)
                if body is not None:
                    await in_turns(self._replay_records(body, header))
                else:
                    async with self._large:
                        body = await self._opened_by_worker(
                            partial(opened, batch, header, UNPACKED_BYTES_MAX)
                        )
                        await in_turns(self._replay_records(body, header))
                        body = None
                self.next_offset = header.last_offset + 1
        except BatchCorrupt as error:
            raise Damaged(f"offset {self.next_offset}: {error}") from error
        except (ValueError, WireError) as error:
            raise LoadFailure(f"offset {self.next_offset}: {error}") from error

    async def _opened_by_worker(self, opening: Callable[[], Body]) -> Body:
        await pause()
        if self.workers is None:
            return opening()
        while True:
            try:
                return await self.workers.submit(opening)
            except (LoadFailure, ValueError):
                raise
            except Exception as error:  # too many jobs, or no memory
                await self._pass_time(error)

    def _replay_records(self, body: Body, header: BatchHeader) -> Work[None]:
        machine = self._machine
        yield int(len(body) * BATCH_COST_PER_BYTE)
        for offset, record in _records_in(body, header):
            yield self._costs.record
            if header.is_control:
                marker = parse_end_transaction_marker(record)
                if marker is not None:
                    yield from machine.replay_end_transaction(
                        header.producer_id, header.producer_epoch, marker.committed, offset
                    )
                continue
            if record.key is None:
                raise LoadFailure(f"offset {offset}: a record without a key")
            if record.value is not None and len(record.value) > self._costs.large_value_bytes:
                yield int(len(record.value) * BATCH_COST_PER_BYTE)
                is_known = yield from machine.load_large(record.key, record.value, offset, header.producer_id)
            else:
                decoded = machine.decode(record.key, record.value)
                is_known = decoded is not None
                if is_known:
                    machine.replay(decoded, offset, header.producer_id)
            if is_known:
                self.record_count += 1
            else:
                kind = int.from_bytes(record.key[:2], "big", signed=True)
                self.skipped[kind] = self.skipped.get(kind, 0) + 1


def _opened_at_once(batch: memoryview, header: BatchHeader) -> Body | None:
    """None if the batch is too large for one step, compressed or not."""
    at_once_bytes = AT_ONCE_BYTES if header.magic == 2 else LEGACY_AT_ONCE_BYTES
    if header.size <= at_once_bytes:
        with contextlib.suppress(DecompressedTooLarge):
            return opened(batch, header, at_once_bytes)
    return None


def _records_in(body: Body, header: BatchHeader) -> Iterator[tuple[int, Record]]:
    """(offset, record), without headers."""
    if isinstance(body, OpenedMessage):
        yield from body
        return
    base_offset = header.base_offset
    for record in walk_records(body, header.record_count, header.base_timestamp_ms, 0):
        yield base_offset + record.offset_delta, record
