"""Apache Kafka and kafkacompat give the same responses to the same hostile requests in every field that excused.py
does not name."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from interop_tests.raw.compare import compared

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(20)] if SOAK else [10]
REQUESTS = 5000 if SOAK else 550
SHARING_REQUESTS = 5000 if SOAK else 250
pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_answers_differ_in_nothing(tmp_path: Path, number: int) -> None:
    """Every API that is served to clients, in every version."""
    outcome = compared(tmp_path, SEEDS[number], REQUESTS)
    told = "\n".join(outcome.told)
    assert not outcome.told, (
        f"python -m interop_tests.raw.compare --seed {SEEDS[number]} --requests {REQUESTS}\n{told}"
    )
    assert not outcome.never_asked, outcome.never_asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_answers_to_members_of_share_groups_differ_in_nothing(tmp_path: Path, number: int) -> None:
    """By an author who joins share groups and consumer groups, opens share sessions and acquires records."""
    outcome = compared(tmp_path, SEEDS[number], SHARING_REQUESTS, shares=True)
    told = "\n".join(outcome.told)
    assert not outcome.told, (
        f"python -m interop_tests.raw.compare --shares --seed {SEEDS[number]} --requests {SHARING_REQUESTS}\n{told}"
    )
