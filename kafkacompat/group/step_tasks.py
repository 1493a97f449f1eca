"""Long work of the groups of one shard, beside its requests. Each result comes back as an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.tasks import in_turns, pause

if TYPE_CHECKING:
    from kafkacompat.coordinator.shard import ShardTimers, TimerKey
    from kafkacompat.tasks import Tasks, Work

T = TypeVar("T")


class StepTasks:
    """GroupTasks over the node's tasks. An unload drops what is not done, with the shard's timers."""

    __slots__ = ("_scheduled", "_tasks", "_timers")

    def __init__(self, tasks: Tasks, timers: ShardTimers) -> None:
        self._tasks = tasks
        self._timers = timers
        self._scheduled: set[TimerKey] = set()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._scheduled

    def schedule(self, name: str, key: TimerKey, work: Work[T], then: Callable[[T, int], Any]) -> None:
        self._scheduled.add(key)
        self._tasks.start(name, self._carry_out(key, work, then))

    async def _carry_out(self, key: TimerKey, work: Work[T], then: Callable[[T, int], Any]) -> None:
        try:
            await pause()
            value = await in_turns(work)
        except BaseException:
            self._scheduled.discard(key)
            raise

        def done(now_ms: int) -> Any:
            self._scheduled.discard(key)
            return then(value, now_ms)

        self._timers.schedule(("task", *key), 0, done)
