"""For all tests of the simulation."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from conftest import Faults
from kafkacompat.sim.faults.refusals import chain
from kafkacompat.sim.workers import Unforeseen


@pytest.fixture(autouse=True)
def _planted_failures_are_expected(faults: Faults) -> Iterator[None]:
    """A job that the simulation lets fail is reported as a bug, and the simulation itself checks that it is."""
    yield
    faults.reported = [
        error for error in faults.reported if not any(isinstance(each, Unforeseen) for each in chain(error))
    ]


@pytest.fixture(autouse=True)
def _nothing_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is a function of its seed alone: no random name or id comes from elsewhere."""

    def refuse(size: int) -> bytes:
        raise AssertionError("a simulation draws from the system")

    monkeypatch.setattr(os, "urandom", refuse)


@pytest.fixture(scope="module")
def quiet_nodes() -> Iterator[None]:
    """Without it, nodes would log every fault."""
    root = logging.getLogger("kafkacompat")
    before = root.level
    root.setLevel(logging.CRITICAL)
    yield
    root.setLevel(before)
