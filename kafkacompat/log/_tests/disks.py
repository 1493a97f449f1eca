"""A log manager over two directories of the memory disk, for tests of disk failures."""

from __future__ import annotations

import errno

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import NOW_MS, TOPIC_ID, batch_of, config
from kafkacompat.log._tests.memory_disk import MemoryDisk, Refuse
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import Plan

CONFIG = config(file_delete_delay_ms=1000)
DIRECTORY_IDS = (b"\1" * 16, b"\2" * 16)
PATHS = ("/a", "/b")


class Broker:
    """The logs of a broker, the lines of its log file, and the partitions that went offline."""

    def __init__(self, disk: MemoryDisk, *, alone: bool = True) -> None:
        """`alone`: the cluster has no other broker."""
        self.disk = disk
        self.notes: list[str] = []
        self.lost: list[TopicPartition] = []
        for path in PATHS:
            disk.make_directory(path)
        self.manager = LogManager(
            disk,
            list(zip(PATHS, DIRECTORY_IDS, strict=True)),
            CONFIG,
            HandTime(),
            note=self.notes.append,
            spares_full=lambda: alone,
        )
        self.manager.when_offline(self.lost.extend)
        self.manager.load_all()

    @property
    def online(self) -> list[bool]:
        return [each.online for each in self.manager.directories]

    def log(self, number: int) -> UnifiedLog:
        """Partition 0 is in /a, 1 in /b, and so on."""
        name = TopicPartition("t", number)
        return self.manager.get_or_create(name, TOPIC_ID, CONFIG, DIRECTORY_IDS[number % 2])

    def restarted(self, *, power_lost: bool = False, kept: tuple[str, ...] = ()) -> Broker:
        """The broker after a kill or a power loss (see MemoryDisk). The disk works again."""
        return Broker(self.disk.lose_power(kept=kept) if power_lost else self.disk.copy())


def append(log: UnifiedLog, count: int, epoch: int = 4) -> None:
    for _ in range(count):
        log.append_as_leader(batch_of([b"%d" % log.log_end_offset * 20]), epoch, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def carry_out(plan: Plan | None) -> None:
    assert plan is not None
    plan.run()
    plan.finish()


def refusing(operations: str, path: str, error: int = errno.EIO) -> Refuse:
    """A fault: every such operation on paths with this prefix fails."""

    def refuse(operation: str, on: str) -> OSError | None:
        if operation in operations.split() and on.startswith(path):
            return OSError(error, "refused", on)
        return None

    return refuse
