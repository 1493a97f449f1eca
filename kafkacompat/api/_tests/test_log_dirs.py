"""AlterReplicaLogDirs and the future logs that DescribeLogDirs shows, through every version's codec. KIP-113."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkacompat.api._tests.world import Api
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.fakes import MemoryLog, topic_image
from kafkacompat.ports import LogDirStatus
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest


class Directories:
    """DirectoryService: refuses what is not to go to /data/b."""

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, str]] = []

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        self.asked.append((name, path))
        return ErrorCode.NONE if path == "/data/b" else ErrorCode.LOG_DIR_NOT_FOUND


def request() -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path="/data/b",
                topics=[
                    AlterReplicaLogDirTopic(name="t", partitions=[0, 2]),
                    AlterReplicaLogDirTopic(name="u", partitions=[0]),
                ],
            ),
            AlterReplicaLogDir(path="/data/c", topics=[AlterReplicaLogDirTopic(name="t", partitions=[1])]),
        ]
    )


@pytest.mark.parametrize("version", [1, 2])
def test_each_replica_is_asked_for_and_answered(version: int) -> None:
    api = Api()
    api.node.directories = directories = Directories()
    results = api.call(request(), version).results
    assert directories.asked == [
        (TopicPartition("t", 0), "/data/b"),
        (TopicPartition("t", 2), "/data/b"),
        (TopicPartition("u", 0), "/data/b"),
        (TopicPartition("t", 1), "/data/c"),
    ]
    assert {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in results
        for each in topic.partitions
    } == {("t", 0): 0, ("t", 2): 0, ("u", 0): 0, ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND}
    assert [topic.topic_name for topic in results] == ["t", "u"]


@pytest.mark.parametrize("version", range(1, 6))
def test_a_future_log_is_told_beside_the_current_one(version: int) -> None:
    api = Api(topic_image("t", 1))
    for _ in range(3):
        api.world.produce()
    current = api.world.log()
    copy = MemoryLog(current.topic_partition, current.topic_id, current.config)
    copy.log_end_offset = 1
    lost = replace(copy, topic_partition=TopicPartition("gone", 0))
    future = LogDirStatus(
        "/data/b",
        bytes(15) + b"\x78",
        True,
        1000,
        400,
        {},
        {each.topic_partition: each for each in (copy, lost)},
    )
    first = api.world.log_manager.log_dirs()[0]
    api.world.log_manager.log_dirs = lambda: [first, future]  # type: ignore[method-assign]
    _, second = api.call(DescribeLogDirsRequest(topics=None), version).results
    assert [
        (topic.name, each.partition_index, each.offset_lag, each.is_future_key)
        for topic in second.topics
        for each in topic.partitions
    ] == [("gone", 0, -1, True), ("t", 0, 2, True)]
