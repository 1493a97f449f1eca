"""Rounds over the active shards of a coordinator, one every interval, in steps of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.tasks import Started, Tasks, Work

T = TypeVar("T")

STRETCH = 250
"""Places examined, and so the most tombstones written, in one step."""
TOMBSTONE_COST = 12


def stretches(items: Iterator[T]) -> Iterator[list[T]]:
    while stretch := list(islice(items, STRETCH)):
        yield stretch


class Rounds:
    """Call `plan` for each kind of round, then `stop`. A round that is not complete at the next interval continues."""

    def __init__(
        self, tasks: Tasks, shards: Iterable[Shard], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_due` is asked before each round. The next one comes in any case."""
        self._tasks = tasks
        self._shards = shards
        self._is_due = is_due
        self._loops: list[Started] = []

    def plan(self, what: str, interval_ms: int, visit: Callable[[Shard], Work[None]]) -> None:
        """`what` names the rounds. `visit` is abandoned when its shard is no longer active."""
        self._loops.append(self._tasks.start(what, self._repeat(what, interval_ms, visit)))

    def stop(self) -> None:
        for loop in self._loops:
            loop.cancel()

    async def _repeat(self, what: str, interval_ms: int, visit: Callable[[Shard], Work[None]]) -> None:
        under_way: Started | None = None
        while True:
            await self._tasks.sleep(interval_ms)
            if self._is_due() and (under_way is None or under_way.done):
                under_way = self._tasks.start(what, self._go_round(visit))

    async def _go_round(self, visit: Callable[[Shard], Work[None]]) -> None:
        for shard in self._shards:
            if shard.state is not ShardState.ACTIVE:
                continue
            for cost in visit(shard):
                await pause(cost)
                if shard.state is not ShardState.ACTIVE:
                    break
