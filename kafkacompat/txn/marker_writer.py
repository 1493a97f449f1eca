"""WriteTxnMarkers for the partitions that this node leads: txn.service.MarkerWriter.

It writes one control batch per marker and partition, acknowledged when every in-sync replica has it. The group
coordinator writes to partitions of the offsets topic, because it must know of the marker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID, OFFSETS_TOPIC, TopicPartition
from kafkacompat.ports import TransactionTerms
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.validate import Origin
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks
    from kafkacompat.txn.service import OffsetsMarkers
    from kafkacompat.wire.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest

ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
_AS_NOT_LEADER = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of the group coordinator that senders of markers do not know. They retry after NOT_LEADER_OR_FOLLOWER."""


class LocalMarkerWriter:
    def __init__(
        self,
        partitions: PartitionService,
        groups: OffsetsMarkers,
        clock: Clock,
        tasks: Tasks,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` bounds the wait for the replicas (request.timeout.ms)."""
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._tasks = tasks
        self._timeout_ms = timeout_ms

    def write(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        written = _Written()
        self._partitions.hold_wakeups()
        try:
            results = [self._write_one(marker, written) for marker in request.markers]
        finally:
            self._partitions.release_wakeups()
        # Kafka answers by partition, so a marker without partitions gets no answer.
        response = WriteTxnMarkersResponse(markers=[each for each in results if each.topics])
        return self._tasks.run("writing markers of transactions", self._when_replicated(written, response))

    async def _when_replicated(
        self, written: _Written, response: WriteTxnMarkersResponse
    ) -> WriteTxnMarkersResponse:
        if written.appended:
            ends = {partition: end for partition, (end, _) in written.appended.items()}
            replicated = self._partitions.when_replicated(ends, self._timeout_ms)
            codes: Mapping[TopicPartition, ErrorCode] = {}
            try:
                codes = {} if replicated is None else await replicated
            except Exception as error:
                report("waiting for the replicas of transactions' markers", error)
            if replicated is not None:
                for partition, (_, answers) in written.appended.items():
                    for answer in answers:
                        answer.error_code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        for answer, ended in written.in_groups:
            try:
                code = await ended
            except Exception as error:
                report("writing the marker of a transaction to a group's partition", error)
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _AS_NOT_LEADER else code
        return response

    def _write_one(self, marker: WritableTxnMarker, written: _Written) -> WritableTxnMarkerResult:
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        asked: list[tuple[TopicPartition, WritableTxnMarkerPartitionResult]] = []
        for topic in marker.topics:
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                told = topics.setdefault(
                    topic.name, WritableTxnMarkerTopicResult(name=topic.name, partitions=[])
                )
                told.partitions.append(answer)
                asked.append((TopicPartition(topic.name, index), answer))
        if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_EPOCH:
            self._refuse(asked)
        else:
            for partition, answer in asked:
                self._end(marker, partition, answer, written)
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=list(topics.values()))

    def _refuse(self, asked: Sequence[tuple[TopicPartition, WritableTxnMarkerPartitionResult]]) -> None:
        """A marker needs a producer. As in Kafka, one without fails the request, unless the partitions are all unknown or
        of the group coordinator, which fails only its own."""
        errors = [self._partitions.leader_error(partition) for partition, _ in asked]
        fails = any(
            error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and partition.topic != OFFSETS_TOPIC
            for error, (partition, _) in zip(errors, asked, strict=True)
        )
        for error, (_, answer) in zip(errors, asked, strict=True):
            is_unknown = fails or error is ErrorCode.NONE
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR if is_unknown else error

    def _end(
        self,
        marker: WritableTxnMarker,
        partition: TopicPartition,
        answer: WritableTxnMarkerPartitionResult,
        written: _Written,
    ) -> None:
        if partition.topic != OFFSETS_TOPIC:
            self._append(marker, partition, answer, written)
        elif self._partitions.leader_error(partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            self._end_in_group(marker, partition.partition, answer, written)

    def _append(
        self,
        marker: WritableTxnMarker,
        partition: TopicPartition,
        answer: WritableTxnMarkerPartitionResult,
        written: _Written,
    ) -> None:
        batch = build_end_transaction_marker(
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        result = self._partitions.append(
            partition,
            batch,
            ALL_REPLICAS,
            BATCH_FORMAT_VERSION,
            True,
            TransactionTerms(transaction_version=marker.transaction_version),
            Origin.COORDINATOR,
        )
        # A mirror has refused everything else of the transaction too.
        answer.error_code = ErrorCode.NONE if result.error is ErrorCode.POLICY_VIOLATION else result.error
        if result.error is ErrorCode.NONE:
            _, waiting = written.appended.get(partition, (0, []))
            waiting.append(answer)
            written.appended[partition] = result.last_offset + 1, waiting

    def _end_in_group(
        self,
        marker: WritableTxnMarker,
        index: int,
        answer: WritableTxnMarkerPartitionResult,
        written: _Written,
    ) -> None:
        ended = self._groups.end_transaction(
            index,
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        written.in_groups.append((answer, ended))


class _Written:
    """What one request has begun."""

    __slots__ = ("appended", "in_groups")

    def __init__(self) -> None:
        self.appended: dict[TopicPartition, tuple[int, list[WritableTxnMarkerPartitionResult]]] = {}
        """(end offset, the answers that depend on it) per partition."""
        self.in_groups: list[tuple[WritableTxnMarkerPartitionResult, Deferred[ErrorCode]]] = []
        """The answers for partitions of the group coordinator, and what it tells."""
