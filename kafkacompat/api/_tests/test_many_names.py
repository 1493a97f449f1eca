"""Requests that name very many topics or groups with few elements each: read, refused and answered in steps."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api import long_requests, produce
from kafkacompat.api._tests.test_long_requests import in_steps, pausing, stepping_api
from kafkacompat.api._tests.test_produce import request, results
from kafkacompat.api.delete_groups import DELETED_A_STEP
from kafkacompat.api.handler import SLICES_PATIENCE_MS
from kafkacompat.api.long_requests import (
    FREED_A_STEP,
    FREED_WITHOUT_STEPS,
    HUGE_REQUEST_BYTES,
    LARGE_REQUESTS_AT_ONCE,
    RequestTasks,
    are_few,
    arrays_of,
    freed,
)
from kafkacompat.api.offset_fetch import GROUP_UNITS, STEP
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import batch_of, topic_image
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.tasks import Pace, Tasks, at_once
from kafkacompat.wire.codec_source import STEP_ELEMENTS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

MANY = 5_000
OF_A_TRANSACTION = build_batch(
    [Record(0, 0, b"", b"")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)


def of_topics(count: int, records: Any = None, **options: Any) -> ProduceRequest:
    topics = [
        TopicProduceData(name=f"t{each}", partition_data=[PartitionProduceData(index=0, records=records)])
        for each in range(count)
    ]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics, **options)


def test_partitions_of_many_topics_are_looked_at_for_repeats_in_steps() -> None:
    pauses: list[int] = []
    asked = of_topics(MANY).topic_data + of_topics(MANY).topic_data
    found = at_once(pausing(produce.without_repeats(asked, Pace(produce.NAMED_A_STEP)), pauses))
    assert len(found) == MANY
    assert len(pauses) >= 3 * MANY // produce.NAMED_A_STEP


def test_many_topics_without_partitions_are_passed_over_in_steps() -> None:
    pauses: list[int] = []
    asked = [TopicProduceData(name=f"t{each}", partition_data=[]) for each in range(MANY)]
    assert not at_once(pausing(produce.without_repeats(asked, Pace(produce.NAMED_A_STEP)), pauses))
    assert len(pauses) >= MANY // produce.NAMED_A_STEP


def test_a_produce_of_many_topics_is_answered_in_steps_and_holds_its_connection() -> None:
    api = stepping_api(topic_image("t0"))
    response, _ = in_steps(api, of_topics(MANY, batch_of(b"a")), 9)
    assert results(response)[0] == (0, 0, 0)
    assert {code for _, code, _ in results(response)[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [topic.name for topic in response.responses] == [f"t{each}" for each in range(MANY)]
    assert api.world.log("t0").log_end_offset == 1


@pytest.mark.parametrize("acks", [1, 0])
def test_many_topics_of_a_transaction_without_a_name_are_refused_in_steps(acks: int) -> None:
    api = stepping_api(topic_image("t0"))
    asked = of_topics(MANY, OF_A_TRANSACTION)
    asked.acks = acks
    if acks:
        response, steps = in_steps(api, asked, 9)
        assert {code for _, code, _ in results(response)} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        # Steps of three passes (names, transactional batches, answer) and of the encoding.
        assert steps >= 3 * MANY // produce.NAMED_A_STEP + MANY // STEP_ELEMENTS
    else:
        reply = api.send(asked, 9)
        assert isinstance(reply, Pending)
    assert api.world.log("t0").log_end_offset == 0


def test_a_produce_of_several_partitions_that_waits_for_replicas_lets_the_next_one_be_appended() -> None:
    api = stepping_api(topic_image("t", 2))
    api.world.manager.when_replicated = lambda ends, timeout_ms: Deferred()  # type: ignore[method-assign]
    reply = api.send(request(("t", 0, batch_of(b"a")), ("t", 1, batch_of(b"a")), acks=-1, api=api), 9)
    assert isinstance(reply, Pending)
    assert not reply.blocks


def test_many_groups_are_asked_for_once_each_in_steps() -> None:
    api = stepping_api(topic_image("t"))

    class Groups:
        def offset_fetch(self, request: Any, context: Any, may_describe: Any = None) -> Deferred[Any]:
            (group,) = request.groups
            return Deferred.of(
                OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id)])
            )

    api.node.groups = Groups()  # type: ignore[assignment]
    names = [f"g{each}" for each in range(MANY)]
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in names * 2]
    )
    response, steps = in_steps(api, asked, 8)
    assert [group.group_id for group in response.groups] == names
    assert steps >= (2 * MANY + GROUP_UNITS * MANY) // STEP + MANY // STEP_ELEMENTS


def test_what_a_long_request_was_made_of_is_let_go_of_in_steps() -> None:
    asked = of_topics(2 * FREED_A_STEP)
    asked.topic_data[5].partition_data = [PartitionProduceData(index=each) for each in range(FREED_A_STEP)]
    kept = asked.topic_data.copy()
    pauses: list[int] = []
    at_once(pausing(freed(arrays_of(asked)), pauses))
    assert len(pauses) >= 5 * FREED_A_STEP // FREED_A_STEP - 1
    assert asked.topic_data == kept
    assert len(kept[5].partition_data) == FREED_A_STEP


def test_elements_without_arrays_are_let_go_of_in_steps() -> None:
    pauses: list[int] = []
    at_once(pausing(freed([["a name"] * (10 * FREED_A_STEP)]), pauses))
    assert len(pauses) == 10


def test_a_produce_that_is_decoded_at_once_and_takes_steps_holds_its_connection() -> None:
    api = stepping_api(topic_image("t"))
    partitions = [PartitionProduceData(index=each) for each in range(2 * produce.NAMED_A_STEP)]
    asked = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="x", partition_data=partitions)])
    response, _ = in_steps(api, asked, 9)
    assert len(response.responses[0].partition_responses) == 2 * produce.NAMED_A_STEP


def test_request_and_response_are_held_until_the_answer_is_given_and_no_longer() -> None:
    api = stepping_api(topic_image("t0"))
    asked = of_topics(MANY)
    frames = len(api.world.time.pending())
    in_steps(api, asked, 9)
    steps = 0
    while len(api.world.time.pending()) > frames:
        api.world.time.fire_next()
        steps += 1
    # A topic and a partition are freed for each element, in the request and in the response.
    assert steps >= 4 * MANY // FREED_A_STEP


def test_what_few_elements_a_request_has_are_let_go_of_with_it() -> None:
    asked = of_topics(10)
    assert are_few([asked, of_topics(10)])
    assert not are_few([of_topics(FREED_WITHOUT_STEPS)])
    asked.topic_data[5].partition_data = [PartitionProduceData(index=each) for each in range(100)]
    assert not are_few([asked])


@pytest.mark.parametrize("count", [1, FREED_WITHOUT_STEPS])
def test_only_what_has_many_elements_is_kept_for_a_later_turn(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were read for an answer would wait with it."""

    def encoded(route: Any, answer: Any) -> Any:
        return b"encoded"
        yield

    monkeypatch.setattr(long_requests, "encoded_in_steps", encoded)
    time, waits_for = HandTime(), Deferred[Any]()

    async def handling() -> Any:
        return await waits_for

    route: Any = SimpleNamespace(key=0, meter=None, ends_with_connection=False)
    context: Any = SimpleNamespace(throttling=None)
    answer = long_requests.answer_of(RequestTasks(Tasks(time)), route, context, handling())
    waits_for.resolve(of_topics(count))
    assert answer.result() == b"encoded"
    assert bool(time.pending()) == (count > 1)


@pytest.mark.parametrize("version", [3, 5])
def test_a_partition_that_is_added_to_a_transaction_twice_is_answered_once(version: int) -> None:
    api = stepping_api(topic_image("t"))
    topics = [AddPartitionsToTxnTopic(name="x", partitions=[0, 0, 2]) for _ in range(2)]
    topics.append(AddPartitionsToTxnTopic(name="y", partitions=[]))
    asked = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    if version >= 4:
        of_one = AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)
        asked = AddPartitionsToTxnRequest(transactions=[of_one])
    response = api.call(asked, version)
    results = response.results_by_topic_v3_and_below
    if version >= 4:
        results = response.results_by_transaction[0].topic_results
    (answered,) = results
    assert answered.name == "x"
    assert [each.partition_index for each in answered.results_by_partition] == [0, 2]


def connection_of(number: int) -> ConnectionInfo:
    return ConnectionInfo(number, "PLAINTEXT", "127.0.0.1", 1000)


class SlowGroups:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Deferred[Any]] = []

    def offset_fetch(self, request: Any, context: Any, may_describe: Any = None) -> Deferred[Any]:
        self.asked.append(Deferred())
        return self.asked[-1]

    join_group = offset_fetch


def turns(api: Any) -> None:
    for _ in range(2_000):
        if not api.world.time.step():
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("how", ["answered", "let go", "gone on with"])
def test_few_large_requests_are_carried_out_at_a_time(how: str) -> None:
    """A decoded request stays in memory until it is answered or its connection closes."""
    api = stepping_api(topic_image("t"))
    groups = SlowGroups()
    api.node.groups = groups  # type: ignore[assignment]
    topics = [OffsetFetchRequestTopics(name=f"t{each}", partition_indexes=[0]) for each in range(10_000)]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    connections = [connection_of(each) for each in range(100, 104)]
    replies = [api.dispatcher.dispatch(each, memoryview(api.frame(asked, 8))) for each in connections]
    turns(api)
    assert len(groups.asked) == LARGE_REQUESTS_AT_ONCE == 2
    if how == "let go":
        groups.asked[0].when_abandoned = lambda: None
    if how != "answered":
        api.dispatcher.connection_closed(connections[0])
        turns(api)
        assert len(groups.asked) == (3 if how == "let go" else 2)
    if how != "let go":
        groups.asked[0].resolve(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]))
    turns(api)
    assert len(groups.asked) == 3
    assert isinstance(replies[0], Pending)
    assert replies[0].reply.done is (how != "let go")


class Left:
    """Clients that leave after a large request, while two others have the places."""

    def __init__(self) -> None:
        self.api = stepping_api(topic_image("t"))
        self.groups = SlowGroups()
        self.api.node.groups = self.groups  # type: ignore[assignment]
        self.numbers = itertools.count(100)
        topics = [OffsetFetchRequestTopics(name=f"t{each}", partition_indexes=[0]) for each in range(5_000)]
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        self.frame = self.api.frame(OffsetFetchRequest(groups=[group]), 8)
        self.take_places()

    def take_places(self) -> None:
        before = len(self.groups.asked)
        for _ in range(LARGE_REQUESTS_AT_ONCE):
            self.sent(self.frame)
        turns(self.api)
        assert len(self.groups.asked) == before + LARGE_REQUESTS_AT_ONCE

    def sent(self, frame: bytearray) -> ConnectionInfo:
        connection = connection_of(next(self.numbers))
        assert isinstance(self.api.dispatcher.dispatch(connection, memoryview(frame)), Pending)
        return connection

    def leave(self, frame: bytearray | None = None, after_turns: int = 0) -> bool:
        """Return whether the request is still there."""
        frame = bytearray(frame or self.frame)
        connection = self.sent(frame)
        for _ in range(after_turns):
            self.api.world.time.step()
        self.api.dispatcher.connection_closed(connection)
        try:
            frame.append(0)
        except BufferError:
            return True
        return False

    def answer(self) -> None:
        for asked in self.groups.asked:
            if not asked.done:
                asked.resolve(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]))
        turns(self.api)


def test_what_clients_have_left_is_carried_out_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves and comes back does not fill the memory."""
    left = Left()
    monkeypatch.setattr(long_requests, "LEFT_BYTES_MAX", 3 * len(left.frame))
    assert [left.leave() for _ in range(5)] == [True] * 3 + [False] * 2
    for _ in range(4):
        left.answer()
    assert len(left.groups.asked) == LARGE_REQUESTS_AT_ONCE + 3
    assert not list(left.api.dispatcher._requests.tasks)
    assert not left.api.dispatcher._parked
    left.take_places()
    assert [left.leave() for _ in range(4)] == [True] * 3 + [False]


def test_one_left_request_may_be_larger_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Left()
    monkeypatch.setattr(long_requests, "LEFT_BYTES_MAX", len(left.frame) - 1)
    assert [left.leave() for _ in range(2)] == [True, False]


def test_a_left_request_of_which_only_an_answer_comes_is_dropped() -> None:
    left = Left()
    partitions = [ListOffsetsPartition(partition_index=each) for each in range(10_000)]
    asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    frame = left.api.frame(asked, 7)
    assert not left.leave(frame)
    left.answer()
    for after_turns in range(1, 4):  # it has its place, and is decoded
        assert not left.leave(frame, after_turns)
    turns(left.api)
    assert not list(left.api.dispatcher._requests.tasks)
    left.take_places()


def test_a_large_request_does_not_wait_for_huge_ones() -> None:
    api = stepping_api(topic_image("t"))
    groups = SlowGroups()
    api.node.groups = groups  # type: ignore[assignment]

    def asked(count: int) -> memoryview:
        topics = [OffsetFetchRequestTopics(name=f"t{each}", partition_indexes=[0]) for each in range(count)]
        group = OffsetFetchRequestGroup(group_id=f"of {count}", topics=topics)
        return memoryview(api.frame(OffsetFetchRequest(groups=[group]), 8))

    huge = asked(40_000)
    assert len(huge) > HUGE_REQUEST_BYTES
    for each in range(100, 108):
        api.dispatcher.dispatch(connection_of(each), huge)
    turns(api)
    assert len(groups.asked) == LARGE_REQUESTS_AT_ONCE
    reply = api.dispatcher.dispatch(connection_of(110), asked(5_000))
    turns(api)
    assert len(groups.asked) == LARGE_REQUESTS_AT_ONCE + 1
    groups.asked[-1].resolve(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]))
    turns(api)
    assert isinstance(reply, Pending)
    assert reply.reply.done


def test_large_requests_that_wait_as_long_as_their_clients_like_hold_up_no_others() -> None:
    api = stepping_api(topic_image("t", 2000))
    topics = [
        FetchTopic(
            topic="t",
            partitions=[FetchPartition(partition=each, fetch_offset=0) for each in range(2000)],
        )
    ]
    waiting = FetchRequest(max_wait_ms=1_000_000, min_bytes=1, max_bytes=1 << 20, topics=topics * 4)
    replies = [
        api.dispatcher.dispatch(connection_of(each), memoryview(api.frame(waiting, 12)))
        for each in range(100, 104)
    ]
    turns(api)
    # A fetch may be answered early and empty if its partitions were created just now.
    answered = sum(reply.reply.done for reply in replies if isinstance(reply, Pending))
    assert len(api.world.engine.purgatory) + answered == 4
    assert answered < 2
    commit = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=f"g{each}", topics=[]) for each in range(MANY)]
    )
    api.node.groups = SlowGroups()  # type: ignore[assignment]
    for each in range(110, 114):
        api.dispatcher.dispatch(connection_of(each), memoryview(api.frame(commit, 8)))
    turns(api)
    response, _ = in_steps(api, of_topics(MANY), 9)
    assert len(response.responses) == MANY


def test_many_groups_are_deleted_in_steps_and_each_is_answered_once() -> None:
    api = stepping_api(topic_image("t"))
    asked: list[int] = []

    class Groups:
        def delete_groups(self, request: Any, context: Any) -> Deferred[Any]:
            asked.append(len(request.groups_names))
            results = [DeletableGroupResult(group_id=each) for each in request.groups_names]
            return Deferred.of(DeleteGroupsResponse(results=results))

    api.node.groups = Groups()  # type: ignore[assignment]
    names = [f"g{each}" for each in range(5 * DELETED_A_STEP)]
    response, _ = in_steps(api, DeleteGroupsRequest(groups_names=names * 2), 2)
    assert [each.group_id for each in response.results] == names
    assert asked == [DELETED_A_STEP] * 5
    response = api.call(DeleteGroupsRequest(groups_names=["g", "g"]), 2)
    assert [each.group_id for each in response.results] == ["g"]


@pytest.mark.parametrize("each_ms", [SLICES_PATIENCE_MS // 3 + 1, SLICES_PATIENCE_MS, 1])
def test_groups_whose_deletion_waits_do_not_wait_one_slice_after_the_other_for_ever(each_ms: int) -> None:
    """A request takes one of the two places of large ones."""
    api = stepping_api(topic_image("t"))
    asked: list[int] = []

    class Groups:
        def delete_groups(self, request: Any, context: Any) -> Deferred[Any]:
            asked.append(len(request.groups_names))
            results = [DeletableGroupResult(group_id=each) for each in request.groups_names]
            answer: Deferred[Any] = Deferred()
            api.world.time.call_after(each_ms, lambda: answer.resolve(DeleteGroupsResponse(results=results)))
            return answer

    api.node.groups = Groups()  # type: ignore[assignment]
    names = [f"g{each}" for each in range(20 * DELETED_A_STEP)]
    reply = api.send(DeleteGroupsRequest(groups_names=names), 2)
    assert isinstance(reply, Pending)
    api.world.time.advance(2 * SLICES_PATIENCE_MS)
    assert reply.reply.done
    response = api.decoded(reply.reply.result(), DeleteGroupsRequest.API_KEY, 2)
    waited = min(-(-SLICES_PATIENCE_MS // each_ms), 20)
    assert asked == [DELETED_A_STEP] * waited
    assert [each.group_id for each in response.results] == names
    assert [each.error_code for each in response.results] == [ErrorCode.NONE] * waited * DELETED_A_STEP + [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ] * (20 - waited) * DELETED_A_STEP
