"""One log directory: its names of partition directories, its checkpoints, its clean-shutdown mark.

Duty: what lies directly in a `log.dirs` entry. Must not know: what a partition's log is. meta.properties is read and
written by whoever formats nodes; here only its directory id is of use, and it is given.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition
from kafkacompat.log.checkpoint import (
    CLEAN_SHUTDOWN_FILE,
    CheckpointCorrupt,
    format_clean_shutdown,
    format_offsets,
    parse_clean_shutdown,
    parse_offsets,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX = "-delete", "-future", "-stray"
LONGEST_NAME = 255


def partition_directory(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose log lives under this name; None for other directories and marked ones."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition whose future log lives under this name; None for other directories."""
    stem, dot, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not name.endswith(FUTURE_SUFFIX) or not dot or not unique:
        return None
    return parse_partition_directory(stem)


def can_be_marked(topic_partition: TopicPartition) -> bool:
    """Whether a marked name holds the whole topic, as a future log's must: a move of others is refused (KAFKA-4893)."""
    return len(f"{topic_partition}.{'0' * 32}{FUTURE_SUFFIX}") <= LONGEST_NAME


def marked_name(topic_partition: TopicPartition, suffix: str) -> str:
    """A unique name that says the directory is to be deleted, is a stray or holds a future log; the topic is cut if need be."""
    unique = uuid.uuid4().hex
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: LONGEST_NAME - len(tail)] + tail


class LogDirectory:
    """Checkpoints are written whole."""

    __slots__ = ("_disk", "_written", "directory_id", "failure", "noted_ms", "path")

    def __init__(self, disk: Disk, path: str, directory_id: bytes) -> None:
        self._disk = disk
        self.path = path
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """Why the directory is offline; None while it serves."""
        self.noted_ms: int | None = None
        """When an error that left it online was last noted, monotonic."""
        self._written: dict[str, Mapping[TopicPartition, int]] = {}

    @property
    def online(self) -> bool:
        return self.failure is None

    def take_clean_mark(self) -> int | None:
        """The broker epoch of a clean stop before (-1 when not told), None after an unclean one. The mark goes."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return None
        epoch = parse_clean_shutdown(self._disk.read_bytes(path))
        self._disk.remove(path)
        return epoch

    def mark_clean(self, broker_epoch: int) -> None:
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def read_offsets(self, name: str) -> tuple[dict[TopicPartition, int], str | None]:
        """A checkpoint and, when it cannot be read, why: what it would have said is then taken to be nothing."""
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}, None
        try:
            return parse_offsets(self._disk.read_bytes(path)), None
        except CheckpointCorrupt as error:
            return {}, f"{path}: {error}"

    def holds(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the checkpoint was last written with these offsets, and is still there: a directory that nobody writes to may
        have failed as well."""
        return self._written.get(name) == offsets and self._disk.exists(f"{self.path}/{name}")

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write a checkpoint and sync it. Blocks; one call at a time for each name, in any thread."""
        self._disk.write_atomic(f"{self.path}/{name}", format_offsets(offsets))
        self._written[name] = offsets
