"""Logs that move to another directory: a future log is begun, takes the place of the current one, and that one goes (KIP-113)."""

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
    """As StartingLogs, while logs change their directory."""

    def begin_future(self, name: TopicPartition, directory: LogDirectory) -> PartitionLog:
        """An empty log in another directory that is to take the place of this one. LogRefused KAFKA_STORAGE_ERROR."""
        if len(self._online()) < len(self.directories):
            # There may be a future log of it in the one that is offline.
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
        """The future log becomes the current one. The log that was keeps its name until `retire_predecessor`.

        Raises LogRefused KAFKA_STORAGE_ERROR: nothing has changed, but that the directory to blame may be offline.
        """
        home, current, origin = self.futures.home(name), self.logs.get(name), self._home.get(name)
        assert home is not None
        if current is not None:
            # Not later: under a name that is not durable it would not move.
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
        """The log that another one had before this one, which is durable by now, is to go after file.delete.delay.ms. None when
        there is none, or its directory refuses: `predecessors` tells which."""
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
        return Retirement(self, self._disk, directory, path, old.config.file_delete_delay_ms)

    def discard_future(self, name: TopicPartition) -> None:
        """It is not wanted any more."""
        home = self.futures.home(name)
        if home is None:
            return
        try:
            self.futures.discard(name)
        except OSError as error:
            self.directory_failed(home, error)
        self.on_stale()

    def future_failed(self, name: TopicPartition, error: OSError) -> None:
        """As `partition_failed`, of its future log."""
        directory = self.futures.home(name)
        if directory is not None:
            self.directory_failed(directory, error)
