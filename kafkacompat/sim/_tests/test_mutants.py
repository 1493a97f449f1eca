"""Each bug to plant still applies to the code. After a rename this test fails at once, not only a run of seeds."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from kafkacompat.sim._tests.cluster_mutants import Plant

MODULES = [
    import_module(f"{__package__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*mutants.py"))
    if path.stem != Path(__file__).stem
]
EVERY_MUTANT: list[Plant] = [
    each
    for module in MODULES
    for each in vars(module).values()
    if inspect.isfunction(each)
    and each.__module__ == module.__name__
    and [*inspect.signature(each).parameters] == ["patch"]
]


@pytest.mark.parametrize("plant", EVERY_MUTANT, ids=lambda plant: plant.__name__)
def test_a_bug_can_be_planted(plant: Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)


def test_each_bug_is_in_a_list_whose_runs_look_for_it() -> None:
    listed = {
        each
        for module in MODULES
        for name, value in vars(module).items()
        if name.endswith("MUTANTS")
        for each in value
    }
    assert listed == set(EVERY_MUTANT)
