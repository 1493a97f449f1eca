"""Serving a Fetch: session, reads, the answer, and the long poll that waits for bytes or the timeout.

What Kafka has in ReplicaManager.fetchMessages and DelayedFetch. FetchEngine takes a fetch, FetchReads reads its
partitions and makes the answer, and FetchPurgatory keeps the fetches that wait (DelayedFetch) and wakes them.

Records are returned as file slices, and their bytes are not examined. A follower reads to the log end, a consumer to
the high watermark or the last stable offset. Versions matter only where they change the answer's content. Follows
KIP-74 (limits), KIP-227 (sessions), KIP-320 and KIP-595 (epochs), KIP-392 (nearest replica), KIP-951 (current leader).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.controller.image import endpoints_of
from kafkacompat.deferred import Deferred
from kafkacompat.ids import ZERO_UUID, TopicPartition, Uuid
from kafkacompat.partition.delayed_operations import ANSWER_US, DelayedOperation, DelayedOperationPurgatory
from kafkacompat.partition.fetch_session import (
    INVALID_SESSION_ID,
    CachedPartition,
    FetchContext,
    FetchSessionCache,
    response_size,
    response_size_in_steps,
)
from kafkacompat.partition.replica_selector import nearest_replica
from kafkacompat.partition.service import TieredPartitionFetch
from kafkacompat.ports import EMPTY_RECORDS, FileSlice, LogRefused
from kafkacompat.ports import AbortedTransaction as AbortedOfLog
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kafkacompat.wire.plain_fetch import PACKED_MAX

if TYPE_CHECKING:
    from kafkacompat.controller.image import PartitionRegistration
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.remote_fetch import RemoteFetches
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
    from kafkacompat.partition.service import FetchParameters, FetchRequestPartition, Pack
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Clock, Timers

    Forgotten = Sequence[tuple[Uuid, str | None, int]]

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_STORAGE_ERROR = 6
"""Clients of earlier versions do not know KAFKA_STORAGE_ERROR."""
FIRST_VERSION_WITH_RACK = 11
"""From this version on, consumers may read from followers."""
FIRST_VERSION_WITH_CURRENT_LEADER = 16
LONG_FROM = 500
"""A fetch with more partitions in its request or session than this is read in steps."""
NAMED_A_STEP = 1_000
"""Partitions that a session adds or removes in one step, at about 1 us each."""
READ_A_STEP = 200
"""Partitions that one step of a fetch answers, at up to 30 us each."""
OPENED_A_STEP = 8
"""Partitions that one step of a fetch answers while it may have to open their logs, at up to a millisecond each."""
LOOKED_AT_A_STEP = 2_000
"""Partitions that one step checks for a reader that is up to date, at about 1 us each."""
TOLD_A_STEP = 400
ABORTED_MAX = 1_000
"""Aborted transactions in one answer, at about 5 us each, beyond which no more records are read. A transaction may be in
all partitions of a fetch, and a log may have a hundred thousand. The client gets the other records with its next fetch."""
ANSWER_NOW = -1
"""Used in place of a byte count: this partition ends the wait."""
EXPECTED_WAIT_MS = 25
"""The longest wait of followers that are about to fetch more partitions (see Standing.is_expected)."""
EVERYTHING = ("", -1)
"""The key for long fetches of consumers; no topic has an empty name. Parking them under each partition's key would
take several steps."""
PARTITION_US = 6
"""Of an answer: it is read again, remembered in the session, and encoded."""
LOOKED_AT_US = 1
"""Of a partition that is looked at for an answer. Most partitions of a session have nothing to tell."""
RECORDS_US = 40
"""Of a partition whose records were there before the fetch waited, or before they were committed: their place may be far
from the log's end, and is found by a scan then."""
ABORTED_US = 5
"""Of an aborted transaction that an answer names."""
HIDDEN = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors for topics that are not in the metadata, or that the reader may not see."""
STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchEngine:
    """FetchService of partition/service."""

    def __init__(
        self,
        services: PartitionServices,
        manager: ReplicaManager,
        sessions: FetchSessionCache,
        fetch_max_bytes: int,
        *,
        selects_by_rack: bool = False,
        throttle: ReplicationQuotaManager | None = None,
    ) -> None:
        """`selects_by_rack`: see replica_selector. `throttle` limits followers that are not in sync."""
        self.sessions = sessions
        clock, timers = services.clock, services.timers
        self._free = sessions.free
        self._clock = clock
        self._manager = manager
        self.max_bytes = fetch_max_bytes
        self._reads = FetchReads(manager, clock, selects_by_rack=selects_by_rack, throttle=throttle)
        self.remote: RemoteFetches | None = None
        """Reads the remote storage. None without remote.log.storage.system.enable."""
        self.purgatory = FetchPurgatory(manager, self._reads, clock, timers)

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> FetchResponse | Deferred[FetchResponse] | Coroutine[Any, None, FetchResponse]:
        if parameters.max_bytes > self.max_bytes:
            parameters.max_bytes = self.max_bytes
        if parameters.min_bytes > parameters.max_bytes:
            parameters.min_bytes = parameters.max_bytes
        if len(partitions) + len(forgotten) > LONG_FROM:
            return self._fetch_naming_many(parameters, partitions, forgotten)
        context = self._open(parameters, partitions, forgotten)
        count = len(context.partitions)
        if count > LONG_FROM or (count > OPENED_A_STEP and self._manager.opens_logs):
            return self._fetch_in_steps(context, parameters)
        if context.error is not NONE:
            return FetchResponse(error_code=context.error)
        if parameters.replica_id < 0:
            answers, ready = self._reads.read_all(context, parameters, context.partitions, arrived=True)
        else:
            answers, ready = self._read_of_follower(context, parameters)
        if parameters.tiered is not None and self.remote is not None:
            return self._fetch_tiered(self.remote, context, parameters, answers)
        if ready or parameters.max_wait_ms <= 0:
            return self._respond_at_once(context, parameters, answers)
        waiter = self.purgatory.new_waiter(context, parameters)
        is_follower = parameters.replica_id >= 0
        if (
            (
                (answers or not is_follower)
                and not self.purgatory.note_sizes(waiter, waited_for(context, parameters, answers))
            )
            or not (waiter.asked or is_follower)
            or waiter.total >= parameters.min_bytes
            or waiter.parked_in.is_full()
        ):
            return self._respond_at_once(context, parameters, answers)
        if answers or parameters.untold:
            waiter.note_untold(answers)
        self.purgatory.park(waiter, waiter.asked)
        return waiter.answer

    def _respond_at_once(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> FetchResponse:
        """Tell a follower of high watermarks too. While it waits, it hears of them with the next records of any partition, or at
        the end."""
        if parameters.untold:
            known = {id(asked) for asked, _ in answers}
            answers += [
                (asked, _watermarks(core, asked))
                for core, asked in parameters.untold
                if id(asked) not in known
            ]
        return self._reads.respond(context, parameters, answers)

    async def _fetch_tiered(
        self,
        remote: RemoteFetches,
        context: FetchContext,
        parameters: FetchParameters,
        answers: list[tuple[Any, PartitionData]],
    ) -> FetchResponse:
        await remote.fill(parameters, [answer for _, answer in answers])
        return self._respond_at_once(context, parameters, answers)

    def _open(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> FetchContext:
        return self.sessions.open(
            parameters.session_id,
            parameters.session_epoch,
            partitions,
            forgotten,
            uses_topic_ids=parameters.uses_topic_ids,
            privileged=parameters.replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )

    def _read_of_follower(
        self, context: FetchContext, parameters: FetchParameters
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """Read a new fetch, and read again what has moved meanwhile: it may advance high watermarks. A request that waited for
        that, for example of a coordinator, may then append to partitions that were already read."""
        read_all, reading = self._reads.read_all, self.purgatory.reading
        moved: dict[tuple[str, int], Partition] = {}
        reading.append(moved)
        try:
            left, known = self._reads.without_news(context, parameters)
            if left or not known:
                answers, ready = read_all(context, parameters, left, arrived=True, known=known)
            else:
                answers, ready = [], parameters.min_bytes <= 0
        finally:
            reading.pop()
        if ready or not moved:
            return answers, ready
        if any(len(answer.records) for _, answer in answers):
            return answers, True  # less than min_bytes: sending it again cannot exceed max_bytes
        again = {
            id(asked): asked for core in moved.values() if (asked := asked_of(context, core)) is not None
        }
        fresh, ready = read_all(context, parameters, again.values(), arrived=False)
        return [pair for pair in answers if id(pair[0]) not in again] + fresh, ready and bool(again)

    # A fetch of so many partitions that it is read in steps of the loop, with appends and other fetches in between. The
    # answer is the same. Changes between two steps are noted and checked before the fetch waits, so it never waits for
    # data that is there.

    async def _fetch_naming_many(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Forgotten,
    ) -> FetchResponse:
        """A fetch that names or removes many partitions: its session is updated in steps."""
        context = self._open(parameters, (), ())
        session = context.session
        if session is None:
            context.partitions = () if context.error is not ErrorCode.NONE else partitions
            return await self._fetch_in_steps(context, parameters)
        for start in range(0, len(partitions), NAMED_A_STEP):
            if not self.sessions.learn(session, partitions[start : start + NAMED_A_STEP], ()):
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            await pause()
        for start in range(0, len(forgotten), NAMED_A_STEP):
            self.sessions.learn(session, (), forgotten[start : start + NAMED_A_STEP])
            await pause()
        context.partitions = list(session.partitions.values())
        if self.sessions.drop_if_empty(session):
            context.session = None
        return await self._fetch_in_steps(context, parameters)

    async def _fetch_in_steps(self, context: FetchContext, parameters: FetchParameters) -> FetchResponse:
        """A fetch whose session has many partitions."""
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        answers: list[tuple[Any, PartitionData]] = []
        try:
            answers = await self._answers_in_steps(context, parameters)
            if parameters.tiered is not None and self.remote is not None:
                await self.remote.fill(parameters, [answer for _, answer in answers])
            return await self._reads.respond_in_steps(context, parameters, answers)
        finally:
            self._free(answers)
            if isinstance(context.partitions, list):
                self._free(context.partitions)

    async def _answers_in_steps(
        self, context: FetchContext, parameters: FetchParameters
    ) -> list[tuple[Any, PartitionData]]:
        answers: list[tuple[Any, PartitionData]]
        purgatory = self.purgatory
        waiter = purgatory.new_long_waiter(context, parameters)
        purgatory.long_fetches[waiter] = None
        try:
            answers, ready = await self._read_arrived_in_steps(waiter)
            if not ready and parameters.max_wait_ms > 0:
                ready = await self._note_sizes_in_steps(waiter, answers)
                if ready and waiter.noted:
                    answers, _ = await self._read_noted(waiter, answers)
            else:
                ready = True
        finally:
            del purgatory.long_fetches[waiter]
        if not ready and not waiter.parked_in.is_full():
            waiter.note_untold(answers)
            purgatory.park(waiter, [EVERYTHING])
            if len(waiter.noted) > READ_A_STEP:
                waiter.parked_in.remove(waiter)
                waiter.expire()
            for core in waiter.noted.values():
                if waiter.parked:
                    purgatory.look_again_at_long(waiter, core)
            waiter.noted = {}
            self._free(answers)  # it will be read again
            partitions: Any = await waiter.answer  # the value of a LongFetch: what to read now
            reading = Reading(list(partitions), parameters.max_bytes)
            answers, _ = await self._read_in_steps(waiter, reading, arrived=False)
        return answers

    async def _read_in_steps(
        self, waiter: LongFetch, reading: Reading, *, arrived: bool
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        while True:
            before, waiter.noted = waiter.noted, {}
            answers, ready = self._reads.read_all(
                waiter.context,
                waiter.parameters,
                self._stretch_of(reading, waiter.parameters),
                arrived=arrived,
                reading=reading,
            )
            # A consumer's read changes nothing. Any partition noted here was opened by the read itself.
            waiter.noted = before if waiter.parameters.replica_id < 0 else before | waiter.noted
            if reading.is_over:
                return answers, ready
            try:
                await pause()
            except GeneratorExit:
                self._free(answers)
                raise

    def _stretch_of(self, reading: Reading, parameters: FetchParameters) -> Iterator[Any]:
        """The partitions of the next step. A look at one that needs no answer may take as long as an answer: if the right to
        it is asked for, or if a consumer's fetch meets a new role or a log that is not open. A follower must be told of
        these."""
        manager = self._manager
        answered_max = OPENED_A_STEP if manager.opens_logs else READ_A_STEP
        looks_only = parameters.may_read is None and (
            parameters.replica_id >= 0 or not (manager.opens_logs or manager.hosted.changes)
        )
        return reading.stretch(answered_max, LOOKED_AT_A_STEP if looks_only else answered_max)

    async def _read_arrived_in_steps(self, waiter: LongFetch) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """Like a small fetch of a follower: partitions that changed while being read are read once more."""
        parameters = waiter.parameters
        reading = Reading(waiter.context.partitions, parameters.max_bytes)
        answers, ready = await self._read_in_steps(waiter, reading, arrived=True)
        if parameters.replica_id < 0 or ready or not waiter.noted:
            return answers, ready
        if any(len(answer.records) for _, answer in answers):
            return answers, True
        return await self._read_noted(waiter, answers)

    async def _read_noted(
        self, waiter: LongFetch, answers: list[tuple[Any, PartitionData]]
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """The answers, with the changed partitions read again."""
        noted, waiter.noted = waiter.noted, {}
        again = {id(asked): asked for core in noted.values() if (asked := waiter.asks_of(core)) is not None}
        kept = [pair for pair in answers if id(pair[0]) not in again]
        reading = Reading(list(again.values()), waiter.parameters.max_bytes)
        reading.total = sum(len(answer.records) for _, answer in kept)
        reading.budget -= reading.total
        reading.first = not reading.total
        fresh, ready = await self._read_in_steps(waiter, reading, arrived=False)
        return kept + fresh, ready and bool(again)

    async def _note_sizes_in_steps(self, waiter: LongFetch, answers: list[tuple[Any, PartitionData]]) -> bool:
        """Record what each partition could give now. Returns True if the fetch need not wait."""
        parameters = waiter.parameters
        asked = waited_for(waiter.context, parameters, answers)
        for start in range(0, len(asked), READ_A_STEP):
            if start:
                await pause()
            if not self.purgatory.note_sizes(waiter, asked[start : start + READ_A_STEP]):
                return True
        return not (waiter.asked or parameters.replica_id >= 0) or waiter.total >= parameters.min_bytes


def waited_for(
    context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
) -> Sequence[Any]:
    """The partitions that a fetch without enough bytes waits for: a follower's that has something to be told of."""
    return context.partitions if parameters.replica_id < 0 else [asked for asked, _ in answers]


class Counted(NamedTuple):
    """The bytes that a fetch could get from a partition, counted up to an offset."""

    size: int
    end: int


NOTHING_COUNTED = Counted(0, -1)
ENDS_WAIT = Counted(ANSWER_NOW, -1)


class Reading:
    """The progress of a fetch through its partitions, and the answers so far."""

    __slots__ = (
        "aborted_left",
        "answers",
        "budget",
        "ended",
        "first",
        "is_known",
        "partitions",
        "position",
        "total",
    )

    def __init__(self, partitions: Sequence[Any], max_bytes: int) -> None:
        self.partitions = partitions
        self.position = 0
        self.answers: list[tuple[Any, PartitionData]] = []
        self.budget = max_bytes
        self.aborted_left = ABORTED_MAX
        self.first = True
        self.is_known = self.ended = False
        self.total = 0

    @property
    def is_over(self) -> bool:
        return self.position >= len(self.partitions)

    def stretch(self, answered_max: int, looked_at_max: int) -> Iterator[Any]:
        """The partitions of one step. The more of them need an answer, the fewer it has."""
        answers_max = len(self.answers) + answered_max
        for asked in islice(self.partitions, self.position, self.position + looked_at_max):
            self.position += 1
            yield asked
            if len(self.answers) >= answers_max:
                return


class FetchReads:
    """What a fetch reads of each partition: whether the reader may read, up to which offset, and the bytes within the
    request's limits. And the answer: errors, the current leader, and the partitions that a session has yet to be told."""

    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        *,
        selects_by_rack: bool,
        throttle: ReplicationQuotaManager | None,
    ) -> None:
        """`selects_by_rack`: see replica_selector. `throttle` limits followers that are not in sync."""
        self._manager = manager
        self._clock = clock
        self._selects_by_rack = selects_by_rack
        self._throttle = throttle
        self.shared: dict[tuple[Partition, int, int, int], bytes] | None = None
        """While the followers of a partition are answered, one after another: what was read for the first one. It is read and
        sent within one step."""

    def read_one(self, core: Partition, asked: Any, parameters: FetchParameters) -> PartitionData:
        """As `read_all` with one partition, for a request that has waited."""
        max_bytes = min(asked.partition_max_bytes, parameters.max_bytes)
        return self._read(core, asked, parameters, max_bytes, True, False, ABORTED_MAX)

    def packed(
        self, pack: Pack, context: FetchContext, parameters: FetchParameters, core: Partition, asked: Any
    ) -> Any:
        """The encoded response with a few records of one partition, for a request that has waited: as `read_one` and `respond`.
        None, before any effect, if anything else is to be told or the records are not at hand."""
        log, offset, epoch, last_epoch = (
            core.log,
            asked.fetch_offset,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )
        session, replica_id, committed = context.session, parameters.replica_id, parameters.read_committed
        high_watermark, start = log.high_watermark, log.log_start_offset
        stable = log.last_stable_offset
        if (
            (session is None and context.wants_a_session)
            or parameters.throttle is not None
            or not core.is_leader
            or (epoch >= 0 and epoch != core.leader_epoch)
            or (last_epoch >= 0 and last_epoch != log.latest_epoch())
        ):
            return None
        if replica_id >= 0:
            if replica_id not in core.followers or self._is_held_back(core, replica_id):
                return None
            end = log.log_end_offset
        else:
            if (
                core.is_being_made_durable
                or self._selects_by_rack
                or (committed and stable != high_watermark)
            ):
                return None
            end = high_watermark
        if not start <= offset < end:
            return None
        max_bytes = min(asked.partition_max_bytes, parameters.max_bytes)
        shared = self.shared if replica_id >= 0 else None
        key = core, offset, max_bytes, end
        data: bytes | None = None if shared is None else shared.get(key)
        if data is None:
            try:
                read = log.read(offset, max_bytes, end, True)
                records = read.records
                if type(records) is not FileSlice or records.length > PACKED_MAX:
                    return None
                if committed and log.aborted_transactions(offset, read.end_offset, 1)[0]:
                    return None
                data = records.file.try_read(records.position, records.length)
            except (LogRefused, BatchCorrupt, OSError):
                return None  # the usual way gets the same error and reports it
            if data is None or len(data) != records.length:
                return None
            if shared is not None:
                shared[key] = data
        traffic, size = core.traffic, len(data)
        if replica_id >= 0:
            traffic.fetches += 1
            if session is not None:
                asked.settled_epoch = core.leader_epoch
            if self._throttle is not None:
                self._throttle.record(core, size)
            traffic.replication_bytes_out += size
            if replica_id in core.adding_replicas:
                traffic.reassignment_bytes_out += size
        else:
            traffic.bytes_out += size
        if session is not None:
            asked.told_high_watermark, asked.told_log_start_offset = high_watermark, start
            session.move_to_end(asked)
        return pack(
            INVALID_SESSION_ID if session is None else session.id,
            asked.topic_id,
            asked.partition,
            high_watermark,
            stable,
            start,
            committed,
            data,
        )

    def without_news(self, context: FetchContext, parameters: FetchParameters) -> tuple[Sequence[Any], bool]:
        """Record the progress of a follower whose fetch has arrived. Returns the partitions from the first one on of which it must
        be told, and whether there are others before: those are known, and it has all of them."""
        manager, replica_id, epoch = self._manager, parameters.replica_id, parameters.replica_epoch
        if (
            context.session is None
            or parameters.may_read is not None
            or manager.hosted.changes
            or manager.hosted.standing.is_outlived(replica_id, epoch)
        ):
            return context.partitions, False
        cores: Any = manager.by_id if parameters.uses_topic_ids else manager.by_name
        now_ms = self._clock.monotonic_ms()
        for position, asked in enumerate(context.partitions):
            core: Partition | None = cores.get(asked.key)
            if core is None:
                return context.partitions[position:], position > 0
            if core.update_idle_follower_fetch_state(replica_id, asked, epoch, now_ms):
                continue
            if not self._has_all(core, asked, replica_id, epoch, now_ms):
                return context.partitions[position:], position > 0
            if asked.told_high_watermark != core.log.high_watermark:
                parameters.untold = [*(parameters.untold or ()), (core, asked)]
        return (), bool(context.partitions)

    def read_all(
        self,
        context: FetchContext,
        parameters: FetchParameters,
        partitions: Iterable[Any],
        *,
        arrived: bool,
        reading: Reading | None = None,
        known: bool = False,
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """(asked, answer) of each partition in order, and whether the fetch can be answered without a wait. With
        `reading`, continue where that one stopped. `known`: there are other partitions, of which there is no news.

        `arrived`: the request is new, so a follower's offsets report its progress. Partitions of which a follower has
        everything are left out, and those of which a consumer's session has been told all.
        """
        manager, replica_id = self._manager, parameters.replica_id
        is_consumer = replica_id < 0
        has_session = context.session is not None
        may_be_idle = has_session and (
            not (self._selects_by_rack and parameters.rack_id)
            if is_consumer
            else arrived and not manager.hosted.standing.is_outlived(replica_id, parameters.replica_epoch)
        )
        # Roles change between two fetches only.
        is_found_directly = (
            has_session and parameters.may_read is None and not (arrived and manager.hosted.changes)
        )
        cores: Any = manager.by_id if parameters.uses_topic_ids else manager.by_name
        now_ms = self._clock.monotonic_ms() if may_be_idle and not is_consumer else 0
        budget = parameters.max_bytes
        aborted_left = ABORTED_MAX
        first = True
        ended = False
        total = 0
        answers: list[tuple[Any, PartitionData]] = []
        if reading is not None:
            budget, first, total = reading.budget, reading.first, reading.total
            known, ended, answers = reading.is_known, reading.ended, reading.answers
            aborted_left = reading.aborted_left
        core: Partition | None
        for asked in partitions:
            if not is_found_directly or (core := cores.get(asked.key)) is None:
                core = self.find(asked, parameters, arrived=arrived)
            if may_be_idle and core is not None:
                if is_consumer:
                    # Nothing is new in most partitions of most fetches, so this is not a function.
                    log = core.log
                    high_watermark, epoch = log.high_watermark, asked.current_leader_epoch
                    if (
                        asked.fetch_offset == high_watermark
                        and high_watermark == asked.told_high_watermark
                        and log.log_start_offset == asked.told_log_start_offset
                        and core.is_leader
                        and (epoch < 0 or epoch == core.leader_epoch)
                        and asked.last_fetched_epoch < 0
                        and not (core.is_being_made_durable and core.cannot_be_read_yet())
                    ):
                        if arrived:
                            core.traffic.fetches += 1
                        known = True
                        continue
                elif core.update_idle_follower_fetch_state(
                    replica_id, asked, parameters.replica_epoch, now_ms
                ):
                    known = True
                    continue
                elif reading is None and self._has_all(
                    core, asked, replica_id, parameters.replica_epoch, now_ms
                ):
                    known = True
                    if asked.told_high_watermark != core.log.high_watermark:
                        parameters.untold = [*(parameters.untold or ()), (core, asked)]
                    continue
            if core is None:
                error = self.absent(asked, parameters, arrived=arrived)
                answer = self.refuse(asked, error, parameters)
                if error in HIDDEN:
                    answers.append((asked, answer))
                    continue  # as in Kafka, a missing or hidden partition does not end the wait for the others
            else:
                answer = self._read(
                    core,
                    asked,
                    parameters,
                    asked.partition_max_bytes if asked.partition_max_bytes < budget else budget,
                    first,
                    arrived,
                    aborted_left,
                )
            known = True
            if (
                answer.error_code != 0
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
            ):
                ended = True
            if answer.records is not EMPTY_RECORDS:
                size = len(answer.records)
                first = False
                total += size
                budget = budget - size if budget > size else 0
                if answer.aborted_transactions:
                    aborted_left -= len(answer.aborted_transactions)
                    if aborted_left <= 0:
                        budget = 0
            answers.append((asked, answer))
        if reading is not None:
            reading.budget, reading.first, reading.total = budget, first, total
            reading.is_known, reading.ended = known, ended
            reading.aborted_left = aborted_left
        return answers, ended or not known or total >= parameters.min_bytes

    def _has_all(self, core: Partition, asked: Any, replica_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether a follower that is in sync has got everything since its last fetch, and its log is the leader's. Then its
        progress is recorded, as `_read` does. Its broker has not started anew since."""
        log, epoch = core.log, asked.current_leader_epoch
        if (
            asked.fetch_offset != log.log_end_offset
            or asked.last_fetched_epoch != log.latest_epoch()
            or asked.last_fetched_epoch < 0
            or asked.told_log_start_offset != log.log_start_offset
            or not core.is_leader
            or (epoch >= 0 and epoch != core.leader_epoch)
            or replica_id not in core.isr
            or replica_id not in core.followers
        ):
            return False
        asked.settled_epoch = core.leader_epoch
        self._manager.follower_has_all(core, replica_id, asked.log_start_offset, broker_epoch, now_ms)
        if asked.fetch_offset != log.log_end_offset:
            return False  # whoever waited for that has appended
        core.traffic.fetches += 1
        return True

    def _read(
        self,
        core: Partition,
        asked: Any,
        parameters: FetchParameters,
        max_bytes: int,
        minimum_one_batch: bool,
        arrived: bool,
        aborted_max: int,
    ) -> PartitionData:
        replica_id = parameters.replica_id
        if arrived or replica_id >= 0:  # a consumer's fetch that waits counts once
            core.traffic.fetches += 1
        log, epoch = core.log, asked.current_leader_epoch
        # The usual outcome of `_check`, without the calls.
        if not (
            core.is_leader
            and (epoch < 0 or epoch == core.leader_epoch)
            and (not core.is_being_made_durable if replica_id < 0 else replica_id in core.followers)
        ):
            error = self._check(core, asked, parameters)
            if error is not NONE:
                return self.refuse(asked, error, parameters)
        offset = asked.fetch_offset
        high_watermark, last_stable_offset = log.high_watermark, log.last_stable_offset
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if parameters.read_committed else None,
            records=EMPTY_RECORDS,
        )
        last_epoch = asked.last_fetched_epoch
        # In the log's latest epoch a reader does not diverge, unless it is ahead.
        if last_epoch >= 0 and (last_epoch != log.latest_epoch() or offset > log.log_end_offset):
            found = log.end_offset_for_epoch(last_epoch)
            if found.epoch < 0 or offset < log.log_start_offset:
                return self.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
            if found.epoch < last_epoch or found.offset < offset:
                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)
                answer.aborted_transactions = None
                return answer
        if replica_id >= 0 and isinstance(asked, CachedPartition):
            asked.settled_epoch = core.leader_epoch
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return self.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
        if replica_id >= 0:
            if arrived:
                error = self._manager.follower_fetched(
                    core, replica_id, offset, asked.log_start_offset, parameters.replica_epoch
                )
                if error is not NONE:
                    return self.refuse(asked, error, parameters)
                answer.high_watermark = log.high_watermark
            if self._is_held_back(core, replica_id):
                return answer
            end = log.log_end_offset
        else:
            if self._selects_by_rack and core.is_leader and parameters.rack_id:
                nearest = nearest_replica(
                    core, parameters.rack_id, offset, parameters.listener_name, self._clock.monotonic_ms()
                )
                if nearest is not None:
                    answer.preferred_read_replica = nearest
                    answer.aborted_transactions = None
                    return answer
            end = last_stable_offset if parameters.read_committed else high_watermark
        if offset >= end or (max_bytes <= 0 and not minimum_one_batch):
            return answer
        try:
            read = log.read(offset, max_bytes, end, minimum_one_batch)
            aborted: list[AbortedOfLog] = []
            if parameters.read_committed:
                read, aborted = log.with_aborted(offset, read, max_bytes, minimum_one_batch, aborted_max)
        except LogRefused as refused:
            if refused.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                if replica_id >= 0:
                    answer.error_code = refused.code  # with the log start, from which the follower begins
                elif parameters.tiered is None:
                    parameters.tiered = []
                if parameters.tiered is not None:
                    parameters.tiered.append(
                        TieredPartitionFetch(core, asked, answer, max_bytes, minimum_one_batch)
                    )
                return answer
            return self.refuse(asked, refused.code, parameters)
        except BatchCorrupt as damage:
            core.traffic.failed_fetches += 1
            logger.error("%s is damaged on disk before offset %d: %s", core.topic_partition, end, damage)
            return self.refuse(asked, ErrorCode.CORRUPT_MESSAGE, parameters)
        except OSError as error_of_disk:
            logger.error("read of %s failed: %s", core.topic_partition, error_of_disk)
            return self.refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, parameters)
        if not read.first_batch_truncated or minimum_one_batch:
            answer.records = read.records
            if replica_id >= 0 and self._throttle is not None:
                self._throttle.record(core, len(read.records))
        if parameters.read_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in aborted
            ]
        return answer

    def _check(self, core: Partition, asked: Any, parameters: FetchParameters) -> ErrorCode:
        """Check that this reader may read here: followers from the leader only, newer consumers from any replica."""
        if parameters.replica_id >= 0:
            return core.check_replica(parameters.replica_id, asked.current_leader_epoch)
        if not core.is_leader and parameters.version >= FIRST_VERSION_WITH_RACK:
            return core.check_current_leader_epoch(asked.current_leader_epoch)
        error = core.check_leader(asked.current_leader_epoch)
        if error is NONE and core.cannot_be_read_yet():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def has_anything(self, core: Partition, asked: Any, parameters: FetchParameters) -> bool:
        """Whether a parked fetch of a follower must be told of this partition."""
        if core.check_replica(parameters.replica_id, asked.current_leader_epoch) is not NONE:
            return True
        log = core.log
        return not self._is_held_back(core, parameters.replica_id) and (
            asked.fetch_offset != log.log_end_offset
            # DeleteRecords waits until all followers know the new start.
            or getattr(asked, "told_log_start_offset", log.log_start_offset) != log.log_start_offset
        )

    def available(
        self, core: Partition, asked: Any, parameters: FetchParameters, known: Counted = NOTHING_COUNTED
    ) -> Counted:
        """The bytes that a parked fetch could get from this partition, or ANSWER_NOW. `known` is what an earlier look has
        found: only what has come since then is looked for. Finding a place far from the log's end takes ten times as long
        as all else here."""
        if self._check(core, asked, parameters) is not NONE:
            return ENDS_WAIT
        log = core.log
        offset = asked.fetch_offset
        if parameters.replica_id >= 0:
            if self._is_held_back(core, parameters.replica_id):
                return Counted(0, offset)
            if getattr(asked, "told_log_start_offset", log.log_start_offset) != log.log_start_offset:
                return ENDS_WAIT  # DeleteRecords waits until all followers know the new start
        end = readable_end(core, parameters)
        if offset == end:
            return Counted(0, offset)
        if offset > end or offset < log.local_log_start_offset:
            return ENDS_WAIT  # not committed yet, or deleted meanwhile, or in the remote storage
        if log.segment_base_offset(offset) != log.segment_base_offset(end):
            return ENDS_WAIT
        limit: int = asked.partition_max_bytes
        if not offset <= known.end <= end:
            known = Counted(0, offset)
        try:
            more = log.readable_bytes(known.end, end)
        except (OSError, BatchCorrupt, LogRefused):
            return ENDS_WAIT  # the read gets the same error and reports it
        return Counted(min(known.size + more, limit), end)

    def find(self, asked: Any, parameters: FetchParameters, *, arrived: bool = False) -> Partition | None:
        """The partition. None if it is not here, or the reader may not read it.

        Only a request that has `arrived` meets the newest role. A new role wakes the fetches that wait for its partition. If
        their answers took new roles, each would wake the next one within itself.
        """
        manager = self._manager
        if parameters.may_read is not None:
            name = asked.topic or self._name_of(asked)
            # Without a name no right can be looked at: the log of a deleted topic may still be here.
            if name is None or not parameters.may_read(name):
                return None
        if parameters.uses_topic_ids:
            if arrived:
                return manager.core_by_id(asked.topic_id, asked.partition)
            return manager.by_id.get((asked.topic_id, asked.partition))
        key = asked.topic, asked.partition
        return manager.core(key) if arrived else manager.by_name.get(key)

    def _name_of(self, asked: Any) -> str | None:
        """The name of a topic whose id was not known yet when its session was told of it."""
        topic = self._manager.image.topics_by_id.get(asked.topic_id)
        return None if topic is None else topic.name

    def _is_held_back(self, core: Partition, replica_id: int) -> bool:
        return self._throttle is not None and self._throttle.should_throttle(core, replica_id)

    # Answers

    def absent(self, asked: Any, parameters: FetchParameters, *, arrived: bool) -> ErrorCode:
        """The error code of a partition that is not found."""
        image = self._manager.image
        error_of = self._manager.leader_error if arrived else self._manager.hosted.absent
        if parameters.may_read is not None and not parameters.may_read(asked.topic or self._name_of(asked)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if parameters.uses_topic_ids:
            topic = image.topics_by_id.get(asked.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            return error_of(TopicPartition(topic.name, asked.partition))
        return error_of(TopicPartition(asked.topic, asked.partition))

    def refuse(self, asked: Any, error: ErrorCode, parameters: FetchParameters) -> PartitionData:
        if error is ErrorCode.KAFKA_STORAGE_ERROR and parameters.version < FIRST_VERSION_WITH_STORAGE_ERROR:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # so that they look for the leader
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[] if error in HIDDEN else None,
            records=EMPTY_RECORDS,
        )
        if parameters.version >= FIRST_VERSION_WITH_CURRENT_LEADER and error in STALE_LEADER:
            leader = self._leader_of(asked, parameters.uses_topic_ids)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return answer

    def _leader_of(self, asked: Any, uses_topic_ids: bool) -> PartitionRegistration | None:
        image = self._manager.image
        topic = image.topics_by_id.get(asked.topic_id) if uses_topic_ids else image.topics.get(asked.topic)
        return None if topic is None else topic.partitions.get(asked.partition)

    def respond(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> FetchResponse:
        """The response for these answers. Consecutive partitions of one topic are grouped."""
        if parameters.throttle is not None:
            throttle_ms = parameters.throttle(response_size(context, parameters, answers))
            if throttle_ms:
                return throttled_answer(context, throttle_ms)
        session_id, selected = context.select(answers, self._clock.monotonic_ms)
        if len(selected) == 1 and selected[0][1].current_leader is None:  # mostly
            ((asked, answer),) = selected
            if answer.records is not EMPTY_RECORDS:
                self._count(asked, answer, parameters)
            topic = FetchableTopicResponse(
                topic=asked.topic or "", topic_id=asked.topic_id, partitions=[answer]
            )
            return FetchResponse(session_id=session_id, responses=[topic])
        topics: list[FetchableTopicResponse] = []
        partitions: list[PartitionData] = []
        leaders: set[int] = set()
        last_name: str | None = None
        last_id: Uuid = ZERO_UUID
        for asked, answer in selected:
            if not topics or asked.topic != last_name or asked.topic_id != last_id:
                last_name, last_id, partitions = asked.topic, asked.topic_id, []
                topics.append(
                    FetchableTopicResponse(topic=last_name or "", topic_id=last_id, partitions=partitions)
                )
            partitions.append(answer)
            if answer.records is not EMPTY_RECORDS:
                self._count(asked, answer, parameters)
            if answer.current_leader is not None:
                leaders.add(answer.current_leader.leader_id)
        response = FetchResponse(session_id=session_id, responses=topics)
        if leaders:
            response.node_endpoints = endpoints_of(
                self._manager.image, leaders, parameters.listener_name, NodeEndpoint
            )
        return response

    async def respond_in_steps(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> FetchResponse:
        """Like `respond`, some of the answers at a time."""
        if parameters.throttle is not None:
            size_bytes = await in_turns(response_size_in_steps(context, parameters, answers, TOLD_A_STEP))
            throttle_ms = parameters.throttle(size_bytes)
            if throttle_ms:
                return throttled_answer(context, throttle_ms)
            parameters.throttle = None
        told = FetchContext(()) if context.session is None else context
        to_remember: dict[Any, Any] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        whole: FetchResponse | None = None
        for start in range(0, len(answers), TOLD_A_STEP):
            some = answers[start : start + TOLD_A_STEP]
            part = self.respond(told, parameters, some)
            if context.wants_a_session:
                context.remember(some, to_remember)
            endpoints |= {each.node_id: each for each in part.node_endpoints}
            if whole is None:
                whole = part
            else:
                _append(whole.responses, part.responses)
            if start + TOLD_A_STEP < len(answers):
                await pause()
        if whole is None:
            return self.respond(context, parameters, answers)
        if context.wants_a_session:
            whole.session_id = context.create_of(to_remember, self._clock.monotonic_ms())
        whole.node_endpoints = [endpoints[leader] for leader in sorted(endpoints)]
        return whole

    def _count(self, asked: Any, answer: PartitionData, parameters: FetchParameters) -> None:
        manager, size = self._manager, len(answer.records)
        if parameters.uses_topic_ids:
            core = manager.by_id.get((asked.topic_id, asked.partition))
        else:
            core = manager.by_name.get((asked.topic, asked.partition))
        if core is None:
            return
        if parameters.replica_id < 0:
            core.traffic.bytes_out += size
            return
        core.traffic.replication_bytes_out += size
        if parameters.replica_id in core.adding_replicas:
            core.traffic.reassignment_bytes_out += size


def _watermarks(core: Partition, asked: Any) -> PartitionData:
    """The answer for a follower that has all records."""
    log = core.log
    return PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=EMPTY_RECORDS,
    )


def readable_end(core: Partition, parameters: FetchParameters) -> int:
    """The offset at which reads end: log end for followers, last stable offset or high watermark for consumers."""
    log = core.log
    if parameters.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if parameters.read_committed else log.high_watermark


def _append(topics: list[FetchableTopicResponse], more: list[FetchableTopicResponse]) -> None:
    """Append topics. The first new one is merged into the last one if both are the same topic."""
    if topics and more and (topics[-1].topic, topics[-1].topic_id) == (more[0].topic, more[0].topic_id):
        topics[-1].partitions += more[0].partitions
        more = more[1:]
    topics += more


def throttled_answer(context: FetchContext, throttle_ms: int) -> FetchResponse:
    """The empty response to a throttled fetch. A session stays as it is, and none is made: nothing is remembered of a
    response that may not be sent."""
    session_id = INVALID_SESSION_ID if context.session is None else context.session.id
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)


class DelayedFetch(DelayedOperation):
    """A fetch that waits for min_bytes. `counted` has the bytes that each partition can give, `total` their sum.

    For a follower only partitions with something to send are listed. It is found by its replica id, because it may
    follow thousands.
    """

    __slots__ = ("_reads", "asked", "context", "counted", "parameters", "parked_in", "total", "untold")

    answer: Deferred[FetchResponse]

    def __init__(
        self,
        reads: FetchReads,
        context: FetchContext,
        parameters: FetchParameters,
        parked_in: DelayedOperationPurgatory[DelayedFetch],
    ) -> None:
        super().__init__()
        self._reads = reads
        self.context = context
        self.parameters = parameters
        self.parked_in = parked_in
        self.asked: dict[tuple[str, int], Any] = {}
        self.counted: dict[tuple[str, int], Counted] = {}
        self.total = 0
        self.untold: list[Any] = []
        """The partitions whose high watermark is news for a follower's session, but does not end the wait."""

    def note_untold(self, answers: list[tuple[Any, PartitionData]]) -> None:
        """`answers`: those that are not sent, because the fetch waits."""
        if self.parameters.replica_id < 0 or self.context.session is None:
            return
        if answers:
            self.untold = [
                asked for asked, answer in answers if answer.high_watermark != asked.told_high_watermark
            ]
        if self.parameters.untold:
            self.untold += [asked for _, asked in self.parameters.untold]

    def expire(self) -> None:
        self.finish(self.context.partitions)

    def moved(self) -> Sequence[Any]:
        """The partitions with something to send, and what else is untold. A full fetch (without a session) gets all its
        partitions, because its new session starts from them."""
        if self.context.session is None:
            return self.context.partitions
        moved = [self.asked[key] for key, counted in self.counted.items() if counted.size]
        if not self.untold:
            return moved
        known = set(map(id, moved))
        return moved + [asked for asked in self.untold if id(asked) not in known]

    def finish(self, partitions: Sequence[Any]) -> None:
        """Answer with what these partitions can give now."""
        try:
            answers = self._reads.read_all(self.context, self.parameters, partitions, arrived=False)[0]
            response = self._response(answers)
            self.cost_us += LOOKED_AT_US * len(partitions)
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)

    def packed(self, core: Partition, asked: Any) -> Any:
        """The encoded answer with the records of one partition, which has been found. None, before any effect, if it is not as
        usual: then `finish_one`, if it is due."""
        parameters = self.parameters
        if parameters.pack is None:
            return None
        response = self._reads.packed(parameters.pack, self.context, parameters, core, asked)
        if response is not None:
            self.cost_us = ANSWER_US + PARTITION_US
        return response

    def finish_one(self, core: Partition, asked: Any) -> None:
        """As `finish` with one partition, which has been found."""
        try:
            response = self._response([(asked, self._reads.read_one(core, asked, self.parameters))])
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)

    def _response(self, answers: list[tuple[Any, PartitionData]]) -> FetchResponse:
        parameters = self.parameters
        self.cost_us = ANSWER_US + PARTITION_US * len(answers)
        if parameters.read_committed or parameters.min_bytes > 1:
            self.cost_us += RECORDS_US * sum([bool(each.records) for _, each in answers])
            if parameters.read_committed:
                self.cost_us += ABORTED_US * sum(
                    [len(each.aborted_transactions or ()) for _, each in answers]
                )
        return self._reads.respond(self.context, parameters, answers)


class LongFetch(DelayedFetch):
    """A fetch that is read in steps. Its answer gives the partitions to read then."""

    __slots__ = ("noted",)

    def __init__(
        self,
        reads: FetchReads,
        context: FetchContext,
        parameters: FetchParameters,
        parked_in: DelayedOperationPurgatory[DelayedFetch],
    ) -> None:
        super().__init__(reads, context, parameters, parked_in)
        self.noted: dict[tuple[str, int], Partition] = {}
        """Partitions that changed while the fetch was read: the high watermark for consumers, log end and start for
        followers, the role for both."""

    def finish(self, partitions: Sequence[Any]) -> None:
        # Whoever waits for the partitions reads the first of them at once.
        self.cost_us = ANSWER_US + min(PARTITION_US * len(partitions), LOOKED_AT_US * LOOKED_AT_A_STEP)
        self.answer.resolve(partitions)  # type: ignore[arg-type]  # its answer is the partitions, not the response

    def asks_of(self, core: Partition) -> Any:
        """The request for one partition. None if the fetch does not include it."""
        return asked_of(self.context, core) or self.asked.get(core.topic_partition)


def asked_of(context: FetchContext, core: Partition) -> Any:
    """The request for a partition in a fetch's session. None without a session, or if the session does not include it."""
    session = context.session
    if session is None:
        return None
    name = core.topic_partition
    key = (core.topic_id if session.uses_topic_ids else name.topic, name.partition)
    return session.partitions.get(key)


def replica_key(replica_id: int) -> tuple[str, int]:
    """The key of a follower's parked fetch. No topic has an empty name."""
    return "", replica_id


class FetchPurgatory:
    """Fetches that wait for min_bytes or their timeout, and the events that wake them: moves of high watermarks, log ends
    and roles.

    A consumer's fetch waits for the high watermark, a follower's for the log end, because acks=all produce requests wait
    for followers.
    """

    def __init__(self, manager: ReplicaManager, reads: FetchReads, clock: Clock, timers: Timers) -> None:
        self._manager = manager
        self._reads = reads
        self._clock = clock
        budget = manager.wakeups.budget
        self.consumers: DelayedOperationPurgatory[DelayedFetch]
        self.consumers = DelayedOperationPurgatory(clock, timers, budget)
        self.followers: DelayedOperationPurgatory[DelayedFetch]
        self.followers = DelayedOperationPurgatory(clock, timers, budget)
        self.reading: list[dict[tuple[str, int], Partition]] = []
        """For each fetch that is being read now: the partitions whose end, start or role has changed meanwhile."""
        self.long_fetches: dict[LongFetch, None] = {}
        """The fetches that are being read in steps now."""
        manager.wakeups.watch(self._advanced, self.consumers.by_key, self.long_fetches)
        manager.wakeups.watch_appends(self._appended)

    def __len__(self) -> int:
        return len(self.consumers) + len(self.followers)

    @property
    def sizes(self) -> tuple[int, int]:
        (consumers, watched), (followers, also_watched) = self.consumers.sizes, self.followers.sizes
        return consumers + followers, watched + also_watched

    def list_of(self, parameters: FetchParameters) -> DelayedOperationPurgatory[DelayedFetch]:
        return self.followers if parameters.replica_id >= 0 else self.consumers

    # Before a fetch waits.

    def new_waiter(self, context: FetchContext, parameters: FetchParameters) -> DelayedFetch:
        return DelayedFetch(self._reads, context, parameters, self.list_of(parameters))

    def new_long_waiter(self, context: FetchContext, parameters: FetchParameters) -> LongFetch:
        return LongFetch(self._reads, context, parameters, self.list_of(parameters))

    def note_sizes(self, waiter: DelayedFetch, partitions: Iterable[Any]) -> bool:
        """Record what each partition could give now. Returns False if one of them ends the wait."""
        parameters = waiter.parameters
        is_consumer, read_committed = parameters.replica_id < 0, parameters.read_committed
        for asked in partitions:
            core = self._reads.find(asked, parameters)
            if core is None:
                continue
            if is_consumer and core.is_leader and not core.is_being_made_durable:
                # Most partitions have nothing. That is what counts for those that are not in `counted`.
                log, epoch = core.log, asked.current_leader_epoch
                end = log.last_stable_offset if read_committed else log.high_watermark
                if asked.fetch_offset == end and (epoch < 0 or epoch == core.leader_epoch):
                    waiter.asked[core.topic_partition] = asked
                    continue
            counted = self._reads.available(core, asked, parameters)
            if counted.size == ANSWER_NOW:
                return False
            waiter.asked[core.topic_partition] = asked
            waiter.counted[core.topic_partition] = counted
            waiter.total += counted.size
        return True

    def park(self, waiter: DelayedFetch, keys: Iterable[tuple[str, int]]) -> None:
        """Park a fetch. `keys` is used for consumers; a follower's fetch is found by its replica id. The caller has
        checked that there is room."""
        parked_in, parameters = waiter.parked_in, waiter.parameters
        waiter.answer.when_abandoned = partial(parked_in.remove, waiter)
        wait_ms = parameters.max_wait_ms
        if parameters.replica_id >= 0:
            keys = [replica_key(parameters.replica_id)]
            if self._manager.hosted.standing.is_expected(parameters.replica_id, self._clock.monotonic_ms()):
                wait_ms = min(wait_ms, EXPECTED_WAIT_MS)
        parked_in.park(waiter, keys, wait_ms)

    # Wake-ups.

    def _advanced(self, core: Partition) -> None:
        """A partition's high watermark or role has changed: answer the consumers that now have enough."""
        if self.consumers.by_key:
            self.consumers.for_each_on(core.topic_partition, self._look_again, core)
            if EVERYTHING in self.consumers.by_key:
                self.consumers.for_each_on(EVERYTHING, self.look_again_at_long, core)
        for each in self.long_fetches:
            if each.parked_in is self.consumers:
                each.noted[core.topic_partition] = core

    def look_again_at_long(self, waiter: DelayedFetch, core: Partition) -> None:
        if waiter.parameters.replica_id >= 0:
            self._look_again_for_follower(waiter, core)
        elif core.topic_partition in waiter.asked:
            self._look_again(waiter, core)

    def _look_again(self, waiter: DelayedFetch, core: Partition) -> None:
        asked, parameters = waiter.asked[core.topic_partition], waiter.parameters
        # If any byte is enough, the number of bytes is not needed: the partition either has more now or has nothing.
        takes_what_there_is = parameters.min_bytes <= 1 and asked.fetch_offset != readable_end(
            core, parameters
        )
        if takes_what_there_is or self._is_due(waiter, core, asked):
            self.consumers.remove(waiter)
            is_alone = len(waiter.context.partitions) == 1
            if takes_what_there_is and is_alone and self._is_direct(waiter, core, asked):
                response = waiter.packed(core, asked)
                if response is None:
                    waiter.finish_one(core, asked)
                else:
                    waiter.answer.resolve(response)
            else:
                waiter.expire()

    def _is_direct(self, waiter: DelayedFetch, core: Partition, asked: Any) -> bool:
        """Whether the answer may have this partition without being looked for anew."""
        return (
            type(waiter) is DelayedFetch
            and waiter.parameters.may_read is None
            and self._is_asked_for(waiter, core, asked)
        )

    def _is_asked_for(self, waiter: DelayedFetch, core: Partition, asked: Any) -> bool:
        """Whether a partition that has moved is here, and the one that was asked for. Fetches are woken by name, which a topic
        that was made anew has too."""
        return self._manager.by_name.get(core.topic_partition) is core and (
            not waiter.parameters.uses_topic_ids or core.topic_id == asked.topic_id
        )

    def _appended(self, core: Partition) -> None:
        """A partition's end, start or role has changed: answer the followers that now have enough."""
        for moved in self.reading:
            moved[core.topic_partition] = core
        for each in self.long_fetches:
            if each.parked_in is self.followers:
                each.noted[core.topic_partition] = core
        followers = self.followers
        if not followers.by_key:
            return
        self._reads.shared = {}
        try:
            for replica in list(core.followers) or core.replicas:
                followers.for_each_on(replica_key(replica), self._look_again_for_follower, core)
        finally:
            self._reads.shared = None

    def _look_again_for_follower(self, waiter: DelayedFetch, core: Partition) -> None:
        asked = asked_of(waiter.context, core) or waiter.asked.get(core.topic_partition)
        if asked is None:
            # The follower may have learned meanwhile that it follows this partition, and can only say so after it is
            # answered.
            is_due = core.has_yet_to_hear_from(waiter.parameters.replica_id)
        elif waiter.parameters.min_bytes <= 1:
            # No other one has anything, or it would have ended the wait.
            is_alone = (
                waiter.context.session is not None
                and (not waiter.untold or waiter.untold == [asked])
                and self._is_direct(waiter, core, asked)
            )
            if is_alone:
                response = waiter.packed(core, asked)
                if response is not None:
                    self.followers.remove(waiter)
                    waiter.answer.resolve(response)
                    return
            is_due = self._has_anything_for(waiter, core, asked)
            if is_due and is_alone:
                self.followers.remove(waiter)
                waiter.finish_one(core, asked)
                return
        else:
            is_due = self._is_due(waiter, core, asked)
        if is_due:
            self.followers.remove(waiter)
            waiter.finish(waiter.moved())

    def _has_anything_for(self, waiter: DelayedFetch, core: Partition, asked: Any) -> bool:
        """As `_is_due`, for a follower to which any byte is enough: the number of bytes is not needed."""
        key = core.topic_partition
        is_due = not self._is_asked_for(waiter, core, asked) or self._reads.has_anything(
            core, asked, waiter.parameters
        )
        waiter.asked[key] = asked
        waiter.counted[key] = ENDS_WAIT if is_due else NOTHING_COUNTED
        return is_due

    def _is_due(self, waiter: DelayedFetch, core: Partition, asked: Any) -> bool:
        """Record what a changed partition could give. Returns whether that is enough to answer."""
        key = core.topic_partition
        known = waiter.counted.get(key, NOTHING_COUNTED)
        counted = ENDS_WAIT
        if self._is_asked_for(waiter, core, asked):
            counted = self._reads.available(core, asked, waiter.parameters, known)
        if counted.size != ANSWER_NOW:
            waiter.total += counted.size - known.size
        waiter.asked[key] = asked
        waiter.counted[key] = counted
        return counted.size == ANSWER_NOW or waiter.total >= waiter.parameters.min_bytes
