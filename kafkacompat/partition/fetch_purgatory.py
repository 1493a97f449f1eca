"""Fetches that wait for min_bytes or their timeout, and the events that wake them: moves of high watermarks, log ends
and roles.

A consumer's fetch waits for the high watermark, a follower's for the log end, because acks=all produce requests wait
for followers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.delayed_fetch import DelayedFetch, LongFetch, asked_of, replica_key
from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
from kafkacompat.partition.fetch_reads import ANSWER_NOW, ENDS_WAIT, NOTHING_COUNTED, readable_end

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.partition.fetch_reads import FetchReads
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.wire.messages.fetch_response import PartitionData

EXPECTED_WAIT_MS = 25
"""The longest wait of followers that are about to fetch more partitions (see Standing.is_expected)."""
EVERYTHING = ("", -1)
"""The key for long fetches of consumers; no topic has an empty name. Parking them under each partition's key would
take several steps."""


class FetchPurgatory:
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
        manager.watch(self._advanced)
        manager.watch_appends(self._appended)

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

    def note_sizes(self, waiter: DelayedFetch, answers: Iterable[tuple[Any, PartitionData]]) -> bool:
        """Record what each partition could give now. Returns False if one of them ends the wait."""
        parameters = waiter.parameters
        for asked, _ in answers:
            core = self._reads.find(asked, parameters)
            if core is None:
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
            if self._manager.standing.is_expected(parameters.replica_id, self._clock.monotonic_ms()):
                wait_ms = min(wait_ms, EXPECTED_WAIT_MS)
        parked_in.park(waiter, keys, wait_ms)

    # Wake-ups.

    def _advanced(self, core: Partition) -> None:
        """A partition's high watermark or role has changed: answer the consumers that now have enough."""
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
            waiter.expire()

    def _appended(self, core: Partition) -> None:
        """A partition's end, start or role has changed: answer the followers that now have enough."""
        for moved in self.reading:
            moved[core.topic_partition] = core
        for each in self.long_fetches:
            if each.parked_in is self.followers:
                each.noted[core.topic_partition] = core
        for replica in core.replicas:
            self.followers.for_each_on(replica_key(replica), self._look_again_for_follower, core)

    def _look_again_for_follower(self, waiter: DelayedFetch, core: Partition) -> None:
        asked = asked_of(waiter.context, core) or waiter.asked.get(core.topic_partition)
        if asked is None:
            # The follower may have learned meanwhile that it follows this partition, and can only say so after it is
            # answered.
            is_due = core.has_yet_to_hear_from(waiter.parameters.replica_id)
        else:
            is_due = self._is_due(waiter, core, asked)
        if is_due:
            self.followers.remove(waiter)
            waiter.finish(waiter.moved())

    def _is_due(self, waiter: DelayedFetch, core: Partition, asked: Any) -> bool:
        """Record what a changed partition could give. Returns whether that is enough to answer."""
        key = core.topic_partition
        known = waiter.counted.get(key, NOTHING_COUNTED)
        counted = ENDS_WAIT
        if self._manager.by_name.get(key) is core:
            counted = self._reads.available(core, asked, waiter.parameters, known)
        if counted.size != ANSWER_NOW:
            waiter.total += counted.size - known.size
        waiter.asked[key] = asked
        waiter.counted[key] = counted
        return counted.size == ANSWER_NOW or waiter.total >= waiter.parameters.min_bytes
