"""A JSON Web Key Set that an authorization server publishes: kept, and fetched again in the background.

The event loop never waits for the server: a token is checked with the keys that are there. `fetch` runs in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.security.background import Background
from kafkacompat.security.http_fetch import FetchFailed
from kafkacompat.security.jwks import JsonWebKeySet, JwksError, parse_jwks

MISSING_INTERVAL_MS = 10_000
"""Tokens with an unknown key cause one fetch in this time at most: anybody can send them."""
_log = logging.getLogger(__name__)


class RefreshTerms(NamedTuple):
    """Of the settings sasl.oauthbearer.jwks.endpoint.*."""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class RemoteKeys:
    """The last set that was fetched. A failed fetch is repeated until one succeeds, and keeps the set that is there."""

    def __init__(
        self, fetch: Callable[[], bytes], place: str, terms: RefreshTerms, background: Background
    ) -> None:
        """`place`: of the server, for the log. The first fetch begins at once."""
        self._fetch = fetch
        self._place = place
        self._terms = terms
        self._background = background
        self._set: JsonWebKeySet | None = None
        self._is_fetching = False
        self._failures = 0
        self._not_before_ms = 0
        self._timer = background.timers.call_after(0, self._begin)

    def keys(self) -> JsonWebKeySet:
        """JwksError until the first fetch has succeeded."""
        if self._set is None:
            raise JwksError(f"none has been fetched from {self._place} yet")
        return self._set

    def is_missing(self, key_id: str | None) -> None:
        """The issuer may have begun to sign with a new key."""
        now_ms = self._background.clock.monotonic_ms()
        if self._set is None or now_ms < self._not_before_ms:
            return
        self._not_before_ms = now_ms + MISSING_INTERVAL_MS
        self._begin()

    def _begin(self) -> None:
        if self._is_fetching:
            return
        self._is_fetching = True
        self._timer.cancel()
        self._background.workers.submit(self._fetched).on_done(self._done)

    def _fetched(self) -> JsonWebKeySet:
        """In a worker. A set without a usable key is as good as none."""
        found = parse_jwks(self._fetch())
        if not found.keys:
            raise JwksError("there is no public key in the set")
        return found

    def _done(self, answer: Deferred[JsonWebKeySet]) -> None:
        self._is_fetching = False
        try:
            self._set = answer.result()
        except Exception as problem:
            if isinstance(problem, (FetchFailed, JwksError)):
                _log.warning("the keys of OAUTHBEARER were not fetched from %s: %s", self._place, problem)
            else:
                report("fetching the keys of OAUTHBEARER", problem)
            delay_ms = min(
                self._terms.retry_backoff_ms << min(self._failures, 30), self._terms.retry_backoff_max_ms
            )
            self._failures += 1
        else:
            self._failures = 0
            delay_ms = self._terms.refresh_ms
        self._timer = self._background.timers.call_after(max(delay_ms, 1), self._begin)


class UnfetchedKeys:
    """In the place of `RemoteKeys` while settings are only checked."""

    def keys(self) -> JsonWebKeySet:
        raise JwksError("none is fetched here")

    def is_missing(self, key_id: str | None) -> None:
        """Nothing is fetched."""
