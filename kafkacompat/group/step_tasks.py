"""Long work of the groups of one shard, in steps beside its requests. Each result comes back as an operation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kafkacompat.coordinator.timers import ShardTimers, TimerKey
    from kafkacompat.stepping.works import Steps, Work

T = TypeVar("T")


class StepTasks:
    """GroupTasks over the coordinator's steps. An unload drops what is not done, with the shard's timers."""

    __slots__ = ("_scheduled", "_steps", "_timers")

    def __init__(self, steps: Steps, timers: ShardTimers) -> None:
        self._steps = steps
        self._timers = timers
        self._scheduled: set[TimerKey] = set()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._scheduled

    def schedule(
        self, name: str, key: TimerKey, work: Generator[int, None, T], then: Callable[[T, int], Any]
    ) -> None:
        self._scheduled.add(key)
        self._steps.start(name, self._carried_out(key, work, then))

    def _carried_out(
        self, key: TimerKey, work: Generator[int, None, T], then: Callable[[T, int], Any]
    ) -> Work:
        try:
            value = yield from work
        except BaseException:
            self._scheduled.discard(key)
            raise

        def done(now_ms: int) -> Any:
            self._scheduled.discard(key)
            return then(value, now_ms)

        self._timers.schedule(("task", *key), 0, done)
