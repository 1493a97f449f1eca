"""Fetches: sessions, reads, and the long poll that waits for bytes or the timeout.

It connects sessions, reads and the purgatory. Versions matter only where they change the answer's content (current
leader, reads from followers). Follows KIP-227 (sessions) and KIP-951 (current leader).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.partition.delayed_fetch import asked_of
from kafkacompat.partition.fetch_purgatory import FetchPurgatory
from kafkacompat.partition.fetch_reads import FetchReads
from kafkacompat.partition.long_fetches import LONG_FROM, LongFetches
from kafkacompat.partition.sessions import FetchContext, FetchSessionCache
from kafkacompat.stepping.freeing import Freeing
from kafkacompat.wire.errors import NONE
from kafkacompat.wire.messages.fetch_response import FetchResponse, PartitionData

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters, FetchRequestPartition
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.stepping.jobs import Steps


class FetchEngine:
    """FetchService of api/context."""

    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        timers: Timers,
        sessions: FetchSessionCache,
        fetch_max_bytes: Callable[[], int],
        *,
        selects_by_rack: bool = False,
        throttle: ReplicationQuotaManager | None = None,
    ) -> None:
        """`selects_by_rack`: see read_replicas. `throttle` limits followers that are not in sync."""
        self.sessions = sessions
        freeing = Freeing(timers)
        sessions.free = freeing.free
        self._clock = clock
        self._fetch_max_bytes = fetch_max_bytes
        self._reads = FetchReads(manager, clock, selects_by_rack=selects_by_rack, throttle=throttle)
        self.purgatory = FetchPurgatory(manager, self._reads, clock, timers)
        self._long_fetches = LongFetches(sessions, self._reads, self.purgatory, freeing)

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> FetchResponse | Deferred[FetchResponse] | Steps[FetchResponse]:
        parameters.max_bytes = min(parameters.max_bytes, self._fetch_max_bytes())
        parameters.min_bytes = min(parameters.min_bytes, parameters.max_bytes)
        if len(partitions) + len(forgotten) > LONG_FROM:
            return self._long_fetches.named(self._open, parameters, partitions, forgotten)
        context = self._open(parameters, partitions, forgotten)
        if len(context.partitions) > LONG_FROM:
            return self._long_fetches.served(context, parameters)
        if context.error is not NONE:
            return FetchResponse(error_code=context.error)
        answers, ready = self._read_arrived(context, parameters)
        if ready or parameters.max_wait_ms <= 0:
            return self._reads.answers.respond(context, parameters, answers)
        waiter = self.purgatory.new_waiter(context, parameters)
        is_follower = parameters.replica_id >= 0
        if (
            not self.purgatory.note_sizes(waiter, answers)
            or not (waiter.asked or is_follower)
            or waiter.total >= parameters.min_bytes
            or waiter.parked_in.is_full()
        ):
            return self._reads.answers.respond(context, parameters, answers)
        self.purgatory.park(waiter, waiter.asked)
        return waiter.answer

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

    def _read_arrived(
        self, context: FetchContext, parameters: FetchParameters
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """Read a new fetch, and read again what has moved meanwhile. A follower's fetch may advance high watermarks. A
        request that waited for that, for example of a coordinator, may then append to partitions that were already
        read."""
        read_all = self._reads.read_all
        if parameters.replica_id < 0:
            return read_all(context, parameters, context.partitions, arrived=True)
        moved: dict[tuple[str, int], Partition] = {}
        self.purgatory.reading.append(moved)
        try:
            answers, ready = read_all(context, parameters, context.partitions, arrived=True)
        finally:
            self.purgatory.reading.pop()
        if ready or not moved:
            return answers, ready
        if any(len(answer.records) for _, answer in answers):
            return answers, True  # less than min_bytes: sending it again cannot exceed max_bytes
        again = {
            id(asked): asked for core in moved.values() if (asked := asked_of(context, core)) is not None
        }
        fresh, ready = read_all(context, parameters, again.values(), arrived=False)
        return [pair for pair in answers if id(pair[0]) not in again] + fresh, ready and bool(again)
