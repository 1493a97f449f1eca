"""One log directory: its names of partition directories, its checkpoints, its clean-shutdown mark.

Duty: what lies directly in a `log.dirs` entry. Must not know: what a partition's log is. meta.properties is read and
written by whoever formats nodes; here only its directory id is of use, and it is given.
"""

from __future__ import annotations

import threading
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
    """Checkpoints are written whole, in any thread: of two writers of one file the one that began later wins."""

    __slots__ = (
        "_begun",
        "_disk",
        "_failed",
        "_lock",
        "_newest",
        "_said",
        "_turns",
        "directory_id",
        "failure",
        "has_unopened",
        "noted_ms",
        "path",
    )

    def __init__(self, disk: Disk, path: str, directory_id: bytes) -> None:
        self._disk = disk
        self.path = path
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """Why the directory is offline; None while it serves."""
        self.has_unopened = False
        """Something in it could not be opened at this start, so that no stop of it leaves it clean."""
        self.noted_ms: int | None = None
        """When an error that left it online was last noted, monotonic."""
        self._said: dict[str, Mapping[TopicPartition, int]] = {}
        """What each checkpoint file says."""
        self._begun: dict[str, dict[int, Mapping[TopicPartition, int]]] = {}
        """What it may say instead, by turn: writes that are under way, and what those that failed would have said."""
        self._failed: dict[str, int] = {}
        """Of each file the turn by which all that failed are kept as one: a full disk may refuse them for hours."""
        self._turns = 0
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        """Of each file the turn written last; for writers alone."""

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
        # What is written from now on must not be taken for cleanly closed by a start after a power loss.
        self._disk.sync_directory(self.path)
        return epoch

    def mark_clean(self, broker_epoch: int) -> None:
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def read_offsets(self, name: str) -> tuple[Mapping[TopicPartition, int], str | None]:
        """A checkpoint and, when it cannot be read, why: what it would have said is then taken to be nothing."""
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}, None
        try:
            said = self._said[name] = parse_offsets(self._disk.read_bytes(path))
        except CheckpointCorrupt as error:
            return {}, f"{path}: {error}"
        return said, None

    def said_of(self, name: str, topic_partition: TopicPartition) -> int:
        """The most that a start might read there of the partition; -1 for nothing."""
        most = self._said.get(name, {}).get(topic_partition, -1)
        for offsets in self._begun.get(name, {}).values():
            most = max(most, offsets.get(topic_partition, -1))
        return most

    def names_in(self, name: str) -> set[TopicPartition]:
        """The partitions that a checkpoint speaks of."""
        return set(self._said.get(name, {})).union(*self._begun.get(name, {}).values())

    def holds(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the checkpoint has these offsets, and is still there: a directory that nobody writes to may have failed as
        well."""
        return (
            not self._begun.get(name)
            and self._said.get(name) == offsets
            and self._disk.exists(f"{self.path}/{name}")
        )

    def begin_write(self, name: str, offsets: Mapping[TopicPartition, int]) -> int:
        """A checkpoint is about to be written: its turn, for `write` and `finish_write`."""
        self._turns += 1
        self._begun.setdefault(name, {})[self._turns] = offsets
        return self._turns

    def write(self, name: str, offsets: Mapping[TopicPartition, int], turn: int) -> None:
        """Write a checkpoint and sync it, unless a later one was written meanwhile. Blocks; any thread."""
        with self._lock:
            if turn > self._newest.get(name, 0):
                self._disk.write_atomic(f"{self.path}/{name}", format_offsets(offsets))
                self._newest[name] = turn

    def finish_write(self, name: str, turn: int) -> None:
        """It is written."""
        begun = self._begun[name]
        if turn in begun:
            self._said[name] = begun[turn]
            self._begun[name] = {each: offsets for each, offsets in begun.items() if each > turn}

    def fail_write(self, name: str, turn: int) -> None:
        """It is not written, or nobody knows: the disk may have this version or the one before. Until a later one is written the
        most that any of those that failed would have said counts."""
        begun = self._begun[name]
        before = self._failed.get(name, turn)
        if turn not in begun:
            return
        if before != turn and before in begun:
            offsets, most = begun.pop(turn), begun.pop(before)
            if offsets != most:
                most = dict(most)
                for each, offset in offsets.items():
                    if offset > most.get(each, -1):
                        most[each] = offset
            turn = max(turn, before)
            begun[turn] = most
        self._failed[name] = turn

    def write_now(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """All three. Blocks."""
        turn = self.begin_write(name, offsets)
        self.write(name, offsets, turn)
        self.finish_write(name, turn)
