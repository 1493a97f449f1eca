"""Bugs planted in the later changes of topics and logs.

Recreated topics, moves, settings, features, added partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.controller import feature_control_manager, snapshot_records, topics
from kafkacompat.controller.features import METADATA_VERSION
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.cleaner.log_cleaner import LogCleaner
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition.hosted_partitions import HostedPartitions
from kafkacompat.partition.placement import Placement
from kafkacompat.partition.replica_alter_log_dirs_manager import Move, MoveState, ReplicaAlterLogDirsManager
from kafkacompat.sim._tests.seeds import SeenAt

Plant = Callable[[pytest.MonkeyPatch], None]


def a_copy_takes_its_place_at_any_moment(patch: pytest.MonkeyPatch) -> None:
    """As soon as the controller knows the new directory, whatever was appended in the meantime."""
    original = ReplicaAlterLogDirsManager._step

    async def step(self: ReplicaAlterLogDirsManager, move: Move) -> int:
        if move.state is MoveState.ASSIGNED and not self._is_over(move):
            self._change_places(move)
            return 0
        return await original(self, move)

    patch.setattr(ReplicaAlterLogDirsManager, "_step", step)


def a_log_is_cleaned_while_it_is_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogCleaner, "may_change", lambda self, log: self._manager.get(log.topic_partition) is log)


def logs_belong_to_names(patch: pytest.MonkeyPatch) -> None:
    """A log that exists at the start is used for the partition, even if it belongs to an earlier topic with that name."""
    original = LogManager.get_or_create

    def get_or_create(
        self: LogManager, name: TopicPartition, topic_id: Uuid, *given: Any, **named: Any
    ) -> Any:
        log = self.get(name)
        if log is not None:
            log.topic_id = topic_id
        return original(self, name, topic_id, *given, **named)

    patch.setattr(LogManager, "get_or_create", get_or_create)
    patch.setattr(Placement, "_set_strays_aside", lambda self, image: None)


def logs_keep_the_settings_of_their_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedPartitions, "_reconfigure", lambda self, old, new: [])


def added_partitions_take_the_place_of_others(patch: pytest.MonkeyPatch) -> None:
    original = topics.partition_records
    patch.setattr(
        topics,
        "partition_records",
        lambda image, topic_id, first, placed, configs: original(image, topic_id, 0, placed, configs),
    )


def snapshots_leave_features_out(patch: pytest.MonkeyPatch) -> None:
    """Except metadata.version."""
    original = snapshot_records.image_records

    def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
        level = image.features.get(METADATA_VERSION)
        return original(replace(image, features={} if level is None else {METADATA_VERSION: level}))

    patch.setattr(snapshot_records, "image_records", image_records)


def eligible_replicas_outlive_the_feature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(feature_control_manager, "clear_elr_records", lambda image, topic: [])


LIFE_MUTANTS: tuple[Plant, ...] = (
    a_copy_takes_its_place_at_any_moment,
    a_log_is_cleaned_while_it_is_copied,
    logs_belong_to_names,
    logs_keep_the_settings_of_their_start,
    added_partitions_take_the_place_of_others,
    snapshots_leave_features_out,
    eligible_replicas_outlive_the_feature,
)
LIFE_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "logs_keep_the_settings_of_their_start": 8,
    "added_partitions_take_the_place_of_others": (8, 5),
    "snapshots_leave_features_out": 1,
    "a_copy_takes_its_place_at_any_moment": 1,
    "a_log_is_cleaned_while_it_is_copied": (1, 5, 116, 50, 62),
    "logs_belong_to_names": (3, 6),
    "eligible_replicas_outlive_the_feature": (74, 62, 29),
}
LIFE_MUTANTS_SHAPES: dict[str, dict[str, Any]] = {
    "a_log_is_cleaned_while_it_is_copied": {
        "directories": 2,
        "segment_bytes": 1200,
        "move_bytes": 1500,
        "admin_interval_ms": 500,
    },
}
"""Options under which a bug that one seed in a thousand finds is found by one in thirty."""
