"""Moving a log to another directory: a future log is created and replaces the current log, which is then deleted
(KIP-113)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition
from kafkacompat.log.directory import (
    LogDirectory,
)
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.predecessors import Retirement
from kafkacompat.log.start import StartingLogs
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ports import Log, Plan

Note = Callable[[str], None]


class MovingLogs(StartingLogs):
    """LogHomes with moves of logs between directories."""

    def begin_future(self, name: TopicPartition, directory: LogDirectory) -> PartitionLog:
        """Create an empty log in another directory that will replace this one. Raises LogRefused KAFKA_STORAGE_ERROR."""
        if len(self._online()) < len(self.directories):
            # The offline directory may have a future log of the partition.
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        if not self.may_make(name):
            self.on_stale()
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints still speak of an earlier log of {name}"
            )
        if self.predecessors.get(name) is not None:
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name} has changed its directory and is not durable there yet",
            )
        try:
            return self.futures.begin(self.logs[name], directory)
        except OSError as error:
            self.directory_failed(directory, error)
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def promote_future(self, name: TopicPartition) -> PartitionLog:
        """Make the future log the current one. The previous log keeps its name until `retire_predecessor`.

        Raises LogRefused KAFKA_STORAGE_ERROR. Then nothing has changed, except that the failing directory may be
        offline.
        """
        home, current, origin = self.futures.home(name), self.logs.get(name), self._home.get(name)
        assert home is not None
        if current is not None:
            # Set it now: under a name that is not durable the high watermark does not move.
            self.futures.logs[name].set_high_watermark(current.high_watermark)
        try:
            log = self.futures.promote(name)
        except OSError as error:
            self.directory_failed(home, error)
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if current is not None and origin is not None:
            current.release()
            self.predecessors.add(current, origin, log)
        self._adopt(log, home)
        self.on_stale()
        return log

    def retire_predecessor(self, log: Log) -> Plan | None:
        """Start deleting the log that `log` has replaced. `log` must be durable. Returns None if there is no previous
        log, or if its directory refuses; `predecessors` tells which."""
        name = log.topic_partition
        directory, old = self.predecessors.home(name), self.predecessors.get(name)
        if directory is None or old is None or not self.predecessors.is_before(log):
            return None
        try:
            path = self.predecessors.rename(name)
        except OSError as error:
            self.directory_failed(directory, error)
            return None
        self.on_stale()
        return Retirement(
            self._disk, directory, path, old.config.file_delete_delay_ms, self.doomed, self.directory_failed
        )

    def discard_future(self, name: TopicPartition) -> None:
        """Delete the partition's future log, which is no longer needed."""
        home = self.futures.home(name)
        if home is None:
            return
        try:
            self.futures.discard(name)
        except OSError as error:
            self.directory_failed(home, error)
        self.on_stale()

    def future_failed(self, name: TopicPartition, error: OSError) -> None:
        """Like `partition_failed`, for the partition's future log."""
        directory = self.futures.home(name)
        if directory is not None:
            self.directory_failed(directory, error)
