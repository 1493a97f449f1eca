"""The last exchanges of a broker or a cluster under test, for whoever looks. What is kept is bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.reasons import State
from kafkacompat.exchanges.recorded import APIS_BY_NAME, Recorded, payload, recorded_of
from kafkacompat.faults import report

KEPT_MAX = 2_000
KEPT_BYTES_MAX = 16 << 20
"""Of all requests and replies that are kept together."""


class Exchanges:
    """What is kept. Nodes add in their threads, tests read in theirs."""

    def __init__(self, state_of: Callable[[int], State]) -> None:
        """`state_of`: what a node knows, by its id."""
        self.state_of = state_of
        self._kept: deque[tuple[Recorded, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.count = 0
        """Of all that were ever there."""

    def add(self, exchange: Exchange) -> None:
        try:
            recorded = recorded_of(exchange, payload(exchange), self.state_of(exchange.node))
        except Exception as error:  # no request may fail because somebody looks at it
            report("recording a request", error)
            return
        self.keep(recorded)

    def keep(self, recorded: Recorded) -> None:
        size = recorded.size_bytes
        with self._lock:
            self._kept.append((recorded, size))
            self._bytes += size
            self.count += 1
            while len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX:
                self._bytes -= self._kept.popleft()[1]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def since(self, count: int, most: int) -> list[Recorded]:
        """The last ones after so many, at most so many, without what nodes ask each other again and again."""
        with self._lock:
            new = [each for each, _ in self._kept][-(self.count - count) :] if self.count > count else []
        told = (each for each in reversed(new) if not _is_routine(each))
        return [*islice(told, most)][::-1]

    def list(self, **wanted: Any) -> list[Recorded]:
        """Oldest first, those whose fields have these values. TypeError for a field that there is not."""
        unknown = wanted.keys() - set(Recorded.__dataclass_fields__)
        if unknown:
            raise TypeError(f"a request has no {sorted(unknown)[0]!r}")
        if "api" in wanted and wanted["api"] not in APIS_BY_NAME:
            raise ValueError(f"there is no API {wanted['api']!r}")
        with self._lock:
            kept = [each for each, _ in self._kept]
        return [each for each in kept if all(getattr(each, name) == value for name, value in wanted.items())]


def _is_routine(each: Recorded) -> bool:
    """A heartbeat of a broker, or the Fetch of a replica, which has gone well."""
    if each.errors or each.faults or each.closed is not None or each.api not in ("BrokerHeartbeat", "Fetch"):
        return False
    request = each.request
    if each.api == "BrokerHeartbeat" or request is None:
        return each.api == "BrokerHeartbeat"
    replica = request.replica_state
    return bool(max(request.replica_id, -1 if replica is None else replica.replica_id) >= 0)
