"""A walk over all partitions of this node, some of them in each step of the loop.

Partitions come, go and change their roles during a walk. It visits those that were here when it began; one that has
gone meanwhile leads nothing any more. Whoever needs a visit of those that came later begins another walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.stepping.jobs import Pace
from kafkacompat.stepping.stepped import Stepper, Steps

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Timers

VISITED_A_STEP = 1000
"""Partitions of one step, at up to 2 microseconds each."""
ACTED_ON = 25
"""A partition for which something is done, in partitions that are only visited."""


class Round:
    __slots__ = ("_cores", "_fail", "_stepper")

    def __init__(
        self,
        cores: Mapping[tuple[bytes, int], Partition],
        timers: Timers,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`cores` is the manager's table. `fail` halts the node: a walk that ends early would leave partitions unwatched."""
        self._cores = cores
        self._fail = fail
        self._stepper = Stepper(timers)

    @property
    def is_under_way(self) -> bool:
        return self._stepper.is_busy

    def begin(self, visit: Callable[[Partition], bool], done: Callable[[], None] = lambda: None) -> None:
        """Run the first step now. `visit` returns whether it has done something. A walk that is under way ends here, and its
        `done` is not called."""
        self._stepper.cancel()
        self._stepper.run(self._walk(visit), lambda outcome: self._ended(outcome, done))

    def cancel(self) -> None:
        self._stepper.cancel()

    def _walk(self, visit: Callable[[Partition], bool]) -> Steps[None]:
        pace = Pace(VISITED_A_STEP)
        for core in list(self._cores.values()):
            if pace.is_over(ACTED_ON if visit(core) else 1):
                yield

    def _ended(self, outcome: Callable[[], None], done: Callable[[], None]) -> None:
        try:
            outcome()
            done()
        except Exception as problem:
            self._fail(problem)
