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

from kafkacompat.partition.partition import Altered
from kafkacompat.partition.traffic import IsrChanges
from kafkacompat.wire.errors import ErrorCode
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
    from kafkacompat.ports import Timers
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
        node_id: int,
        broker_epoch: Callable[[], int],
        alter: Callable[[AlterPartitionRequest], Deferred[AlterPartitionResponse]],
        timers: Timers,
        altered: Callable[[Partition, Altered], None],
        changes: IsrChanges | None = None,
    ) -> None:
        """`alter` may fail with any exception; the request is then sent again. `altered` is called with the outcome of
        each proposal."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._alter = alter
        self._timers = timers
        self._altered = altered
        self._changes = changes or IsrChanges()
        self._unsent: dict[Key, AlterPartitionItem] = {}
        self._busy = False
        """A request is in flight, or the pause before the next one runs."""
        self._closed = False

    def submit(self, core: Partition, proposal: PendingPartitionChange) -> None:
        self._unsent[core.topic_id, core.topic_partition.partition] = AlterPartitionItem(core, proposal)
        self._send()

    def close(self) -> None:
        self._closed = True
        self._unsent.clear()

    def _send(self) -> None:
        if self._busy or self._closed:
            return
        sent: dict[Key, AlterPartitionItem] = {}
        while self._unsent and not sent:
            for key in list(islice(self._unsent, SENT_AT_ONCE_MAX)):
                item = self._unsent.pop(key)
                if item.is_wanted():
                    sent[key] = item
        if not sent:
            return
        self._busy = True
        self._alter(self._request(sent)).on_done(lambda done: self._answered(sent, done))

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

    def _answered(self, sent: dict[Key, AlterPartitionItem], done: Deferred[AlterPartitionResponse]) -> None:
        try:
            response = done.result()
        except Exception as error:
            logger.warning("AlterPartition is sent again: %s: %s", type(error).__name__, error)
            self._again(sent)
            return
        if response.error_code != ErrorCode.NONE:
            logger.warning(
                "AlterPartition is sent again: the controller answered error %d", response.error_code
            )
            self._again(sent)
            return
        self._busy = False
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
                    _code(partition.error_code),
                    partition.leader_epoch,
                    tuple(partition.isr),
                    partition.partition_epoch,
                )
                self._count(item.proposal, partition.error_code, partition.isr, outcome)
                if outcome is not Altered.RETRY:
                    del unanswered[key]
                    finished.append((item.core, outcome))
                    self._note(item, partition.error_code, outcome)
        if unanswered:
            self._again(unanswered)
        for core, outcome in finished:
            self._altered(core, outcome)
        self._send()

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
            logger.info("%s: ISR is %s, partition epoch %d", name, core.isr, core.partition_epoch)
        elif error_code:
            logger.info(
                "%s: ISR %s was refused with error %d: %s",
                name,
                item.proposal.isr,
                error_code,
                outcome.value,
            )

    def _again(self, items: dict[Key, AlterPartitionItem]) -> None:
        """Send the items again after a pause. A newer proposal of the same partition replaces an item."""
        for key, item in items.items():
            self._unsent.setdefault(key, item)
        self._busy = True
        self._timers.call_after(RETRY_MS, self._resume)

    def _resume(self) -> None:
        self._busy = False
        self._send()


def _code(value: int) -> ErrorCode:
    """The error code. The controller may be newer than this node and send unknown codes."""
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
