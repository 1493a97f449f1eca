"""DescribeLogDirs (key 35): this broker's log directories, partition sizes and future logs. KIP-113, KIP-827."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.tasks import TURN_COST, Pace, Work, sorted_in_steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Log, LogDirStatus
    from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest


NAMED_A_STEP = 5_000
"""Requested topics, and partitions of one topic, per step."""
DESCRIBED_A_STEP = 1_000
"""Logs per step. One takes one or two microseconds."""


def handle(
    node: Node, context: RequestContext, request: DescribeLogDirsRequest
) -> Work[DescribeLogDirsResponse]:
    asked = yield from _asked(request)
    own = node.image.brokers.get(node.node_id)
    cordoned = () if own is None else own.cordoned_directories or ()
    pace = Pace(DESCRIBED_A_STEP)
    results = []
    for status in node.log_manager.log_dirs():
        is_cordoned = status.directory_id in cordoned
        results.append((yield from _directory(status, asked, is_cordoned, node.log_manager.get, pace)))
    return DescribeLogDirsResponse(results=results)


def _asked(request: DescribeLogDirsRequest) -> Work[set[tuple[str, int]] | None]:
    """Return the requested partitions, or None if the request asks for all of them."""
    if request.topics is None:
        return None
    asked: set[tuple[str, int]] = set()
    pace = Pace(NAMED_A_STEP)
    for topic in request.topics:
        for start in range(0, len(topic.partitions), NAMED_A_STEP):
            some = topic.partitions[start : start + NAMED_A_STEP]
            asked.update([(topic.topic, index) for index in some])
            if pace.is_over(len(some)):
                yield TURN_COST
        if pace.is_over():  # many topics may have no partitions
            yield TURN_COST
    return asked


def _directory(
    status: LogDirStatus,
    asked: set[tuple[str, int]] | None,
    cordoned: bool,
    current_of: Callable[[TopicPartition], Log | None],
    pace: Pace,
) -> Work[DescribeLogDirsResult]:
    if not status.online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=status.path)
    topics: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition, log in (yield from sorted_in_steps(status.logs.items())):
        if pace.is_over():
            yield TURN_COST
        if asked is None or partition in asked:
            topics[partition.topic].append(_partition(partition.partition, log))
    for partition, log in (yield from sorted_in_steps(status.futures.items())):
        if pace.is_over():
            yield TURN_COST
        if asked is None or partition in asked:
            lag = (
                -1
                if (current := current_of(partition)) is None
                else current.log_end_offset - log.log_end_offset
            )
            topics[partition.topic].append(
                DescribeLogDirsPartition(
                    partition_index=partition.partition,
                    partition_size=log.size_bytes(),
                    offset_lag=lag,
                    is_future_key=True,
                )
            )
    return DescribeLogDirsResult(
        log_dir=status.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=those) for name, those in topics.items()],
        total_bytes=status.total_bytes,
        usable_bytes=status.usable_bytes,
        is_cordoned=cordoned,
    )


def _partition(index: int, log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=log.size_bytes(),
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
    )


HANDLER = Handler(handle, top_level_error(DescribeLogDirsResponse))
