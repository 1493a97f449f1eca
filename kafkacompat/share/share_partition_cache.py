"""The share-partitions that this node leads: their cores, loaded from the persister, and dropped when they count no more.

It carries out what the cores decide: reads and writes of state, and the end of locks. Fetches that wait are woken.
Requests are unknown here. Follows Kafka's SharePartitionCache and SharePartitionManager.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import TopicPartition
from kafkacompat.meters import Histogram
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.share.service import ShareError, SharePartitionKey, TopicIdPartition
from kafkacompat.share.settings import reset_timestamp_ms
from kafkacompat.share.share_partition import SharePartition, needs_reset_offset
from kafkacompat.share.values import SUCCEEDED, PendingWrite, SharePartitionState
from kafkacompat.tasks import WakeUp, pause
from kafkacompat.wire.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Clock, Random, Workers
    from kafkacompat.share.dead_letter_queue import DeadLetterQueue
    from kafkacompat.share.dead_letters import DeadLetters
    from kafkacompat.share.service import SharePersister
    from kafkacompat.share.settings import ShareSettingsCache
    from kafkacompat.share.values import ShareSettings
    from kafkacompat.tasks import Tasks

logger = logging.getLogger(__name__)

RECORDS_A_LOOK = 50
KEPT = 128
"""The newest values of each kind. Clients choose the number of groups, so there are fewer than in other histograms."""
SAID_EVERY_MS = 60_000
NAME_MAX = 64
TEXT_MAX = 300
ACTIVE = SharePartitionState.ACTIVE
OUTLIVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of the persister after which a share-partition must be loaded anew, here or elsewhere."""
CONSUMER = -1
ANY_EPOCH = -1
STALE_KEPT = 64
"""Times at which locks would be looked at, kept of share-partitions that are dropped. Each keeps what was in flight."""
EXPIRED_AT_ONCE = 50
"""Share-partitions whose locks are looked at in one turn of the loop, if few records are in flight."""


@dataclass(frozen=True, slots=True)
class ShareServices:
    """What the share-partitions that a node leads stand on."""

    manager: ReplicaManager
    persister: SharePersister
    settings: ShareSettingsCache
    dead_letters: DeadLetterQueue
    clock: Clock
    tasks: Tasks
    random: Random
    workers: Workers
    """They read what is not in the page cache."""
    sessions_max: int
    fetch_max_bytes: Callable[[], int]


class LedPartition:
    """One share-partition of which this node leads the partition."""

    __slots__ = (
        "core",
        "is_cached",
        "key",
        "load_error",
        "loading_since_ms",
        "lock_at_ms",
        "name",
        "partition",
        "settings",
        "writes",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        name: TopicPartition,
        partition: Partition,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.key = key
        self.name = name
        self.partition = partition
        self.settings = settings
        self.core = SharePartition(key, name.topic, partition.leader_epoch, settings)
        self.is_cached = True
        """False once it is dropped. Requests that know it may still hold it."""
        self.lock_at_ms = -1
        """When its locks are looked at next. -1: never."""
        self.load_error = ErrorCode.NONE
        """Why its state could not be loaded."""
        self.loading_since_ms = 0
        self.writes = 0
        """Changes that the persister has not written yet, and dead letters that are on their way."""

    def looks(self) -> int:
        """How long it takes to go through what is in flight, counted in share-partitions with fewer than RECORDS_A_LOOK."""
        return 1 + self.core.in_flight_records() // RECORDS_A_LOOK

    def readable_end(self, *, read_committed: bool) -> int:
        log = self.partition.log
        return log.last_stable_offset if read_committed else log.high_watermark


class GroupFetchMeter:
    __slots__ = ("acquire_times_ms", "acquired_percent")

    def __init__(self) -> None:
        self.acquired_percent = Histogram(KEPT)
        """By fetch: the share-partitions that it could fetch from, in percent of those that it asked for."""
        self.acquire_times_ms = Histogram(KEPT)
        """How long a fetch waited until it could fetch from some, or waited no longer."""

    def acquired(self, since_ms: int, now_ms: int) -> int:
        """Note the end of a wait. Returns the time from which a fetch waits anew, if there is not enough yet."""
        self.acquire_times_ms.note(now_ms - since_ms)
        return now_ms


class LoadFailures:
    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._more: dict[ErrorCode, int] = {}
        """How many no line has told yet, by error. An error is forgotten after SAID_EVERY_MS without any."""

    def failed(self, key: SharePartitionKey, name: TopicPartition, error: ShareError) -> None:
        code = error.code
        if code in self._more:
            self._more[code] += 1
            return
        logger.warning(
            "the state of %s for share group %r cannot be loaded: %s: %s",
            name, key.group_id[:NAME_MAX], code.name, (error.message or "")[:TEXT_MAX],
        )  # fmt: skip
        self._more[code] = 0
        self._tasks.start("telling of more loads that failed", self._tell_more(code))

    async def _tell_more(self, code: ErrorCode) -> None:
        while True:
            await self._tasks.sleep(SAID_EVERY_MS)
            more, self._more[code] = self._more[code], 0
            if not more:
                del self._more[code]
                return
            logger.warning(
                "the states of share groups could not be loaded %d more times: %s", more, code.name
            )


class WaitingShareFetches(Protocol):
    """delayed_share_fetch.ShareFetchPurgatory."""

    def wake(self, led: LedPartition) -> None:
        """A waiting fetch may find more in a share-partition than before."""
        ...

    def lost(self, led: LedPartition) -> None:
        """This node has lost a partition: fetches need not wait for it."""
        ...


class SharePartitionCache:
    """Used in the loop's thread only."""

    def __init__(self, services: ShareServices, waiting: WaitingShareFetches) -> None:
        self._dead_letters = services.dead_letters
        self._manager = services.manager
        self._persister = services.persister
        self._settings = services.settings
        self._clock = services.clock
        self._tasks = services.tasks
        self._waiting = waiting
        self._failures = LoadFailures(services.tasks)
        self.load_times_ms = Histogram()
        """Of the states of share-partitions."""
        self.groups: dict[str, dict[TopicIdPartition, LedPartition]] = {}
        self.fetch_meters: dict[str, GroupFetchMeter] = {}
        """Of groups with share-partitions here."""
        self._by_name: dict[TopicPartition, dict[LedPartition, None]] = {}
        self._due: list[tuple[int, int, LedPartition]] = []
        """A heap of times at which locks are looked at. An entry counts if its share-partition has that time."""
        self._order = 0
        self._stale = 0
        """Entries of share-partitions that are dropped, at most."""
        self._ended: set[str] = set()
        """Groups without a session, some of whose share-partitions are still written."""
        self._next_lock = WakeUp(services.tasks)
        """When locks are looked at next, or earlier."""
        self._next_lock_ms = 0
        self._is_expiring = False
        self._is_watching = False

    def get(self, group_id: str, key: TopicIdPartition) -> LedPartition | None:
        group = self.groups.get(group_id)
        led = None if group is None else group.get(key)
        if led is not None and self._manager.hosted.changes:
            self._manager.core(led.name)  # takes a new role, which may drop it
            return led if led.is_cached else None
        return led

    def get_or_load(self, group_id: str, key: TopicIdPartition, topic: str) -> LedPartition | ErrorCode:
        """The share-partition, which may be loading. Otherwise why it is not here."""
        known = self.get(group_id, key)
        if known is not None:
            return known
        name = TopicPartition(topic, key.partition)
        partition = self._manager.core_by_id(key.topic_id, key.partition)
        if partition is None:
            error = self._manager.leader_error(name)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is NONE else error
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._is_watching:
            # Not before a first share fetch: this is called for each append.
            self._is_watching = True
            self._manager.wakeups.watch(self._moved, self._by_name)
        full_key = SharePartitionKey(group_id, *key)
        settings = partial(self._settings.of, group_id)
        led = LedPartition(full_key, name, partition, settings)
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = {}
            self.fetch_meters[group_id] = GroupFetchMeter()
        group[key] = led
        self._by_name.setdefault(name, {})[led] = None
        return led

    # Loading

    def load(self, led: LedPartition) -> None:
        """Read the state if that has not begun. A failure is noted and drops the share-partition. The next fetch tries again."""
        error = led.core.begin_initialization()
        if error is None:
            led.loading_since_ms = self._clock.monotonic_ms()
            self._tasks.start("loading a share-partition", self._load(led))
        elif error.code is not NONE and error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
            led.load_error = error.code
            self.drop(led)

    async def _load(self, led: LedPartition) -> None:
        try:
            error = await self._initialize(led)
        except Exception as bug:
            report(f"loading {led.key}", bug)
            error = ShareError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if error.code is not NONE:
            led.load_error = error.code
            self._failures.failed(led.key, led.name, error)
            if led.is_cached:
                led.core.fail()
                self.drop(led)
        elif led.is_cached:
            self.changed(led)
            self._waiting.wake(led)

    async def _initialize(self, led: LedPartition) -> ShareError:
        """Without an error also if it was dropped meanwhile."""
        state = await self._persister.read(led.key, led.core.leader_epoch)
        reset_offset = 0
        if state.error.code is NONE and needs_reset_offset(state):
            found = await self._look_up_reset_offset(led)
            if found.error is not NONE:
                return ShareError(found.error)
            if found.offset < 0:
                return ShareError(ErrorCode.OFFSET_NOT_AVAILABLE)
            reset_offset = found.offset
        if not led.is_cached:
            return SUCCEEDED
        error = led.core.initialize(state, reset_offset)
        if error.code is NONE:
            self.load_times_ms.note(self._clock.monotonic_ms() - led.loading_since_ms)
        return error

    async def _look_up_reset_offset(self, led: LedPartition) -> OffsetLookup:
        timestamp_ms = reset_timestamp_ms(self._settings.of(led.key.group_id), self._clock.now_ms())
        found = self._manager.list_offset(led.name, timestamp_ms, False, led.partition.leader_epoch, CONSUMER)
        return await found if isinstance(found, Deferred) else found

    # Writing

    def write(self, led: LedPartition, pending: PendingWrite) -> Deferred[ShareError]:
        """Have a change written, and tell the core. The value is what the requester is told."""
        written: Deferred[ShareError] = Deferred()
        led.writes += 1
        self._tasks.start("writing the state of a share-partition", self._write(led, pending, written))
        return written

    def write_unasked(self, led: LedPartition, pending: PendingWrite) -> None:
        """Like `write`, for a change that nobody has asked for. If it cannot be written, the core has its old state back, and
        `changed` sees to what is due again."""
        self.write(led, pending).unheeded(f"changing {led.key}")

    async def _write(self, led: LedPartition, pending: PendingWrite, written: Deferred[ShareError]) -> None:
        try:
            answer = await self._persister.write(led.key, pending.state)
        except Exception as error:
            report(f"writing the state of {led.key}", error)
            answer = ShareError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            told = led.core.write_completed(pending.token, answer, self._clock.monotonic_ms())
        except Exception as error:
            self.load_anew(led, "completing a change of", error)
            told = ShareError(ErrorCode.UNKNOWN_SERVER_ERROR)
        led.writes -= 1
        if told.code is not NONE and told.code in OUTLIVED:
            self.drop(led)
        written.resolve(told)
        self.changed(led)
        # Dead letters of what was written are on their way now, and count as writes.
        self._drop_if_ended(led)

    def changed(self, led: LedPartition) -> None:
        """Call after everything that changes a core: locks may run out earlier, and fetches may find more."""
        if not led.is_cached:
            return
        deadline_ms = led.core.next_lock_deadline_ms()
        if deadline_ms is not None and (led.lock_at_ms < 0 or deadline_ms < led.lock_at_ms):
            led.lock_at_ms = deadline_ms
            self._order += 1
            heapq.heappush(self._due, (deadline_ms, self._order, led))
            if not self._is_expiring:
                self._is_expiring = True
                self._tasks.start("ending locks of share-partitions", self._expire())
            elif deadline_ms < self._next_lock_ms:
                self._next_lock.call()
        for letters in led.core.take_dead_letters():
            self._tasks.start("awaiting dead letters", self._bury(led, letters))
        if led.core.take_wakeup():
            self._waiting.wake(led)

    async def _bury(self, led: LedPartition, letters: DeadLetters) -> None:
        led.writes += 1
        try:
            await self._dead_letters.enqueue(led.key, led.name, letters, partial(_is_cached, led))
            # The next load of a share-partition that is dropped finds the records and writes their dead letters.
            pending = led.core.dead_letters_written(letters) if led.is_cached else None
        except Exception as error:
            self.load_anew(led, "burying records of", error)
            return
        led.writes -= 1
        if not led.is_cached:
            return
        if pending is not None:
            self.write_unasked(led, pending)
        self.changed(led)
        self._drop_if_ended(led)

    # Locks

    async def _expire(self) -> None:
        left = EXPIRED_AT_ONCE
        try:
            while self._due:
                at_ms, _, led = self._due[0]
                now_ms = self._clock.monotonic_ms()
                if at_ms > now_ms:
                    self._next_lock_ms = at_ms
                    await self._next_lock.wait(at_ms - now_ms)
                    self._next_lock_ms = 0
                    left = EXPIRED_AT_ONCE
                    if self._clock.monotonic_ms() < at_ms:
                        await pause()  # it was called in the middle of a change
                    continue
                if left <= 0:
                    await pause()
                    left = EXPIRED_AT_ONCE
                    continue
                heapq.heappop(self._due)
                if led.lock_at_ms != at_ms or not led.is_cached:
                    continue
                led.lock_at_ms = -1
                left -= led.looks()
                try:
                    pending = led.core.expire_locks(now_ms)
                    if pending is not None:
                        self.write_unasked(led, pending)
                    self.changed(led)
                except Exception as error:
                    self.load_anew(led, "ending locks of", error)
        finally:
            self._is_expiring = False

    # Dropping

    def drop(self, led: LedPartition) -> None:
        """Forget a share-partition. What was acquired is free again when it is loaded anew."""
        if not led.is_cached:
            return
        led.is_cached = False
        led.core.mark_fenced()
        group = self.groups[led.key.group_id]
        del group[led.key.topic_id_partition]
        if not group:
            del self.groups[led.key.group_id]
            del self.fetch_meters[led.key.group_id]
            self._ended.discard(led.key.group_id)
        known = self._by_name[led.name]
        del known[led]
        if not known:
            del self._by_name[led.name]
        if led.lock_at_ms >= 0:
            self._stale += 1
            if self._stale > STALE_KEPT and 2 * self._stale > len(self._due):
                self._due = [entry for entry in self._due if entry[2].is_cached]
                heapq.heapify(self._due)
                self._stale = 0

    def load_anew(self, led: LedPartition, what: str, error: Exception) -> None:
        """A change of its core has broken off, perhaps for want of memory. What is in between would stay so: records that nobody
        holds and nobody gets. So the share-partition is forgotten, and the next fetch loads what is written."""
        report(f"{what} {led.key}", error)
        self._lose(led)

    def drop_group(self, group_id: str) -> None:
        """The group has no session left. What is being written is awaited, so that a new load finds it."""
        self._settings.forget(group_id)
        for led in list(self.groups.get(group_id, {}).values()):
            if led.writes:
                self._ended.add(group_id)
            else:
                self.drop(led)

    def _drop_if_ended(self, led: LedPartition) -> None:
        """If the group has no session left and nothing is written any more."""
        if not led.writes and self._ended and led.key.group_id in self._ended:
            self.drop(led)

    def keep_group(self, group_id: str) -> None:
        """The group has a session again."""
        self._ended.discard(group_id)

    def drop_all(self) -> None:
        for group in list(self.groups.values()):
            for led in list(group.values()):
                self.drop(led)

    def _moved(self, partition: Partition) -> None:
        """A partition's high watermark has advanced, or its role has changed, or it is gone."""
        known = self._by_name.get(partition.topic_partition)
        if known is None:
            return
        for led in list(known):
            if led.partition is not partition and not led.partition.is_leader:
                self._lose(led)
            elif led.partition is partition:
                if not partition.is_leader:
                    self._lose(led)
                elif partition.leader_epoch == led.core.leader_epoch:
                    self._waiting.wake(led)
                elif partition.leader_epoch == led.core.leader_epoch + 1:
                    # No other node led in between, so what is held here still counts.
                    led.core.leader_epoch = partition.leader_epoch
                    self._waiting.wake(led)
                else:
                    self._lose(led)

    def _lose(self, led: LedPartition) -> None:
        self.drop(led)
        self._waiting.lost(led)

    @property
    def count(self) -> int:
        return sum(map(len, self.groups.values()))


def _is_cached(led: LedPartition) -> bool:
    return led.is_cached
