"""A broker's log directories: the node's reaction when one fails, and the reports to the controller.

This module connects the log manager with the heartbeats (failed and cordoned directories), the placement of replicas
and the channel to the controller (KIP-112, KIP-858, KIP-1066). The replicas in a failed directory go offline, and the
broker continues with the other directories. As in Kafka, the node halts if the metadata log's directory or the last
directory fails. Settings: log.dirs, cordoned.log.dirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.config import ServerConfig
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.log.log_manager import LogManager
from kafkacompat.node.assignments import DirectoryAssignments
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.node.settings import NodeSettings
from kafkacompat.partition.placement import Placement
from kafkacompat.server.data_directories import NodeDirectories
from kafkacompat.server.doors import NodeDoors
from kafkacompat.server.shared_server import SharedServer

if TYPE_CHECKING:
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.services import PartitionServices

logger = logging.getLogger(__name__)

EVERY_DIRECTORY = "*"


class DirectoryFailed(Exception):
    """A log directory failed without which the node cannot continue."""


class BrokerDirectories:
    """Created with the log manager, before the logs are loaded."""

    def __init__(
        self,
        doors: NodeDoors,
        directories: NodeDirectories,
        settings: NodeSettings,
        shared: SharedServer,
    ) -> None:
        self._doors = doors
        self._settings = settings
        self._shared = shared
        self._metadata_directory = directories.identity.metadata_directory
        ids = directories.identity.directory_ids
        self.logs = LogManager(
            doors.disk,
            [(path, ids.get(path, ZERO_UUID)) for path in directories.log_dirs],
            settings.log_config(""),
            doors.clock,
            randrange=doors.random.randrange,
            note=logger.warning,
            unique_text=doors.unique_text,
            producer_ids_max=doors.config.get_int("partition.max.producer.ids"),
        )
        for directory in self.logs.directories:
            directory.failure = directories.failed.get(directory.path)
            if directory.failure is not None:
                logger.warning("log directory %s is offline: %s", directory.path, directory.failure)
        self.logs.on_directory_failed = self._directory_failed
        # A full disk does not take a directory offline if this is the only broker: no other replica could take over.
        self.logs.spares_full = lambda: len(shared.machine.image.brokers) <= 1
        self._life: BrokerLifecycleManager | None = None
        self._assignments: DirectoryAssignments | None = None
        self._placement: Placement | None = None

    def place(
        self, services: PartitionServices, hosted: HostedPartitions, broker_epoch: Callable[[], int]
    ) -> Placement:
        """Return the placement of replicas, which follows the partitions' roles from now on."""
        doors, machine = self._doors, self._shared.machine
        self._assignments = DirectoryAssignments(
            doors.config.node_id,
            self._shared.controller_channel("directory-assignments"),
            doors.tasks,
            lambda: machine.image,
            broker_epoch,
        )
        self._placement = Placement(services, hosted, self._assignments.assign)
        return self._placement

    @property
    def queued_assignments(self) -> int:
        """Replicas whose directory the controller has not accepted yet."""
        return 0 if self._assignments is None else self._assignments.queued

    def max_move_lag(self) -> int:
        """Of the replicas that are being moved between directories."""
        return 0 if self._placement is None else self._placement.max_move_lag()

    def moved_bytes_per_second(self) -> float | None:
        """None: nothing has been moved between directories yet."""
        return None if self._placement is None else self._placement.moved_bytes_per_second()

    def online_ids(self) -> tuple[Uuid, ...]:
        """The directories with which the broker registers. Directories that failed while the logs were loaded are left out."""
        return tuple(each.directory_id for each in self.logs.directories if each.online)

    def follow(self, life: BrokerLifecycleManager) -> None:
        """Set the heartbeats that report failed and cordoned directories to the controller."""
        self._life = life
        self.take_settings(self._settings.effective)

    def take_settings(self, config: ServerConfig) -> None:
        names = {
            name if name == EVERY_DIRECTORY else os.path.abspath(name)
            for name in config.get_list("cordoned.log.dirs")
        }
        cordoned = [
            each.directory_id
            for each in self.logs.directories
            if each.online and (each.path in names or EVERY_DIRECTORY in names)
        ]
        self.logs.cordoned = frozenset(cordoned)
        if self._life is not None:
            self._life.cordon(tuple(sorted(cordoned)))

    def close(self) -> None:
        """Stop all moves of replicas and all reports to the controller."""
        if self._placement is not None:
            self._placement.close()
        if self._assignments is not None:
            self._assignments.close()

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.path == self._metadata_directory:
            self._halt("the metadata log's directory has failed", [directory])
        elif not any(each.online for each in self.logs.directories):
            self._halt("all log directories have failed", self.logs.directories)
        elif self._life is not None:
            self._life.directory_failed(directory.directory_id)

    def _halt(self, text: str, failed: Sequence[LogDirectory]) -> None:
        causes = ", ".join(f"{each.path} ({each.failure})" for each in failed)
        error = DirectoryFailed(f"{text}: {causes}")
        error.__cause__ = failed[-1].failure
        self._doors.halt(error)
