"""Where the records of a coordinator's partition begin to be needed: the offset of the oldest latest snapshot.

Follows Kafka's ShareCoordinatorOffsetsManager. Offsets only grow, so the order of insertion is the order of offsets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
NOTHING_YET = (1 << 63) - 1


class ShareCoordinatorOffsetsManager(Generic[K]):
    __slots__ = ("_last_redundant", "_offsets")

    def __init__(self) -> None:
        self._offsets: OrderedDict[K, int] = OrderedDict()
        """The offset of each share-partition's latest snapshot."""
        self._last_redundant = NOTHING_YET

    def __len__(self) -> int:
        return len(self._offsets)

    def update_state(self, key: K, offset: int, is_delete: bool) -> None:
        """A snapshot or a tombstone of a share-partition is in the log."""
        self._offsets[key] = offset
        self._offsets.move_to_end(key)
        self._last_redundant = next(iter(self._offsets.values()))
        if is_delete:
            del self._offsets[key]

    def last_redundant_offset(self) -> int | None:
        """No record below this offset is needed. None while nothing can be removed."""
        offset = self._last_redundant
        return None if offset <= 0 or offset == NOTHING_YET else offset
