"""Role changes of a new image, applied a few at a time, or when a request needs the partition.

Each partition's changes are kept in order. An image that changes many partitions at once (a broker with thousands is
fenced, a large topic is deleted) would delay requests. Until its turn a partition keeps its former role, as if this
broker had received the image later. A request for the partition applies its change first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.controller.image import PartitionRegistration
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.ports import Timers

TAKEN_AT_ONCE_MAX = 100
"""Changes of one image that are applied at once, so that small images stay simple: 30 to 100 us each."""
TAKEN_A_STEP = 100

Key = tuple[str, int]


class Changes:
    """Bounded by the partitions of the images that brought the changes."""

    __slots__ = ("_at_once_left", "_fail", "_is_planned", "_take", "_timers", "_waiting")

    def __init__(
        self,
        timers: Timers,
        take: Callable[[TopicPartition, Uuid, PartitionRegistration | None, bool], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`take` is called with the partition, its topic id, its image (None if the partition left this node), and
        whether it is new. `fail` halts the node, because later decisions must not build on a partly applied image."""
        self._timers = timers
        self._take = take
        self._fail = fail
        self._waiting: OrderedDict[
            Key, list[tuple[TopicPartition, Uuid, PartitionRegistration | None, bool]]
        ] = OrderedDict()
        """A plain dictionary would pass over everything taken before, to find the first one that is left."""
        self._is_planned = False
        self._at_once_left = TAKEN_AT_ONCE_MAX

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting

    def begin(self) -> None:
        """Start with another image."""
        self._at_once_left = TAKEN_AT_ONCE_MAX

    def add(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        image: PartitionRegistration | None,
        *,
        is_new: bool = False,
        now: bool = False,
    ) -> None:
        """Add a change. `now` applies it at once, for components that use the same image next."""
        waiting = self._waiting.get(name)
        if waiting is None:
            if now or self._at_once_left > 0:
                self._at_once_left -= 1
                self._take(name, topic_id, image, is_new)
                return
            waiting = self._waiting[name] = []
        if waiting and waiting[-1][1] == topic_id:
            # The newer image includes everything of the older one.
            is_new = waiting.pop()[3] and image is not None
        waiting.append((name, topic_id, image, is_new))
        if now:
            self.take_now(name)
        elif not self._is_planned:
            self._is_planned = True
            self._timers.call_after(0, self._step)

    def take_now(self, name: Key) -> None:
        changes = self._waiting.pop(name, ())
        try:
            for change in changes:
                self._take(*change)
        except Exception as problem:
            self._fail(problem)
            raise

    def finish(self) -> None:
        """Apply all remaining changes at once."""
        while self._waiting:
            self.take_now(next(iter(self._waiting)))

    def _step(self) -> None:
        self._is_planned = False
        try:
            for _ in range(TAKEN_A_STEP):
                if not self._waiting:
                    return
                self.take_now(next(iter(self._waiting)))
        except Exception:
            return  # the node halts
        self._is_planned = True
        self._timers.call_after(0, self._step)
