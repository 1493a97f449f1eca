"""A bug to plant: a piece of the product, what a careless hand would make of it, and the unit tests that must notice.

A defect that was found by anything gets an entry as it was, in the module of its area (`of_log`, `of_raft`, ...), so that no test
forgets it. The text to change must occur exactly once in its module; a test sees to that, and whoever changes the code changes the
entry with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlantedBug:
    name: str
    module: str
    """Below kafkacompat/."""
    right: str
    wrong: str
    tests: tuple[str, ...]
    """What is run, below kafkacompat/, a file or FILE::TEST; one of them must fail."""


@dataclass(frozen=True)
class SimulatedBug:
    """One that only whole nodes show: it is planted by the test of the simulation that looks for it, seed by seed."""

    name: str
    test: str
    """Passes when a seed shows the bug."""
