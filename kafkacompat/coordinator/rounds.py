"""Rounds over the active shards of a coordinator, one every interval, in steps of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.shard import Shard, ShardState

if TYPE_CHECKING:
    from kafkacompat.ports import TimerHandle, Timers
    from kafkacompat.stepping.works import Steps, Work

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
        self, steps: Steps, timers: Timers, shards: Iterable[Shard], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_due` is asked before each round. The next one comes in any case."""
        self._steps = steps
        self._timers = timers
        self._shards = shards
        self._is_due = is_due
        self._handles: dict[str, TimerHandle] = {}
        self._under_way: set[str] = set()

    def plan(self, what: str, interval_ms: int, visit: Callable[[Shard], Work]) -> None:
        """`what` names the rounds. `visit` is abandoned when its shard is no longer active."""

        def begin() -> None:
            self.plan(what, interval_ms, visit)
            if self._is_due() and what not in self._under_way:
                self._under_way.add(what)
                self._steps.start_now(what, self._go_round(what, visit))

        self._handles[what] = self._timers.call_after(interval_ms, begin)

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()

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
