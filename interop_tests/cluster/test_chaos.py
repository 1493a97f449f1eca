"""Exactly once while nodes are killed with -9 one after another: no record is lost or duplicated, and no client gets
stuck."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interop_tests.cluster.chaos import run
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.copiers import COPIERS
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
RUNS = 10 if SOAK else 1
SECONDS = 100.0 if SOAK else 10.0
GOES_ON_S = 5.0
CLIENTS = sorted(COPIERS) if SOAK else ["librdkafka"]
SETTINGS = {"librdkafka": [f"{name}={value}" for name, value in CONNECTED_TO_ALL.items()]}
"""By default librdkafka waits up to 10 s before it reconnects to a broker that is back, as docs/delivery.md tells."""


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("client", CLIENTS)
def test_copiers_go_on_exactly_once_while_nodes_are_killed(
    client: str, number: int, kind: str, tmp_path: Path, measure: Measure
) -> None:
    """librdkafka waits forever if the coordinator of its group is missing in the metadata for a moment."""
    del number
    seed = seeded_chance().randrange(1 << 20)
    found = run(client, seed, SECONDS, tmp_path / "run", kind, SETTINGS.get(client, []))
    print(found)
    measure(f"{client}: gap after the last kill", found.gap_s)
    assert found.is_well, found
    assert found.kills
    if SOAK and kind == KAFKACOMPAT:
        assert found.gap_s < GOES_ON_S, found
