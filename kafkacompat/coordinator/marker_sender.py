"""Sends a transaction's markers to all its partitions, until every partition has one.

It finds the leaders, sends (directly to this node itself), retries temporary failures, and reports the end. As in
Kafka's TransactionMarkerChannelManager, deleted partitions are left out. A newer coordinator or producer epoch ends
the sending, since its owner completes the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.node_queues import NodeQueues, Requests
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from kafkacompat.api.transaction_services import MarkerWriter
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Timers
    from kafkacompat.txn.environment import Markers

logger = logging.getLogger(__name__)

WRITTEN_AT_ONCE = 50
"""Markers written in one step, at some 30 microseconds each, and more than a millisecond if a log is written for the
first time."""
RETRY_MS = 50
WRONG_RETRY_MS = 1_000
"""Delay after an unexpected answer. Kafka's coordinator stops then; this one reports it and retries."""
_WRITTEN = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_OVERTAKEN = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Sending:
    """One transaction's markers, and the partitions that do not have one yet."""

    __slots__ = ("cancelled", "coordinator_epoch", "left", "markers", "shard_partition")

    def __init__(self, markers: Markers, shard_partition: int, coordinator_epoch: int) -> None:
        self.markers = markers
        self.shard_partition = shard_partition
        self.coordinator_epoch = coordinator_epoch
        self.left = set(markers.partitions)
        self.cancelled = False

    def for_partitions(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        markers = self.markers
        return WritableTxnMarker(
            producer_id=markers.producer_id,
            producer_epoch=markers.epoch,
            transaction_result=markers.committed,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=markers.transaction_version,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ],
        )


Part = tuple[Sending, list[TopicPartition]]
"""One transaction's partitions on one node."""


class MarkerSender:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        local: MarkerWriter,
        channel: Callable[[int], Requests | None],
        timers: Timers,
        timeout_ms: int,
        finished: Callable[[Sending], None],
    ) -> None:
        """`finished` is called once for each sending whose partitions all have their marker, unless it was cancelled."""
        self._node_id = node_id
        self._image = image
        self._local = local
        self._timers = timers
        self._finished = finished
        self._queues: NodeQueues[Part] = NodeQueues(channel, timeout_ms, _request, self._answered)
        self._sendings: dict[int, dict[Sending, None]] = {}
        """By partition of the transaction topic. Bounded by the transactions that are being ended."""
        self.without_leader = 0
        """Markers that wait until they are sent again, because their partition had no leader."""

    def send(self, markers: Markers, shard_partition: int, coordinator_epoch: int) -> None:
        sending = Sending(markers, shard_partition, coordinator_epoch)
        self._sendings.setdefault(shard_partition, {})[sending] = None
        self._send(sending, sorted(sending.left))

    def cancel(self, shard_partition: int) -> None:
        """Cancel the sendings of a partition that this node no longer coordinates."""
        for sending in self._sendings.pop(shard_partition, {}):
            sending.cancelled = True

    def close(self) -> None:
        for shard_partition in list(self._sendings):
            self.cancel(shard_partition)
        self._queues.close()

    def _send(self, sending: Sending, partitions: list[TopicPartition]) -> None:
        if sending.cancelled:
            return
        image = self._image()
        nodes: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            topic = image.topics.get(partition.topic)
            found = None if topic is None else topic.partitions.get(partition.partition)
            if found is None:
                sending.left.discard(partition)
            else:
                nodes.setdefault(found.leader, []).append(partition)
        if not sending.left:
            self._finish(sending)
            return
        for node_id, part in nodes.items():
            try:
                self._send_to(node_id, sending, part)
            except Exception as error:
                report(f"sending markers of {sending.markers.transactional_id!r}", error)
                self._later(sending, part, WRONG_RETRY_MS)

    def _send_to(self, node_id: int, sending: Sending, part: list[TopicPartition]) -> None:
        if node_id == NO_LEADER:
            self.without_leader += len(part)
            self._timers.call_after(RETRY_MS, partial(self._look_for_leader, sending, part))
        elif node_id == self._node_id:
            self._write_own(sending, part, 0)
        else:
            self._queues.put(node_id, (sending, part))

    def _write_own(self, sending: Sending, partitions: list[TopicPartition], start: int) -> None:
        """Write markers to this node's own partitions. There may be thousands, so the rest is written in the loop's
        next turn."""
        end = start + WRITTEN_AT_ONCE
        own = (sending, partitions[start:end])
        self._local.write(_request([own])).on_done(partial(self._answered, [own]))
        if end < len(partitions):
            self._timers.call_after(0, partial(self._write_rest, sending, partitions, end))

    def _write_rest(self, sending: Sending, partitions: list[TopicPartition], start: int) -> None:
        if sending.cancelled:
            return
        try:
            self._write_own(sending, partitions, start)
        except Exception as error:
            report(f"writing markers of {sending.markers.transactional_id!r}", error)
            self._later(sending, partitions[start:], WRONG_RETRY_MS)

    def _look_for_leader(self, sending: Sending, partitions: list[TopicPartition]) -> None:
        self.without_leader -= len(partitions)
        self._send(sending, partitions)

    def _later(self, sending: Sending, partitions: list[TopicPartition], delay_ms: int) -> None:
        self._timers.call_after(delay_ms, lambda: self._send(sending, partitions))

    def _answered(self, parts: list[Part], done: Deferred[Any]) -> None:
        try:
            response = done.result()
        except Exception as error:
            logger.info("markers could not be sent: %s", error)
            for sending, partitions in parts:
                self._later(sending, partitions, RETRY_MS)
            return
        codes: dict[tuple[int, str, int], int] = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        for sending, partitions in parts:
            if sending.cancelled:
                continue
            producer_id = sending.markers.producer_id
            try:
                self._take(sending, {each: codes.get((producer_id, *each), -1) for each in partitions})
            except Exception as error:
                report(f"ending the transaction of {sending.markers.transactional_id!r}", error)

    def _take(self, sending: Sending, codes: dict[TopicPartition, int]) -> None:
        again: list[TopicPartition] = []
        wrong: list[TopicPartition] = []
        for partition, code in codes.items():
            if code in _WRITTEN:
                sending.left.discard(partition)
            elif code in _OVERTAKEN:
                logger.warning(
                    "markers of %r are not sent on: %s answered %s",
                    sending.markers.transactional_id,
                    partition,
                    ErrorCode(code).name,
                )
                sending.cancelled = True
                self._sendings.get(sending.shard_partition, {}).pop(sending, None)
                return
            elif code in _PASSING:
                again.append(partition)
            else:
                logger.error(
                    "a marker of %r for %s is answered with error %d",
                    sending.markers.transactional_id,
                    partition,
                    code,
                )
                wrong.append(partition)
        if again:
            self._later(sending, again, RETRY_MS)
        if wrong:
            self._later(sending, wrong, WRONG_RETRY_MS)
        if not sending.left:
            self._finish(sending)

    def _finish(self, sending: Sending) -> None:
        known = self._sendings.get(sending.shard_partition)
        if known is not None and sending in known:
            del known[sending]
            self._finished(sending)


def _request(parts: list[Part]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[sending.for_partitions(partitions) for sending, partitions in parts]
    )
