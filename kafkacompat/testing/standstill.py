"""How all nodes of a cluster stand still while one of them, in the middle of a request, keeps the state of all disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition
from typing import TypeVar

T = TypeVar("T")
Soon = Callable[[Callable[[], None]], bool]
"""Lets a node call a function in its thread. False if the node has ended."""
TIMEOUT_S = 30.0


class Standstill:
    """Called in the threads of nodes. Several may want it at once: they get it one after the other, and stand while they wait."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._standing: set[int] = set()
        self._holder: int | None = None

    def during(self, node_id: int, others: Mapping[int, Soon], do: Callable[[], T]) -> T:
        """What `do` returns, while no other node does anything. Raises TimeoutError."""
        with self._changed:
            self._standing.add(node_id)
            self._changed.notify_all()
            try:
                self._wait(lambda: self._holder is None)
                self._holder = node_id
                waited_for = {
                    other for other, soon in others.items() if soon(partial(self._stand, other, node_id))
                }
                self._wait(lambda: self._standing >= waited_for)
                return do()
            finally:
                self._standing.discard(node_id)
                if self._holder == node_id:
                    self._holder = None
                self._changed.notify_all()

    def _stand(self, node_id: int, holder: int) -> None:
        with self._changed:
            if self._holder != holder:
                return  # it stood as it waited for its own turn
            self._standing.add(node_id)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._holder != holder)
            self._standing.discard(node_id)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        if not self._changed.wait_for(is_so, TIMEOUT_S):
            raise TimeoutError(f"the nodes do not stand still after {TIMEOUT_S:g} s")
