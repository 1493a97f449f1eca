"""What holds for every test: no test passes while the product reports a bug of its own, one that expects it takes it. Property
tests draw the same examples in each run of `make test`, and new ones in `make soak`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from kafkacompat.faults import listeners

# A busy machine is no defect of the code, so no example has a time limit.
settings.register_profile("test", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None)
settings.load_profile("soak" if os.environ.get("KAFKACOMPAT_SOAK") else "test")


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
