"""One log directory: the names of partition directories, the checkpoints and the clean-shutdown mark.

It covers the files directly in a `log.dirs` entry. The storage formatting code reads and writes meta.properties. Only
its directory id is needed here, and the caller passes it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, parse_int
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
    """The partition whose log has this directory name. None for other directories and for names with a suffix."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    try:
        return TopicPartition(topic, parse_int(partition))
    except ValueError:
        return None


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition whose future log has this directory name. None for other directories."""
    stem, dot, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not name.endswith(FUTURE_SUFFIX) or not dot or not unique:
        return None
    return parse_partition_directory(stem)


def can_be_marked(topic_partition: TopicPartition) -> bool:
    """Whether a future log's name can hold the whole topic name. Moves of other partitions are refused (KAFKA-4893)."""
    return len(f"{topic_partition}.{'0' * 32}{FUTURE_SUFFIX}") <= LONGEST_NAME


def random_text() -> str:
    return uuid.uuid4().hex


def marked_name(topic_partition: TopicPartition, suffix: str, unique: str) -> str:
    """The directory name with the suffix of a deleted, stray or future log. `unique`: 32 digits that no other one has.
    A topic name that is too long is cut."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: LONGEST_NAME - len(tail)] + tail


class LogDirectory:
    """One entry of `log.dirs`. Checkpoints are written as whole files, from any thread. If two threads write the same
    file, the write that began later wins."""

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
        "unique_text",
    )

    def __init__(
        self, disk: Disk, path: str, directory_id: bytes, unique_text: Callable[[], str] = random_text
    ) -> None:
        """`unique_text` returns 32 hexadecimal digits, different ones at each call of any life of the node."""
        self._disk = disk
        self.unique_text = unique_text
        self.path = path
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """The error that took the directory offline. None while it is online."""
        self.has_unopened = False
        """True if a log in it could not be opened at this start. The next stop then leaves no clean-shutdown mark."""
        self.noted_ms: int | None = None
        """Monotonic time in ms of the last log line about an error that left the directory online."""
        self._said: dict[str, Mapping[TopicPartition, int]] = {}
        """The contents of each checkpoint file."""
        self._begun: dict[str, dict[int, Mapping[TopicPartition, int]]] = {}
        """Other possible contents of each file, by turn: writes in progress, and the contents of writes that failed."""
        self._failed: dict[str, int] = {}
        """For each file, the turn under which all failed writes are merged. A full disk may refuse writes for hours."""
        self._turns = 0
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        """For each file, the turn that was written last. Only writers use it."""

    @property
    def online(self) -> bool:
        return self.failure is None

    def marked(self, topic_partition: TopicPartition, suffix: str) -> str:
        """A new path for a deleted, stray or future log."""
        return f"{self.path}/{marked_name(topic_partition, suffix, self.unique_text())}"

    def take_clean_mark(self) -> int | None:
        """Remove the clean-shutdown mark. Returns the broker epoch of the clean stop (-1 if the mark has none), or
        None after an unclean stop."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return None
        epoch = parse_clean_shutdown(self._disk.read_bytes(path))
        self._disk.remove(path)
        # The removal must be durable first. Otherwise a start after a power loss would treat later writes as cleanly
        # closed.
        self._disk.sync_directory(self.path)
        return epoch

    def mark_clean(self, broker_epoch: int) -> None:
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def read_offsets(self, name: str) -> tuple[Mapping[TopicPartition, int], str | None]:
        """Read a checkpoint. Returns its offsets and None, or no offsets and the reason why it cannot be read."""
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}, None
        try:
            said = self._said[name] = parse_offsets(self._disk.read_bytes(path))
        except CheckpointCorrupt as error:
            return {}, f"{path}: {error}"
        return said, None

    def said_of(self, name: str, topic_partition: TopicPartition) -> int:
        """The highest offset that a start may read there for the partition. -1 if there is none."""
        most = self._said.get(name, {}).get(topic_partition, -1)
        for offsets in self._begun.get(name, {}).values():
            most = max(most, offsets.get(topic_partition, -1))
        return most

    def names_in(self, name: str) -> set[TopicPartition]:
        """The partitions with an entry in a checkpoint."""
        return set(self._said.get(name, {})).union(*self._begun.get(name, {}).values())

    def holds(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the checkpoint file has these offsets and still exists. The existence check finds a failed directory
        that nothing else writes to."""
        return (
            not self._begun.get(name)
            and self._said.get(name) == offsets
            and self._disk.exists(f"{self.path}/{name}")
        )

    def begin_write(self, name: str, offsets: Mapping[TopicPartition, int]) -> int:
        """Announce a checkpoint write. Returns its turn, for `write` and `finish_write`."""
        self._turns += 1
        self._begun.setdefault(name, {})[self._turns] = offsets
        return self._turns

    def write(self, name: str, offsets: Mapping[TopicPartition, int], turn: int) -> None:
        """Write and sync a checkpoint, unless a later one has been written. Blocks; any thread."""
        with self._lock:
            if turn > self._newest.get(name, 0):
                self._disk.write_atomic(f"{self.path}/{name}", format_offsets(offsets))
                self._newest[name] = turn

    def finish_write(self, name: str, turn: int) -> None:
        """Record that the write of this turn succeeded."""
        begun = self._begun[name]
        if turn in begun:
            self._said[name] = begun[turn]
            self._begun[name] = {each: offsets for each, offsets in begun.items() if each > turn}

    def fail_write(self, name: str, turn: int) -> None:
        """Record that the write of this turn failed: the disk may have this version or the one before. Until a later
        write succeeds, the highest offset of all failed versions counts."""
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
        """Run all three steps of a write. Blocks."""
        turn = self.begin_write(name, offsets)
        self.write(name, offsets, turn)
        self.finish_write(name, turn)
