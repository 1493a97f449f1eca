"""ListOffsets: the offset of a client's timestamp in a partition. Special timestamps are answered at once, others by
searches that read files in worker threads.

Special timestamps are Kafka's (KIP-734, KIP-1005, KIP-1023). Requests are unknown here: api/list_offsets refuses a
special timestamp that a request's version lacks.

The numbers of running and waiting searches are bounded. Connections take turns, so that one with many searches does not
keep others waiting. A search that is not over soon begins again in a line of its own, in which one is carried out at a
time: it may have a body of hundreds of megabytes in memory. It is done in pieces. A result counts only if the partition
is still led in the requested epoch, the log is the one that was searched, and the found record was not truncated or
deleted meanwhile. Otherwise the search is repeated.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import LogRefused, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import RecordMalformed
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Log, OffsetSearch, TimestampOffset

logger = logging.getLogger(__name__)

FIRST_VERSIONS = {
    (LATEST := -1): 1,
    (EARLIEST := -2): 1,
    (MAX_TIMESTAMP := -3): 7,
    (EARLIEST_LOCAL := -4): 8,
    (LATEST_TIERED := -5): 9,
    (EARLIEST_PENDING_UPLOAD := -6): 11,
}
"""The special timestamps, with the first version of ListOffsets that has each."""
DEBUGGING_REPLICA = -2
THIS_NODE = -1
"""The connection id of this node's own questions."""


class Question(NamedTuple):
    """A client's lookup in a partition. The timestamp is in ms, or special."""

    timestamp_ms: int
    read_committed: bool
    current_leader_epoch: int
    replica_id: int
    connection_id: int
    timeout_ms: int = 0
    """How long the client waits for the remote storage. 0: as long as the setting says."""

    @property
    def searched_timestamp_ms(self) -> int | None:
        """The argument for Log.begin_lookup."""
        return None if self.timestamp_ms == MAX_TIMESTAMP else self.timestamp_ms


def refusal(core: Partition, question: Question) -> OffsetLookup | None:
    error = core.check_leader(question.current_leader_epoch)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and question.replica_id == DEBUGGING_REPLICA:
        error = ErrorCode.NONE
    return None if error is ErrorCode.NONE else OffsetLookup(error)


def look_up(core: Partition, question: Question) -> OffsetLookup | None:
    """The offset for a special timestamp. None if the log must be searched."""
    refused = refusal(core, question)
    if refused is not None:
        return refused
    log, timestamp_ms = core.log, question.timestamp_ms
    if timestamp_ms == LATEST:
        if not _is_available(core, question):
            return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetLookup(ErrorCode.NONE, -1, _end(core, question), core.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset if timestamp_ms == EARLIEST else log.local_log_start_offset
        return OffsetLookup(ErrorCode.NONE, -1, start, log.epoch_for_offset(start))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        offset = -1
        if log.is_tiered:
            offset = log.highest_offset_in_remote_storage
            if timestamp_ms == EARLIEST_PENDING_UPLOAD:
                offset = _earliest_pending_upload(log)
        # A follower without records begins there, also at the end of the log.
        if question.replica_id < 0 and offset >= _end(core, question):
            return _no_offset(core, question)
        return OffsetLookup(ErrorCode.NONE, -1, offset, log.epoch_for_offset(offset))
    if timestamp_ms >= 0 or timestamp_ms == MAX_TIMESTAMP:
        return None
    return OffsetLookup(ErrorCode.UNSUPPORTED_VERSION)


def _earliest_pending_upload(log: Log) -> int:
    """The first offset that is not copied. -1 if it is not known yet: something is copied, but not up to where."""
    highest = log.highest_offset_in_remote_storage
    if highest < 0 and log.local_log_start_offset > log.log_start_offset:
        return -1
    return max(highest + 1, log.log_start_offset)


def answer_found(core: Partition, question: Question, found: TimestampOffset | None) -> OffsetLookup:
    """The answer for a valid search result. Consumers get no offset at or above the end of what they may fetch."""
    if found is not None and found.offset < _end(core, question):
        return OffsetLookup(ErrorCode.NONE, found.timestamp_ms, found.offset, found.leader_epoch)
    return _no_offset(core, question)


def _no_offset(core: Partition, question: Question) -> OffsetLookup:
    return OffsetLookup(ErrorCode.NONE if _is_available(core, question) else ErrorCode.OFFSET_NOT_AVAILABLE)


def _end(core: Partition, question: Question) -> int:
    log = core.log
    if question.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if question.read_committed else log.high_watermark


def _is_available(core: Partition, question: Question) -> bool:
    return question.replica_id >= 0 or core.offsets_are_available()


SEARCHES_PACED = 20_000
"""Unanswered searches above which a request for very many partitions waits before it adds more."""
SEARCHES_MAX = 100_000
"""The most unanswered searches; more are refused. Large requests add one step's worth each, and the bound on
connections limits the small ones."""
SEARCHES_AT_ONCE = 16
"""Searches that one job of a thread runs in a row."""
JOBS_MAX = 2
"""Concurrent jobs, and one more for a long search, so that threads are left for other cold reads."""
USUAL_WORK = 256 * 1024
"""What a search may look at before it is a long one, in records or units of 16 bytes."""
PIECE_WORK = 8 * 1024
"""What a job looks at of a long search. Python text that runs longer in a thread would slow the loop down."""
TRIES_MAX = 5
"""Attempts of one search whose log changes meanwhile. Compaction may replace segments at any time."""


class Search:
    """One partition of one request."""

    __slots__ = (
        "abandoned",
        "answer",
        "core",
        "is_long",
        "leader_epoch",
        "log",
        "question",
        "running",
        "tries",
    )

    def __init__(self, core: Partition, question: Question) -> None:
        self.core = core
        self.question = question
        self.is_long = False
        self.answer: Deferred[OffsetLookup] = Deferred()
        self.answer.when_abandoned = self.abandon
        self.tries = 0
        self.abandoned = False
        self.log: Log | None = None
        self.leader_epoch = -1
        self.running: OffsetSearch | None = None

    def abandon(self) -> None:
        self.abandoned = True
        if self.running is not None:
            self.running.abandoned = True


class _Begun(NamedTuple):
    search: Search
    running: OffsetSearch


class _Line:
    """Searches that wait. Connections take turns."""

    __slots__ = ("_of_connection",)

    def __init__(self) -> None:
        self._of_connection: dict[int, deque[Search]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_connection)

    def add(self, search: Search) -> None:
        self._of_connection.setdefault(search.question.connection_id, deque()).append(search)

    def pop(self) -> Search:
        connection_id = next(iter(self._of_connection))
        own = self._of_connection.pop(connection_id)
        search = own.popleft()
        if own:
            self._of_connection[connection_id] = own
        return search


class Searches:
    """The searches of a node, in the loop's thread. `core_of` gives the present core of a partition."""

    def __init__(self, services: PartitionServices, core_of: Callable[[Partition], Partition | None]) -> None:
        self._tasks = services.tasks
        self._workers = services.workers.reads
        self._core_of = core_of
        self._waiting = _Line()
        self._long = _Line()
        self._runs_long = False
        self._unanswered = 0
        self._running = 0
        """Tasks that carry out searches, up to JOBS_MAX."""
        self._has_failed = False
        """The last job was not carried out, which is logged."""
        self._rooms: deque[Deferred[None]] = deque()
        """Requests that wait to add searches, at most one per connection."""

    def room(self) -> Deferred[None] | None:
        """A result that comes when more searches may be added. None if they may be added now."""
        if self._unanswered < SEARCHES_PACED:
            return None
        room: Deferred[None] = Deferred()
        room.when_abandoned = partial(self._leave, room)
        self._rooms.append(room)
        return room

    def _leave(self, room: Deferred[None]) -> None:
        if not room.done:
            self._rooms.remove(room)
            room.resolve(None)

    def _done_with_one(self) -> None:
        self._unanswered -= 1
        if self._unanswered < SEARCHES_PACED:
            # Wake one request for each answer, since each adds a step's worth. If nothing is left to answer, wake all.
            count = len(self._rooms) if not self._unanswered else min(len(self._rooms), 1)
            # A woken request may wake others, or wait again before this returns.
            while count and self._rooms:
                count -= 1
                self._rooms.popleft().resolve(None)

    def ask(self, core: Partition, question: Question) -> Deferred[OffsetLookup]:
        search = Search(core, question)
        if self._unanswered >= SEARCHES_MAX:
            return Deferred.of(OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE))
        self._unanswered += 1
        self._waiting.add(search)
        if self._running < JOBS_MAX:
            self._running += 1
            self._tasks.start("searching offsets by time", self._run())
        return search.answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                begun: list[_Begun] = []
                while self._waiting and len(begun) < SEARCHES_AT_ONCE:
                    search = self._waiting.pop()
                    running = self._begin(search)
                    if running is not None:
                        begun.append(_Begun(search, running))
                if begun:
                    await self._run_job(begun)
        finally:
            self._running -= 1

    async def _run_job(self, begun: Sequence[_Begun]) -> None:
        try:
            over = await self._workers.submit(partial(_run, begun))
        except Exception as problem:
            self._failed(begun, problem)
            return
        self._has_failed = False
        for (search, running), is_over in zip(begun, over, strict=True):
            if is_over or search.abandoned:
                self._finish(search, running)
            else:
                search.running = None
                search.is_long = True
                self._long.add(search)
        if self._long and not self._runs_long:
            self._runs_long = True
            self._tasks.start("long searches of offsets by time", self._run_long())

    async def _run_long(self) -> None:
        try:
            while self._long:
                search = self._long.pop()
                running = self._begin(search)
                if running is None:
                    continue
                is_over = False
                try:
                    while not is_over and not search.abandoned:
                        is_over = await self._workers.submit(partial(running.run, PIECE_WORK))
                except Exception as problem:
                    self._failed([_Begun(search, running)], problem)
                    continue
                self._has_failed = False
                self._finish(search, running)
        finally:
            self._runs_long = False

    def _failed(self, begun: Sequence[_Begun], problem: Exception) -> None:
        if not passes(problem):
            report("searching offsets by time", problem)
        elif not self._has_failed:
            self._has_failed = True
            logger.warning("offsets could not be looked up by time: %s", problem)
        for search, _ in begun:
            self._answer(search, OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE))

    def _begin(self, search: Search) -> OffsetSearch | None:
        """Start a search. Returns None if it is answered without one."""
        if search.abandoned:
            self._done_with_one()
            return None
        try:
            refused = self._refusal(search)
            if refused is None:
                search.tries += 1
                search.log, search.leader_epoch = search.core.log, search.core.leader_epoch
                search.running = search.log.begin_lookup(search.question.searched_timestamp_ms)
                return search.running
        except Exception as problem:
            refused = _refused_by(search, problem)
        self._answer(search, refused)
        return None

    def _finish(self, search: Search, running: OffsetSearch) -> None:
        search.running = None
        if search.abandoned:
            self._done_with_one()
            return
        try:
            found = self._found(search, running)
        except Exception as problem:
            found = _refused_by(search, problem)
        if found is not None:
            self._answer(search, found)
        elif search.tries < TRIES_MAX:
            (self._long if search.is_long else self._waiting).add(search)
        else:
            self._answer(search, OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE))

    def _found(self, search: Search, running: OffsetSearch) -> OffsetLookup | None:
        """The answer. None if the result does not count."""
        log = search.log
        assert log is not None
        refused = self._refusal(search)
        if refused is not None:
            return refused
        holds = log.finish_lookup(running)
        if holds and log is search.core.log and search.leader_epoch == search.core.leader_epoch:
            return answer_found(search.core, search.question, running.found)
        return None

    def _refusal(self, search: Search) -> OffsetLookup | None:
        if self._core_of(search.core) is not search.core:
            return OffsetLookup(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return refusal(search.core, search.question)

    def _answer(self, search: Search, found: OffsetLookup) -> None:
        search.answer.resolve(found)
        self._done_with_one()


def _refused_by(search: Search, problem: Exception) -> OffsetLookup:
    """The answer to a search that has failed, whatever the reason: the others go on. Clients retry unless the data is
    damaged."""
    name = search.core.topic_partition
    if isinstance(problem, LogRefused):
        return OffsetLookup(problem.code)
    if isinstance(problem, OSError):
        logger.error("offsets of %s could not be looked up: %s", name, problem)
        return OffsetLookup(ErrorCode.KAFKA_STORAGE_ERROR)
    if isinstance(problem, (BatchCorrupt, RecordMalformed, DecompressionFailed)):
        logger.error("%s is damaged on disk: %s", name, problem)
        return OffsetLookup(ErrorCode.CORRUPT_MESSAGE)
    if passes(problem):
        return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
    report(f"a search by time in {name}", problem)
    return OffsetLookup(ErrorCode.UNKNOWN_SERVER_ERROR)


def _run(begun: Sequence[_Begun]) -> list[bool]:
    """Whether each search is over."""
    over = []
    for _, running in begun:
        over.append(running.run(USUAL_WORK))
        if not over[-1]:
            running.give_up()
    return over
