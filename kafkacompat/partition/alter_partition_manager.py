"""Sends ISR changes to the controller (AlterPartition): the pending ones together, one request at a time.

Proposals without an answer are sent again. Each answer goes to its partition. Sockets are unknown here (`alter` gives
the response), and so is what a partition does with an answer. A proposal that its partition has withdrawn is not sent.
Bounded by the partitions led here, with one proposal each. Follows Kafka's AlterPartitionManager (KIP-497, KIP-903:
version 3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.faults import report
from kafkacompat.net.failures import ChannelError
from kafkacompat.partition.partition import Altered
from kafkacompat.partition.traffic import IsrChanges
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import Uuid
    from kafkacompat.partition.partition import Partition, PendingPartitionChange
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.tasks import Started
    from kafkacompat.wire.messages.alter_partition_response import AlterPartitionResponse

logger = logging.getLogger(__name__)

RETRY_MS = 50
SENT_AT_ONCE_MAX = 200
"""Partitions of one request. What its answer causes takes about 30 microseconds for each, in one step of the loop."""
RECOVERED = 0
"""A leader elected uncleanly has nothing to recover, and sends this state with its first change (KIP-704)."""
Key = tuple[bytes, int]
"""(topic id, partition)."""


class AlterPartitionItem(NamedTuple):
    core: Partition
    proposal: PendingPartitionChange

    def is_wanted(self) -> bool:
        return self.core.pending is self.proposal


class AlterPartitionManager:
    def __init__(
        self,
        services: PartitionServices,
        broker_epoch: Callable[[], int],
        alter: Callable[[AlterPartitionRequest], Deferred[AlterPartitionResponse]],
        altered: Callable[[Partition, Altered], None],
        changes: IsrChanges | None = None,
    ) -> None:
        """`alter` may fail with any exception; the request is then sent again. `altered` is called with the outcome of
        each proposal. If that fails, the node halts."""
        self._node_id = services.node_id
        self._services = services
        self._tasks = services.tasks
        self._broker_epoch = broker_epoch
        self._alter = alter
        self._altered = altered
        self._changes = changes or IsrChanges()
        self._unsent: dict[Key, AlterPartitionItem] = {}
        self._sending: Started | None = None
        self._closed = False

    def submit(self, core: Partition, proposal: PendingPartitionChange) -> None:
        if self._closed:
            return
        self._unsent[core.topic_id, core.topic_partition.partition] = AlterPartitionItem(core, proposal)
        if self._sending is None or self._sending.done:
            # A partition proposes nothing else while it waits for an answer, so none may be lost.
            self._sending = self._services.start_or_halt("AlterPartition", self._send())

    def close(self) -> None:
        self._closed = True
        self._unsent.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        while sent := self._take_wanted():
            try:
                response = await self._alter(self._request(sent))
            except Exception as error:
                if not isinstance(error, (ChannelError, OSError)):
                    report("AlterPartition", error)
                logger.warning(
                    "Sending AlterPartition to controller failed, retrying: %s: %s",
                    type(error).__name__,
                    error,
                )
                unanswered = sent
            else:
                unanswered = self._handle(sent, response)
            for key, item in unanswered.items():
                self._unsent.setdefault(key, item)  # unless there is a newer proposal of the same partition
            if unanswered:
                await self._tasks.sleep(RETRY_MS)

    def _take_wanted(self) -> dict[Key, AlterPartitionItem]:
        sent: dict[Key, AlterPartitionItem] = {}
        while self._unsent and not sent:
            for key in list(islice(self._unsent, SENT_AT_ONCE_MAX)):
                item = self._unsent.pop(key)
                if item.is_wanted():
                    sent[key] = item
        return sent

    def _request(self, items: dict[Key, AlterPartitionItem]) -> AlterPartitionRequest:
        broker_epoch = self._broker_epoch()
        topics: dict[Uuid, TopicData] = {}
        for (topic_id, partition), (_, proposal) in items.items():
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(
                            broker_id=member,
                            broker_epoch=broker_epoch if member == self._node_id else epoch,
                        )
                        for member, epoch in proposal.members
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )

    def _handle(
        self, sent: dict[Key, AlterPartitionItem], response: AlterPartitionResponse
    ) -> dict[Key, AlterPartitionItem]:
        """Give each partition its answer. Returns what has to be sent again."""
        if response.error_code != ErrorCode.NONE:
            logger.warning(
                "Controller returned an unexpected top-level error when handling AlterPartition request, retrying: %d",
                response.error_code,
            )
            return sent
        unanswered = dict(sent)
        finished: list[tuple[Partition, Altered]] = []
        for topic in response.topics:
            for partition in topic.partitions:
                key = topic.topic_id, partition.partition_index
                item = unanswered.get(key)
                if item is None:
                    continue
                outcome = item.core.handle_alter_partition(
                    item.proposal,
                    code_of(partition.error_code),
                    partition.leader_epoch,
                    tuple(partition.isr),
                    partition.partition_epoch,
                )
                self._count(item.proposal, partition.error_code, partition.isr, outcome)
                if outcome is not Altered.RETRY:
                    del unanswered[key]
                    finished.append((item.core, outcome))
                    self._note(item, partition.error_code, outcome)
        for core, outcome in finished:
            self._altered(core, outcome)
        return unanswered

    def _count(
        self, proposal: PendingPartitionChange, error_code: int, isr: list[int], outcome: Altered
    ) -> None:
        """A change counts that the controller has made, also if the metadata told of it before the answer."""
        if error_code:
            self._changes.failed += 1
        elif outcome is not Altered.COMMITTED and set(isr) != set(proposal.isr):
            return
        elif len(proposal.isr) < len(proposal.maximal):
            self._changes.shrinks += 1
        else:
            self._changes.expands += 1

    def _note(self, item: AlterPartitionItem, error_code: int, outcome: Altered) -> None:
        name, core = item.core.topic_partition, item.core
        if outcome is Altered.COMMITTED:
            logger.info(
                "[Partition %s broker=%d] ISR updated to %s and version updated to %d",
                name,
                self._node_id,
                core.isr,
                core.partition_epoch,
            )
        elif error_code:
            logger.info(
                "[Partition %s broker=%d] Failed to alter partition to ISR %s since the controller answered error %d: %s",
                name,
                self._node_id,
                item.proposal.isr,
                error_code,
                outcome.value,
            )
