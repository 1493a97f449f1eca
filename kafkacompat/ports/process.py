"""The interfaces to time, random numbers and threads.

Protocols; nothing here acts. The implementations are in shells and in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import Uuid

T = TypeVar("T")


class Clock(Protocol):
    """Milliseconds. Wall time goes into records; monotonic time measures waits."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...

    def postpone(self, monotonic_ms: int) -> None:
        """Call back at this time instead, which is not before the present one. Far cheaper than a new timer. Nothing
        happens if the callback has run, or is cancelled."""
        ...


class Timers(Protocol):
    """Callbacks at a time of the clock's monotonic time. They run in the loop's thread, never early."""

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> TimerHandle: ...

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle: ...


class Random(Protocol):
    def uuid(self) -> Uuid:
        """A new random uuid outside the reserved range whose text does not begin with '-'."""
        ...

    def randrange(self, stop: int) -> int: ...


class WorkersBusy(Exception):
    """Too many jobs wait for the threads of a duty."""


class Workers(Protocol):
    """Blocking calls in threads. The result arrives in the loop's thread. It fails with WorkersBusy if too many jobs wait."""

    def submit(self, function: Callable[[], T]) -> Deferred[T]: ...


class PlacedWorkers(Protocol):
    def at(self, place: str) -> Workers:
        """The workers of one log directory: a job waits only for jobs of its own directory. The same object at each
        call."""
        ...


@dataclass(frozen=True, slots=True)
class SameWorkers:
    """The same workers for every place."""

    workers: Workers

    def at(self, place: str) -> Workers:
        return self.workers


@dataclass(frozen=True, slots=True)
class WorkerPools:
    """Workers by duty: a job waits only for jobs of its own duty."""

    quorum_sync: Workers
    """Syncs of the metadata log, one at a time. Nothing else, because the cluster waits for them."""
    snapshots: Workers
    """Building and writing metadata snapshots."""
    log_sync: PlacedWorkers
    """Syncs of partitions' logs: flush.messages, flush.ms, closed segments. Each log directory has its own workers, so
    that a slow disk delays no other."""
    reads: Workers
    """Reads of logs and indexes that are not in the page cache. This pool may refuse a job, because any client may
    cause reads."""
    replies: Workers
    """Loading into the page cache what a reply sends: one job per connection."""
    loading: Workers
    """Reads of coordinators that load their partitions."""
    files: Workers
    """Creation and deletion of files, checkpoints."""
    recovery: Workers
    """Opening logs after an unclean stop: num.recovery.threads.per.data.dir."""
    cleaning: Workers
    """The log cleaner, which may wait for its throttle."""
    batches: Workers
    """Decompression and compression of produced batches that are large or expand to much, and imports of parts that are
    made late: work of the processor, which no slow log directory holds up."""

    remote: Workers
    """Calls of the remote store, which may hang. The remote log manager bounds how many there are of each kind."""
    fetches: Workers
    """Requests to authorization servers. They may wait for as long as the network takes."""
    exchanges: Workers
    """Steps of SASL exchanges that may wait for files or compute for long. This pool may refuse a job, because anyone
    may begin an exchange."""

    @classmethod
    def of_one(cls, workers: Workers) -> WorkerPools:
        """The same workers for all duties: for tests and the simulator, whose jobs wait for no thread."""
        every: dict[str, Any] = {each.name: workers for each in fields(cls)}
        every["log_sync"] = SameWorkers(workers)
        return cls(**every)
