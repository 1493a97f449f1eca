"""What is held is freed in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat import memory
from kafkacompat._tests.doubles import HandTime
from kafkacompat.memory import Freeing
from kafkacompat.tasks import Tasks


def test_large_containers_are_emptied_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FREED_AT_ONCE", 10)
    time = HandTime()
    freeing = Freeing(Tasks(time))
    small, listed, mapped = list(range(10)), list(range(25)), dict.fromkeys(range(12))
    for held in (small, listed, mapped):
        freeing.free(held)  # type: ignore[arg-type]
    sizes = []
    while time.pending():
        time.fire_next()
        sizes.append((len(listed), len(mapped)))
    assert sizes == [(15, 12), (5, 12), (0, 12), (0, 2), (0, 0)]
    assert len(small) == 10
    freeing.free([0] * 11)
    assert time.waiting == [0]


def test_large_containers_are_emptied_although_memory_lacks_once() -> None:
    """What waits behind it would be kept for ever."""

    class Lacking(list[int]):
        """To delete a slice takes memory."""

        has_lacked = False

        def __delitem__(self, place: Any) -> None:
            if not self.has_lacked:
                self.has_lacked = True
                raise MemoryError
            super().__delitem__(place)

    time = HandTime()
    freeing = Freeing(Tasks(time))
    first, second = Lacking([0] * (memory.FREED_AT_ONCE + 1)), [0] * (memory.FREED_AT_ONCE + 1)
    freeing.free(first)
    freeing.free(second)
    time.advance(60_000)
    assert (first, second) == ([], [])
