"""Bugs planted in cleaning, retention, unclean elections, and the amount of work in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.controller.partition_change_builder import Election, PartitionChangeBuilder
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.log import unified_log as log
from kafkacompat.log.cleaner.filtering import BatchFilter, CleanedTransactionMetadata
from kafkacompat.log.cleaner.offset_map import OffsetMap
from kafkacompat.node.log_maintenance import BackgroundCleaning
from kafkacompat.sim._tests.seeds import SeenAt

Plant = Callable[[pytest.MonkeyPatch], None]


def the_first_of_a_key_is_kept(patch: pytest.MonkeyPatch) -> None:
    original = OffsetMap.put

    def put(self: OffsetMap, keys: Any, offsets: Any) -> None:
        pairs = list(zip(keys, offsets, strict=True))
        new = [(key, offset) for key, offset in pairs if self.find([key]) == [-1]]
        original(self, [key for key, _ in new], [offset for _, offset in new])

    patch.setattr(OffsetMap, "put", put)


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """Before slow consumers can have read them."""
    original = BatchFilter.__init__

    def init(self: BatchFilter, *given: Any, **named: Any) -> None:
        original(self, *given, **{**named, "delete_retention_ms": 0})

    patch.setattr(BatchFilter, "__init__", init)


def aborted_records_replace_committed_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CleanedTransactionMetadata, "on_data", lambda self, header: False)


def _with_retention(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    original = log.count_deletable
    patch.setattr(log, "count_deletable", lambda facts, **named: original(facts, **change(named)))


def retention_takes_a_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    """A segment that is only partly in excess."""
    _with_retention(patch, lambda named: {**named, "total_bytes": named["total_bytes"] + 400})


def retention_takes_days_for_shorter_than_they_are(patch: pytest.MonkeyPatch) -> None:
    _with_retention(patch, lambda named: {**named, "retention_ms": named["retention_ms"] // 4})


def retention_forgets_what_compaction_is(patch: pytest.MonkeyPatch) -> None:
    """Compacted topics delete old records as well."""
    _with_retention(
        patch,
        lambda named: (
            named if named["delete_policy"] else {**named, "delete_policy": True, "retention_bytes": 0}
        ),
    )


def every_topic_elects_unclean_leaders(patch: pytest.MonkeyPatch) -> None:
    """Although only one topic allows it."""
    patch.setattr(ControllerSettings, "unclean_election", lambda self, image, topic: True)


def an_unclean_leader_is_elected_before_those_in_sync(patch: pytest.MonkeyPatch) -> None:
    """If unclean elections are allowed, the first live replica becomes leader."""
    original = PartitionChangeBuilder._new_leader

    def new_leader(self: PartitionChangeBuilder) -> tuple[int, bool]:
        leader, unclean = original(self)
        if self.election is Election.UNCLEAN and leader != self.partition.leader:
            for replica in reversed(self._replicas):
                if self.is_acceptable_leader(replica):
                    return replica, replica not in self.target_isr
        return leader, unclean

    patch.setattr(PartitionChangeBuilder, "_new_leader", new_leader)


def logs_are_cleaned_in_the_loop(patch: pytest.MonkeyPatch) -> None:
    """The whole cleaning runs in the step that finds the log dirty."""

    async def clean(self: BackgroundCleaning, step: Any) -> None:
        while not step.done:
            step.run()
            step.finish(self._clock.now_ms())
        self._active -= 1
        self._maybe_stopped()

    patch.setattr(BackgroundCleaning, "_clean", clean)


KEEPING_MUTANTS: tuple[Plant, ...] = (
    the_first_of_a_key_is_kept,
    tombstones_go_at_once,
    aborted_records_replace_committed_ones,
    retention_takes_a_segment_too_many,
    retention_takes_days_for_shorter_than_they_are,
    retention_forgets_what_compaction_is,
    every_topic_elects_unclean_leaders,
    an_unclean_leader_is_elected_before_those_in_sync,
    logs_are_cleaned_in_the_loop,
)
KEEPING_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "the_first_of_a_key_is_kept": (9, 7),
    "tombstones_go_at_once": 15,
    "aborted_records_replace_committed_ones": (15, 16),
    "retention_takes_a_segment_too_many": 12,
    "retention_takes_days_for_shorter_than_they_are": 7,
    "retention_forgets_what_compaction_is": (7, 2),
    "every_topic_elects_unclean_leaders": 2,
    "an_unclean_leader_is_elected_before_those_in_sync": (46, 15, 3, 44),
    "logs_are_cleaned_in_the_loop": 15,
}
"""The seeds that found them when they were planted, unless it was the first seed."""
