"""Bugs that only failing nodes reveal, planted in real processes, to check whether a history reveals them.

They are functions that patch functions of the product, most of them the simulation's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.harness.kafka_jars import CHECKOUT
from kafkacompat.coordinator.partition_writer import ShardLog
from kafkacompat.group.offset_metadata_manager import OffsetMetadataManager
from kafkacompat.sim._tests.cluster_mutants import (
    high_watermark_of_a_minority,
    no_truncation,
    waits_survive_a_change_of_leader,
)
from kafkacompat.sim._tests.transaction_mutants import (
    aborted_ranges_are_not_told,
    coordinators_answer_at_the_append,
    everything_is_stable,
    offsets_count_before_their_transaction_ends,
)

Plant = Callable[[pytest.MonkeyPatch], None]


def offsets_are_shown_before_they_are_replicated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShardLog, "when_all_committed", lambda self: None)


def pending_offsets_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetMetadataManager, "pending_of_topics", lambda self, group_id, topics: {})


PLANTED: tuple[Plant, ...] = (
    high_watermark_of_a_minority,
    waits_survive_a_change_of_leader,
    no_truncation,
    aborted_ranges_are_not_told,
    everything_is_stable,
    coordinators_answer_at_the_append,
    offsets_are_shown_before_they_are_replicated,
    pending_offsets_are_not_waited_for,
    offsets_count_before_their_transaction_ends,
)
NAMES = tuple(plant.__name__ for plant in PLANTED)


def plant(name: str) -> None:
    """In this process, for the rest of its life."""
    (found,) = (each for each in PLANTED if each.__name__ == name)
    found(pytest.MonkeyPatch())


def python_path_with(name: str, folder: Path) -> str:
    """A PYTHONPATH with which every Python process plants the bug when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"from interop_tests.histories.planted import plant\n\nplant({name!r})\n"
    )
    return os.pathsep.join([str(folder), str(CHECKOUT)])
