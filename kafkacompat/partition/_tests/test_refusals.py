"""Images published while one of two directories refuses some operation: no publication fails, and the other
directory's partitions are served as before. KIP-112."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log._tests.test_refusals import Refusing
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition._tests.kit import NODE_ID, batch_of, image_of, partition_image, topic_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.hosted_partitions import SHORTAGE_INTERVAL_MS
from kafkacompat.partition.placement import Placement
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.ports.files import OPERATIONS
from kafkacompat.wire.errors import ErrorCode

A, B = b"\xa0" * 16, b"\xb0" * 16


class Node:
    """Partition 0 of each topic is in /a, partition 1 in /b."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.time = HandTime()
        self.workers = HandWorkers()
        for path in ("/a", "/b"):
            disk.make_directory(path)
        self.logs = LogManager(disk, [("/a", A), ("/b", B)], LogConfig(segment_bytes=2000), self.time)
        self.logs.load_all()
        services = partition_services(
            NODE_ID, self.logs, self.time, self.workers, lambda topic: LogConfig(segment_bytes=2000)
        )
        self.manager = ReplicaManager(services)
        Placement(services, self.manager.hosted, lambda *told: None)
        self.image = MetadataImage()

    def publish(self, **topics: int) -> None:
        """Publish topics with their leader epoch. -1 means that this node does not lead the topic."""
        images = []
        for name, epoch in topics.items():
            leader = NODE_ID if epoch >= 0 else 2
            partitions = {
                index: replace(
                    partition_image(),
                    replicas=(NODE_ID,) if epoch >= 0 else (NODE_ID, 2),
                    isr=(NODE_ID,) if epoch >= 0 else (NODE_ID, 2),
                    leader=leader,
                    leader_epoch=abs(epoch),
                    partition_epoch=abs(epoch),
                    directories=(directory,) if epoch >= 0 else (directory, B),
                )
                for index, directory in enumerate((A, B))
            }
            images.append(topic_image(name, partitions))
        old, self.image = self.image, image_of(*images)
        self.manager.on_image(old, self.image)
        self.run_for(10)

    def run_for(self, ms: int) -> None:
        self.time.advance(ms)
        for _ in range(5):
            self.workers.run()
            self.time.advance(10)

    def append(self, name: str, partition: int) -> ErrorCode:
        records = batch_of(b"v" * 300, now_ms=self.time.now_ms())
        return self.manager.append(TopicPartition(name, partition), records, 1, 13, False).error


IMAGES = {
    "made": {"t": 1, "other": 1, "new": 1},
    "deleted": {"other": 1},
    "led anew": {"t": 2, "other": 1},
    "led elsewhere": {"t": -2, "other": 1},
}


def served() -> Node:
    node = Node(MemoryDisk())
    node.publish(t=1, other=1)
    for _ in range(12):
        for name in ("t", "other"):
            for partition in (0, 1):
                assert node.append(name, partition) is ErrorCode.NONE
    return node


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("restarted", [False, True])
def test_no_publication_fails(image: str, restarted: bool) -> None:
    """Also the first image after a start, which finds strays and applies every role."""
    for operation in sorted(OPERATIONS):
        for error in (errno.EIO, errno.EROFS):
            for after in (0, 1, 3):
                node = served()
                if restarted:
                    node = Node(node.disk.copy())
                node.disk.refuse = Refusing(operation, error, after)
                node.publish(**IMAGES[image])
                topic = "other"
                assert node.append(topic, 1) is ErrorCode.NONE
                assert node.append(topic, 0) in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
                assert node.logs.directories[1].online
                node.disk.refuse = None
                node.publish(other=1)
                assert node.append(topic, 1) is ErrorCode.NONE


def test_a_deletion_that_a_directory_refuses_takes_that_directory_only() -> None:
    node = served()
    node.disk.refuse = Refusing("rename", errno.EIO, 0)
    node.publish(other=1)
    assert [each.online for each in node.logs.directories] == [False, True]
    assert node.append("other", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.append("other", 1) is ErrorCode.NONE
    assert set(node.logs.logs) == {TopicPartition("other", 1)}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("operation", ["open", "write_atomic", "make_directory"])
def test_topics_made_while_there_was_no_room_are_opened_once_there_is(number: int, operation: str) -> None:
    node = served()
    node.disk.refuse = Refusing(operation, number, 0)
    node.publish(t=1, other=1, new=1, newer=1, newest=1)
    for _ in range(3):
        node.run_for(SHORTAGE_INTERVAL_MS)
    topics = ("new", "newer", "newest")
    assert [node.append(topic, 0) for topic in topics] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert [node.append(topic, 1) for topic in topics] == [ErrorCode.NONE] * 3
    assert all(each.online for each in node.logs.directories)
    node.publish(t=1, other=1, new=1, newest=1)
    node.disk.refuse = None
    # No later image mentions these topics.
    node.run_for(SHORTAGE_INTERVAL_MS)
    assert [node.append(topic, 0) for topic in ("new", "newest")] == [ErrorCode.NONE] * 2
    node.logs.deletions.remove(node.logs.deletions.take_due(None))
    left = {name for name in node.disk.list_directory("/a") if "checkpoint" not in name}
    assert left == {"t-0", "other-0", "new-0", "newest-0"}
