"""Whether the broker answers, since when, and the error if it does not. The time is a parameter, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTING = "connecting"
REACHABLE = "reachable"
UNREACHABLE = "unreachable"


@dataclass(slots=True)
class BrokerConnection:
    """The state in the page's header. since_ms is the start of the state; for UNREACHABLE, the time of the broker's
    last answer."""

    bootstrap: str
    since_ms: int
    state: str = CONNECTING
    reason: str = ""
    answered_ms: int | None = None

    def answered(self, now_ms: int) -> None:
        """The cluster's state was read."""
        if self.state != REACHABLE:
            self.since_ms = now_ms
        self.state, self.reason, self.answered_ms = REACHABLE, "", now_ms

    def failed(self, now_ms: int, reason: str) -> None:
        """The cluster's state could not be read. `reason` is for a person."""
        if self.state != UNREACHABLE:
            self.since_ms = now_ms if self.answered_ms is None else self.answered_ms
        self.state, self.reason = UNREACHABLE, reason

    @property
    def reachable(self) -> bool:
        """Whether the last attempt succeeded."""
        return self.state == REACHABLE
