"""Fetches: sessions, byte limits, reads, and the long poll that parks until bytes or time are there.

The shell that joins `sessions` and `waiters` with the partitions' logs. Knows no version but what the answer's content
depends on (current leader, reading from followers). Records leave as file slices; no record byte is looked at here.
A consumer's fetch waits for the high watermark, a follower's for the log's end: acks=all produces wait for the latter.
Follows KIP-74 (limits), KIP-227 (sessions), KIP-320 and KIP-595 (epochs), KIP-392 (nearest replica), KIP-951 (current leader).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.partition.fetch_answers import UNKNOWN, FetchAnswers
from kafkacompat.partition.long_fetches import (
    EVERYTHING,
    LONG_FROM,
    LongFetch,
    Reading,
    named_in_steps,
    served_in_steps,
)
from kafkacompat.partition.parked_fetches import ParkedFetch, asked_of, replica_key
from kafkacompat.partition.read_replicas import nearest_replica
from kafkacompat.partition.sessions import FetchContext, FetchSessionCache, SessionPartition
from kafkacompat.partition.waiters import WaitList
from kafkacompat.ports import EMPTY_RECORDS, LogRefused
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters, FetchRequestPartition
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.manager import PartitionManager
    from kafkacompat.partition.throttles import ReplicationThrottle
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.stepping.jobs import Steps

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_RACK = 11
"""From here on consumers may read from followers."""
EXPECTED_WAIT_MS = 25
"""Of followers that are about to ask for more partitions (see Standing.is_expected)."""
ANSWER_NOW = -1
"""In place of a byte count: this partition ends the wait."""


class FetchEngine:
    """FetchService of api/context."""

    def __init__(
        self,
        manager: PartitionManager,
        clock: Clock,
        timers: Timers,
        sessions: FetchSessionCache,
        fetch_max_bytes: Callable[[], int],
        *,
        selects_by_rack: bool = False,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """`selects_by_rack`: see read_replicas. `throttle` holds back followers that are out of sync."""
        self.sessions = sessions
        self._manager = manager
        self._clock = clock
        self._fetch_max_bytes = fetch_max_bytes
        self._selects_by_rack = selects_by_rack
        self._throttle = throttle
        self.consumers: WaitList[ParkedFetch] = WaitList(clock, timers)
        self.followers: WaitList[ParkedFetch] = WaitList(clock, timers)
        self.answers = FetchAnswers(manager, clock)
        self._reading: list[dict[tuple[str, int], PartitionCore]] = []
        """Of each fetch that is being read just now: the partitions whose end, start or role moved meanwhile."""
        self.long_fetches: dict[LongFetch, None] = {}
        """Those that are read in steps just now."""
        manager.watch(self._advanced)
        manager.watch_appends(self._appended)

    def parked_count(self) -> int:
        return len(self.consumers) + len(self.followers)

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> FetchResponse | Deferred[FetchResponse] | Steps[FetchResponse]:
        if len(partitions) + len(forgotten) > LONG_FROM:
            return named_in_steps(self, parameters, partitions, forgotten)
        context = self.sessions.open(
            parameters.session_id,
            parameters.session_epoch,
            partitions,
            forgotten,
            uses_topic_ids=parameters.uses_topic_ids,
            privileged=parameters.replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        if len(context.partitions) > LONG_FROM:
            return served_in_steps(self, parameters, context)
        if context.error is not NONE:
            return FetchResponse(error_code=context.error)
        parameters.max_bytes = min(parameters.max_bytes, self._fetch_max_bytes())  # as `bound` does
        parameters.min_bytes = min(parameters.min_bytes, parameters.max_bytes)
        answers, ready = self._read_arrived(context, parameters)
        if ready or parameters.max_wait_ms <= 0:
            return self.answers.respond(context, parameters, answers)
        waiter = ParkedFetch(self, context, parameters)
        is_follower = parameters.replica_id >= 0
        if (
            not self.note_sizes(waiter, answers)
            or not (waiter.asked or is_follower)
            or waiter.total >= parameters.min_bytes
            or waiter.parked_in.is_full()
        ):
            return self.answers.respond(context, parameters, answers)
        self.park(waiter, waiter.asked)
        return waiter.answer

    def note_sizes(self, waiter: ParkedFetch, answers: Iterable[tuple[Any, PartitionData]]) -> bool:
        """What each of the partitions read could give by now; False when one of them ends the wait."""
        manager, parameters = self._manager, waiter.parameters
        for asked, _ in answers:
            if parameters.uses_topic_ids:
                core = manager.core_by_id(asked.topic_id, asked.partition)
            else:
                core = manager.core((asked.topic, asked.partition))
            if core is None:
                continue
            size = self._available(core, asked, parameters)
            if size == ANSWER_NOW:
                return False
            waiter.asked[core.topic_partition] = asked
            waiter.sizes[core.topic_partition] = size
            waiter.total += size
        return True

    def park(self, waiter: ParkedFetch, keys: Iterable[tuple[str, int]]) -> None:
        """`keys`: of a consumer's; a follower's is found by the replica's id. There is room."""
        parked_in, parameters = waiter.parked_in, waiter.parameters
        waiter.answer.when_abandoned = partial(parked_in.remove, waiter)
        wait_ms = parameters.max_wait_ms
        if parameters.replica_id >= 0:
            keys = [replica_key(parameters.replica_id)]
            if self._manager.standing.is_expected(parameters.replica_id, self._clock.monotonic_ms()):
                wait_ms = min(wait_ms, EXPECTED_WAIT_MS)
        parked_in.park(waiter, keys, wait_ms)

    def open(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
    ) -> FetchContext:
        """For a fetch in steps, as far as it can be said at once; what its session is to forget comes later."""
        return self.sessions.open(
            parameters.session_id,
            parameters.session_epoch,
            partitions,
            (),
            uses_topic_ids=parameters.uses_topic_ids,
            privileged=parameters.replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )

    def bound(self, parameters: FetchParameters) -> None:
        parameters.max_bytes = min(parameters.max_bytes, self._fetch_max_bytes())
        parameters.min_bytes = min(parameters.min_bytes, parameters.max_bytes)

    def _read_arrived(
        self, context: FetchContext, parameters: FetchParameters
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """`read_all` of a fetch that has just come, and once more of what moved while it was read: a follower's fetch lets high
        watermarks move, and whoever waited for that, a coordinator say, may have appended to partitions passed by before."""
        if parameters.replica_id < 0:
            return self.read_all(context, parameters, context.partitions, arrived=True)
        moved: dict[tuple[str, int], PartitionCore] = {}
        self._reading.append(moved)
        try:
            answers, ready = self.read_all(context, parameters, context.partitions, arrived=True)
        finally:
            self._reading.pop()
        if ready or not moved:
            return answers, ready
        if any(len(answer.records) for _, answer in answers):
            return answers, True  # less than min_bytes, and of max_bytes nothing is left to be given twice
        again = {
            id(asked): asked for core in moved.values() if (asked := asked_of(context, core)) is not None
        }
        fresh, ready = self.read_all(context, parameters, again.values(), arrived=False)
        return [pair for pair in answers if id(pair[0]) not in again] + fresh, ready and bool(again)

    def _advanced(self, core: PartitionCore) -> None:
        """A partition's high watermark or role moved: answer the consumers that now have enough."""
        self.consumers.for_each_on(core.topic_partition, self._look_again, core)
        if EVERYTHING in self.consumers.by_key:
            self.consumers.for_each_on(EVERYTHING, self.look_again_at_long, core)
        for each in self.long_fetches:
            if each.parked_in is self.consumers:
                each.noted[core.topic_partition] = core

    def look_again_at_long(self, waiter: ParkedFetch, core: PartitionCore) -> None:
        if waiter.parameters.replica_id >= 0:
            self._look_again_for_follower(waiter, core)
        elif core.topic_partition in waiter.asked:
            self._look_again(waiter, core)

    def _look_again(self, waiter: ParkedFetch, core: PartitionCore) -> None:
        asked, parameters = waiter.asked[core.topic_partition], waiter.parameters
        # Of one that takes any byte it need not be asked how many there are: it has come further, or cannot.
        takes_what_there_is = parameters.min_bytes <= 1 and asked.fetch_offset != readable_end(
            core, parameters
        )
        if takes_what_there_is or self._is_due(waiter, core, asked):
            self.consumers.remove(waiter)
            waiter.expire()

    def _appended(self, core: PartitionCore) -> None:
        """A partition's end, start or role moved: answer the followers that now have enough."""
        for moved in self._reading:
            moved[core.topic_partition] = core
        for each in self.long_fetches:
            if each.parked_in is self.followers:
                each.noted[core.topic_partition] = core
        for replica in core.replicas:
            self.followers.for_each_on(replica_key(replica), self._look_again_for_follower, core)

    def _look_again_for_follower(self, waiter: ParkedFetch, core: PartitionCore) -> None:
        asked = asked_of(waiter.context, core) or waiter.asked.get(core.topic_partition)
        if asked is None:
            # It may have learned meanwhile that it follows this one, and cannot say so before it is answered.
            is_due = core.has_yet_to_hear_from(waiter.parameters.replica_id)
        else:
            is_due = self._is_due(waiter, core, asked)
        if is_due:
            self.followers.remove(waiter)
            waiter.finish(waiter.moved())

    def _is_due(self, waiter: ParkedFetch, core: PartitionCore, asked: Any) -> bool:
        """Take note of what a partition that moved could give; True when that is enough to answer."""
        key = core.topic_partition
        size = ANSWER_NOW
        if self._manager.by_name.get(key) is core:
            size = self._available(core, asked, waiter.parameters)
        if size != ANSWER_NOW:
            waiter.total += size - waiter.sizes.get(key, 0)
        waiter.asked[key] = asked
        waiter.sizes[key] = size
        return size == ANSWER_NOW or waiter.total >= waiter.parameters.min_bytes

    def _check(self, core: PartitionCore, asked: Any, parameters: FetchParameters) -> ErrorCode:
        """Whether this reader may read here: followers from the leader only, consumers of today from any replica."""
        if parameters.replica_id >= 0:
            return core.check_replica(parameters.replica_id, asked.current_leader_epoch)
        if not core.is_leader and parameters.version >= FIRST_VERSION_WITH_RACK:
            return core.fence(asked.current_leader_epoch)
        error = core.check_leader(asked.current_leader_epoch)
        if error is NONE and core.cannot_be_read_yet():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def _available(self, core: PartitionCore, asked: Any, parameters: FetchParameters) -> int:
        """Bytes a parked fetch could have from this partition, or ANSWER_NOW."""
        if self._check(core, asked, parameters) is not NONE:
            return ANSWER_NOW
        log = core.log
        if parameters.replica_id >= 0:
            if self._is_held_back(core, parameters.replica_id):
                return 0
            if getattr(asked, "told_log_start_offset", log.log_start_offset) != log.log_start_offset:
                return ANSWER_NOW  # a deletion of records waits until all followers know
        offset = asked.fetch_offset
        end = readable_end(core, parameters)
        if offset == end:
            return 0
        if offset > end or offset < log.log_start_offset:
            return ANSWER_NOW  # not committed yet, or deleted meanwhile
        if log.segment_base_offset(offset) != log.segment_base_offset(end):
            return ANSWER_NOW
        limit: int = asked.partition_max_bytes
        try:
            return min(log.readable_bytes(offset, end), limit)
        except (OSError, BatchCorrupt):
            return ANSWER_NOW  # whoever reads meets it, and can say so

    def _find(self, asked: Any, uses_topic_ids: bool) -> PartitionCore | None:
        manager = self._manager
        if uses_topic_ids:
            return manager.core_by_id(asked.topic_id, asked.partition)
        return manager.core((asked.topic, asked.partition))

    def read_again(
        self, context: FetchContext, parameters: FetchParameters, partitions: Iterable[Any]
    ) -> FetchResponse:
        """The answer after a wait."""
        answers = self.read_all(context, parameters, partitions, arrived=False)[0]
        return self.answers.respond(context, parameters, answers)

    def read_all(
        self,
        context: FetchContext,
        parameters: FetchParameters,
        partitions: Iterable[Any],
        *,
        arrived: bool,
        reading: Reading | None = None,
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """(asked, answer) of each partition in order, and whether they answer the fetch without a wait. With `reading` this goes
        on where that one stopped.

        `arrived`: the request has just come, so that a follower tells by it how far it is. Left out are those of which a
        follower has all and knows all.
        """
        manager, replica_id = self._manager, parameters.replica_id
        may_be_quiet = (
            arrived
            and replica_id >= 0
            and context.session is not None
            and not manager.standing.is_outlived(replica_id, parameters.replica_epoch)
        )
        now_ms = self._clock.monotonic_ms() if may_be_quiet else 0
        budget = parameters.max_bytes
        first = True
        known = ended = False
        total = 0
        answers: list[tuple[Any, PartitionData]] = []
        if reading is not None:
            budget, first, total = reading.budget, reading.first, reading.total
            known, ended, answers = reading.is_known, reading.ended, reading.answers
        for asked in partitions:
            core = self._find(asked, parameters.uses_topic_ids)
            if (
                may_be_quiet
                and core is not None
                and core.observe_idle_fetch(replica_id, asked, parameters.replica_epoch, now_ms)
            ):
                known = True
                continue
            if core is None:
                error = self.answers.absent(asked, parameters.uses_topic_ids)
                answer = self.answers.refuse(asked, error, parameters)
                if error in UNKNOWN:
                    answers.append((asked, answer))
                    continue  # as in Kafka, what the metadata lacks does not end the wait for the rest
            else:
                answer = self._read(
                    core, asked, parameters, min(budget, asked.partition_max_bytes), first, arrived
                )
            known = True
            if (
                answer.error_code != 0
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
            ):
                ended = True
            size = len(answer.records)
            if size:
                first = False
                total += size
                budget = max(0, budget - size)
            answers.append((asked, answer))
        if reading is not None:
            reading.budget, reading.first, reading.total = budget, first, total
            reading.is_known, reading.ended = known, ended
        return answers, ended or not known or total >= parameters.min_bytes

    def _read(
        self,
        core: PartitionCore,
        asked: Any,
        parameters: FetchParameters,
        max_bytes: int,
        minimum_one_batch: bool,
        arrived: bool,
    ) -> PartitionData:
        replica_id = parameters.replica_id
        error = self._check(core, asked, parameters)
        log = core.log
        if error is not NONE:
            return self.answers.refuse(asked, error, parameters)
        offset = asked.fetch_offset
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if parameters.read_committed else None,
            records=EMPTY_RECORDS,
        )
        if asked.last_fetched_epoch >= 0:
            found = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if found.epoch < 0:
                return self.answers.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
            if found.epoch < asked.last_fetched_epoch or found.offset < offset:
                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)
                answer.aborted_transactions = None
                return answer
        if replica_id >= 0 and isinstance(asked, SessionPartition):
            asked.settled_epoch = core.leader_epoch
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return self.answers.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
        if replica_id >= 0:
            if arrived:
                error = self._manager.follower_fetched(
                    core, replica_id, offset, asked.log_start_offset, parameters.replica_epoch
                )
                if error is not NONE:
                    return self.answers.refuse(asked, error, parameters)
                answer.high_watermark = log.high_watermark
            if self._is_held_back(core, replica_id):
                return answer
        elif self._selects_by_rack and core.is_leader and parameters.rack_id:
            nearest = nearest_replica(
                core, parameters.rack_id, offset, parameters.listener_name, self._clock.monotonic_ms()
            )
            if nearest is not None:
                answer.preferred_read_replica = nearest
                answer.aborted_transactions = None
                return answer
        end = readable_end(core, parameters)
        if offset >= end or (max_bytes <= 0 and not minimum_one_batch):
            return answer
        try:
            read = log.read(offset, max_bytes, end, minimum_one_batch)
            aborted = log.aborted_transactions(offset, read.end_offset) if parameters.read_committed else []
        except LogRefused as refused:
            return self.answers.refuse(asked, refused.code, parameters)
        except BatchCorrupt as damage:
            logger.error("%s is damaged on disk before offset %d: %s", core.topic_partition, end, damage)
            return self.answers.refuse(asked, ErrorCode.CORRUPT_MESSAGE, parameters)
        except OSError as error_of_disk:
            logger.error("read of %s failed: %s", core.topic_partition, error_of_disk)
            return self.answers.refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, parameters)
        if not read.first_batch_truncated or minimum_one_batch:
            answer.records = read.records
            if replica_id >= 0 and self._throttle is not None:
                self._throttle.passed(core, len(read.records))
        if parameters.read_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in sorted(aborted, key=lambda one: one.first_offset)
            ]
        return answer

    def _is_held_back(self, core: PartitionCore, replica_id: int) -> bool:
        return self._throttle is not None and self._throttle.holds_back(core, replica_id)


def readable_end(core: PartitionCore, parameters: FetchParameters) -> int:
    """The offset a reader may not reach: log end for followers, last stable offset or high watermark for consumers."""
    log = core.log
    if parameters.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if parameters.read_committed else log.high_watermark
