"""The workers of a node whose disk is memory. Its jobs wait for no disk, so they run in the node's own loop, each in a turn of its
own: without the switches between threads, and in an order that is always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.net.workers import worker_pools
from kafkacompat.ports import WorkerPools
from kafkacompat.ports.process import SameWorkers

if TYPE_CHECKING:
    import trio

T = TypeVar("T")


class LoopWorkers:
    """ports.Workers."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._is_open = True

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        deferred: Deferred[T] = Deferred()

        def run() -> None:
            if not self._is_open:
                return
            try:
                value = function()
            except Exception as error:
                deferred.fail(error)
            else:
                deferred.resolve(value)

        self._token.run_sync_soon(run)
        return deferred

    def close(self) -> None:
        """The node is gone: what waits is not carried out."""
        self._is_open = False


def loop_pools(nursery: trio.Nursery, workers: LoopWorkers) -> WorkerPools:
    """Threads have only what may wait: the cleaner's throttle, authorization servers, exchanges of SASL."""
    return replace(
        worker_pools(nursery),
        quorum_sync=workers,
        snapshots=workers,
        log_sync=SameWorkers(workers),
        reads=workers,
        replies=workers,
        loading=workers,
        files=workers,
        recovery=workers,
        batches=workers,
    )
