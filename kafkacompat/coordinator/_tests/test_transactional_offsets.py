"""TxnOffsetCommit through the group coordinator: verified first, written then, and counted with the marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafkacompat.api.txn_offset_commit import HANDLER
from kafkacompat.coordinator._tests.harness import World
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

PRODUCER_ID, EPOCH = 10, 3


class Verifier:
    def __init__(self) -> None:
        self.code = E.NONE
        self.asked: list[tuple[Any, ...]] = []

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Mapping[TopicPartition, E]]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), adds))
        return Deferred.of(dict.fromkeys(partitions, self.code))


class Committing:
    def __init__(self) -> None:
        self.world = World()
        self.verifier = Verifier()
        self.world.coordinator.transactional_offsets.verifier = self.verifier

    def commit(self, version: int, offset: int = 5, group: str = "g") -> E:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=PRODUCER_ID,
            producer_epoch=EPOCH,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        (topic,) = self.world.call(HANDLER, request, version).topics
        (answer,) = topic.partitions
        return E(answer.error_code)

    def end(self, committed: bool) -> E:
        ended: Deferred[E] = self.world.coordinator.end_transaction(
            0, PRODUCER_ID, EPOCH + 1, committed, 0, 2
        )
        return ended.result()


@pytest.mark.parametrize("version", range(6))
def test_it_is_verified_or_added_before_it_is_written(version: int) -> None:
    """From version 5 on the commit itself adds the offsets' partition to the transaction."""
    committing = Committing()
    assert committing.commit(version) is E.NONE
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    assert committing.verifier.asked == [("tx", PRODUCER_ID, EPOCH, [partition], version >= 5)]
    assert len(committing.world.log().batches) == 1
    assert committing.end(True) is E.NONE
    assert len(committing.world.log().batches) == 2


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.NETWORK_EXCEPTION, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 5, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.UNKNOWN_TOPIC_OR_PARTITION, 5, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, 5, E.COORDINATOR_NOT_AVAILABLE),
        (E.INVALID_PRODUCER_EPOCH, 5, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, 5, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, 5, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, 5, E.NOT_COORDINATOR),
    ],
)
def test_what_the_transactions_coordinator_refuses_is_not_written(code: E, version: int, told: E) -> None:
    committing = Committing()
    committing.verifier.code = code
    assert committing.commit(version) is told
    assert committing.world.log().batches == []


def test_a_group_without_a_name_has_no_offsets() -> None:
    committing = Committing()
    assert committing.commit(5, group="") is E.INVALID_GROUP_ID
    assert committing.verifier.asked == []
