"""What the quotas do to one request. Declarations only."""

from __future__ import annotations

from typing import Any, Protocol


class Throttling(Protocol):
    """The throttling of a request to which a quota applies."""

    def waits(self) -> None:
        """The request waits from now on. Its wait is not its time."""
        ...

    def exempt(self) -> None:
        """No quota applies: the request is a follower's fetch."""
        ...

    def refused(self) -> None:
        """A produce is refused as a whole, before its topics are looked at: its bytes use no bandwidth."""
        ...

    def fetch_bytes_max(self) -> int:
        """The most that a fetch may return."""
        ...

    def fetched(self, size_bytes: int) -> int:
        """Record a fetch response of this size, unless it is throttled. Returns the throttle time in milliseconds."""
        ...

    def tell(self, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer."""
        ...
