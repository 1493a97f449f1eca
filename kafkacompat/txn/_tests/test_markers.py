"""WriteTxnMarkers on the partitions of this node: what the log refuses, and when it is answered. Over real logs."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.coordinator._tests.real_log import NAME, RealWorld
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.ports import TransactionTerms
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.tasks import Tasks
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PRODUCER_ID, EPOCH = 10, 3
TIMEOUT_MS = 30_000
DATA, OFFSETS = TopicPartition("t", 0), NAME
BOTH = [DATA, OFFSETS]


def test_a_marker_without_partitions_is_not_answered_and_a_topic_that_is_named_twice_once() -> None:
    """A missing partition of the offsets topic is unknown, like any other."""
    topics = [
        WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
        for name, indexes in (("x", [0]), ("x", [1]), ("y", []), (OFFSETS.topic, [999]))
    ]
    markers = [
        WritableTxnMarker(producer_id=PRODUCER_ID, producer_epoch=EPOCH, topics=each) for each in (topics, [])
    ]
    answer = Writing().writer.write(WriteTxnMarkersRequest(markers=markers)).result()
    (marker,) = answer.markers
    assert [(topic.name, [one.error_code for one in topic.partitions]) for topic in marker.topics] == [
        ("x", [3, 3]),
        (OFFSETS.topic, [3]),
    ]


class Writing:
    """A producer that writes to `t` and to the offsets topic in a transaction."""

    def __init__(self, *, followed: bool = False) -> None:
        self.world = RealWorld(followed=followed)
        self.writer = LocalMarkerWriter(
            self.world.manager,
            self.world.coordinator,
            self.world.time,
            Tasks(self.world.time),
            TIMEOUT_MS,
        )

    def begin(self, epoch: int = EPOCH) -> None:
        for name in BOTH:
            log = self.world.manager.log(name)
            assert log is not None
            verification = log.start_verification(PRODUCER_ID, epoch, 0, True, self.world.time.now_ms())
            batch = build_batch(
                [Record(0, self.world.time.now_ms(), b"k", b"v")],
                producer_id=PRODUCER_ID,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            )
            terms = TransactionTerms(verification)
            assert self.world.manager.append(name, batch, -1, 13, True, terms).error is E.NONE
            if self.world.followed:
                self.world.follow(name)

    def ask(
        self,
        *names: TopicPartition,
        epoch: int,
        coordinator_epoch: int = 0,
        version: int = 2,
        producer_id: int = PRODUCER_ID,
    ) -> Deferred[Any]:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=name.topic, partition_indexes=[0]) for name in names],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        return self.writer.write(WriteTxnMarkersRequest(markers=[marker]))

    def write(self, *names: TopicPartition, **terms: int) -> list[E]:
        return codes(self.ask(*names, **terms))

    def ends(self, name: TopicPartition) -> list[int]:
        """The epochs of the markers in the log."""
        return [header.producer_epoch for header in self.world.batches(name) if header.is_control]


def codes(answer: Deferred[Any]) -> list[E]:
    (marker,) = answer.result().markers
    return [E(each.error_code) for topic in marker.topics for each in topic.partitions]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, EPOCH), (PRODUCER_ID, -1)])
def test_a_marker_without_a_producer_fails_and_is_not_written(producer_id: int, epoch: int) -> None:
    """It fails for all partitions if one of them would get it."""
    writing, unknown = Writing(), TopicPartition("x", 0)
    writing.begin()

    def told(*names: TopicPartition) -> list[E]:
        return codes(writing.ask(*names, epoch=epoch, producer_id=producer_id))

    assert told(DATA, unknown) == [E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_SERVER_ERROR]
    assert told(OFFSETS, unknown) == [E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert told(unknown) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert writing.ends(DATA) == writing.ends(OFFSETS) == []


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("version", "told"), [(0, E.NONE), (1, E.NONE), (2, E.INVALID_PRODUCER_EPOCH)])
def test_from_transaction_version_two_on_a_marker_is_above_what_it_ends(
    name: TopicPartition, version: int, told: E
) -> None:
    """Otherwise a late marker would end the next transaction."""
    writing = Writing()
    writing.begin()
    assert writing.write(name, epoch=EPOCH, version=version) == [told]
    assert writing.ends(name) == ([EPOCH] if told is E.NONE else [])


@pytest.mark.parametrize("name", BOTH)
def test_a_coordinator_that_was_overtaken_ends_nothing(name: TopicPartition) -> None:
    writing = Writing()
    writing.begin()
    assert writing.write(name, epoch=EPOCH + 1, coordinator_epoch=5) == [E.NONE]
    writing.begin(EPOCH + 1)
    assert writing.write(name, epoch=EPOCH + 2, coordinator_epoch=4) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert writing.ends(name) == [EPOCH + 1]
    assert writing.write(name, epoch=EPOCH + 2, coordinator_epoch=5) == [E.NONE]


@pytest.mark.parametrize("names", [[DATA], [OFFSETS], BOTH])
def test_a_marker_counts_once_the_replicas_have_it(names: list[TopicPartition]) -> None:
    """The coordinator then drops the transaction, so a marker lost later would never be sent again."""
    writing = Writing(followed=True)
    writing.begin()
    answer = writing.ask(*names, epoch=EPOCH + 1)
    for name in names:
        assert writing.ends(name) == [EPOCH + 1]
        assert not answer.done
        writing.world.follow(name)
    assert codes(answer) == [E.NONE] * len(names)


@pytest.mark.parametrize("name", BOTH)
def test_a_marker_that_no_replica_fetches_is_not_written(name: TopicPartition) -> None:
    writing = Writing(followed=True)
    writing.begin()
    answer = writing.ask(name, epoch=EPOCH + 1)
    writing.world.time.advance(TIMEOUT_MS)
    assert codes(answer)[0] in (E.REQUEST_TIMED_OUT, E.NOT_LEADER_OR_FOLLOWER)
