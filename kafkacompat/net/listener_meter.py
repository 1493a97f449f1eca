"""What one listener has counted: connections that came and went, authentications, bytes and requests (socket-server-metrics)."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from math import nan

from kafkacompat.meters import RateOfTotal, RecentMax, RecentTimes
from kafkacompat.ports.network import ListenerReading
from kafkacompat.quota.rate import Counted

SOFTWARE_MAX = 100
"""Names and versions of clients' software that are shown, because clients choose them. Of more, those with the most
connections. Apache Kafka shows as many."""
NAME_MAX = 200
"""Characters of a name, and of a version, that are shown. Clients may choose 32 KiB of each, and every scrape would carry them."""
UNKNOWN = ("unknown", "unknown")


class ListenerMeter:
    """Implements ports.dispatcher.ListenerCounts. Times are milliseconds of the monotonic clock."""

    __slots__ = (
        "_expired",
        "_failed",
        "_failed_again",
        "_rates",
        "_reauthentications",
        "_response_sizes",
        "_software",
        "_succeeded",
        "_succeeded_again",
        "_succeeded_once",
        "accept_throttles",
        "address_throttles",
        "closed",
        "created",
        "largest_response",
        "received_bytes",
        "requests",
        "responses",
        "sent_bytes",
    )

    def __init__(self, now_ms: int) -> None:
        self.created = Counted()
        self.closed = Counted()
        self._expired = 0
        self._succeeded = Counted()
        self._failed = Counted()
        self._succeeded_again = Counted()
        self._failed_again = Counted()
        self._succeeded_once = 0
        """Of clients that cannot authenticate again on the same connection."""
        self._reauthentications = RecentTimes()
        self.received_bytes = self.sent_bytes = self.requests = self.responses = 0
        self.largest_response = 0
        """Since the last reading."""
        self._response_sizes = RecentMax()
        self._rates = [RateOfTotal(now_ms) for _ in range(4)]
        """Of these four."""
        self.accept_throttles = RecentTimes()
        """Of connections that waited for a connection rate."""
        self.address_throttles = RecentTimes()
        """Of connections over the rate of their address."""
        self._software: Counter[str] = Counter()
        """Open connections by what their clients have told."""

    def authenticated(self, now_ms: int, *, may_again: bool = False, began_ms: int | None = None) -> None:
        if began_ms is None:
            self._succeeded.note(now_ms)
            self._succeeded_once += not may_again
        else:
            self._succeeded_again.note(now_ms)
            self._reauthentications.note(now_ms - began_ms, now_ms)

    def not_authenticated(self, now_ms: int, *, again: bool = False) -> None:
        (self._failed_again if again else self._failed).note(now_ms)

    def session_ended(self) -> None:
        self._expired += 1

    def gone(self, software: str | None, now_ms: int) -> None:
        """A connection has closed whose client had told this software, or nothing."""
        self.closed.note(now_ms)
        self._forget(software)

    def software_told(self, before: str | None, software: str) -> None:
        self._forget(before)
        self._software[software] += 1

    def _forget(self, software: str | None) -> None:
        if software is None:
            return
        self._software[software] -= 1
        if not self._software[software]:
            del self._software[software]

    def read(self, present: int, now_ms: int) -> ListenerReading:
        """`present`: open connections."""
        totals = (self.received_bytes, self.sent_bytes, self.requests, self.responses)
        received, sent, requests, responses = (
            (total, rate.read(now_ms, total)) for rate, total in zip(self._rates, totals, strict=True)
        )
        largest, self.largest_response = self.largest_response, 0
        return ListenerReading(
            present,
            self.created.read(now_ms),
            self.closed.read(now_ms),
            self._expired,
            self._succeeded.read(now_ms),
            self._failed.read(now_ms),
            self._succeeded_again.read(now_ms),
            self._failed_again.read(now_ms),
            self._succeeded_once,
            self._reauthentications.mean_and_max(now_ms),
            received,
            sent,
            requests,
            responses,
            sent[1] / responses[1] if responses[1] else nan,
            self._response_sizes.read(now_ms, largest),
            self._software_of(present),
            self.accept_throttles.mean_and_max(now_ms)[0],
            self.address_throttles.mean_and_max(now_ms)[0],
        )

    def _software_of(self, present: int) -> dict[tuple[str, str], int]:
        most = nlargest(SOFTWARE_MAX, self._software.items(), key=lambda each: each[1])
        found: dict[tuple[str, str], int] = {}
        for software, count in most:
            name, _, version = software.partition(" ")
            shown = name[:NAME_MAX], version[:NAME_MAX]
            found[shown] = found.get(shown, 0) + count
        if silent := present - self._software.total():
            found[UNKNOWN] = found.get(UNKNOWN, 0) + silent
        return found
