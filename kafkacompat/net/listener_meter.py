"""What one listener has counted: connections that came and went, and authentications (socket-server-metrics)."""

from __future__ import annotations

from kafkacompat.ports.network import ListenerReading
from kafkacompat.quota.counted import Counted


class ListenerMeter:
    """Implements ports.dispatcher.AuthenticationMeter. Times are milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self.created = Counted()
        self.closed = Counted()
        self.expired = 0
        """Connections closed because they were idle."""
        self._succeeded = Counted()
        self._failed = Counted()
        self._succeeded_again = Counted()
        self._failed_again = Counted()

    def authenticated(self, now_ms: int, *, again: bool = False) -> None:
        (self._succeeded_again if again else self._succeeded).note(now_ms)

    def not_authenticated(self, now_ms: int, *, again: bool = False) -> None:
        (self._failed_again if again else self._failed).note(now_ms)

    def read(self, present: int, now_ms: int) -> ListenerReading:
        """`present`: open connections."""
        return ListenerReading(
            present,
            self.created.read(now_ms),
            self.closed.read(now_ms),
            self.expired,
            self._succeeded.read(now_ms),
            self._failed.read(now_ms),
            self._succeeded_again.read(now_ms),
            self._failed_again.read(now_ms),
        )
