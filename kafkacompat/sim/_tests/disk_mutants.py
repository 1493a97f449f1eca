"""Bugs planted in a node's reactions to disk errors. The cluster simulation must find each of them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.log.directory import LogDirectory
from kafkacompat.log.log_manager import LogManager
from kafkacompat.ports import SyncFailed
from kafkacompat.raft.quorum_files import RoomWatch
from kafkacompat.server.broker_logs import BrokerLogs
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def a_full_disk_halts_the_quorum(patch: pytest.MonkeyPatch) -> None:
    """A write to the metadata log that a full disk has refused is not retried."""
    patch.setattr(RoomWatch, "holds", lambda self, each, error: False)


def a_failed_append_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """The directory stays online after any refusal."""
    original = LogManager.directory_failed

    def directory_failed(self: LogManager, directory: LogDirectory, error: OSError) -> None:
        if isinstance(error, SyncFailed):
            original(self, directory, error)

    patch.setattr(LogManager, "directory_failed", directory_failed)


def one_failed_directory_ends_the_node(patch: pytest.MonkeyPatch) -> None:
    """Although other directories are online."""

    def failed(self: Any, directory: LogDirectory) -> None:
        self._halt(f"{directory.path} has failed", [directory])

    patch.setattr(BrokerLogs, "_directory_failed", failed)


DISK_MUTANTS: tuple[Plant, ...] = (
    a_full_disk_halts_the_quorum,
    a_failed_append_is_passed_over,
    one_failed_directory_ends_the_node,
)
DISK_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "a_full_disk_halts_the_quorum": (7, 4),
    "a_failed_append_is_passed_over": 7,
    "one_failed_directory_ends_the_node": 9,
}
