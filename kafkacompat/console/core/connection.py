"""Whether the broker answers, since when, and what is wrong if it does not. Time comes in as milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTING = "connecting"
REACHABLE = "reachable"
UNREACHABLE = "unreachable"


@dataclass(slots=True)
class BrokerConnection:
    """What the page's header says. since_ms is when the state began: for UNREACHABLE when the broker last answered."""

    bootstrap: str
    since_ms: int
    state: str = CONNECTING
    reason: str = ""
    answered_ms: int | None = None

    def answered(self, now_ms: int) -> None:
        """A look at the cluster succeeded."""
        if self.state != REACHABLE:
            self.since_ms = now_ms
        self.state, self.reason, self.answered_ms = REACHABLE, "", now_ms

    def failed(self, now_ms: int, reason: str) -> None:
        """A look at the cluster did not succeed; reason is for a person."""
        if self.state != UNREACHABLE:
            self.since_ms = now_ms if self.answered_ms is None else self.answered_ms
        self.state, self.reason = UNREACHABLE, reason

    @property
    def reachable(self) -> bool:
        """The last look succeeded."""
        return self.state == REACHABLE
