"""With the same access control entries, Apache Kafka and kafkacompat give the same response to the same request in
every field."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from interop_tests.raw.rights import compared_rights

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(20)] if SOAK else [3]
SETS, REQUESTS = (50, 100) if SOAK else (8, 40)
pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_rights_differ_in_nothing(tmp_path: Path, number: int) -> None:
    outcome = compared_rights(tmp_path, SEEDS[number], SETS, REQUESTS)
    told = "\n".join(outcome.told)
    assert not outcome.told, (
        f"python -m interop_tests.raw.rights --seed {SEEDS[number]} --sets {SETS} --requests {REQUESTS}\n{told}"
    )
    assert outcome.sent == SETS * REQUESTS
