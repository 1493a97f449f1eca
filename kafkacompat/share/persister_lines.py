"""What waits for a share coordinator: operations on one share-partition in lines."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.ports import TimerHandle
    from kafkacompat.share.state_messages import StateRequest


class Call:
    """One operation on one share-partition. `answer` never fails: errors are part of it."""

    __slots__ = ("answer", "attempts", "request", "searches", "value")

    def __init__(self, request: StateRequest, value: Any) -> None:
        self.request = request
        self.value = value
        self.answer: Deferred[Any] = Deferred()
        self.attempts = self.searches = 0


class Line:
    """The operations of one order (StateRequest.order) on one share-partition. While one is under way the others wait.

    A write that is retried must not come after a later one, which would set the start offset back. Nor must a state be made
    after the group was deleted, or be deleted after it was made anew.
    """

    __slots__ = ("asked", "handle", "key", "order", "waiting")

    def __init__(self, order: str, key: SharePartitionKey) -> None:
        self.order = order
        self.key = key
        self.waiting: list[Call] = []
        self.asked: list[Call] = []
        """Those that the request in flight answers together."""
        self.handle: TimerHandle | None = None
        """Set while the next attempt waits."""

    @property
    def request(self) -> StateRequest:
        """The kind of what is under way, or comes next."""
        return (self.asked or self.waiting)[0].request

    def take(self) -> Any:
        """Take operations that one partition of a request expresses. Returns its value."""
        request = self.request
        alike = takewhile(lambda call: call.request is request, self.waiting)
        value, count = request.together([call.value for call in alike])
        self.asked, self.waiting = self.waiting[:count], self.waiting[count:]
        return value


class Lane(NamedTuple):
    """What one request may contain."""

    node_id: int
    kind: str
    group_id: str
