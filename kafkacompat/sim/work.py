"""Counts the work of one step of a node's loop at its doors, in units that are the same in each run of a seed.

During a step nothing else runs, however fast the machine is: heartbeats, other clients, the quorum. Jobs of workers
are not counted. The bounds are about twice the maximum over many seeds. The simulated clusters are small, so a step
whose work grows with the number of segments or batches exceeds them.
"""

from __future__ import annotations

from kafkacompat.sim.breach import Breach

CALLS_MAX, BYTES_MAX, TIMERS_MAX, MESSAGES_MAX = 180, 200_000, 100, 100


class Work:
    """The work of one life of a node. Call `begin` before each step and `check` after it."""

    __slots__ = ("bytes", "calls", "duty", "messages", "step", "timers")

    def __init__(self) -> None:
        self.duty: str | None = None
        """The duty of the worker whose job runs, which the simulation does in this process. None in the loop."""
        self.begin("")

    def begin(self, step: str) -> None:
        self.step = step
        self.calls = self.bytes = self.timers = self.messages = 0

    @property
    def is_a_workers(self) -> bool:
        return self.duty is not None

    def disk_called(self) -> None:
        self.calls += not self.is_a_workers

    def moved(self, count: int) -> None:
        """Count bytes written to the disk or read from it."""
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
