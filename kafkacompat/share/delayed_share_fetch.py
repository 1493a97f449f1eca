"""A share fetch: it waits until something can be acquired, reads the logs, and acquires records for its member.

One fetch at a time holds the lock of a share-partition. It gives the lock back within one step of the loop, unless
headers of batches must be read from the disk first, or there is much to acquire. Records are sent as they lie in the log,
so only headers are read. Follows Kafka's DelayedShareFetch.
"""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.partition.delayed_operations import (
    ANSWER_US,
    LOOK_US,
    DelayedOperation,
    DelayedOperationPurgatory,
)
from kafkacompat.partition.service import FetchedRemotely, RemoteFetch
from kafkacompat.ports import EMPTY_RECORDS, FileSlice, LogRefused, passes
from kafkacompat.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LEGACY_MINIMUM_LENGTH,
    LOG_OVERHEAD,
    MINIMUM_PREFIX,
    TRANSACTIONAL_BIT,
    BatchCorrupt,
    iterate_batches,
    parse_header,
)
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.read import first_record
from kafkacompat.records.record import RecordMalformed
from kafkacompat.share.share_partition_cache import ACTIVE
from kafkacompat.share.values import AbortedTransaction, AcquiredRecords, FetchedBatch
from kafkacompat.tasks import pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_fetch_response
from kafkacompat.wire.messages.share_fetch_response import PartitionData

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.remote_fetch import RemoteFetches
    from kafkacompat.ports import LogRead, Records
    from kafkacompat.share.service import TopicIdPartition
    from kafkacompat.share.share_partition_cache import LedPartition, SharePartitionCache, ShareServices
    from kafkacompat.share.values import AcquireMode


logger = logging.getLogger(__name__)
Answers = dict["TopicIdPartition", PartitionData]
ACQUIRED_AT_ONCE = 1_000
"""Batches that are read, and ranges that are acquired, in one step of the loop."""
RANGES_MAX = 5_000
"""Acquired ranges in one answer, beyond which no further share-partition is fetched from. A member decides how many
records it wants and how long the ranges are, but it gets the records in its next fetches just as well."""
READ_WORK = 10
"""A share-partition of which records are read, as batches count. One without records counts 1."""
ABORTED_MAX = 1_000
"""Aborted transactions of one share-partition in one answer. Beyond that, fewer records are read."""
ABORTED_AS_ONE = 3
"""Aborted transactions that count as one batch."""
WORK_US = 7
"""The cost of a batch or range. Reading and acquiring the first batch of a share-partition takes some 70 microseconds."""
PARTITION_US = 6
"""Locking a share-partition, releasing it, and what an answer says of it."""
COUNTED_US = 40
"""Counting what a log has from an offset on: the place may be far from its end, and is found by a scan then."""
UNREADABLE = (OSError, BatchCorrupt, RecordMalformed, DecompressionFailed)
Read = Callable[[int, int], "bytes | None"]
"""The bytes at a position of a file. None if they are not in the page cache and may not be waited for."""
_HEADER = struct.Struct(">qi4xb4xhi16xq")
"""Base offset, length, magic, attributes, last offset delta, producer id."""
_READ_BYTES_MIN = 4 * 1024
_READ_BYTES_MAX = 64 * 1024
_MARKER_BYTES = 512
"""A control batch has one small record."""


class ShareFetchParameters:
    """What a member asks for."""

    __slots__ = (
        "acquire_mode",
        "batch_size",
        "max_bytes",
        "max_records",
        "max_wait_ms",
        "member_id",
        "min_bytes",
        "read_committed",
    )

    def __init__(
        self,
        member_id: str,
        acquire_mode: AcquireMode,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        max_records: int,
        batch_size: int,
        *,
        read_committed: bool,
    ) -> None:
        self.member_id = member_id
        self.acquire_mode = acquire_mode
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.read_committed = read_committed


def max_bytes_of_each(
    max_bytes: int, count: int, acquired_count: int, randrange: Callable[[int], int]
) -> list[int]:
    """The bytes that each of `count` partitions may give, of `acquired_count` that share the request's bytes.

    They get the same. A rest, or single bytes if there are fewer than partitions, goes to one by chance.
    """
    if max_bytes >= acquired_count:
        shares = acquired_count
    elif max_bytes >= count:
        shares = count
    else:
        each = [0] * count
        first = randrange(count)
        for step in range(max_bytes):
            each[(first + step) % count] = 1
        return each
    each = [max_bytes // shares] * count
    rest = max_bytes % shares
    if rest:
        each[randrange(count)] += rest
    return each


class ShareFetchPurgatory(DelayedOperationPurgatory["DelayedShareFetch"]):
    """The share fetches that wait, by share-partition."""

    def __init__(self, services: ShareServices) -> None:
        wakeups = services.manager.wakeups
        super().__init__(wakeups.clock, wakeups.timers, wakeups.budget)
        self._to_wake: OrderedDict[LedPartition, None] = OrderedDict()
        self._is_waking = False

    def wake(self, led: LedPartition) -> None:
        """Have the fetches look that wait for a share-partition. What they do may wake others, which follow in a row."""
        if led not in self.by_key:
            return
        self._to_wake[led] = None
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while self._to_wake:
                first, _ = self._to_wake.popitem(last=False)
                self.for_each_on(first, _look_again, first)
        finally:
            self._is_waking = False

    def lost(self, led: LedPartition) -> None:
        """This node leads it no more: the members can learn that with their next fetches."""
        self.for_each_on(led, _end, self)


def _look_again(fetch: DelayedShareFetch, led: LedPartition) -> None:
    # Most fetches that wait find that another one has taken what there was.
    fetch.cost_us = LOOK_US
    core = led.core
    if core.state is not ACTIVE or not core.can_acquire_records():
        return
    if core.next_fetch_offset() != led.readable_end(read_committed=fetch.parameters.read_committed):
        fetch.try_complete()


def _end(fetch: DelayedShareFetch, purgatory: ShareFetchPurgatory) -> None:
    purgatory.remove(fetch)
    fetch.expire()


class ShareFetches:
    """All share fetches of a node: what they have in common."""

    def __init__(
        self, services: ShareServices, cache: SharePartitionCache, purgatory: ShareFetchPurgatory
    ) -> None:
        self.cache = cache
        self.purgatory = purgatory
        self.clock = services.clock
        self.random = services.random
        self.tasks = services.tasks
        self.workers = services.workers
        self.manager = services.manager

    def start(
        self,
        parameters: ShareFetchParameters,
        asked: Sequence[LedPartition],
        refused: dict[TopicIdPartition, ErrorCode],
    ) -> DelayedShareFetch:
        """Begin a fetch of these share-partitions, which may be loading. `refused`: the errors of others."""
        fetch = DelayedShareFetch(self, parameters, asked, refused)
        fetch.answer.when_abandoned = fetch.abandon
        if not fetch.try_complete():
            if parameters.max_wait_ms <= 0 or self.purgatory.is_full():
                fetch.expire()
            else:
                self.purgatory.park(fetch, asked, parameters.max_wait_ms)
        return fetch


class DelayedShareFetch(DelayedOperation):
    """Gives the `answer`: the data of each partition. Also the identity that holds the locks of share-partitions."""

    __slots__ = (
        "_acquires_since_ms",
        "_answers",
        "_budget",
        "_count",
        "_has_records",
        "_is_abandoned",
        "_kept",
        "_limits",
        "_meter",
        "_moved",
        "_ranges",
        "_work",
        "_worked",
        "asked",
        "fetches",
        "parameters",
        "refused",
    )

    answer: Deferred[Answers]

    def __init__(
        self,
        fetches: ShareFetches,
        parameters: ShareFetchParameters,
        asked: Sequence[LedPartition],
        refused: dict[TopicIdPartition, ErrorCode],
    ) -> None:
        super().__init__()
        self.fetches = fetches
        self.parameters = parameters
        self.asked = asked
        self.refused = refused
        self._meter = fetches.cache.fetch_meters.get(asked[0].key.group_id) if asked else None
        self._acquires_since_ms = fetches.clock.monotonic_ms()
        self._answers: Answers = {}
        self._limits: list[int] = []
        self._budget = 0
        self._count = 0
        self._has_records = False
        self._is_abandoned = False
        self._kept = 0
        """Records that the logs leave to the remote storage. They might fill each fetch."""
        self._moved: list[tuple[LedPartition, RemoteFetch]] = []
        """The next record of these is in the remote storage only."""
        self._ranges = 0
        """Acquired so far."""
        self._work = 0
        """Batches and ranges of the present step."""
        self._worked = False
        """A worker has read, or the fetch took several steps, so that other fetches may have found a lock taken."""

    # Whether there is enough.

    def try_complete(self) -> bool:
        """Answer if enough can be acquired now. False: the fetch waits."""
        self.cost_us = LOOK_US + PARTITION_US * len(self.asked)
        held = self._acquirable()
        if not held:
            return False
        try:
            self._note_acquired()
            is_enough = self._is_enough(held)
            if is_enough:
                self.fetches.purgatory.remove(self)
                self._fetch(held)
        except Exception:
            self._give_back(held)  # nobody else would
            raise
        if not is_enough:
            self._give_back(held)
        return is_enough

    def expire(self) -> None:
        """Answer with what there is."""
        held = self._acquirable()
        try:
            self._note_acquired()
            self._fetch(held)
        except Exception:
            self._give_back(held)
            raise

    def _note_acquired(self) -> None:
        if self._meter is not None:
            self._acquires_since_ms = self._meter.acquired(
                self._acquires_since_ms, self.fetches.clock.monotonic_ms()
            )

    def abandon(self) -> None:
        """Nobody waits any more, so nothing may be acquired."""
        self._is_abandoned = True
        self.fetches.purgatory.remove(self)
        self.asked = ()

    def _acquirable(self) -> list[tuple[LedPartition, int]]:
        """Take the locks of the share-partitions that have room for more records in flight."""
        now_ms = self.fetches.clock.monotonic_ms()
        held: list[tuple[LedPartition, int]] = []
        for led in self.asked:
            core = led.core
            if not core.maybe_acquire_fetch_lock(self, now_ms):
                continue
            try:
                offset = core.next_fetch_offset() if core.can_acquire_records() else None
            except Exception:
                self._give_back([*held, (led, 0)])
                raise
            if offset is None:
                core.release_fetch_lock(self, now_ms)
            else:
                held.append((led, offset))
        return held

    def _give_back(self, held: list[tuple[LedPartition, int]]) -> None:
        now_ms = self.fetches.clock.monotonic_ms()
        for led, _ in held:
            led.core.release_fetch_lock(self, now_ms)

    def _is_enough(self, held: list[tuple[LedPartition, int]]) -> bool:
        """Whether the logs have min_bytes to fetch. It is assumed that all of that can be acquired."""
        parameters = self.parameters
        min_bytes, read_committed = parameters.min_bytes, parameters.read_committed
        total = 0
        limits: list[int] | None = None
        for at, (led, offset) in enumerate(held):
            log = led.partition.log
            end = led.readable_end(read_committed=read_committed)
            if offset == end:
                continue
            # Of what is below the files no bytes are counted.
            if offset > end or offset < log.local_log_start_offset or min_bytes <= 1:
                return True
            if log.segment_base_offset(offset) != log.segment_base_offset(end):
                return True
            if limits is None:
                limits = self._divided(held)
            self.cost_us += COUNTED_US
            try:
                total += min(log.readable_bytes(offset, end), limits[at])
            except (OSError, BatchCorrupt, LogRefused, MemoryError):
                return True  # the read gets the same error and reports it
        return total >= min_bytes

    def _divided(self, held: list[tuple[LedPartition, int]]) -> list[int]:
        count = len(held)
        if count == 1:
            return [self.parameters.max_bytes]
        return max_bytes_of_each(self.parameters.max_bytes, count, count, self.fetches.random.randrange)

    # Reading and acquiring.

    def _fetch(self, held: list[tuple[LedPartition, int]]) -> None:
        """Answer, mostly at once."""
        locked = len(self.asked)
        if self._meter is not None:
            self._meter.acquired_percent.note(100 * len(held) // len(self.asked))
        if held:
            self._limits = self._divided(held)
            self._budget = self.parameters.max_bytes
            self.fetches.tasks.start("a share fetch", self._fetch_held(held))
        else:
            self._finish(held)
        self.cost_us = ANSWER_US + PARTITION_US * locked + WORK_US * self._work

    async def _fetch_held(self, held: list[tuple[LedPartition, int]]) -> None:
        """Fetch from one share-partition after the other, and give their locks back."""
        for at, (led, offset) in enumerate(held):
            await self._rest()
            try:
                job = self._fetch_from(led, offset, self._limits[at], None)
                if job is not None:
                    self._worked = True
                    fetched = await self.fetches.workers.submit(job)
                    self._work = 0
                    self._fetch_from(led, offset, self._limits[at], fetched)
            except Exception as error:
                self._failed(led, error)
        remote = self.fetches.manager.remote
        if self._moved and remote is not None:
            self._worked = True
            await pause()
            moved = {led for led, _ in self._moved}
            # Others need not wait for the remote storage.
            self._give_back([each for each in held if each[0] not in moved])
            for led, _ in held:
                if led not in moved and led.is_cached:
                    self.fetches.purgatory.wake(led)
            held = [each for each in held if each[0] in moved]
            try:
                await self._fetch_moved(remote)
            except Exception as error:
                for led, _ in held:
                    self._failed(led, error)
        self._finish(held)

    async def _rest(self) -> None:
        """Let others have their turn after much work."""
        if self._work >= ACQUIRED_AT_ONCE:
            self._worked = True
            # Whoever began this in its own turn counts what was done in it.
            await pause()
            self._work = 0

    async def _fetch_moved(self, remote: RemoteFetches) -> None:
        """Fetch from the share-partitions whose next records are in the remote storage only."""
        parameters, moved = self.parameters, self._moved
        found = await remote.read(
            [wanted for _, wanted in moved],
            self._budget,
            parameters.max_wait_ms,
            read_committed=parameters.read_committed,
        )
        self._work = 0
        # A whole batch may have gone beyond what was left.
        self._count, self._kept = min(self._count, parameters.max_records - self._kept), 0
        for (led, wanted), outcome in zip(moved, found, strict=True):
            await self._rest()
            try:
                self._acquire_moved(remote, led, wanted.offset, outcome)
            except Exception as error:
                self._failed(led, error)

    def _acquire_moved(
        self,
        remote: RemoteFetches,
        led: LedPartition,
        offset: int,
        outcome: FetchedRemotely | ErrorCode | None,
    ) -> None:
        """`outcome`: what has come of the remote storage."""
        data = self._data_of(led)
        if data is None or outcome is None:
            return
        log_start_offset = led.partition.log.log_start_offset
        if offset < log_start_offset:
            self._begin_later(led, log_start_offset)
            return
        if isinstance(outcome, ErrorCode):
            # The log says that it has the record. No member can do anything about the remote storage.
            data.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            return
        records, aborted = _until_many_aborted(outcome)
        fetched = read_batches(records, self._until(led, offset), finds_markers=bool(aborted), waits=False)
        if fetched is not None and fetched.batches:
            self._work += READ_WORK + len(aborted) // ABORTED_AS_ONE
            self._acquire(led, offset, data, fetched, aborted)
            if isinstance(data.records, memoryview):
                data.records = remote.hold(data.records)

    def _failed(self, led: LedPartition, error: Exception) -> None:
        if isinstance(error, UNREADABLE):
            self._unreadable(led, self._answers[led.key.topic_id_partition], error)
            return
        if passes(error):
            logger.error("%s is not read now: %r", led.name, error)
        else:
            report(f"a share fetch of {led.name}", error)
        self.refused[led.key.topic_id_partition] = ErrorCode.UNKNOWN_SERVER_ERROR

    def _data_of(self, led: LedPartition) -> PartitionData | None:
        """A new answer for a share-partition. None if nothing may be acquired from it."""
        key = led.key.topic_id_partition
        data = self._answers[key] = PartitionData(partition_index=key.partition, records=EMPTY_RECORDS)
        self._work += 1
        is_full = self._left() <= 0 or self._ranges >= RANGES_MAX
        if self._is_abandoned or is_full or led.core.state is not ACTIVE:
            return None
        if not led.partition.is_leader:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return None
        return data

    def _begin_later(self, led: LedPartition, log_start_offset: int) -> None:
        """The log begins later now. The member fetches again."""
        led.core.update_cache_and_offsets(log_start_offset)
        self.fetches.cache.changed(led)

    def _until(self, led: LedPartition, offset: int) -> int:
        """The offset up to which records may be acquired."""
        return max(led.core.end_offset, offset) + min(self._left(), led.settings().max_record_locks)

    def _left(self) -> int:
        """How many more records may be acquired."""
        return self.parameters.max_records - self._count - self._kept

    def _fetch_from(
        self, led: LedPartition, offset: int, limit_bytes: int, fetched: FetchedRecords | None
    ) -> Callable[[], FetchedRecords | None] | None:
        """Returns a job for a worker, if headers must be read from the disk first. `fetched`: what it has read."""
        data = self._data_of(led)
        if data is None:
            return None
        log = led.partition.log
        end = led.readable_end(read_committed=self.parameters.read_committed)
        max_bytes, least_one = min(limit_bytes, self._budget), not self._has_records
        try:
            read = log.read(offset, max_bytes, end, least_one)
            if not len(read.records):
                return None
            self._work += READ_WORK
            aborted, read = self._aborted(led, offset, read)
            if fetched is None:
                until = self._until(led, offset)
                fetched = read_batches(read.records, until, finds_markers=bool(aborted), waits=False)
                if fetched is None:
                    return partial(read_batches, read.records, until, finds_markers=bool(aborted), waits=True)
        except LogRefused as refused:
            if refused.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._begin_later(led, log.log_start_offset)
            elif (
                refused.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
                and self.fetches.manager.remote is not None
            ):
                if not self._moved:
                    self._kept = (self._left() + 1) // 2
                self._moved.append((led, RemoteFetch(led.partition, offset, max_bytes, least_one)))
            else:
                data.error_code = refused.code
            return None
        if fetched.batches:
            self._acquire(led, offset, data, fetched, aborted)
        return None

    def _acquire(
        self,
        led: LedPartition,
        offset: int,
        data: PartitionData,
        fetched: FetchedRecords,
        aborted: list[AbortedTransaction],
    ) -> None:
        """Acquire what was read from an offset on, and put it into the answer."""
        parameters = self.parameters
        acquired = led.core.acquire(
            parameters.member_id,
            parameters.acquire_mode,
            parameters.batch_size,
            self._left(),
            offset,
            fetched.batches,
            aborted,
            parameters.read_committed,
            self.fetches.clock.monotonic_ms(),
        )
        self._has_records = True
        self._work += len(fetched.batches) + len(acquired.records)
        self._ranges += len(acquired.records)
        self._budget = max(self._budget - len(fetched.records), 0)
        if acquired.records:
            data.records = fetched.slice_of(acquired.records)
            data.acquired_records = [
                share_fetch_response.AcquiredRecords(
                    first_offset=first, last_offset=last, delivery_count=count
                )
                for first, last, count in acquired.records
            ]
            self._count += acquired.count
        self.fetches.cache.changed(led)

    def _aborted(
        self, led: LedPartition, offset: int, read: LogRead
    ) -> tuple[list[AbortedTransaction], LogRead]:
        """The aborted transactions of what was read, and less of it if there are very many."""
        if not self.parameters.read_committed:
            return [], read
        size = len(read.records)
        read, found = led.partition.log.with_aborted(offset, read, size, True, ABORTED_MAX)
        self._work += len(found) // ABORTED_AS_ONE
        return [AbortedTransaction(one.producer_id, one.first_offset) for one in found], read

    def _unreadable(self, led: LedPartition, data: PartitionData, error: Exception) -> None:
        if isinstance(error, OSError):
            logger.error("read of %s failed: %s", led.name, error)
            data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            led.partition.traffic.failed_fetches += 1
            logger.error("%s is damaged on disk: %s", led.name, error)
            data.error_code = ErrorCode.CORRUPT_MESSAGE

    def _finish(self, held: list[tuple[LedPartition, int]]) -> None:
        self._give_back(held)
        for led in self.asked:
            if led.load_error is not ErrorCode.NONE:
                self.refused[led.key.topic_id_partition] = led.load_error
        answers, self._answers = self._answers, {}
        self.asked = ()
        for key, error in self.refused.items():
            answers[key] = PartitionData(
                partition_index=key.partition, error_code=error, records=EMPTY_RECORDS
            )
        self.answer.resolve(answers)
        if self._worked:
            for led, _ in held:
                if led.is_cached:
                    self.fetches.purgatory.wake(led)


class FetchedRecords:
    """The beginning of a slice, as far as its records may be acquired."""

    __slots__ = ("batches", "records", "starts")

    def __init__(self, records: Records | memoryview, batches: list[FetchedBatch], starts: list[int]) -> None:
        self.records = records
        self.batches = batches
        self.starts = starts
        """Where each batch begins in the slice, and where the last one ends."""

    def slice_of(self, acquired: Sequence[AcquiredRecords]) -> Records | memoryview:
        """The batches with the acquired records. As in Kafka, those between the first and the last are all sent."""
        records = self.records
        if not acquired:
            return EMPTY_RECORDS
        first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
        batches, starts = self.batches, self.starts
        first = 0
        last = len(batches) - 1
        while first < last and batches[first + 1].base_offset <= first_offset:
            first += 1
        while last > first and batches[last].base_offset > last_offset:
            last -= 1
        start, end = starts[first], starts[last + 1]
        if isinstance(records, FileSlice):
            return FileSlice(records.file, records.position + start, end - start)
        return records[start:end]


def _until_many_aborted(found: FetchedRemotely) -> tuple[memoryview, list[AbortedTransaction]]:
    """The records before the first one that too many aborted transactions come before, and those transactions. The first batch
    at least: more transactions than that may have been open together."""
    aborted = sorted(found.aborted_transactions, key=lambda each: each.first_offset)
    records = found.records
    if len(aborted) > ABORTED_MAX:
        end_offset = aborted[ABORTED_MAX].first_offset
        for each in iterate_batches(records):
            if each.position and each.base_offset >= end_offset:
                records = records[: each.position]
                aborted = [one for one in aborted if one.first_offset < each.base_offset]
                break
    return records, [AbortedTransaction(one.producer_id, one.first_offset) for one in aborted]


def read_batches(
    records: Records | memoryview, until_offset: int, *, finds_markers: bool, waits: bool
) -> FetchedRecords | None:
    """The headers of the complete batches of a slice, or of a view of memory, up to the one with `until_offset`.

    None if they are not in the page cache and this must not wait. `finds_markers`: tell the markers of aborted
    transactions apart. Raises BatchCorrupt, OSError.
    """
    batches: list[FetchedBatch] = []
    starts: list[int] = []
    read: Read
    if isinstance(records, FileSlice):
        file, begin = records.file, records.position
        read, where = file.read_cold if waits else file.try_read, file.path
    else:
        in_memory, begin, where = records, 0, "the remote storage"

        def read(position: int, size: int) -> bytes:
            return bytes(in_memory[position : position + size])

    unpack, position, end = _HEADER.unpack_from, 0, len(records)
    data = b""
    at = 0
    wanted = _READ_BYTES_MIN
    while end - position >= MINIMUM_PREFIX:
        inside = position - at
        if inside + HEADER_SIZE > len(data):
            # Small batches lie close together, so the next reads are longer. Large ones cost a read each.
            wanted = min(2 * wanted, _READ_BYTES_MAX) if inside < 2 * len(data) else _READ_BYTES_MIN
            piece = read(begin + position, min(wanted, end - position))
            if piece is None:
                return None
            data, at, inside = piece, position, 0
            if len(data) < MINIMUM_PREFIX:
                raise BatchCorrupt(f"{where} ends before byte {begin + end}")
        if len(data) - inside < HEADER_SIZE or data[inside + 16] != 2:
            batch, size = _other_batch(data, inside)
        else:
            base_offset, length, _, attributes, delta, producer_id = unpack(data, inside)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE:
                raise BatchCorrupt(f"a batch of {size} bytes at {begin + position} of {where}")
            is_marker = False
            if finds_markers and attributes & CONTROL_BIT and size <= end - position:
                found = _is_abort_marker(read, begin + position, size)
                if found is None:
                    return None
                is_marker = found
            batch = FetchedBatch(
                base_offset, base_offset + delta, producer_id, bool(attributes & TRANSACTIONAL_BIT), is_marker
            )
        if size > end - position:
            break
        batches.append(batch)
        starts.append(position)
        position += size
        if batch.last_offset >= until_offset:
            break
    starts.append(position)
    return FetchedRecords(records, batches, starts)


def _other_batch(data: bytes, inside: int) -> tuple[FetchedBatch, int]:
    """A message of an old format, or what is left of a batch at the end."""
    length = int.from_bytes(data[inside + 8 : inside + LOG_OVERHEAD], "big", signed=True)
    if length < LEGACY_MINIMUM_LENGTH:
        raise BatchCorrupt(f"a batch with the length {length}")
    try:
        header = parse_header(data, inside)
    except (struct.error, IndexError):
        return FetchedBatch(-1, -1), len(data) + LOG_OVERHEAD + length
    return FetchedBatch(header.base_offset, header.last_offset, header.producer_id), header.size


def _is_abort_marker(read: Read, position: int, size: int) -> bool | None:
    batch = read(position, min(size, _MARKER_BYTES))
    if batch is None:
        return None
    record = first_record(batch, parse_header(batch))
    return record is not None and parse_control_key(record.key) == ControlType.ABORT
