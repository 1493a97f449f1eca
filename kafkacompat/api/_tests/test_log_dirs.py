"""AlterReplicaLogDirs, and the future logs that DescribeLogDirs shows, through the codec of every version. KIP-113."""

from __future__ import annotations

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest


class Directories:
    """A DirectoryService that refuses every directory except /data/b."""

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
    api = Api(topic_image("t", 1), topic_image("gone", 1), directories=2)
    for _ in range(3):
        api.world.produce()
    logs = api.world.log_manager
    here, gone = TopicPartition("t", 0), TopicPartition("gone", 0)
    copy = logs.begin_future(here, logs.directories[1])
    copy.append_as_follower(api.world.batches()[0], 0)
    logs.begin_future(gone, logs.directories[0])
    logs.withhold(gone, "its files are damaged")
    assert {
        (result.log_dir, topic.name, each.partition_index, each.offset_lag)
        for result in api.call(DescribeLogDirsRequest(topics=None), version).results
        for topic in result.topics
        for each in topic.partitions
        if each.is_future_key
    } == {("/data/b", "t", 0, 2), ("/data/a", "gone", 0, -1)}
