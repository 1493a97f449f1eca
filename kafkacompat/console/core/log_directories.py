"""DescribeLogDirs (KIP-113) for log sizes: the one request that the client library lacks. No sockets."""

from __future__ import annotations

from kafkacompat.console.core.snapshot import ReplicaSize
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.frames import request_frame
from kafkacompat.wire.headers import parse_response_header
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from kafkacompat.wire.tables import ApiKey

VERSION = 1
"""Every broker since Kafka 2.0 supports it."""
CORRELATION_ID = 1
CLIENT_ID = "kafkacompat-console"
MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class BadResponse(ValueError):
    """The answer is malformed, or is an error."""


def sizes_request() -> bytearray:
    """Return the request for all topics, with its length in front."""
    return request_frame(DescribeLogDirsRequest(topics=None), VERSION, CORRELATION_ID, CLIENT_ID)


def parse_response(payload: bytes, node_id: int) -> list[ReplicaSize]:
    """Return the sizes in a node's answer (payload without the length). Future logs, in another directory, count too."""
    try:
        answered_id, position = parse_response_header(payload, ApiKey.DESCRIBE_LOG_DIRS, VERSION)
        if answered_id != CORRELATION_ID:
            raise BadResponse("an answer to another request")
        response = decode(DescribeLogDirsResponse, VERSION, payload, position)
    except WireError as error:
        raise BadResponse(f"an answer that cannot be read: {error}") from error
    refused = [directory.error_code for directory in response.results if directory.error_code]
    if refused:
        raise BadResponse(f"error {refused[0]}")
    return [
        ReplicaSize(node_id, topic.name, partition.partition_index, partition.partition_size)
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
    ]
