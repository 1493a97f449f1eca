"""Stand-ins for chance."""

from __future__ import annotations


class CountingRandom:
    """Uuids 1000, 1001, ...; randrange always 0 unless told."""

    def __init__(self) -> None:
        self.last = 999
        self.choices: list[int] = []

    def uuid(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")

    def randrange(self, stop: int) -> int:
        return self.choices.pop(0) % stop if self.choices else 0
