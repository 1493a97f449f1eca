"""TxnOffsetCommit through the group coordinator: verified first, written then, and counted with the marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafkacompat.api.pieces import PIECE
from kafkacompat.api.txn_offset_commit import HANDLER
from kafkacompat.coordinator._tests.clients import fetch
from kafkacompat.coordinator._tests.harness import World, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.records.batch import iterate_batches
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


def test_many_offsets_are_verified_and_written_as_several_small_commits() -> None:
    committing = Committing()
    world = committing.world
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 1_300)])
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
        for index in range(1_301)
    ]
    asked = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    (topic,) = world.call(HANDLER, asked, 5).topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert codes == dict.fromkeys(range(1_300), 0) | {1_300: E.UNKNOWN_TOPIC_OR_PARTITION}
    sizes = [header.record_count for batch in world.log().batches for header in iterate_batches(batch)]
    assert sizes == [PIECE, PIECE, 300]
    assert len(committing.verifier.asked) == 3
    assert committing.end(True) is E.NONE
    assert fetch(world, partition=1_299).committed_offset == 5
