"""The recipients of a transaction's markers, what is retried and when, and what is no longer sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator._tests.kit import NODE_ID, image_of, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.tasks import TURN_COST, Tasks
from kafkacompat.txn.transaction_marker_channel_manager import (
    PLACED_A_STEP,
    RETRY_MS,
    WRITTEN_AT_ONCE,
    WRONG_RETRY_MS,
    Sending,
    TransactionMarkerChannelManager,
)
from kafkacompat.txn.transaction_state_manager import Markers
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from kafkacompat.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

SECOND, THIRD = NODE_ID + 1, NODE_ID + 2
SHARD, OTHER_SHARD, COORDINATOR_EPOCH = 3, 4, 6
T0, T1, T2 = (TopicPartition("t", at) for at in range(3))
Codes = dict[TopicPartition, E]


class Asked:
    def __init__(self, request: WriteTxnMarkersRequest) -> None:
        self.request = request
        self.answer: Deferred[Any] = Deferred()

    @property
    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, at)
            for marker in self.request.markers
            for topic in marker.topics
            for at in topic.partition_indexes
        ]

    def give(self, codes: Codes) -> None:
        """The same result for every marker."""
        results = [
            WritableTxnMarkerTopicResult(
                name=name.topic,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=name.partition, error_code=code)
                ],
            )
            for name, code in codes.items()
        ]
        ids = [marker.producer_id for marker in self.request.markers]
        self.answer.resolve(
            WriteTxnMarkersResponse(
                markers=[WritableTxnMarkerResult(producer_id=each, topics=results) for each in ids]
            )
        )

    def give_all(self, code: E) -> None:
        self.give(dict.fromkeys(self.partitions, code))

    def lose(self) -> None:
        self.answer.fail(ConnectionError("lost"))


class Node:
    """The requests to one node: by another node or, on this node, directly."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.problem: Exception | None = None

    def write(self, request: WriteTxnMarkersRequest) -> Deferred[Any]:
        if self.problem is not None:
            raise self.problem
        self.asked.append(Asked(request))
        return self.asked[-1].answer

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        return self.write(message)

    @property
    def last(self) -> Asked:
        return self.asked[-1]


class LedByOthers:
    """Three partitions, each led by another node."""

    def __init__(self) -> None:
        self.time = HandTime()
        self.nodes = {each: Node() for each in (NODE_ID, SECOND, THIRD)}
        self.image: MetadataImage = image_of([])
        self.lead({T0: NODE_ID, T1: SECOND, T2: THIRD})
        self.finished: list[Sending] = []
        own: Any = self.nodes[NODE_ID]
        self.sender = TransactionMarkerChannelManager(
            NODE_ID,
            lambda: self.image,
            own,
            lambda node_id: self.nodes[node_id],
            Tasks(self.time),
            30_000,
            self.write_end,
        )

    def write_end(self, sending: Sending) -> Deferred[None]:
        self.finished.append(sending)
        return Deferred.of(None)

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        """Set the leaders. There are no other partitions."""
        topic = topic_image("t", 1)
        partitions = {
            name.partition: replace(topic.partitions[0], leader=leader) for name, leader in leaders.items()
        }
        self.image = image_of([replace(topic, partitions=partitions)])

    def send(self, *partitions: TopicPartition, producer_id: int = 10, shard: int = SHARD) -> None:
        markers = Markers("tx", producer_id, 5, True, frozenset(partitions), 2, set())
        self.sender.send(markers, shard, COORDINATOR_EPOCH)

    def counts(self) -> list[int]:
        """Number of requests to each node."""
        return [len(node.asked) for node in self.nodes.values()]


def test_each_leader_is_asked_once_and_all_of_them_end_the_sending_once() -> None:
    world = LedByOthers()
    world.send(T0, T1, T2)
    assert [node.last.partitions for node in world.nodes.values()] == [[T0], [T1], [T2]]
    (marker,) = world.nodes[SECOND].last.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (10, 5, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (COORDINATOR_EPOCH, 2)
    for node in world.nodes.values():
        assert not world.finished
        node.last.give_all(E.NONE)
    assert [sending.markers.producer_id for sending in world.finished] == [10]
    world.time.advance(10 * WRONG_RETRY_MS)
    assert world.counts() == [1, 1, 1]
    assert len(world.finished) == 1


@pytest.mark.parametrize(
    ("code", "after_ms"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, RETRY_MS),
        (E.UNKNOWN_TOPIC_OR_PARTITION, RETRY_MS),
        (E.NOT_ENOUGH_REPLICAS, RETRY_MS),
        (E.CORRUPT_MESSAGE, WRONG_RETRY_MS),
        (None, WRONG_RETRY_MS),
    ],
)
def test_what_is_not_written_is_sent_again_after_a_pause_and_nothing_else(
    code: E | None, after_ms: int
) -> None:
    world = LedByOthers()
    world.lead({T0: SECOND, T1: SECOND})
    world.send(T0, T1)
    node = world.nodes[SECOND]
    node.last.give({T0: E.NONE} if code is None else {T0: E.NONE, T1: code})
    world.time.advance(after_ms - 1)
    assert len(node.asked) == 1
    world.time.advance(1)
    assert len(node.asked) == 2
    assert node.last.partitions == [T1]
    world.time.advance(10 * WRONG_RETRY_MS)
    assert len(node.asked) == 2
    node.last.give_all(E.NONE)
    assert len(world.finished) == 1


@pytest.mark.parametrize("others", [{}, {T2: E.NOT_LEADER_OR_FOLLOWER}])
def test_a_marker_that_is_refused_for_ten_minutes_is_written_when_the_cause_is_gone(others: Codes) -> None:
    """For example, the other node takes this one for a client until its super.users are put right."""
    world = LedByOthers()
    world.lead({T1: SECOND, **dict.fromkeys(others, SECOND)})

    def pass_a_second(codes: Codes) -> None:
        world.time.advance(WRONG_RETRY_MS)
        for asked in world.nodes[SECOND].asked:
            if not asked.answer.done:
                asked.give({each: codes.get(each, E.NONE) for each in asked.partitions})

    world.send(T1, *others)
    for _ in range(600):
        pass_a_second({T1: E.CLUSTER_AUTHORIZATION_FAILED, **others})
    assert not world.finished
    for _ in range(2):
        pass_a_second({})
    assert len(world.finished) == 1


def many_of_this_node(world: LedByOthers) -> list[TopicPartition]:
    partitions = [TopicPartition("t", at) for at in range(2 * WRITTEN_AT_ONCE + 1)]
    world.lead(dict.fromkeys(partitions, NODE_ID))
    return partitions


def test_thousands_of_this_node_are_written_in_several_turns_of_the_loop() -> None:
    world = LedByOthers()
    partitions = many_of_this_node(world)
    world.send(*partitions)
    own = world.nodes[NODE_ID]
    written: list[TopicPartition] = []
    for turn in range(1, 4):
        assert len(own.asked) == turn
        assert len(own.last.partitions) <= WRITTEN_AT_ONCE
        written += own.last.partitions
        own.last.give_all(E.NONE)
        assert len(world.finished) == (turn == 3)
        if turn < 3:
            world.time.fire_next()
    assert written == partitions
    assert len(own.asked) == 3


def test_a_transaction_of_very_many_partitions_is_sent_after_turns_that_place_a_few_thousand_each() -> None:
    """They are sorted in two passes, and then their leaders are looked up."""
    world = LedByOthers()
    partitions = [TopicPartition("t", at) for at in range(20 * PLACED_A_STEP)]
    world.lead(dict.fromkeys(partitions, SECOND))
    world.send(*partitions)
    turns = 1
    while not world.nodes[SECOND].asked:
        world.time.fire_next()
        turns += 1
    assert turns >= 3 * len(partitions) // (TURN_COST + PLACED_A_STEP)
    assert world.nodes[SECOND].last.partitions == partitions
    world.nodes[SECOND].last.give_all(E.NONE)
    assert len(world.finished) == 1


def test_what_is_left_of_thousands_is_not_written_for_whoever_is_no_coordinator_any_more() -> None:
    world = LedByOthers()
    world.send(*many_of_this_node(world))
    world.sender.cancel(SHARD)
    world.time.advance(10 * WRONG_RETRY_MS)
    assert world.counts() == [1, 0, 0]


def test_a_bug_in_a_later_turn_has_the_rest_written_again(faults: Any) -> None:
    world = LedByOthers()
    partitions = many_of_this_node(world)
    world.send(*partitions)
    own = world.nodes[NODE_ID]
    own.last.give_all(E.NONE)
    own.problem = ValueError("planted")
    world.time.advance(0)
    assert faults.take() == [own.problem]
    own.problem = None
    assert len(own.asked) == 1
    world.time.advance(WRONG_RETRY_MS)
    assert [len(each.partitions) for each in own.asked] == [WRITTEN_AT_ONCE, WRITTEN_AT_ONCE, 1]
    for each in own.asked[1:]:
        each.give_all(E.NONE)
    assert len(world.finished) == 1


def test_a_partition_without_a_leader_waits_for_one_and_one_that_is_gone_is_left_out() -> None:
    world = LedByOthers()
    world.lead({T0: NO_LEADER, T1: SECOND})
    world.send(T0, T1, T2)
    assert world.counts() == [0, 1, 0]
    world.nodes[SECOND].last.give_all(E.NONE)
    world.time.advance(RETRY_MS)
    assert world.counts() == [0, 1, 0]
    assert world.sender.without_leader == 1
    world.lead({T0: THIRD})
    world.time.advance(RETRY_MS)
    assert world.nodes[THIRD].last.partitions == [T0]
    assert world.sender.without_leader == 0
    assert not world.finished
    world.nodes[THIRD].last.lose()
    world.lead({})
    world.time.advance(RETRY_MS)
    assert len(world.finished) == 1


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
@pytest.mark.parametrize("then", [Asked.lose, lambda asked: asked.give_all(E.NONE)])
def test_a_sending_that_is_overtaken_in_one_partition_goes_on_in_none(code: E, then: Any) -> None:
    world = LedByOthers()
    world.lead({T0: SECOND, T1: SECOND, T2: THIRD})
    world.send(T0, T1, T2)
    world.nodes[SECOND].last.give({T0: code, T1: E.NOT_LEADER_OR_FOLLOWER})
    then(world.nodes[THIRD].last)
    world.time.advance(10 * WRONG_RETRY_MS)
    assert world.counts() == [0, 1, 1]
    assert not world.finished


@pytest.mark.parametrize("then", [Asked.lose, lambda asked: asked.give_all(E.NONE)])
def test_a_former_coordinator_ends_no_transaction(then: Any) -> None:
    world = LedByOthers()
    world.send(T1)
    world.send(T2, producer_id=11, shard=OTHER_SHARD)
    world.nodes[THIRD].last.lose()
    world.sender.cancel(SHARD)
    then(world.nodes[SECOND].last)
    world.time.advance(RETRY_MS)
    assert world.counts() == [0, 1, 2]
    world.nodes[THIRD].last.give_all(E.NONE)
    world.time.advance(10 * WRONG_RETRY_MS)
    assert world.counts() == [0, 1, 2]
    assert [sending.markers.producer_id for sending in world.finished] == [11]


def test_a_bug_behind_a_request_is_reported_and_the_markers_are_sent_again(faults: Any) -> None:
    world = LedByOthers()
    world.send(T1)
    bug = KeyError("a bug")
    world.nodes[SECOND].last.answer.fail(bug)
    assert faults.take() == [bug]
    world.time.advance(RETRY_MS)
    world.nodes[SECOND].last.give_all(E.NONE)
    assert len(world.finished) == 1


def test_nothing_is_sent_after_the_end() -> None:
    world = LedByOthers()
    world.send(T0, T1)
    world.send(T1, producer_id=11, shard=OTHER_SHARD)
    own = world.nodes[NODE_ID].last
    world.sender.close()
    own.lose()
    world.nodes[SECOND].last.give_all(E.NONE)
    world.time.advance(10 * WRONG_RETRY_MS)
    assert world.counts() == [1, 1, 0]
    assert not world.finished


def test_a_bug_in_one_partitions_way_keeps_no_other_from_its_marker(faults: Any) -> None:
    world = LedByOthers()
    world.nodes[NODE_ID].problem = ValueError("a bug")
    world.send(T0, T1)
    assert [str(each) for each in faults.take()] == ["a bug"]
    world.nodes[SECOND].last.give_all(E.NONE)
    world.nodes[NODE_ID].problem = None
    world.time.advance(WRONG_RETRY_MS)
    world.nodes[NODE_ID].last.give_all(E.NONE)
    assert len(world.finished) == 1


class Unreadable:
    """A cluster's image for which there is no memory."""

    @property
    def topics(self) -> Any:
        raise MemoryError


@pytest.mark.parametrize("when", ["at first", "later"])
def test_a_lack_of_memory_while_leaders_are_looked_up_delays_the_markers(when: str) -> None:
    world = LedByOthers()
    readable = world.image
    lacking: Any = Unreadable()
    if when == "at first":
        world.image = lacking
    world.send(T1, T2)
    if when == "later":
        world.nodes[THIRD].last.give_all(E.NONE)
        world.image = lacking
        world.nodes[SECOND].last.give_all(E.NOT_LEADER_OR_FOLLOWER)
        world.time.advance(RETRY_MS)
    world.image = readable
    world.time.advance(WRONG_RETRY_MS)
    world.nodes[SECOND].last.give_all(E.NONE)
    if when == "at first":
        world.nodes[THIRD].last.give_all(E.NONE)
    assert world.counts() == [0, 1 + (when == "later"), 1]
    assert len(world.finished) == 1


def test_refused_markers_of_one_answer_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    world = LedByOthers()
    partitions = [TopicPartition("t", at) for at in range(100)]
    world.lead(dict.fromkeys(partitions, SECOND))
    world.send(*partitions)
    world.nodes[SECOND].last.give({T0: E.NONE, **dict.fromkeys(partitions[1:], E.CORRUPT_MESSAGE)})
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert told == [f"99 markers of 'tx' are refused, the one for {T1} with error {int(E.CORRUPT_MESSAGE)}"]
