"""The blocking work of the log manager at a start, in pieces for worker threads.

It finds the partitions of a directory and what is known of them before they are opened. The caller passes the function
that opens a log.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from kafkacompat.ids import METADATA_TOPIC, NO_EPOCH, TopicPartition
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    parse_future_directory,
    parse_partition_directory,
)
from kafkacompat.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

WRONG_KINDS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP})
"""Errors from a directory in the place of a file, or the reverse."""


class LoadTask:
    """Opens one partition's directory. `run` blocks, touches nothing shared, and may run in any thread."""

    __slots__ = (
        "_opener",
        "clean",
        "cleaned_to",
        "directory",
        "high_watermark",
        "is_future",
        "log_start",
        "name",
        "path",
        "recovery_point",
        "result",
    )

    def __init__(
        self,
        opener: Callable[[LoadTask], UnifiedLog],
        directory: LogDirectory,
        name: TopicPartition,
        path: str,
        *,
        is_future: bool = False,
        clean: bool,
        recovery_point: int,
        log_start: int,
        high_watermark: int,
        cleaned_to: int,
    ) -> None:
        self._opener = opener
        self.directory = directory
        self.name = name
        self.path = path
        self.is_future = is_future
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.cleaned_to = cleaned_to
        self.result: UnifiedLog | Exception | None = None

    @property
    def has_lost(self) -> bool:
        """Whether the log now ends below the recovery point of a clean stop."""
        log = self.result
        return self.clean and isinstance(log, UnifiedLog) and log.log_end_offset < self.recovery_point

    def run(self) -> None:
        """Open the log. An error of one partition does not stop the others."""
        try:
            self.result = self._opener(self)
        except Exception as error:
            self.result = error


def is_of_the_directory(error: Exception) -> TypeGuard[OSError]:
    """Whether the error concerns the directory. False for damage in one partition, and for a file in the place of a
    directory."""
    return isinstance(error, OSError) and error.errno not in WRONG_KINDS


class Found(NamedTuple):
    """The contents of a log directory. `broker_epoch` is -1 unless the last stop was clean and recorded an epoch."""

    tasks: list[LoadTask]
    doomed: list[str]
    broker_epoch: int


def look_into(
    disk: Disk,
    directory: LogDirectory,
    opener: Callable[[LoadTask], UnifiedLog],
    note: Callable[[str], None],
) -> Found:
    """List the partitions of a directory with their checkpointed offsets. Removes the clean-shutdown mark, at last: what is
    refused before can be asked again."""
    names = disk.list_directory(directory.path)
    offsets = {}
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
        offsets[name], trouble = directory.read_offsets(name)
        if trouble is not None:
            note(trouble)
    epoch = directory.take_clean_mark()
    tasks: list[LoadTask] = []
    doomed: list[str] = []
    for name in names:
        path = f"{directory.path}/{name}"
        if name.endswith(DELETE_SUFFIX):
            doomed.append(path)
        elif name.endswith(STRAY_SUFFIX):
            note(f"{path} is left as it is")
        elif (
            partition := parse_future_directory(name) or parse_partition_directory(name)
        ) is not None and partition.topic != METADATA_TOPIC:
            tasks.append(
                LoadTask(
                    opener,
                    directory,
                    partition,
                    path,
                    is_future=name.endswith(FUTURE_SUFFIX),
                    clean=epoch is not None,
                    recovery_point=offsets[RECOVERY_POINT_FILE].get(partition, 0),
                    log_start=offsets[LOG_START_FILE].get(partition, 0),
                    high_watermark=offsets[HIGH_WATERMARK_FILE].get(partition, 0),
                    cleaned_to=offsets[CLEANER_FILE].get(partition, -1),
                )
            )
    return Found(tasks, doomed, NO_EPOCH if epoch is None else epoch)


def agreed_epoch(epochs: Sequence[int]) -> int:
    """The broker epoch of the clean stop in every directory. -1 (unclean) if a directory has none or they differ."""
    return epochs[0] if len(set(epochs)) == 1 else NO_EPOCH
