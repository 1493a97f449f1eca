"""TxnOffsetCommit through the group coordinator: verified first, then written, and effective with the marker. Over
real logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafkacompat.api.offset_fetch import HANDLER as FETCH
from kafkacompat.api.pieces import COMMITTED_PIECE
from kafkacompat.api.txn_offset_commit import HANDLER
from kafkacompat.coordinator._tests.clients import fetch
from kafkacompat.coordinator._tests.kit import NODE_ID, topic_image
from kafkacompat.coordinator._tests.real_log import RealWorld
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

PRODUCER_ID, EPOCH = 10, 3


class Verifier:
    def __init__(self) -> None:
        self.code = E.NONE
        self.held: Deferred[Mapping[TopicPartition, E]] | None = None
        """The answer to give instead, if set."""
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
        return self.held or Deferred.of(dict.fromkeys(partitions, self.code))


class Committing:
    def __init__(self) -> None:
        self.world = RealWorld()
        self.verifier = Verifier()
        self.world.verifier = self.verifier

    def ask(self, version: int, offset: int = 5, group: str = "g") -> Any:
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
        return self.world.call(HANDLER, request, version)

    def commit(self, version: int, offset: int = 5, group: str = "g") -> E:
        return code(self.ask(version, offset, group))

    def end(self, committed: bool, epoch: int = EPOCH + 1, version: int = 2) -> E:
        ended: Deferred[E] = self.world.coordinator.end_transaction(
            0, PRODUCER_ID, epoch, committed, 0, version
        )
        return ended.result()


def code(answer: Any) -> E:
    """The error of a commit's only partition."""
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return E(partition.error_code)


@pytest.mark.parametrize("version", range(6))
def test_a_commit_is_verified_or_added_before_it_is_written(version: int) -> None:
    """From version 5 on the commit itself adds the offsets' partition to the transaction."""
    committing = Committing()
    assert committing.commit(version) is E.NONE
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    assert committing.verifier.asked == [("tx", PRODUCER_ID, EPOCH, [partition], version >= 5)]
    assert len(committing.world.batches()) == 1
    assert committing.world.coordinator.meters.offset_commits.count == 1
    assert committing.end(True) is E.NONE
    assert len(committing.world.batches()) == 2


def test_every_batch_of_a_transaction_begins_with_sequence_number_zero() -> None:
    """As in Apache Kafka's CoordinatorRuntime. The log takes the second one for new all the same."""
    committing = Committing()
    assert [committing.commit(5, offset) for offset in (5, 6)] == [E.NONE, E.NONE]
    assert committing.end(True) is E.NONE
    batches = committing.world.batches()
    assert [each.base_sequence for each in batches] == [0, 0, -1]
    assert [each.base_offset for each in batches] == [0, 1, 2]


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
    assert committing.world.batches() == []


@pytest.mark.parametrize(
    ("version", "marker_epoch", "told"),
    [(4, EPOCH, E.INVALID_TXN_STATE), (5, EPOCH + 1, E.INVALID_PRODUCER_EPOCH)],
)
def test_what_the_transactions_end_overtakes_is_not_written(version: int, marker_epoch: int, told: E) -> None:
    """The coordinator has verified a transaction that has ended by the time of the append. Nothing would end it any
    more."""
    committing = Committing()
    committing.verifier.held = Deferred()
    waiting = committing.ask(version)
    assert not waiting.done
    assert committing.end(False, marker_epoch, 1) is E.NONE
    committing.verifier.held.resolve({TopicPartition(OFFSETS_TOPIC, 0): E.NONE})
    assert code(waiting.result()) is told
    assert [header.is_control for header in committing.world.batches()] == [True]


@pytest.mark.parametrize("version", [9, 10])
def test_what_is_verified_while_its_topic_is_made_anew_is_no_offset_of_the_new_one(version: int) -> None:
    """Also for who asks for all offsets. The removal that follows the deletion has ended before it is written."""
    committing = Committing()
    committing.verifier.held = Deferred()
    waiting = committing.ask(5)
    world = committing.world
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 3, b"n" * 16)])
    world.time.advance(0)
    committing.verifier.held.resolve({TopicPartition(OFFSETS_TOPIC, 0): E.NONE})
    assert code(waiting.result()) is E.NONE
    assert committing.end(True) is E.NONE
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = world.call(FETCH, request, version).groups
    assert group.topics == []


def test_a_committer_is_answered_whatever_becomes_of_the_verification() -> None:
    committing = Committing()
    committing.verifier.held = Deferred()
    pending = committing.ask(5)
    bug = KeyError("of the verifier")
    committing.verifier.held.fail(bug)
    assert pending.done
    with pytest.raises(KeyError):
        pending.result()
    assert committing.world.batches() == []


def test_a_marker_whose_turn_comes_after_the_coordinator_has_moved_is_refused() -> None:
    committing = Committing()
    assert committing.commit(5) is E.NONE
    (shard,) = committing.world.coordinator._shards
    ended: list[Deferred[E]] = []

    def append() -> None:
        """What an append wakes ends the transaction, and meanwhile the leadership is lost."""
        ended.append(committing.world.coordinator.end_transaction(0, PRODUCER_ID, EPOCH + 1, True, 0, 2))
        shard.close()

    shard.in_turn(lambda: Deferred.of(shard._operations.exclusively(append)))
    assert ended[0].result() is E.NOT_COORDINATOR


def test_a_commit_that_is_not_verified_is_not_written() -> None:
    committing = Committing()
    committing.world.verifier = None
    assert committing.commit(5) is E.INVALID_TXN_STATE
    assert committing.world.batches() == []


@pytest.mark.parametrize(("version", "told"), [(1, E.NONE), (2, E.INVALID_PRODUCER_EPOCH)])
def test_from_transaction_version_two_on_a_marker_is_above_what_it_ends(version: int, told: E) -> None:
    """Otherwise a late marker would end the next transaction."""
    committing = Committing()
    assert committing.commit(5) is E.NONE
    assert committing.end(True, EPOCH, version) is told
    assert len(committing.world.batches()) == (2 if told is E.NONE else 1)
    assert fetch(committing.world).committed_offset == (5 if told is E.NONE else -1)


def test_a_group_without_a_name_has_no_offsets() -> None:
    committing = Committing()
    assert committing.commit(5, group="") is E.INVALID_GROUP_ID
    assert committing.verifier.asked == []


def test_many_offsets_are_verified_once_and_written_as_several_small_commits() -> None:
    committing = Committing()
    world = committing.world
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 1_300, leader=NODE_ID + 1)])
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
    answer = world.call(HANDLER, asked, 5)
    while not answer.done:
        assert world.time.step()
    (topic,) = answer.result().topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert codes == dict.fromkeys(range(1_300), 0) | {1_300: E.UNKNOWN_TOPIC_OR_PARTITION}
    sizes = [header.record_count for header in world.batches()]
    assert sizes == [COMMITTED_PIECE] * 5 + [50]
    assert len(committing.verifier.asked) == 1  # the first commit has opened the transaction
    assert committing.end(True) is E.NONE
    world.time.advance(0)
    assert fetch(world, partition=1_299).committed_offset == 5
