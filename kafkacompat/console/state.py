"""What the console knows at this moment, and its views as JSON bytes, made anew only when something has changed.

Changed by the tasks of run.py, read by server.py, both on the one trio thread. Knows no client and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from kafkacompat.console.core.cluster_view import broker_view, cluster_view, health_view
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.rates import Rates
from kafkacompat.console.core.results import Results
from kafkacompat.console.core.snapshot import ReplicaSize, Snapshot
from kafkacompat.console.core.views import results_view
from kafkacompat.console.reader import Batch, Place

MIN_VIEW_INTERVAL_MS = 400
"""A view is not made more often than this, however fast results come and however many look."""


class ViewCache:
    """The JSON bytes of one view and the tag that changes with them."""

    __slots__ = ("_made_ms", "_run", "_seen", "_version", "body", "tag")

    def __init__(self, run: str) -> None:
        self._run = run
        self._made_ms = 0
        self._seen: object = None
        self._version = 0
        self.body = b""
        self.tag = ""

    def fresh(self, seen: object, now_ms: int) -> bool:
        """Whether the bytes still hold: nothing has changed since, or they were made a moment ago."""
        return self._version > 0 and (
            seen == self._seen or 0 <= now_ms - self._made_ms < MIN_VIEW_INTERVAL_MS
        )

    def keep(self, seen: object, now_ms: int, body: bytes) -> None:
        """Take the bytes of a view made from what was seen."""
        self.body = body
        self._seen, self._made_ms = seen, now_ms
        self._version += 1
        self.tag = f'"{self._run}-{self._version}"'


class ConsoleState:
    """Results, the last look at the cluster, rates and the broker's connection. run tells this process from an earlier one."""

    __slots__ = (
        "_cluster_cache",
        "_looks",
        "_making",
        "_results_cache",
        "connection",
        "positions",
        "rates",
        "results",
        "snapshot",
    )

    def __init__(self, bootstrap: str, now_ms: int, run: str) -> None:
        self.results = Results()
        self.connection = BrokerConnection(bootstrap, now_ms)
        self.rates = Rates()
        self.snapshot: Snapshot | None = None
        self.positions: dict[Place, int] = {}
        self._looks = 0
        self._results_cache = ViewCache(run)
        self._cluster_cache = ViewCache(run)
        self._making = trio.Lock()
        """Of whoever makes the view of the cluster: the others have it then."""

    def looked(self, snapshot: Snapshot) -> None:
        """Take in a look at the cluster."""
        self._looks += 1
        self.snapshot = snapshot
        self.connection.answered(snapshot.taken_ms)
        ends = {topic.topic_id: topic.end_offsets for topic in snapshot.topics}
        self.rates.add(snapshot.taken_ms, {key: end for key, end in ends.items() if end is not None})

    def sized(self, sizes: tuple[ReplicaSize, ...] | None, error: str) -> None:
        """Take in the sizes of logs."""
        if self.snapshot is not None:
            self._looks += 1
            self.snapshot = replace(self.snapshot, sizes=sizes, sizes_error=error)

    def away(self, now_ms: int, reason: str) -> None:
        """Take in that the broker did not answer; what was known last is kept and shown as such."""
        self._looks += 1
        self.connection.failed(now_ms, reason)

    def took(self, batch: Batch) -> None:
        """Fold what the reader brought."""
        for topic in batch.forgotten:
            self.results.forget(topic)
            self.positions = {place: at for place, at in self.positions.items() if place[0] != topic}
        for record in batch.records:
            self.results.fold(record)
        self.positions |= batch.positions

    def behind(self) -> int | None:
        """Result records that are written and not read yet; None while the ends are not known."""
        if self.snapshot is None:
            return None
        total = 0
        for topic in self.snapshot.topics:
            if topic.name in self.results.topics:
                for partition in topic.partitions:
                    at = self.positions.get((topic.name, partition.partition), partition.earliest)
                    if at is not None and partition.latest is not None:
                        total += max(0, partition.latest - at)
        return total

    def results_json(self, now_ms: int) -> ViewCache:
        """The view of GET /api/results."""
        behind = self.behind()
        seen = (self.results.revision, behind)
        if not self._results_cache.fresh(seen, now_ms):
            view = results_view(self.results)
            view["reading"]["behind"] = behind
            self._results_cache.keep(seen, now_ms, encoded(view))
        return self._results_cache

    async def cluster_json(self, now_ms: int) -> ViewCache:
        """The view of GET /api/cluster, made in a thread: of tens of thousands of partitions it takes half a second."""
        async with self._making:
            if not self._cluster_cache.fresh(self._looks, now_ms):
                seen = self._looks
                view = await trio.to_thread.run_sync(_as_json, self.cluster())
                self._cluster_cache.keep(seen, now_ms, view)
        return self._cluster_cache

    def cluster(self) -> Callable[[], dict[str, Any]]:
        """What makes the view of the cluster, in any thread: nothing that it looks at changes."""
        return partial(cluster_view, replace(self.connection), self.snapshot, self.rates.copy())

    def broker(self) -> dict[str, Any]:
        """Whether the broker answers, and the health of the cluster."""
        return {
            "broker": broker_view(self.connection),
            "health": health_view(self.connection, self.snapshot),
            "behind": self.behind(),
        }


def _as_json(make: Callable[[], dict[str, Any]]) -> bytes:
    return encoded(make())


def encoded(view: dict[str, Any]) -> bytes:
    """JSON without blanks, in UTF-8."""
    return json.dumps(view, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
