"""Bugs planted in tiered storage (KIP-405). The simulation with a remote store must find each of them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.remote import manager, remote_reads
from kafkacompat.remote.manager import RemoteLogManager
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def local_files_go_before_they_are_copied(patch: pytest.MonkeyPatch) -> None:
    original = UnifiedLog.enforce_retention

    def enforce_retention(self: UnifiedLog, now_ms: int) -> int:
        if self.is_tiered:
            self.note_copied_to(self.high_watermark - 1)
        return original(self, now_ms)

    patch.setattr(UnifiedLog, "enforce_retention", enforce_retention)


def records_of_the_store_are_passed_on_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_reads, "has_valid_crc", lambda batch, header: True)


def copies_of_a_deleted_topic_stay(patch: pytest.MonkeyPatch) -> None:
    original = RemoteLogManager.gone

    def gone(self: RemoteLogManager, core: Any, *, is_deleted: bool, was_leader: bool) -> None:
        original(self, core, is_deleted=False, was_leader=was_leader)

    patch.setattr(RemoteLogManager, "gone", gone)


def a_copy_that_failed_counts(patch: pytest.MonkeyPatch) -> None:
    """What the store has taken a part of is recorded as whole."""
    original = RemoteLogManager._in_thread

    def in_thread(self: RemoteLogManager, job: Any) -> Any:
        call = getattr(job, "func", None)
        if getattr(call, "__name__", "") != "copy_log_segment_data":
            return original(self, job)

        def copy() -> Any:
            try:
                return job()
            except manager.RetriableRemoteStorageException:
                return None

        return original(self, copy)

    patch.setattr(RemoteLogManager, "_in_thread", in_thread)


TIER_MUTANTS: tuple[Plant, ...] = (
    local_files_go_before_they_are_copied,
    records_of_the_store_are_passed_on_unchecked,
    copies_of_a_deleted_topic_stay,
    a_copy_that_failed_counts,
)
TIER_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "a_copy_that_failed_counts": (3, 1, 0),
    "copies_of_a_deleted_topic_stay": (12, 18, 3, 5),
    "records_of_the_store_are_passed_on_unchecked": (11, 1, 0),
}
"""The seeds that found them when they were planted, unless it was the first seed."""
