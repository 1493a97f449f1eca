"""A problem that may pass, such as a broker that is away: it is told only if it lasts."""

from __future__ import annotations

import sys
import time

PATIENCE_S = 5.0
"""A problem that lasts longer is reported."""


class Trouble:
    """Reports a problem once. As in Kafka's consumers, the command continues when it is over, however long that takes."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False

    def tell(self, problem: str) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since, self._said = now, False
        if not self._said and now - self._since >= PATIENCE_S:
            self._said = True
            print(f"kafkacompat: {problem}; trying again", file=sys.stderr)

    def end(self) -> None:
        self._since = None
