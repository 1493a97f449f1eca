"""Offsets that a simulated producer commits within its transactions, as a pipeline does for its input. KIP-447.

A number is committed for one partition in a separate group. It is read like by a consumer that waits for open
transactions (require_stable).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import Client, Place
from kafkacompat.sim.coordinated import GROUP, Coordinated
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

REPEATED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""A client expects no other errors than these and those that end the transaction."""
GIVEN_UP = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
Still = Callable[[], bool]


class TransactionalOffsets:
    """All commits are for one partition, the `place` of the first commit. `still` returns whether the result is still needed."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._group_id = f"group-of-{transactional_id}"
        self._coordinator = Coordinated(client, GROUP, self._group_id, "offsets")
        self.place: Place | None = None

    def commit(
        self, identity: tuple[int, int], number: int, place: Place, still: Still, done: Callable[[bool], None]
    ) -> None:
        """Commit. `done` gets whether the transaction may continue."""
        if self.place is None:
            self.place = place
        at = self.place
        partition = TxnOffsetCommitRequestPartition(partition_index=at.partition, committed_offset=number)

        def send() -> None:
            if still():
                # Handlers may change the request.
                request = TxnOffsetCommitRequest(
                    transactional_id=self._transactional_id,
                    group_id=self._group_id,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    topics=[TxnOffsetCommitRequestTopic(name=at.topic, partitions=[partition])],
                )
                self._coordinator.send(request, still, answered)

        def answered(sent: Deferred[Any]) -> None:
            try:
                error = ErrorCode(sent.result().topics[0].partitions[0].error_code)
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error is ErrorCode.NONE:
                done(True)
            elif error in GIVEN_UP:
                done(False)
            else:
                self._again(error, send)

        send()

    def read(self, still: Still, done: Callable[[int], None]) -> None:
        """Read the committed number, -1 without one, from a leader that still leads when its answer arrives. A deposed
        leader that does not know it yet may lack its successor's writes."""
        at = self.place
        assert at is not None
        asked_in = -1

        def send() -> None:
            nonlocal asked_in
            if still():
                asked_in = self._led()[1]
                topic = OffsetFetchRequestTopics(
                    name=at.topic, topic_id=at.topic_id, partition_indexes=[at.partition]
                )
                group = OffsetFetchRequestGroup(group_id=self._group_id, topics=[topic])
                request = OffsetFetchRequest(groups=[group], require_stable=True)
                self._coordinator.send(request, still, answered)

        def answered(sent: Deferred[Any]) -> None:
            try:
                (group,) = sent.result().groups
            except ChannelError:
                self._again(ErrorCode.REQUEST_TIMED_OUT, send)
                return
            error, number = ErrorCode(group.error_code), -1
            if error is ErrorCode.NONE:
                found = group.topics[0].partitions[0]
                error, number = ErrorCode(found.error_code), found.committed_offset
            if error is not ErrorCode.NONE:
                self._again(error, send)
            elif self._led() != (self._coordinator.node_id, asked_in):
                self._again(ErrorCode.NOT_COORDINATOR, send)
            else:
                done(number)

        send()

    def _led(self) -> tuple[int, int]:
        """Return the leader of the group's partition and its leader epoch. (-1, -1) without one."""
        topic = self._client.env.metadata.newest.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return -1, -1
        partition = topic.partitions[partition_for_key(self._group_id, len(topic.partitions))]
        return partition.leader, partition.leader_epoch

    def _again(self, error: ErrorCode, send: Callable[[], None]) -> None:
        if error not in REPEATED:
            raise Breach("producers are understood", f"{self._group_id} gets {error.name}")
        self._coordinator.forget()
        self._client.later(send)
