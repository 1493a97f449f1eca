"""Fetch and ListOffsets over the border between local files and the remote storage (DelayedRemoteFetch,
DelayedRemoteListOffsets).

Imported only by a node with a remote storage. Settings: remote.fetch.max.wait.ms, remote.list.offsets.request.timeout.ms.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import Uuid
from kafkacompat.partition.list_offsets import Question, answer_found, refusal
from kafkacompat.partition.service import FetchedRemotely, OffsetLookup, RemoteFetch
from kafkacompat.ports import EMPTY_RECORDS, AbortedTransaction, LogRefused, TimestampOffset, passes
from kafkacompat.records.batch import iterate_batches
from kafkacompat.remote.ports import RemoteStorageException, RemoteStorageNotReadyException
from kafkacompat.tasks import Cancelled, Overloaded, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import AbortedTransaction as ToldAborted

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.service import FetchParameters
    from kafkacompat.partition.services import Settings
    from kafkacompat.tasks import Task, Tasks
    from kafkacompat.wire.messages.fetch_response import PartitionData

logger = logging.getLogger(__name__)

LATER_MS = 100
"""How long a fetch waits that the remote storage cannot serve yet. Its client sends it again at once."""
SEARCH_MOST_MS = 300_000
"""A search holds a place for as long as its client waits, but no longer than this."""


BEGUN_US = 60
"""Of the begin of one read, also if too many wait already."""
TAKEN_US = 10
"""Of what has come of one."""
ABORTED_US = 1
"""Of an aborted transaction that an answer names."""
HELD_BYTES_MAX = 256 << 20
"""What was read is in memory until its client has taken it. The more there is, the less a fetch gets, down to one batch."""
HELD_SHARE = 4
"""One fetch gets this part of what is free at most, so that some slow clients leave something for the others."""


class RemoteRecords(Protocol):
    @property
    def records(self) -> memoryview: ...

    @property
    def aborted_transactions(self) -> Sequence[AbortedTransaction]: ...


class RemoteReading(Protocol):
    """The parts of RemoteLogManager that are called here."""

    def fetch_throttle_ms(self) -> int: ...

    async def read(
        self, core: Partition, offset: int, max_bytes: int, *, minimum_one_batch: bool, read_committed: bool
    ) -> RemoteRecords: ...

    async def find_offset(self, core: Partition, timestamp_ms: int) -> TimestampOffset | None: ...


Key = tuple[Uuid, int, int, bool]


class _Read(NamedTuple):
    """A read in progress, or ended, and the bytes that it was asked for."""

    task: Task[Any]
    max_bytes: int


class RemoteFetches:
    """Reads of consumers and of share groups."""

    def __init__(self, tasks: Tasks, settings: Settings, remote: RemoteReading) -> None:
        self._tasks = tasks
        self._settings = settings
        self._remote = remote
        self._reading: dict[Key, _Read] = {}
        """Reads in progress. The next fetch of a client whose fetch came to its time waits for the same read, so that a slow
        store is read all the same. It may be a fetch of another client, which wants less."""
        self._held_bytes = 0
        """Records in answers that are not sent yet."""

    async def fill(self, parameters: FetchParameters, answers: Sequence[PartitionData]) -> None:
        """Put records of the remote storage into those of the answers that want them, as far as they come within
        remote.fetch.max.wait.ms."""
        present = {id(answer) for answer in answers}
        wanted = [each for each in parameters.tiered or () if id(each.answer) in present]
        parameters.tiered = None
        found = await self.read(
            [
                RemoteFetch(each.core, each.asked.fetch_offset, each.max_bytes, each.minimum_one_batch)
                for each in wanted
            ],
            parameters.max_bytes - sum([len(answer.records) for answer in answers]),
            parameters.max_wait_ms,
            read_committed=parameters.read_committed,
        )
        for each, outcome in zip(wanted, found, strict=True):
            answer = each.answer
            if isinstance(outcome, ErrorCode):
                answer.error_code = outcome
                answer.high_watermark, answer.aborted_transactions = -1, None
            elif outcome is not None:
                answer.records = outcome.records or EMPTY_RECORDS
                if parameters.read_committed:
                    answer.aborted_transactions = [
                        ToldAborted(producer_id=one.producer_id, first_offset=one.first_offset)
                        for one in outcome.aborted_transactions
                    ]
                    await pause(ABORTED_US * len(answer.aborted_transactions))

    async def read(
        self, wanted: Sequence[RemoteFetch], max_bytes: int, max_wait_ms: int, *, read_committed: bool
    ) -> list[FetchedRemotely | ErrorCode | None]:
        """Read within remote.fetch.max.wait.ms. None for what has not come by then, or may not be read yet: the client
        should ask again, and was kept waiting if it would do so at once.

        `max_bytes`: of all together. As in a local fetch, the first partition may give one batch beyond that.
        """
        outcomes: list[FetchedRemotely | ErrorCode | None] = [None] * len(wanted)
        throttle_ms = self._remote.fetch_throttle_ms()
        if throttle_ms:
            await self._tasks.sleep(min(throttle_ms, max_wait_ms))
            return outcomes
        share = min(max(max_bytes, 0), self._free_bytes() // HELD_SHARE) // max(len(wanted), 1)
        reads: dict[int, tuple[RemoteFetch, Task[Any]]] = {}
        for index, each in enumerate(wanted):
            least_one = each.minimum_one_batch and not reads
            limited = each._replace(max_bytes=min(each.max_bytes, share), minimum_one_batch=least_one)
            if limited.max_bytes > 0 or least_one:
                reads[index] = limited, self._read(limited, read_committed)
                await pause(BEGUN_US)  # a fetch may name any number of partitions that are tiered
        await self._in_time(
            [read for _, read in reads.values()], self._settings.get_int("remote.fetch.max.wait.ms")
        )
        is_late = False
        for index, (limited, read) in reads.items():
            if read.done:
                outcomes[index] = self._outcome(limited, read)
                is_late = is_late or outcomes[index] is None
                await pause(TAKEN_US)
        if is_late:
            await self._tasks.sleep(min(LATER_MS, max_wait_ms))
        return outcomes

    def _read(self, wanted: RemoteFetch, read_committed: bool) -> Task[Any]:
        core, offset, max_bytes, least_one = wanted
        key = core.topic_id, core.topic_partition.partition, offset, read_committed
        known = self._reading.get(key)
        # What the local part of a fetch leaves differs a little from one to the next.
        if known is not None and max_bytes <= 2 * known.max_bytes:
            return known.task
        read: Task[Any] = self._tasks.run(
            "reading the remote storage",
            self._remote.read(
                core, offset, max_bytes, minimum_one_batch=least_one, read_committed=read_committed
            ),
        )
        if not read.done:
            self._reading[key] = _Read(read, max_bytes)
            read.on_done(partial(self._is_over, key))
        return read

    def _free_bytes(self) -> int:
        reading = sum([each.max_bytes for each in self._reading.values()])
        return max(HELD_BYTES_MAX - self._held_bytes - reading, 0)

    def hold(self, records: memoryview) -> memoryview:
        """Count the bytes behind a view until nobody has it any more. A part of a view has to be counted by itself."""
        size = len(records.obj)  # type: ignore[arg-type]  # a view of bytes
        self._held_bytes += size
        weakref.finalize(records, self._let_go, size).atexit = False
        return records

    def _let_go(self, size: int) -> None:
        self._held_bytes -= size

    def _is_over(self, key: Key, read: Deferred[Any]) -> None:
        known = self._reading.get(key)
        if known is not None and known.task is read:
            del self._reading[key]

    def _outcome(self, wanted: RemoteFetch, read: Task[Any]) -> FetchedRemotely | ErrorCode | None:
        """None if the client should ask again, but not at once."""
        try:
            found: RemoteRecords = read.result()
        except (RemoteStorageNotReadyException, Overloaded, Cancelled):
            return None
        except Exception as problem:
            wanted.core.traffic.failed_fetches += 1
            return self._error_of(problem, f"the remote read of {wanted.core.topic_partition}")
        end = _end_of(found.records, wanted.max_bytes, wanted.minimum_one_batch)
        return FetchedRemotely(self.hold(found.records[:end]), found.aborted_transactions)

    async def find_offset(self, core: Partition, question: Question) -> OffsetLookup | None:
        """The answer, also if it is an error. None if the remote storage has no such record."""
        search = self._tasks.run(
            "searching the remote storage by time", self._remote.find_offset(core, question.timestamp_ms)
        )
        most_ms = min(question.timeout_ms, SEARCH_MOST_MS)
        if most_ms <= 0:
            most_ms = self._settings.get_int("remote.list.offsets.request.timeout.ms")
        await self._in_time([search], most_ms)
        if not search.done:
            search.cancel()
            return OffsetLookup(ErrorCode.REQUEST_TIMED_OUT)
        try:
            found = search.result()
        except (RemoteStorageNotReadyException, Overloaded):
            return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
        except Exception as problem:
            return OffsetLookup(self._error_of(problem, f"a search by time in {core.topic_partition}"))
        if found is None:
            return None
        return refusal(core, question) or answer_found(core, question, found)

    def _error_of(self, problem: Exception, what: str) -> ErrorCode:
        if isinstance(problem, LogRefused):
            return problem.code
        if isinstance(problem, RemoteStorageException) or passes(problem):
            logger.warning("%s failed: %s", what, problem)
        else:
            report(what, problem)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    async def _in_time(self, works: Sequence[Deferred[Any]], most_ms: int) -> None:
        """Return when all of it is done, or after this time. The work goes on, and keeps nothing of who has waited for it: a store
        may hang while clients come again and again."""
        waited_for = [work for work in works if not work.done]
        if not waited_for:
            return
        left = len(waited_for)
        over: Deferred[None] = Deferred()

        def end(done: Deferred[Any]) -> None:
            nonlocal left
            left -= 1
            if not over.done and (not left or done is time):
                over.resolve(None)

        time = self._tasks.sleep(most_ms)
        for each in (time, *waited_for):
            each.on_done(end)
        try:
            await over
        finally:
            time.abandon()
            for work in waited_for:
                work.forget(end)


def _end_of(records: memoryview, max_bytes: int, least_one: bool) -> int:
    """The end of the first batches that a fetch may get of what was read, perhaps for another fetch."""
    if len(records) <= max_bytes:
        return len(records)
    end = 0
    for header in iterate_batches(records):
        if header.position + header.size > max_bytes and (end or not least_one):
            break
        end = header.position + header.size
    return end
