"""The doors to time, chance and threads.

Protocols and nothing that acts. Implementations live in shells and in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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


class Timers(Protocol):
    """Callbacks at an instant of the clock's monotonic time; they run in the loop's thread, never early."""

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> TimerHandle: ...

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle: ...


class Random(Protocol):
    def uuid(self) -> Uuid:
        """A fresh random uuid outside the reserved range whose text does not begin with '-'."""
        ...

    def randrange(self, stop: int) -> int: ...


class Workers(Protocol):
    """Blocking calls in threads; the answer arrives in the loop's thread."""

    def submit(self, function: Callable[[], T]) -> Deferred[T]: ...


class PlacedWorkers(Protocol):
    def at(self, place: str) -> Workers:
        """Those of one log directory: a job waits for others of its own directory only. The same at each call."""
        ...


@dataclass(frozen=True, slots=True)
class SameWorkers:
    """One for every place."""

    workers: Workers

    def at(self, place: str) -> Workers:
        return self.workers


@dataclass(frozen=True, slots=True)
class WorkerPools:
    """Workers by duty: a job waits for others of its own duty and for nobody else."""

    quorum_sync: Workers
    """Syncs of the metadata log, one at a time. Nothing else, for the cluster waits for them."""
    snapshots: Workers
    """Building and writing metadata snapshots."""
    log_sync: PlacedWorkers
    """Syncs of partitions' logs: flush.messages, flush.ms, closed segments. For each log directory its own: a slow disk holds up
    no other."""
    reads: Workers
    """Reads of logs and indexes that are not in the page cache. The only one that may refuse a job, for anybody may ask."""
    replies: Workers
    """Bringing what a reply sends into the page cache: one job a connection."""
    loading: Workers
    """What coordinators read to take up their partitions."""
    files: Workers
    """Making and deleting files, checkpoints."""
    recovery: Workers
    """Opening logs after an unclean stop: num.recovery.threads.per.data.dir."""
    cleaning: Workers
    """The log cleaner, which may wait for its throttle."""
    batches: Workers
    """Opening and compressing produced batches that are large or unfold to much."""

    @classmethod
    def of_one(cls, workers: Workers) -> WorkerPools:
        """One for all: for tests and the simulator, whose jobs wait for no thread."""
        every: dict[str, Any] = {each.name: workers for each in fields(cls)}
        every["log_sync"] = SameWorkers(workers)
        return cls(**every)
