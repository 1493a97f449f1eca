"""DescribeLogDirs (KIP-113) for log sizes, which the client library does not have. No sockets."""

from __future__ import annotations

from kafkacompat.console.core.exchange import BadResponse, framed, parsed
from kafkacompat.console.core.snapshot import ReplicaSize
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse

VERSION = 1
"""Every broker since Kafka 2.0 supports it."""


def sizes_request() -> bytearray:
    """Return the request for all topics, with its length in front."""
    return framed(DescribeLogDirsRequest(topics=None), VERSION)


def parse_response(payload: bytes, node_id: int) -> list[ReplicaSize]:
    """Return the sizes in a node's answer (payload without the length). Future logs, in another directory, count too."""
    response = parsed(DescribeLogDirsResponse, VERSION, payload)
    refused = [directory.error_code for directory in response.results if directory.error_code]
    if refused:
        raise BadResponse(f"error {refused[0]}")
    return [
        ReplicaSize(node_id, topic.name, partition.partition_index, partition.partition_size)
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
    ]
