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
from kafkacompat.stepping.works import TURN_COST
from kafkacompat.wire.errors import WireError

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Buffer, Log, Timers, Workers
    from kafkacompat.records.record import Record
    from kafkacompat.stepping.works import Steps, Work

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
    """Replays from `next_offset` on. `skipped` counts records with an unknown key type."""

    __slots__ = ("_costs", "_machine", "body", "next_offset", "opening", "record_count", "skipped")

    def __init__(self, machine: Machine[Any], start_offset: int, costs: LoadCosts = USUAL_COSTS) -> None:
        self._machine = machine
        self._costs = costs
        self.next_offset = start_offset
        self.record_count = 0
        self.skipped: dict[int, int] = {}
        """Key type -> number of records."""
        self.opening: Callable[[], Body] | None = None
        """A function to run in a worker before `feed` continues. Its value must be stored in `body`."""
        self.body: Body | None = None
        """The decompressed body of a large batch while its records are replayed."""

    def feed(self, data: Buffer) -> Work:
        """Replay the complete batches in `data`, record by record. `next_offset` moves with each batch. Raises
        LoadFailure."""
        try:
            for header in iterate_batches(data):
                if header.last_offset < self.next_offset:
                    continue
                batch = memoryview(data)[header.position : header.position + header.size]
                yield from self._replay_batch(batch, header)
                self.next_offset = header.last_offset + 1
        except BatchCorrupt as error:
            raise Damaged(f"offset {self.next_offset}: {error}") from error
        except (ValueError, WireError) as error:
            raise LoadFailure(f"offset {self.next_offset}: {error}") from error

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> Work:
        body: Body | None = None
        at_once_bytes = AT_ONCE_BYTES if header.magic == 2 else LEGACY_AT_ONCE_BYTES
        if header.size <= at_once_bytes:
            with contextlib.suppress(DecompressedTooLarge):
                body = opened(batch, header, at_once_bytes)
        if body is None:
            self.opening = partial(opened, batch, header, UNPACKED_BYTES_MAX)
            yield TURN_COST
            body = self.body
            assert body is not None  # the caller of these steps has set it
        yield int(len(body) * BATCH_COST_PER_BYTE)
        try:
            yield from self._replay_records(body, header)
        finally:
            self.body = None

    def _replay_records(self, body: Body, header: BatchHeader) -> Work:
        machine = self._machine
        for offset, record in _records_in(body, header):
            yield self._costs.record
            if header.is_control:
                marker = parse_end_transaction_marker(record)
                if marker is not None:
                    machine.replay_end_transaction(
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


def _records_in(body: Body, header: BatchHeader) -> Iterator[tuple[int, Record]]:
    """(offset, record), without headers."""
    if isinstance(body, OpenedMessage):
        yield from body
        return
    base_offset = header.base_offset
    for record in walk_records(body, header.record_count, header.base_timestamp_ms, 0):
        yield base_offset + record.offset_delta, record


class Loading:
    """Loads one shard's partition from start to end. `is_wanted` tells whether to continue. At the end `loaded` or
    `failed` is called. After Damaged, `read_on` may be called again later: nothing of the damaged batch was replayed."""

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
        costs: LoadCosts = USUAL_COSTS,
    ) -> None:
        """`newest_log` returns the log again, because it may move to another directory meanwhile. With `workers` None,
        cold reads block."""
        self.step_bytes = step_bytes
        self._log = log
        self._newest_log = newest_log
        self._loader = Loader(machine, log.log_start_offset, costs)
        self._steps = steps
        self._timers = timers
        self.workers = workers
        self._is_wanted = is_wanted
        self._loaded = loaded
        self._tell_failed = failed
        self.has_turn = False
        """Whether it has the permission to hold a large body."""
        self._failures = self._refusals = 0
        """Failed reads in a row, and those of them that do not pass by themselves."""

    @property
    def next_offset(self) -> int:
        return self._loader.next_offset

    def _failed(self, error: object) -> None:
        self._give_turn_back()
        self._tell_failed(error)

    def read_on(self) -> None:
        if not self._is_wanted():
            return
        loader, log = self._loader, self._newest_log() or self._log
        self._log = log
        # The log may begin later by now: deleted records are not missed.
        loader.next_offset = offset = max(loader.next_offset, log.log_start_offset)
        end_offset = log.log_end_offset
        if offset >= end_offset:
            self._loaded(loader)
            return
        try:
            records = log.read(offset, self.step_bytes, end_offset, True).records
            cached: Buffer | None = None
            if not isinstance(records, FileSlice):
                cached = records
            elif records.length <= READ_AT_ONCE_BYTES:
                cached = records.file.try_read(records.position, records.length)
            if cached is None and self.workers is None:
                cached = records.read()  # type: ignore[union-attr]  # only a slice is not cached
        except BatchCorrupt as error:
            self._failed(Damaged(f"offset {offset}: {error}"))
        except (LogRefused, OSError, MemoryError) as error:
            self._not_read(error)
        else:
            if cached is not None:
                self._replay(cached)
            else:
                assert isinstance(records, FileSlice)
                assert self.workers is not None
                self.workers.submit(records.read).on_done(self._read_cold)

    def _read_cold(self, done: Deferred[bytes]) -> None:
        try:
            data = done.result()
        except Exception as error:
            if self._newest_log() in (None, self._log):
                self._not_read(error)
            else:
                self.read_on()
            return
        self._replay(data)

    def _not_read(self, error: Exception) -> None:
        """Read again later. An error of the disk may pass as well, for example on a network file system, but not if it
        repeats. A bug in kafkacompat is no damage."""
        if not self._is_wanted():
            return
        if isinstance(error, (LogRefused, OSError)) and not passes(error):
            self._refusals += 1
        if self._refusals >= READ_TRIES:
            self._failures = self._refusals = 0
            self._failed(Damaged(f"offset {self.next_offset}: {error}"))
            return
        self._later(error, self.read_on)

    def _later(self, error: Exception, act: Callable[[], None]) -> None:
        """Go on after a while, less and less soon."""
        self._failures += 1
        if not self._failures & (self._failures - 1):  # the 1st, 2nd, 4th ... in a row
            name = self._log.topic_partition
            logger.warning(
                "%s: the coordinator reads again from offset %d: %s", name, self.next_offset, error
            )
            if not (isinstance(error, (LogRefused, OSError)) or passes(error)):
                report(f"loading {name}", error)
        delay_ms = min(LOAD_RETRY_MS << min(self._failures - 1, 16), RETRY_MAX_MS)
        self._timers.call_after(delay_ms, act)

    def _replay(self, data: Buffer) -> None:
        if data:
            self._go_on(self._loader.feed(data), self._loader.next_offset)
        else:
            self._loaded(self._loader)  # compaction has removed the last records

    def _go_on(self, feed: Work, began_at: int) -> None:
        self._steps.start("loading a coordinator's partition", self._pieces(feed, began_at))

    def _pieces(self, feed: Work, began_at: int) -> Work:
        loader = self._loader
        try:
            for cost in feed:
                yield cost
                if not self._is_wanted():
                    self._give_turn_back()
                    return
                if loader.opening is not None:
                    self._steps.large.take(lambda: self._open(feed, began_at))
                    return
                if loader.body is None:
                    self._give_turn_back()
        except (LoadFailure, MemoryError) as error:
            self._failed(error)
            return
        except Exception as error:
            report("loading a coordinator's partition", error)
            self._failed(error)
            return
        self._give_turn_back()
        self._steps.keep()
        if loader.next_offset > began_at:
            self._failures = self._refusals = 0
            self.read_on()
        else:
            self._not_read(OSError(errno.EIO, "the file ends within a batch"))

    # Large batches.

    def _open(self, feed: Work, began_at: int) -> None:
        self.has_turn = True
        opening = self._loader.opening
        assert opening is not None
        if not self._is_wanted():
            self._give_turn_back()
        elif self.workers is None:
            self._opened(feed, began_at, opening)
        else:
            self.workers.submit(opening).on_done(lambda done: self._opened(feed, began_at, done.result))

    def _opened(self, feed: Work, began_at: int, outcome: Callable[[], Body]) -> None:
        loader = self._loader
        if not self._is_wanted():
            self._give_turn_back()
            return
        try:
            loader.body = outcome()
        except Damaged as error:
            self._failed(error)
            return
        except (LoadFailure, ValueError) as error:
            self._failed(f"offset {loader.next_offset}: {error}")
            return
        except Exception as error:  # too many jobs, or no memory
            self._later(error, lambda: self._open(feed, began_at))
            return
        loader.opening = None
        self._go_on(feed, began_at)

    def _give_turn_back(self) -> None:
        if self.has_turn:
            self.has_turn = False
            self._loader.body = self._loader.opening = None
            self._steps.large.give_back()
