"""What waits for a share coordinator: operations on one share-partition in lines, and lines in queues of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.coordinator.share_messages import StateRequest
    from kafkacompat.ports import TimerHandle


class Call:
    """One operation on one share-partition. `answer` never fails: errors are part of it."""

    __slots__ = ("answer", "attempts", "searches", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.answer: Deferred[Any] = Deferred()
        self.attempts = self.searches = 0


class Line:
    """The operations of one kind on one share-partition, in order. While one is under way the others wait.

    A write that is retried must not come after a later one, which would set the start offset back.
    """

    __slots__ = ("asked", "handle", "key", "request", "waiting")

    def __init__(self, request: StateRequest, key: SharePartitionKey) -> None:
        self.request = request
        self.key = key
        self.waiting: list[Call] = []
        self.asked: list[Call] = []
        """Those that the request in flight answers together."""
        self.handle: TimerHandle | None = None
        """Set while the next attempt waits."""

    def take(self) -> Any:
        """Take operations that one partition of a request expresses. Returns its value."""
        value, count = self.request.together([call.value for call in self.waiting])
        self.asked, self.waiting = self.waiting[:count], self.waiting[count:]
        return value


class Lane(NamedTuple):
    """What one request may contain."""

    node_id: int
    kind: str
    group_id: str


class Queue:
    __slots__ = ("in_flight", "lines")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.in_flight = False
