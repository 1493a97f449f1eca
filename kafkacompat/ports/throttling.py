"""What the quotas do to one request. Declarations only."""

from __future__ import annotations

from typing import Any, Protocol


class Throttling(Protocol):
    """The throttling of a request to which a quota applies."""

    fetch_bytes_max: int
    """The most that a fetch may return."""

    def waits(self, context: Any) -> None:
        """The request waits from now on. Its wait is not its time."""
        ...

    def fetched(self, context: Any, size_bytes: int) -> int:
        """Record a fetch response of this size, unless it is throttled. Returns the throttle time in milliseconds."""
        ...

    def tell(self, context: Any, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer."""
        ...
