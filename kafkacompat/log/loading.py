"""The work of the log manager that blocks, cut into pieces that worker threads can take.

Duty: find the partitions of a directory and what is known of them before they are opened; hold the pieces. Must not know:
how a log is opened (given), threads.
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
from kafkacompat.log.log import PartitionLog

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

WRONG_KINDS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP})
"""A directory where a file belongs, or the other way round."""


class LoadTask:
    """Opening of one partition's directory. `run` blocks, touches nothing shared, and may run in any thread."""

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
        opener: Callable[[LoadTask], PartitionLog],
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
        self.result: PartitionLog | Exception | None = None

    @property
    def has_lost(self) -> bool:
        """A clean stop left more in it than there is now."""
        log = self.result
        return self.clean and isinstance(log, PartitionLog) and log.log_end_offset < self.recovery_point

    def run(self) -> None:
        """Whatever one partition's files hold, the others are opened."""
        try:
            self.result = self._opener(self)
        except Exception as error:
            self.result = error


def is_of_the_directory(error: Exception) -> TypeGuard[OSError]:
    """False of what lies in the partition alone: damage, or a name that stands for the wrong thing."""
    return isinstance(error, OSError) and error.errno not in WRONG_KINDS


class Found(NamedTuple):
    """What lies in a log directory. `broker_epoch` is -1 unless the last stop was clean and told it."""

    tasks: list[LoadTask]
    doomed: list[str]
    broker_epoch: int


def look_into(
    disk: Disk,
    directory: LogDirectory,
    opener: Callable[[LoadTask], PartitionLog],
    note: Callable[[str], None],
) -> Found:
    """List the partitions of a directory, with their checkpointed offsets; the clean mark is taken away."""
    epoch = directory.take_clean_mark()
    offsets = {}
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
        offsets[name], trouble = directory.read_offsets(name)
        if trouble is not None:
            note(trouble)
    tasks: list[LoadTask] = []
    doomed: list[str] = []
    for name in disk.list_directory(directory.path):
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
    """The broker epoch that every directory was cleanly left with; -1 (unclean) where one was not or they differ."""
    return epochs[0] if len(set(epochs)) == 1 else NO_EPOCH
