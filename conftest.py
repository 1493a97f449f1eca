"""No test passes while the product reports a bug of its own: one that expects it takes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkacompat.faults import listeners


class Faults:
    """What was reported and not taken yet, in order."""

    def __init__(self) -> None:
        self.reported: list[BaseException] = []

    def reported_one(self, error: BaseException) -> None:
        self.reported.append(error)

    def take(self) -> list[BaseException]:
        taken, self.reported = self.reported, []
        return taken


@pytest.fixture(autouse=True)
def faults() -> Iterator[Faults]:
    collected = Faults()
    listeners.append(collected.reported_one)
    yield collected
    listeners.remove(collected.reported_one)
    for error in collected.reported:
        raise AssertionError("a fault was reported that the test does not expect") from error
