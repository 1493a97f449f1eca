"""The answer to DescribeLogDirs (KIP-113): log sizes, for which the client library cannot ask. No sockets."""

from __future__ import annotations

from kafkacompat.client.brokers import check
from kafkacompat.console.core.snapshot import ReplicaSize
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


def sizes_in(answer: DescribeLogDirsResponse, node_id: int) -> list[ReplicaSize]:
    """Return the sizes in a node's answer. Future logs, in another directory, count too. Raises CommandFailed if it does not
    tell all."""
    check(answer.error_code, "log directories")
    for directory in answer.results:
        check(directory.error_code, "log directories")
    return [
        ReplicaSize(node_id, topic.name, partition.partition_index, partition.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
    ]
