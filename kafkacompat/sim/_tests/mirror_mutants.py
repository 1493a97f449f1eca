"""Bugs planted in mirrors of another cluster. The simulation of two clusters must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.mirror import group_offsets
from kafkacompat.mirror.following import MirrorFetches
from kafkacompat.mirror.mirrored_partition import MirroredPartition
from kafkacompat.partition.partition import Partition
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt
from kafkacompat.wire.messages.metadata_response import MetadataResponsePartition
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest

T = TypeVar("T")
EVERYTHING = 1 << 62


def offsets_are_copied_before_their_records(patch: pytest.MonkeyPatch) -> None:
    original = group_offsets.commit_request

    def commit_request(
        group: str,
        offsets: group_offsets.Offsets,
        ends: Mapping[TopicPartition, int],
        topics: Collection[str],
    ) -> OffsetCommitRequest | None:
        return original(group, offsets, dict.fromkeys(ends, EVERYTHING), topics)

    patch.setattr(group_offsets, "commit_request", commit_request)


def producers_of_the_source_stay_known(patch: pytest.MonkeyPatch) -> None:
    """The cluster that takes over gives out their ids again."""
    patch.setattr(UnifiedLog, "end_mirror", lambda self, first_epoch, leader_epoch: True)
    patch.setattr(UnifiedLog, "_forget_source", lambda self: None)


def followers_of_a_mirror_count_with_what_it_has_given_up(patch: pytest.MonkeyPatch) -> None:
    def truncate_mirror(self: Partition, truncate: Callable[[], T]) -> T:
        return truncate()

    patch.setattr(Partition, "truncate_mirror", truncate_mirror)


def a_mirror_has_an_epoch_of_its_leader(patch: pytest.MonkeyPatch) -> None:
    """As it had after a move to another directory."""
    original = Partition.become

    def become(self: Partition, image: object, now_ms: int) -> bool:
        changed = original(self, image, now_ms)  # type: ignore[arg-type]
        if changed and self.is_read_only:
            self.log.assign_epoch_start(self.leader_epoch, self.log.log_end_offset)
        return changed

    patch.setattr(Partition, "become", become)


def a_source_that_lags_is_followed(patch: pytest.MonkeyPatch) -> None:
    """Metadata with an older leader epoch is taken."""
    original = MirrorFetches._take_leader

    def take_leader(
        self: MirrorFetches, followed: MirroredPartition, there: MetadataResponsePartition | None
    ) -> str | None:
        followed.source_epoch = -1
        return original(self, followed, there)

    patch.setattr(MirrorFetches, "_take_leader", take_leader)


MIRROR_MUTANTS: tuple[Plant, ...] = (
    offsets_are_copied_before_their_records,
    producers_of_the_source_stay_known,
    followers_of_a_mirror_count_with_what_it_has_given_up,
    a_mirror_has_an_epoch_of_its_leader,
    a_source_that_lags_is_followed,
)
MIRROR_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "offsets_are_copied_before_their_records": 1,
    "producers_of_the_source_stay_known": 1,
    "followers_of_a_mirror_count_with_what_it_has_given_up": 1,
    "a_source_that_lags_is_followed": 24,
}
"""The seeds that found them when they were planted, unless it was the first seed."""
