"""The console's current knowledge, and its views as JSON bytes. A view is made again only after a change.

The tasks of run.py change the state, server.py reads it, both in the one trio thread. No clients and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from kafkacompat.console.core.cluster_view import broker_view, cluster_view, health_view
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.lag_history import LagHistory
from kafkacompat.console.core.queries_view import Standing, ends_of, queries_view
from kafkacompat.console.core.rates import Rates
from kafkacompat.console.core.results import Results
from kafkacompat.console.core.snapshot import GroupEpochs, MirrorSeen, ReplicaSize, Snapshot
from kafkacompat.console.core.views import results_view
from kafkacompat.console.reader import Batch, Place
from kafkacompat.console.share_groups import CoordinatedGroups
from kafkacompat.console.share_numbers import NumbersTold
from kafkacompat.pipeline.topics import PIPELINE_PROGRESS
from kafkacompat.security.cluster_address import ClusterAddress

MIN_VIEW_INTERVAL_MS = 400
"""Minimum interval between two makings of a view, however fast results come and however many clients ask."""
DIVIDED_LEVELS = 3
"""The levels of a view that are encoded piece by piece, down to table rows. While the library encodes one piece, no
other thread runs."""


class ViewCache:
    """The JSON bytes of one view, and the tag that changes with them."""

    __slots__ = ("_made_ms", "_run", "_seen", "_version", "body", "tag")

    def __init__(self, run: str) -> None:
        self._run = run
        self._made_ms = 0
        self._seen: object = None
        self._version = 0
        self.body = b""
        self.tag = ""

    def fresh(self, seen: object, now_ms: int) -> bool:
        """Whether the bytes are still valid: nothing has changed since, or they were made a moment ago."""
        return self._version > 0 and (
            seen == self._seen or 0 <= now_ms - self._made_ms < MIN_VIEW_INTERVAL_MS
        )

    def keep(self, seen: object, now_ms: int, body: bytes) -> None:
        """Store the bytes of a view that was made from `seen`."""
        self.body = body
        self._seen, self._made_ms = seen, now_ms
        self._version += 1
        self.tag = f'"{self._run}-{self._version}"'


class ConsoleState:
    """Results, the last snapshot, rates and the broker's connection. `run` distinguishes this process from an earlier one."""

    __slots__ = (
        "_cluster_cache",
        "_counted",
        "_looks",
        "_making",
        "_results_cache",
        "_standing",
        "address",
        "connection",
        "lags",
        "positions",
        "rates",
        "results",
        "snapshot",
    )

    def __init__(self, bootstrap: ClusterAddress, now_ms: int, run: str) -> None:
        self.results = Results()
        self.address = bootstrap
        self.connection = BrokerConnection(bootstrap.servers, now_ms)
        self.rates = Rates()
        self.lags = LagHistory()
        self.snapshot: Snapshot | None = None
        self.positions: dict[Place, int] = {}
        self._counted: NumbersTold | None = None
        self._looks = 0
        self._standing = Standing()
        self._results_cache = ViewCache(run)
        self._cluster_cache = ViewCache(run)
        self._making = trio.Lock()
        """Held while the view of the cluster is made. Requests that wait for it then get that view."""

    def looked(self, snapshot: Snapshot) -> None:
        """Store a new snapshot."""
        self._looks += 1
        self.snapshot = _counted(snapshot, self._counted)
        self.connection.answered(snapshot.taken_ms)
        ends = {topic.topic_id: topic.end_offsets for topic in snapshot.topics}
        self.rates.add(snapshot.taken_ms, {key: end for key, end in ends.items() if end is not None})
        rows = self.results.rows(PIPELINE_PROGRESS)
        self._standing.look(rows, ends_of(rows, snapshot), snapshot.taken_ms)

    def sized(self, sizes: tuple[ReplicaSize, ...] | None, error: str) -> None:
        """Store the sizes of logs."""
        if self.snapshot is not None:
            self._looks += 1
            self.snapshot = replace(self.snapshot, sizes=sizes, sizes_error=error)

    def described(self, epochs: Mapping[str, GroupEpochs]) -> None:
        """Store the epochs of groups."""
        if self.snapshot is not None:
            self._looks += 1
            self.snapshot = replace(self.snapshot, epochs=epochs)

    def shared(self, by_node: Mapping[int, CoordinatedGroups]) -> None:
        """Store the share groups and streams groups of each node."""
        if self.snapshot is not None:
            self._looks += 1
            groups = [group for each in by_node.values() for group in each.groups]
            streams = [group for each in by_node.values() for group in each.streams_groups]
            self.snapshot = replace(
                self.snapshot,
                share_groups=tuple(sorted(groups, key=lambda group: group.group_id)),
                streams_groups=tuple(sorted(streams, key=lambda group: group.group_id)),
                share_groups_hidden=sum(each.hidden for each in by_node.values()),
                share_groups_error="; ".join(
                    f"node {node_id}: {each.error}" for node_id, each in sorted(by_node.items()) if each.error
                ),
            )

    def mirrored(self, mirrors: tuple[MirrorSeen, ...]) -> None:
        """Store which topics are mirrors."""
        if self.snapshot is not None:
            self._looks += 1
            self.snapshot = replace(self.snapshot, mirrors=mirrors)

    def counted(self, told: NumbersTold) -> None:
        """Store what the nodes' metrics tell of records in flight with share groups."""
        self._counted = told
        if self.snapshot is not None:
            self._looks += 1
            self.snapshot = _counted(self.snapshot, told)

    def away(self, now_ms: int, reason: str) -> None:
        """The broker did not answer. The previous snapshot stays and is shown as old."""
        self._looks += 1
        self.connection.failed(now_ms, reason)
        self._standing.forget()

    def took(self, batch: Batch) -> None:
        """Fold a batch of the reader."""
        for topic in batch.forgotten:
            self.results.forget(topic)
            self.positions = {place: at for place, at in self.positions.items() if place[0] != topic}
        for record in batch.records:
            self.results.fold(record)
        self.positions |= batch.positions

    def behind(self) -> int | None:
        """The number of result records that are written but not read yet. None while the end offsets are unknown."""
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
        """The view of GET /api/cluster, made in a thread. For tens of thousands of partitions it takes half a second."""
        async with self._making:
            if not self._cluster_cache.fresh(self._looks, now_ms):
                seen = self._looks
                view = await trio.to_thread.run_sync(_as_json, self.cluster(now_ms))
                self._cluster_cache.keep(seen, now_ms, view)
        return self._cluster_cache

    def cluster(self, now_ms: int) -> Callable[[], dict[str, Any]]:
        """Return a function that makes the view of the cluster. It may run in any thread, because its inputs never change."""
        queries = self.queries(now_ms)
        return partial(cluster_view, replace(self.connection), self.snapshot, self.rates.copy(), queries)

    def queries(self, now_ms: int) -> list[dict[str, Any]]:
        """The view of the pipeline's queries."""
        rows = self.results.rows(PIPELINE_PROGRESS)
        return queries_view(rows, ends_of(rows, self.snapshot), self._standing, now_ms)

    def broker(self, now_ms: int) -> dict[str, Any]:
        """Whether the broker answers, and the health of the cluster and of the pipeline."""
        return {
            "broker": broker_view(self.connection),
            "health": health_view(self.connection, self.snapshot, self.queries(now_ms)),
            "behind": self.behind(),
        }


def _counted(snapshot: Snapshot, told: NumbersTold | None) -> Snapshot:
    if told is None:
        return snapshot
    return replace(snapshot, share_numbers=told.numbers, share_numbers_error=told.error)


def _as_json(make: Callable[[], dict[str, Any]]) -> bytes:
    return encoded(make())


def encoded(view: dict[str, Any]) -> bytes:
    """Return JSON without whitespace, in UTF-8."""
    return "".join(_pieces(view, DIVIDED_LEVELS)).encode()


def _pieces(value: Any, levels: int) -> Iterator[str]:
    """Yield the JSON text of a value whose keys are strings. The top levels are encoded element by element."""
    if levels and value and isinstance(value, dict):
        before = "{"
        for name, part in value.items():
            yield f"{before}{_dumped(name)}:"
            yield from _pieces(part, levels - 1)
            before = ","
        yield "}"
    elif levels and value and isinstance(value, list):
        before = "["
        for part in value:
            yield before
            yield from _pieces(part, levels - 1)
            before = ","
        yield "]"
    else:
        yield _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
