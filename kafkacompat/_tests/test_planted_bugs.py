"""The unit tests notice the bugs that are planted: a few of them each time, all with KAFKACOMPAT_SOAK or `make planted`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacompat._tests.planted.bug import PlantedBug
from kafkacompat._tests.planted.bugs import BUGS
from kafkacompat._tests.planted.copies import PACKAGE, Copy, with_bug

SAMPLE = (
    "a verification of offsets is not handed to the log",
    "a data marker is written with coordinator epoch 0",
    "timers of groups are kept by the group's name",
    "a failure is swallowed between two deferred values",
)
PLANTED = [bug for bug in BUGS if bug.name in SAMPLE or os.environ.get("KAFKACOMPAT_SOAK")]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_has_one_place_and_tests_that_are_there(bug: PlantedBug) -> None:
    with_bug((PACKAGE / bug.module).read_text(), bug)
    assert bug.right != bug.wrong
    for test in bug.tests:
        file, _, function = test.partition("::")
        assert f"def {function}" in (PACKAGE / file).read_text()


def test_each_bug_has_a_name_of_its_own() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names)
    assert set(SAMPLE) <= set(names)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder: Path = tmp_path_factory.mktemp("planted")
    with contextlib.closing(Copy(folder)) as made:
        yield made


@pytest.mark.costly
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_it_is_noticed(copy: Copy, bug: PlantedBug) -> None:
    assert copy.outcome(bug).is_noticed
