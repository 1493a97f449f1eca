"""Rounds over the active shards of a coordinator, one every interval, in steps of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.shard import Shard, ShardState

if TYPE_CHECKING:
    from kafkacompat.stepping.works import Steps, Work
    from kafkacompat.tasks import Started, Tasks

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
        self, steps: Steps, tasks: Tasks, shards: Iterable[Shard], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_due` is asked before each round. The next one comes in any case."""
        self._steps = steps
        self._tasks = tasks
        self._shards = shards
        self._is_due = is_due
        self._loops: list[Started] = []
        self._under_way: set[str] = set()

    def plan(self, what: str, interval_ms: int, visit: Callable[[Shard], Work]) -> None:
        """`what` names the rounds. `visit` is abandoned when its shard is no longer active."""
        self._loops.append(self._tasks.start(what, self._repeat(what, interval_ms, visit)))

    def stop(self) -> None:
        for loop in self._loops:
            loop.cancel()

    async def _repeat(self, what: str, interval_ms: int, visit: Callable[[Shard], Work]) -> None:
        while True:
            await self._tasks.sleep(interval_ms)
            if self._is_due() and what not in self._under_way:
                self._under_way.add(what)
                self._steps.start_now(what, self._go_round(what, visit))

    def _go_round(self, what: str, visit: Callable[[Shard], Work]) -> Work:
        try:
            for shard in self._shards:
                if shard.state is not ShardState.ACTIVE:
                    continue
                for cost in visit(shard):
                    yield cost
                    if shard.state is not ShardState.ACTIVE:
                        break
        finally:
            self._under_way.discard(what)
