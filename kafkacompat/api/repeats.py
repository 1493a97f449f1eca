"""Requests that clients repeat byte for byte, such as heartbeats of members to whom nothing happens.

With the answer to such a request its handler says how to answer it again (RequestContext.again). A repetition is not
decoded, and its reply is not encoded: the earlier one is sent with another correlation id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports.dispatcher import Reply

SIZE_MAX = 256
"""Bytes of a request that is kept, without the size prefix. A heartbeat has about 80, and client and group may have long
names."""
KEPT_MAX = 4_096
"""The newest requests of one version of an API. As many before them are kept too. Each takes about half a kilobyte."""


class Repeat:
    """A request whose answer stays the same as long as `again` says so."""

    __slots__ = ("_end", "_size", "again", "client_host")

    def __init__(self, again: Callable[[], bool], client_host: str, reply: Reply) -> None:
        """`reply` has one part, with the size and the correlation id at its beginning."""
        (part,) = reply
        whole = bytes(part)  # type: ignore[arg-type]  # not a slice of a file
        self.again = again
        self.client_host = client_host
        self._size, self._end = whole[:4], whole[8:]

    def reply(self, correlation_id: memoryview) -> Reply:
        return [self._size + correlation_id + self._end]


class Repeats:
    """The latest of one version of an API, by the bytes behind their correlation ids."""

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self._latest: dict[bytes, Repeat] = {}
        self._earlier: dict[bytes, Repeat] = {}

    def __len__(self) -> int:
        return len(self._latest) + len(self._earlier)

    def find(self, body: bytes) -> Repeat | None:
        repeat = self._latest.get(body)
        if repeat is None and self._earlier:
            repeat = self._earlier.pop(body, None)
            if repeat is not None:
                self.keep(body, repeat)
        return repeat

    def keep(self, body: bytes, repeat: Repeat) -> None:
        """What was neither kept nor found for the longest time gives way."""
        if len(self._latest) >= KEPT_MAX:
            self._earlier, self._latest = self._latest, {}
        self._latest[body] = repeat

    def forget(self, body: bytes) -> None:
        self._latest.pop(body, None)
