"""The persister: it finds the coordinator, sends what waits together, retries what may pass, and keeps each
share-partition's writes in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.coordinator._tests.kit import NODE_ID, AutoCreate
from kafkacompat.deferred import Deferred
from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.net.failures import ConnectionLost, RequestTimedOut, UnsupportedByPeer
from kafkacompat.share._tests.share_coordinator_kit import (
    FOLLOWER,
    TOPIC,
    ShareCoordinatorNode,
    initialization,
)
from kafkacompat.share.persister import (
    ATTEMPTS_MAX,
    LOOKED_AT_TOGETHER,
    QUEUE_US,
    DefaultStatePersister,
    OperationQueue,
)
from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    TopicIdPartition,
    WriteState,
)
from kafkacompat.share.share_coordinator import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    StateApi,
    refusal,
)
from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.errors import error_text

KEY = SharePartitionKey("g", TOPIC, 0)
OTHER = SharePartitionKey("g", TOPIC, 1)
APIS: dict[str, StateApi] = {
    "InitializeShareGroupStateRequest": INITIALIZE,
    "ReadShareGroupStateRequest": READ,
    "WriteShareGroupStateRequest": WRITE,
    "DeleteShareGroupStateRequest": DELETE,
    "ReadShareGroupStateSummaryRequest": READ_SUMMARY,
}


class Channel:
    """A channel to another node. The test answers, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Deferred[Any]]] = []

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.asked.append((message, answer))
        return answer

    def answer(self, code: int = 0, text: str | None = None) -> Any:
        message, answer = self.asked.pop(0)
        error: Any = ShareError(code, text)  # type: ignore[arg-type]  # also codes that this node does not know
        answer.resolve(refusal(APIS[type(message).__name__], message, error))
        return message

    def fail(self, error: Exception) -> None:
        self.asked.pop(0)[1].fail(error)


class PersisterNode(ShareCoordinatorNode):
    """The state topic is led by another node, if it is not told otherwise."""

    def __init__(self, leader: int = FOLLOWER, partitions: int = 1) -> None:
        self.channel: Channel | None = Channel()
        self.auto_create = AutoCreate()
        super().__init__(partitions=partitions)
        self.persister = DefaultStatePersister(
            NODE_ID,
            lambda: self.image,
            self.coordinator,
            lambda node_id: self.channel if node_id == FOLLOWER else None,
            self.auto_create,
            self.tasks,
            CountingRandom(),
        )
        self.lead(leader)

    def lead(self, leader: int) -> None:
        self.leader_epoch += 1
        self.publish(self.state_topic(leader))

    def publish(self, *topics: Any, deleted: Sequence[str] = ()) -> None:
        old = self.image
        super().publish(*topics, deleted=deleted)
        there = replace(self.image.brokers[NODE_ID], id=FOLLOWER)
        self.image = replace(self.image, brokers={**self.image.brokers, FOLLOWER: there})
        if hasattr(self, "persister"):
            self.persister.on_image(old, self.image)

    def asks(self, key: SharePartitionKey = KEY, *batches: StateBatch, **fields: int) -> Deferred[ShareError]:
        values = {"state_epoch": 1, "leader_epoch": 2, "start_offset": 0, "delivery_complete_count": 0}
        return self.persister.write(key, WriteState(**{**values, **fields}, batches=batches))

    @property
    def remote(self) -> Channel:
        assert self.channel is not None
        return self.channel


def partitions_of(message: Any) -> list[int]:
    return [each.partition for topic in message.topics for each in topic.partitions]


# --- on this node


def test_the_own_coordinator_is_asked_directly() -> None:
    world = PersisterNode(NODE_ID)
    starts = {TopicIdPartition(TOPIC, 0): 5, TopicIdPartition(TOPIC, 1): -1}
    assert world.persister.initialize("g", 1, starts).result() == dict.fromkeys(starts, ShareError())
    assert world.batch_count() == 1
    assert world.persister.read(KEY, 3).result() == ReadState(ShareError(), 1, 5, [])
    batch = StateBatch(5, 9, 2, 1)
    assert world.asks(KEY, batch, leader_epoch=3, start_offset=5).result() == ShareError()
    assert world.persister.read(KEY, 3).result() == ReadState(ShareError(), 1, 5, [batch])
    assert world.persister.read_summary("g", list(starts)).result() == {
        TopicIdPartition(TOPIC, 0): StateSummary(ShareError(), 1, 3, 5, 0),
        TopicIdPartition(TOPIC, 1): StateSummary(ShareError(), 1, 0, -1, -1),
    }
    assert world.persister.delete("g", list(starts)).result() == dict.fromkeys(starts, ShareError())
    assert world.remote.asked == []


def test_errors_have_kafkas_texts() -> None:
    world = PersisterNode(NODE_ID)
    text = "Error in write state RPC. Write operation on uninitialized share partition not allowed."
    assert world.asks().result() == ShareError(E.INVALID_REQUEST, text)
    world.coordinator.initialize_state(initialization(0, epoch=5))
    world.persister.read(KEY, 4)
    assert world.persister.read(KEY, 3).result() == ReadState(
        ShareError(E.FENCED_LEADER_EPOCH, f"Error in read state RPC. {error_text(E.FENCED_LEADER_EPOCH)}")
    )
    found = world.persister.initialize("g", 4, {KEY.topic_id_partition: 0}).result()
    text = f"Error in initialize state RPC. {error_text(E.FENCED_STATE_EPOCH)}"
    assert found == {KEY.topic_id_partition: ShareError(E.FENCED_STATE_EPOCH, text)}


def test_nothing_asked_is_answered_at_once() -> None:
    world = PersisterNode()
    assert world.persister.delete("g", []).result() == {}
    assert world.persister.initialize("g", 0, {}).result() == {}


# --- on another node


def test_requests_of_a_kind_for_a_group_are_collected_while_one_is_in_flight() -> None:
    world = PersisterNode()
    first = world.asks()
    more = [world.asks(OTHER), world.asks(KEY._replace(partition=2))]
    (message, _) = world.remote.asked[0]
    assert (message.group_id, partitions_of(message)) == ("g", [0])
    assert len(world.remote.asked) == 1
    read = world.persister.read(OTHER, 3)  # another kind
    other_group = world.asks(KEY._replace(group_id="h"))
    assert [type(each).__name__ for each, _ in world.remote.asked[1:]] == [
        "ReadShareGroupStateRequest",
        "WriteShareGroupStateRequest",
    ]
    world.remote.answer()
    assert first.result() == ShareError()
    unanswered: tuple[Deferred[Any], ...] = (*more, read, other_group)
    assert not any(each.done for each in unanswered)
    assert partitions_of(world.remote.asked[-1][0]) == [1, 2]
    for _ in range(3):
        world.remote.answer()
    assert all(each.done for each in unanswered)
    assert not world.persister._queues
    assert not world.persister._destinations


def test_writes_of_one_share_partition_that_wait_become_one() -> None:
    world = PersisterNode()
    world.asks(KEY, StateBatch(0, 0, 2, 1))
    waiting = [
        world.asks(KEY, StateBatch(1, 1, 2, 1), start_offset=1, delivery_complete_count=5),
        world.asks(KEY, StateBatch(2, 2, 0, 1), start_offset=2, delivery_complete_count=6),
        world.asks(KEY, StateBatch(3, 3, 4, 1), start_offset=-1, delivery_complete_count=7),
    ]
    newer = world.asks(KEY, StateBatch(4, 4, 2, 1), leader_epoch=3)
    world.remote.answer()
    ((message, _),) = world.remote.asked
    (one,) = message.topics[0].partitions
    assert (one.leader_epoch, one.start_offset, one.delivery_complete_count) == (2, 2, 7)
    assert [each.first_offset for each in one.state_batches] == [1, 2, 3]
    world.remote.answer(E.FENCED_LEADER_EPOCH)
    assert {each.result().code for each in waiting} == {E.FENCED_LEADER_EPOCH}
    assert not newer.done
    assert world.remote.answer().topics[0].partitions[0].leader_epoch == 3
    assert newer.result() == ShareError()


def test_reads_of_one_leader_are_asked_once() -> None:
    world = PersisterNode()
    first = world.persister.read(KEY, 3)
    second, third = world.persister.read(KEY, 4), world.persister.read(KEY, 4)
    world.remote.answer()
    world.remote.answer()
    assert all(each.done for each in (first, second, third))
    assert world.remote.asked == []


def test_a_later_write_does_not_overtake_one_that_is_retried() -> None:
    world = PersisterNode()
    first = world.asks(KEY, StateBatch(0, 0, 2, 1), start_offset=1)
    second = world.asks(KEY, StateBatch(1, 1, 2, 1), start_offset=2)
    world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    other = world.asks(OTHER)
    assert partitions_of(world.remote.answer()) == [1]  # the others do not wait
    assert other.done
    world.time.advance(10_000)
    (one,) = world.remote.answer().topics[0].partitions
    assert (one.start_offset, len(one.state_batches)) == (2, 2)
    assert all(each.done for each in (first, second))


def kinds_asked(world: PersisterNode) -> list[str]:
    return [type(message).__name__ for message, _ in world.remote.asked]


def test_a_deletion_does_not_overtake_what_makes_the_state() -> None:
    """Otherwise the state of a group that is deleted would come to be after that, and nothing would ever delete it."""
    world = PersisterNode()
    place = KEY.topic_id_partition
    made = world.persister.initialize("g", 1, {place: 5})
    deleted = world.persister.delete("g", [place])
    assert kinds_asked(world) == ["InitializeShareGroupStateRequest"]
    world.remote.answer()
    assert made.result()[place] == ShareError()
    assert kinds_asked(world) == ["DeleteShareGroupStateRequest"]
    world.remote.answer()
    assert deleted.result()[place] == ShareError()
    assert not world.persister._queues


def test_a_state_that_waits_for_its_back_off_is_not_made_before_it_is_deleted() -> None:
    """The deletion waits for one more attempt, and not for the others."""
    world = PersisterNode()
    place = KEY.topic_id_partition
    made = world.persister.initialize("g", 1, {place: 5})
    world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.remote.asked == []
    deleted = world.persister.delete("g", [place])
    assert kinds_asked(world) == ["InitializeShareGroupStateRequest"]
    world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert made.result()[place].code is E.COORDINATOR_LOAD_IN_PROGRESS
    assert kinds_asked(world) == ["DeleteShareGroupStateRequest"]
    world.remote.answer()
    assert deleted.result()[place] == ShareError()
    assert not world.persister._queues
    assert not world.persister._backing_off
    world.time.advance(100_000)
    assert world.remote.asked == []


def test_what_makes_a_state_anew_does_not_overtake_its_deletion() -> None:
    """Otherwise the group would have no state of a share-partition that it assigns."""
    world = PersisterNode()
    place = KEY.topic_id_partition
    deleted = world.persister.delete("g", [place])
    world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    made = world.persister.initialize("g", 1, {place: 5})
    other = world.persister.initialize("g", 1, {OTHER.topic_id_partition: 5})
    assert kinds_asked(world) == ["DeleteShareGroupStateRequest", "InitializeShareGroupStateRequest"]
    world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    world.remote.answer()
    assert other.done  # the others do not wait
    assert not made.done
    world.time.advance(10_000)
    assert kinds_asked(world) == ["DeleteShareGroupStateRequest"]
    world.remote.answer()
    world.remote.answer()
    assert (deleted.result()[place], made.result()[place]) == (ShareError(), ShareError())
    assert not world.persister._queues


@pytest.mark.parametrize("leader", [FOLLOWER, -1])
def test_a_caller_that_was_refused_may_ask_for_something_else(leader: int) -> None:
    world = PersisterNode(leader)
    place = KEY.topic_id_partition
    found: list[E] = []

    def delete_again(done: Deferred[Any]) -> None:
        found.append(done.result()[place].code)
        if len(found) < 3:
            world.persister.delete("g", [place]).on_done(delete_again)

    world.persister.initialize("g", 1, {place: 5}).on_done(delete_again)
    world.time.advance(1_000)
    world.persister.initialize("g", 2, {place: 5})
    for _ in range(40):
        while world.remote.asked:
            world.remote.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
        world.time.advance(10_000)
    assert len(found) == 3
    assert E.NONE not in found
    assert not world.persister._queues
    assert not world.persister._backing_off


@pytest.mark.parametrize(
    "code",
    [
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_COORDINATOR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        RequestTimedOut("late"),
        ConnectionLost("gone"),
    ],
)
def test_what_may_pass_is_retried_with_a_growing_back_off(code: E | Exception) -> None:
    world = PersisterNode()
    answer = world.asks()
    waits = []
    for attempt in range(ATTEMPTS_MAX):
        assert not answer.done
        if isinstance(code, Exception):
            world.remote.fail(code)
        else:
            world.remote.answer(code)
        if attempt < ATTEMPTS_MAX - 1:
            waits.append(min(each for each in world.time.waiting if each < 30_001))
            world.time.advance(waits[-1])
    assert waits == [1_600, 3_200, 6_400, 12_800]  # 80% of Kafka's 2, 4, 8 and 16 s: the least jitter
    error = answer.result()
    expected = {RequestTimedOut: E.REQUEST_TIMED_OUT, ConnectionLost: E.NETWORK_EXCEPTION}
    assert error.code is (expected[type(code)] if isinstance(code, Exception) else code)
    assert error.message == (
        "Error in write state RPC. Exhausted max retries to complete write state RPC without success."
    )
    assert not world.persister._queues


def test_what_cannot_pass_is_told_at_once() -> None:
    world = PersisterNode()
    answer = world.asks()
    world.remote.answer(E.FENCED_STATE_EPOCH, "why")
    assert answer.result() == ShareError(E.FENCED_STATE_EPOCH, "Error in write state RPC. why")
    answer = world.asks()
    world.remote.answer(31_000, None)  # a code of a newer release
    assert answer.result().code is E.UNKNOWN_SERVER_ERROR
    answer = world.asks()
    world.remote.fail(UnsupportedByPeer("old"))
    assert answer.result().code is E.UNSUPPORTED_VERSION


def test_an_answer_without_the_share_partition_is_an_error() -> None:
    world = PersisterNode()
    answer = world.persister.read(KEY, 0)
    _, asked = world.remote.asked.pop()
    asked.resolve(READ.response())
    error = answer.result().error
    assert error.code is E.UNKNOWN_SERVER_ERROR
    assert (
        error.message
        == f"Error in read state RPC. Failed to read state for share partition {KEY.coordinator_key}"
    )


# --- the coordinator


def test_the_state_topic_is_created_at_its_first_use() -> None:
    world = PersisterNode()
    world.publish(deleted=[SHARE_STATE_TOPIC])
    answer = world.asks()
    assert world.auto_create.asked == [SHARE_STATE_TOPIC]
    assert not answer.done
    world.lead(FOLLOWER)
    world.remote.answer()  # as soon as the image has it
    assert answer.result() == ShareError()
    assert world.persister._backing_off == {}


def test_a_state_topic_that_cannot_be_asked_for_now_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise nothing of the share-partition would ever be read or written here."""
    world = PersisterNode()
    world.publish(deleted=[SHARE_STATE_TOPIC])
    with monkeypatch.context() as patched:
        patched.setattr(world.auto_create, "request", lacks_memory)
        with suppress(MemoryError):
            world.asks()
    world.time.advance(3_000)
    later = world.asks()
    assert SHARE_STATE_TOPIC in world.auto_create.asked
    world.lead(FOLLOWER)
    world.remote.answer()
    assert later.result() == ShareError()


def lacks_memory(*_: object) -> None:
    raise MemoryError


def test_a_coordinator_that_is_not_found_is_an_error_in_the_end() -> None:
    world = PersisterNode(leader=-1)
    answers = [world.asks(), world.asks(KEY)]
    world.time.advance(60_000)
    text = "Error in find coordinator. Exhausted max retries to find coordinator without success."
    for answer in answers:
        assert answer.result() == ShareError(E.COORDINATOR_NOT_AVAILABLE, text)
    assert not world.persister._queues
    assert world.auto_create.asked == []  # the topic is there


def test_a_fenced_node_is_no_coordinator() -> None:
    world = PersisterNode()
    brokers = {**world.image.brokers, FOLLOWER: replace(world.image.brokers[FOLLOWER], fenced=True)}
    world.image = replace(world.image, brokers=brokers)
    world.asks()
    assert world.remote.asked == []


def test_a_node_without_an_address_is_asked_again_later() -> None:
    world = PersisterNode()
    channel, world.channel = world.channel, None
    answer = world.asks()
    world.channel = channel
    assert not answer.done
    world.time.advance(5_000)
    world.remote.answer()
    assert answer.result() == ShareError()


def test_a_coordinator_that_has_moved_is_asked_as_soon_as_the_image_tells() -> None:
    world = PersisterNode()
    world.coordinator.initialize_state(initialization(0))
    answer = world.asks()
    world.remote.answer(E.NOT_COORDINATOR)
    world.lead(FOLLOWER)
    assert world.remote.asked == []  # the same node: it is asked after the back-off
    world.lead(NODE_ID)
    world.coordinator.initialize_state(initialization(0))
    assert answer.result().code is E.INVALID_REQUEST  # this node has answered, which has no state of it


@pytest.mark.parametrize("said", [E.NOT_COORDINATOR, RequestTimedOut("paused")])
def test_a_coordinator_that_had_moved_before_it_answered_is_asked_at_once(said: E | Exception) -> None:
    world = PersisterNode()
    world.coordinator.initialize_state(initialization(0))
    answer = world.asks()
    world.lead(NODE_ID)
    world.coordinator.initialize_state(initialization(0))
    assert not answer.done
    if isinstance(said, Exception):
        world.remote.asked.pop()[1].fail(said)
    else:
        world.remote.answer(said)
    assert answer.result() == ShareError()


def test_a_node_that_hangs_is_waited_for_until_it_is_fenced() -> None:
    world = PersisterNode()
    world.coordinator.initialize_state(initialization(0))
    answer = world.asks()
    world.lead(NODE_ID)
    world.coordinator.initialize_state(initialization(0))
    assert not answer.done  # the former coordinator may have carried it out, and its answer be on the way
    old = world.image
    lost = replace(old.brokers[FOLLOWER], fenced=True)
    world.image = replace(old, brokers={**old.brokers, FOLLOWER: lost})
    world.persister.on_image(old, world.image)
    assert answer.result() == ShareError()
    world.remote.answer(E.NOT_COORDINATOR)  # too late
    assert not world.persister._queues


def test_what_waited_behind_a_request_to_a_node_that_is_fenced_is_not_sent_there() -> None:
    world = PersisterNode()
    answers = [world.asks(), world.asks(OTHER)]
    world.lead(NODE_ID)
    for partition in (0, 1):
        world.coordinator.initialize_state(initialization(partition))
    old = world.image
    lost = replace(old.brokers[FOLLOWER], fenced=True)
    world.image = replace(old, brokers={**old.brokers, FOLLOWER: lost})
    world.persister.on_image(old, world.image)
    assert [answer.done and answer.result() for answer in answers] == [ShareError(), ShareError()]
    assert len(world.remote.asked) == 1


def test_a_stopped_persister_refuses() -> None:
    world = PersisterNode()
    flying, waiting = world.asks(), world.asks()
    resting = world.persister.read(KEY, 1)
    world.remote.asked.pop(1)[1].fail(ConnectionLost("gone"))
    world.persister.close()
    late = world.persister.delete("g", [KEY.topic_id_partition])
    found = [flying.result(), waiting.result(), resting.result().error, *late.result().values()]
    assert {each.code for each in found} == {E.COORDINATOR_NOT_AVAILABLE}
    world.remote.answer()  # nobody waits for it any more
    world.time.advance(100_000)


def test_an_answer_may_ask_again() -> None:
    world = PersisterNode(NODE_ID)
    world.coordinator.initialize_state(initialization(0))
    found: list[ShareError] = []

    def again(done: Deferred[ShareError]) -> None:
        found.append(done.result())
        if len(found) < 5:
            world.asks(leader_epoch=0, state_epoch=0).on_done(again)

    world.asks(leader_epoch=0, state_epoch=0).on_done(again)
    assert found == [ShareError()] * 5
    assert not world.persister._queues


def test_an_answer_that_cannot_be_read_holds_up_nothing(faults: Any) -> None:
    world = PersisterNode()
    read = world.persister.read(KEY, 1)
    _, answer = world.remote.asked.pop()
    unreadable = SimpleNamespace(partition=0, error_code=0)
    answer.resolve(SimpleNamespace(results=[SimpleNamespace(topic_id=TOPIC, partitions=[unreadable])]))
    assert read.result().error.code is E.UNKNOWN_SERVER_ERROR
    assert [type(each) for each in faults.take()] == [AttributeError]
    later = world.persister.read(KEY, 1)
    world.remote.answer(E.FENCED_STATE_EPOCH)
    assert later.result().error.code is E.FENCED_STATE_EPOCH


MANY = 1_000


def asked_for_many(world: PersisterNode) -> list[Deferred[ShareError]]:
    """Writes of many share-partitions, in one request behind that of another one."""
    world.asks(OTHER)
    return [
        world.persister.write(SharePartitionKey("g", TOPIC, index), WriteState(1, 2, 0, 0, ()))
        for index in range(2, 2 + MANY)
    ]


def done_by_steps(world: PersisterNode, answers: list[Deferred[ShareError]]) -> list[int]:
    done = [sum(each.done for each in answers)]
    while done[-1] < MANY and world.time.step():
        done.append(sum(each.done for each in answers))
    return [later - earlier for earlier, later in pairwise([0, *done])]


@pytest.mark.parametrize("code", [E.NONE, E.INVALID_REQUEST, ConnectionLost("x")])
def test_an_answer_for_many_share_partitions_is_taken_in_steps(code: E | Exception) -> None:
    world = PersisterNode()
    answers = asked_for_many(world)
    world.remote.answer()
    if isinstance(code, Exception):
        world.remote.fail(code)
        steps = [len(world.persister._backing_off)]
        while steps[-1] < MANY and world.time.step():
            steps.append(len(world.persister._backing_off))
        taken = [later - earlier for earlier, later in pairwise([0, *steps])]
    else:
        world.remote.answer(code)
        taken = done_by_steps(world, answers)
    assert sum(taken) == MANY
    assert max(taken) <= TURN_COST // QUEUE_US


def test_a_persister_that_stops_while_an_answer_is_taken_refuses_the_rest() -> None:
    world = PersisterNode()
    answers = asked_for_many(world)
    world.remote.answer()
    world.remote.answer()
    world.persister.close()
    told = [each.result().code for each in answers]
    assert set(told) == {E.NONE, E.COORDINATOR_NOT_AVAILABLE}
    while world.time.step():
        pass


def test_many_share_partitions_whose_coordinator_moves_are_asked_for_in_steps() -> None:
    world = PersisterNode()
    answers = asked_for_many(world)
    world.remote.answer()
    world.remote.fail(ConnectionLost("x"))
    while len(world.persister._backing_off) < MANY:
        assert world.time.step()
    began: list[int] = []
    start = world.persister._start

    def starting(queues: Sequence[OperationQueue]) -> None:
        began.append(len(queues))
        start(queues)

    world.persister._start = starting  # type: ignore[method-assign]
    world.lead(NODE_ID)
    assert 0 < sum(began) < MANY
    while not all(each.done for each in answers):
        assert world.time.step()
    assert max(began) <= LOOKED_AT_TOGETHER
