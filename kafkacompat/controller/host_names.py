"""Resolves the host names of a request before the command that needs them starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kafkacompat.deferred import Deferred

Resolve = Callable[[str], Deferred[str | None]]
"""Returns the address of a host, or None if the host is unknown. It never fails."""
RESOLVED_MAX = 64
"""Names per request that are resolved. Further names count as unknown: each takes a thread while the resolver waits."""


def known_hosts(names: Iterable[str], resolve: Resolve) -> Deferred[frozenset[str]]:
    """Return the names that have an address."""
    asked = sorted(names)[:RESOLVED_MAX]
    known: set[str] = set()
    waiting = len(asked)
    answer: Deferred[frozenset[str]] = Deferred()

    def resolved(name: str, done: Deferred[str | None]) -> None:
        nonlocal waiting
        waiting -= 1
        if done.result() is not None:
            known.add(name)
        if not waiting:
            answer.resolve(frozenset(known))

    if not asked:
        return Deferred.of(frozenset())
    for name in asked:
        resolve(name).on_done(partial(resolved, name))
    return answer
