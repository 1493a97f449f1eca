"""Sends a transaction's markers to the leaders of all its partitions, and then writes the end of the transaction.

Temporary failures are retried until every partition has its marker. As in Kafka, deleted partitions are left out. A newer
coordinator or producer epoch ends the sending, since its owner completes the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from heapq import merge
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.coordinator.inter_broker_sender import InterBrokerSender, NodeLost, Requests
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.net.failures import ChannelError
from kafkacompat.ports import passes
from kafkacompat.tasks import Started, Tasks, Work, in_turns, pause, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.txn.service import MarkerWriter
    from kafkacompat.txn.transaction_state_manager import Markers

logger = logging.getLogger(__name__)

WRITTEN_AT_ONCE = 50
"""Markers written in one step, at some 30 microseconds each, and more than a millisecond if a log is written for the
first time."""
PLACED_A_STEP = 1_000
"""Partitions of a transaction that are sorted, or whose leaders are looked up, in one step. One takes up to a microsecond."""
RETRY_MS = 50
WRONG_RETRY_MS = 1_000
"""Delay after an unexpected answer. Kafka's coordinator stops then; this one reports it and retries."""
END_RETRY_MS = 100
_WRITTEN = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_OVERTAKEN = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_NO_ANSWER = -1

Codes = dict[tuple[int, str, int], int]
"""By producer id, topic and partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """One transaction that ends."""

    markers: Markers
    shard_partition: int
    coordinator_epoch: int

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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One transaction's partitions on one node."""

    sending: Sending
    partitions: list[TopicPartition]


class _Overtaken(Exception):
    """Another coordinator or producer completes the transaction."""


class TransactionMarkerChannelManager:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        local: MarkerWriter,
        channel: Callable[[int], Requests | None],
        tasks: Tasks,
        timeout_ms: int,
        write_end: Callable[[Sending], Deferred[None]],
    ) -> None:
        """`write_end` is called for each sending whose partitions all have their marker, again until it does not fail."""
        self._node_id = node_id
        self._image = image
        self._local = local
        self._tasks = tasks
        self._write_end = write_end
        self._sender: InterBrokerSender[Part, Codes] = InterBrokerSender(
            tasks, channel, timeout_ms, _request, _codes
        )
        self._sendings: dict[int, dict[Started, None]] = {}
        """By partition of the transaction topic. Bounded by the transactions that are being ended."""
        self.without_leader = 0
        """Markers that wait until they are sent again, because their partition had no leader."""
        self.ends_to_write_again = 0
        """Transactions whose markers are written, and whose end the log has refused."""

    def send(self, markers: Markers, shard_partition: int, coordinator_epoch: int) -> None:
        sending = Sending(markers, shard_partition, coordinator_epoch)
        what = f"ending the transaction of {markers.transactional_id!r}"
        sendings = self._sendings.setdefault(shard_partition, {})
        task = self._tasks.start(what, self._end_transaction(sending))
        if self._sendings.get(shard_partition) is not sendings:
            task.cancel()  # it has gone so far that its shard was loaded anew
        elif not task.done:
            sendings[task] = None
            task.on_done(lambda _: sendings.pop(task, None))

    def cancel(self, shard_partition: int) -> None:
        """Cancel the sendings of a partition that this node no longer coordinates."""
        for task in list(self._sendings.pop(shard_partition, {})):
            task.cancel()

    def close(self) -> None:
        for shard_partition in list(self._sendings):
            self.cancel(shard_partition)
        self._sender.close()

    async def _end_transaction(self, sending: Sending) -> None:
        transactional_id = sending.markers.transactional_id
        while True:
            try:
                left = sending.markers.partitions - sending.markers.marked
                await self._mark(sending, await in_turns(_in_order(left)))
                break
            except _Overtaken:
                return
            except Exception as error:
                # No other component would send them, and the producer could never begin another transaction.
                if not passes(error):
                    report(f"sending the markers of {transactional_id!r}", error)
                logger.info("the markers of %r could not be sent: %r", transactional_id, error)
            await self._tasks.sleep(WRONG_RETRY_MS)
        while True:
            try:
                await self._write_end(sending)
                return
            except OperationRefused as refusal:
                logger.info("the end of %r could not be written: %s", transactional_id, refusal)
            except Exception as error:
                # No other component would end it, so it stays pending.
                report(f"writing the end of {transactional_id!r}", error)
            self.ends_to_write_again += 1
            try:
                await self._tasks.sleep(END_RETRY_MS)
            finally:
                self.ends_to_write_again -= 1

    async def _mark(self, sending: Sending, partitions: list[TopicPartition], delay_ms: int = 0) -> None:
        """Return when all of the partitions have their marker, or are gone. Raises _Overtaken."""
        if delay_ms:
            await self._tasks.sleep(delay_ms)
        while leaders := await in_turns(self._leaders(sending, partitions)):
            if len(leaders) > 1:
                parts = [self._mark(sending, part) for part in leaders.values()]
                await self._tasks.all("sending markers", parts)
                return
            ((node_id, part),) = leaders.items()
            if node_id == NO_LEADER:
                partitions = await self._wait_without_leader(part)
                continue
            partitions, wrong = await self._mark_at(node_id, sending, part)
            if wrong and partitions:
                again = self._mark(sending, partitions, RETRY_MS)
                later = self._mark(sending, wrong, WRONG_RETRY_MS)
                await self._tasks.all("sending markers", [again, later])
                return
            if wrong:
                # In this task: an error may last for days, and a task within a task each second would be too deep to end.
                partitions = wrong
                await self._tasks.sleep(WRONG_RETRY_MS)
            elif partitions:
                await self._tasks.sleep(RETRY_MS)

    def _leaders(
        self, sending: Sending, partitions: list[TopicPartition]
    ) -> Work[dict[int, list[TopicPartition]]]:
        """The partitions by their present leader, without those that are gone."""
        nodes: dict[int, list[TopicPartition]] = {}
        for start in range(0, len(partitions), PLACED_A_STEP):
            if start:
                yield PLACED_A_STEP
            topics = self._image().topics
            for partition in partitions[start : start + PLACED_A_STEP]:
                topic = topics.get(partition.topic)
                found = None if topic is None else topic.partitions.get(partition.partition)
                if found is not None:
                    nodes.setdefault(found.leader, []).append(partition)
                else:
                    sending.markers.marked.add(partition)
        return nodes

    async def _wait_without_leader(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        self.without_leader += len(partitions)
        try:
            await self._tasks.sleep(RETRY_MS)
        finally:
            self.without_leader -= len(partitions)
        return partitions

    async def _mark_at(
        self, node_id: int, sending: Sending, part: list[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Ask a leader once. Return the partitions to ask for again: after temporary failures, and after unexpected ones."""
        try:
            if node_id == self._node_id:
                codes = await self._write_here(sending, part)
            else:
                codes = await self._sender.ask(node_id, Part(sending, part))
        except Exception as error:
            if not (isinstance(error, (ChannelError, NodeLost, OSError)) or passes(error)):
                report(f"sending markers of {sending.markers.transactional_id!r}", error)
            logger.info("markers could not be sent: %s", error)
            return part, []
        return self._to_ask_again(sending, part, codes)

    async def _write_here(self, sending: Sending, part: list[TopicPartition]) -> Codes:
        """Write markers to this node's own partitions. There may be thousands, so each turn of the loop writes some."""
        answers: list[Deferred[Any]] = []
        try:
            for start in range(0, len(part), WRITTEN_AT_ONCE):
                if start:
                    await pause()
                own = Part(sending, part[start : start + WRITTEN_AT_ONCE])
                answers.append(self._local.write(_request([own])))
        except Exception as error:
            # Partitions without an answer are asked for again.
            report(f"writing markers of {sending.markers.transactional_id!r}", error)
        codes: Codes = {}
        for answer in answers:
            codes |= _codes(await answer)
            await pause(WRITTEN_AT_ONCE)
        return codes

    def _to_ask_again(
        self, sending: Sending, part: list[TopicPartition], codes: Codes
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        transactional_id, producer_id = sending.markers.transactional_id, sending.markers.producer_id
        again: list[TopicPartition] = []
        wrong: list[TopicPartition] = []
        for partition in part:
            code = codes.get((producer_id, *partition), _NO_ANSWER)
            if code in _OVERTAKEN:
                logger.warning(
                    "markers of %r are not sent on: %s answered %s",
                    transactional_id,
                    partition,
                    ErrorCode(code).name,
                )
                raise _Overtaken
            if code in _RETRIABLE:
                again.append(partition)
            elif code in _WRITTEN:
                sending.markers.marked.add(partition)
            else:
                wrong.append(partition)
        if wrong:
            # One line, because there may be thousands, each second.
            logger.error(
                "%d markers of %r are refused, the one for %s with error %d",
                len(wrong),
                transactional_id,
                wrong[0],
                codes.get((producer_id, *wrong[0]), _NO_ANSWER),
            )
        return again, wrong


def _in_order(partitions: Iterable[TopicPartition]) -> Work[list[TopicPartition]]:
    every = list(partitions)
    if len(every) <= PLACED_A_STEP:
        return sorted(every)
    parts = []
    for part in pieces(every, PLACED_A_STEP):
        parts.append(sorted(part))
        yield PLACED_A_STEP
    ordered = []
    for each in merge(*parts):
        ordered.append(each)
        if len(ordered) % PLACED_A_STEP == 0:
            yield PLACED_A_STEP
    return ordered


def _request(parts: list[Part]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[part.sending.for_partitions(part.partitions) for part in parts])


def _codes(response: Any) -> Codes:
    return {
        (marker.producer_id, topic.name, each.partition_index): each.error_code
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }
