"""What the partitions of a node stand on: its time, tasks, threads, logs and settings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.ports import Clock, Timers, WorkerPools
    from kafkacompat.tasks import Started, Tasks


class Settings(Protocol):
    """The settings in force. Dynamic ones may change while the node runs."""

    def get_int(self, name: str) -> int: ...

    def get_boolean(self, name: str) -> bool: ...

    def log_config(self, topic: str) -> LogConfig: ...


@dataclass(frozen=True, slots=True)
class PartitionServices:
    node_id: int
    clock: Clock
    timers: Timers
    tasks: Tasks
    """Over these timers."""
    workers: WorkerPools
    logs: LogManager
    settings: Settings
    halt: Callable[[BaseException], None]
    """Ends the node and leaves its files: later decisions must not build on an image that is applied in part."""

    def start_or_halt(self, what: str, coroutine: Coroutine[Any, None, None]) -> Started:
        """Carry out what nobody waits for. If it fails, the node halts."""
        return self.tasks.start(what, self._or_halt(coroutine))

    async def _or_halt(self, coroutine: Coroutine[Any, None, None]) -> None:
        try:
            await coroutine
        except Exception as problem:
            self.halt(problem)
