"""How much one step of a node's loop does, counted at its doors in units that a seed repeats.

While a step goes on nobody else has a turn, however quick a machine is: heartbeats, other clients, the quorum. What workers do
counts for nothing here. The bounds are some twice of what the most laborious step of many seeds needs; a cluster here is small, so
that a step which does something for each segment or batch there is crosses them.
"""

from __future__ import annotations

from kafkacompat.sim.quorum_oracles import Breach

CALLS_MAX, BYTES_MAX, TIMERS_MAX, MESSAGES_MAX = 180, 200_000, 100, 100


class Work:
    """Of one life of a node. `begin` before each step, `check` after it."""

    __slots__ = ("bytes", "calls", "is_a_workers", "messages", "step", "timers")

    def __init__(self) -> None:
        self.is_a_workers = False
        """What is done now is a job of some thread, which this process only carries out."""
        self.begin("")

    def begin(self, step: str) -> None:
        self.step = step
        self.calls = self.bytes = self.timers = self.messages = 0

    def disk_called(self) -> None:
        self.calls += not self.is_a_workers

    def moved(self, count: int) -> None:
        """Bytes to the disk, or from it."""
        if not self.is_a_workers:
            self.bytes += count

    def check(self, node_id: int) -> None:
        for done, most, unit in (
            (self.calls, CALLS_MAX, "calls of the disk"),
            (self.bytes, BYTES_MAX, "bytes of the disk"),
            (self.timers, TIMERS_MAX, "timers"),
            (self.messages, MESSAGES_MAX, "messages"),
        ):
            if done > most:
                raise Breach(
                    "a step does little", f"node {node_id} takes {done} {unit} in one step: {self.step}"
                )
