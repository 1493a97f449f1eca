"""Requests with many elements: decoded and handled in steps while the connection waits. Each element is answered once."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api import (
    add_partitions_to_txn,
    describe_configs,
    envelope,
    list_offsets,
    long_requests,
    offset_for_leader_epoch,
)
from kafkacompat.api._tests.kit import Anything, Api, pauses_of
from kafkacompat.api.add_partitions_to_txn import PARTITIONS_A_STEP
from kafkacompat.api.delete_records import DELETED_A_STEP
from kafkacompat.api.list_offsets import COUNTED_A_STEP, LOOKED_UP_A_STEP
from kafkacompat.api.long_requests import PART_BYTES, RequestTasks, encoded_in_steps, given
from kafkacompat.api.metadata import DESCRIBED_A_STEP
from kafkacompat.api.named_rights import UNMADE_DESCRIBED_MAX, refuses_to_describe
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.request_context import RequestContext
from kafkacompat.api.route import Route
from kafkacompat.deferred import Deferred
from kafkacompat.partition import list_offsets as searches
from kafkacompat.partition._tests.kit import image_of, topic_image
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.tasks import TURN_COST, Tasks, at_once
from kafkacompat.txn.service import Transactions
from kafkacompat.wire.codec import decode, encode, encoded_element
from kafkacompat.wire.codec_source import ENCODED_BYTES_A_UNIT, STEP_ELEMENTS
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_request_header, request_header_bytes
from kafkacompat.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_response import StreamsGroupDescribeResponse


def stepping_api(*topics: Any, elements_max: int = 100_000, of: Api | None = None) -> Api:
    api = of or Api(*topics)
    api.dispatcher = type(api.dispatcher)(
        api.node, RequestTasks(Tasks(api.world.time)), elements_max=elements_max
    )
    return api


def in_steps(api: Api, request: Any, version: int) -> tuple[Any, int]:
    """Return the response and the number of steps after the first."""
    reply = api.send(request, version)
    assert isinstance(reply, Pending)
    assert reply.blocks
    steps = 0
    while not reply.reply.done:
        api.world.time.fire_next()
        steps += 1
    return api.decoded(reply.reply.result(), type(request).API_KEY, version), steps


def pausing(steps: Any, pauses: list[int]) -> Any:
    """Run the same steps and record each pause."""
    while True:
        try:
            pause = next(steps)
        except StopIteration as end:
            return end.value
        pauses.append(pause)
        yield pause


def lookups(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def test_a_large_request_is_decoded_in_steps_and_answered_as_a_small_one() -> None:
    api = stepping_api(topic_image("t"))
    response, steps = in_steps(api, lookups(10_000), 7)
    answers = response.topics[0].partitions
    assert [one.error_code for one in answers] == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9999
    assert steps >= 4


def test_offsets_of_many_partitions_are_looked_up_and_told_in_steps() -> None:
    api = stepping_api(topic_image("t"))
    asked = lookups(300)
    asked.topics.append(ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=7)]))
    response, steps = in_steps(api, asked, 7)
    assert steps >= 2
    codes = {one.partition_index: one.error_code for topic in response.topics for one in topic.partitions}
    assert codes[7] == ErrorCode.INVALID_REQUEST  # although another step names it again
    assert codes[0] == 0
    assert codes[299] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert in_steps(api, lookups(10_000), 7)[1] >= 10_000 // LOOKED_UP_A_STEP + 10_000 // STEP_ELEMENTS


def test_searches_of_a_long_request_are_let_go_with_its_connection() -> None:
    api = stepping_api(topic_image("t"))
    asked = lookups(300)
    asked.topics[0].partitions[0].timestamp = 5
    reply = api.send(asked, 7)
    assert isinstance(reply, Pending)
    while api.world.time.pending():
        api.world.time.advance(0)
    assert not reply.reply.done
    api.dispatcher.connection_closed(api.connection)
    search = api.world.manager._searches._waiting or api.world.workers.submitted
    assert search
    api.world.workers.run()
    assert api.world.manager._searches._unanswered == 0


@pytest.mark.parametrize("steps_of", [list_offsets.in_steps, offset_for_leader_epoch.handle])
def test_logs_that_a_question_opens_are_opened_few_a_step(steps_of: Any) -> None:
    """Opening one log takes as long as dozens of lookups."""
    api = stepping_api(topic_image("u"))
    api.publish(image_of(topic_image("u"), topic_image("t", 132)))
    api.world.time.advance(0)
    before = len(api.world.log_manager.logs)
    asked: Any = lookups(132)
    if steps_of is offset_for_leader_epoch.handle:
        partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(132)]
        asked = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)]
        )
    elif steps_of is list_offsets.in_steps:
        long = list_offsets.HANDLER.long
        assert long is not None
        assert long.size(api.node, lookups(10)) > long.at_once
    opened = [before]
    for _ in pauses_of(steps_of(api.node, RequestContext(2, 7, 0, None, 1, "L", "h"), asked)):
        opened.append(len(api.world.log_manager.logs))
    opened.append(len(api.world.log_manager.logs))
    assert opened[-1] == 133
    assert max(after - earlier for earlier, after in itertools.pairwise(opened)) <= 5


def turns(api: Api) -> None:
    for _ in range(20):
        api.world.time.advance(0)


def looked_up_by(steps: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, Pending]:
    """A long request for offsets, decoded at once, whose first turn is to come."""
    long = list_offsets.HANDLER.long
    assert long is not None
    monkeypatch.setattr(
        list_offsets, "HANDLER", replace(list_offsets.HANDLER, long=replace(long, steps=steps))
    )
    api = stepping_api(topic_image("t"))
    reply = api.send(lookups(300), 7)
    assert isinstance(reply, Pending)
    return api, reply


@pytest.mark.parametrize("closes", [False, True])
def test_offsets_are_not_looked_up_for_a_connection_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    began: list[Any] = []

    def steps(node: Any, context: Any, request: Any) -> Any:
        began.append(request)
        return list_offsets.error_response(request, ErrorCode.NONE, 7)

    api, _ = looked_up_by(steps, monkeypatch)
    assert not began
    if closes:
        api.dispatcher.connection_closed(api.connection)
    turns(api)
    assert bool(began) is not closes
    assert not list(api.dispatcher._requests.tasks)


def test_a_request_whose_part_was_cancelled_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part was cancelled by somebody else. The client still waits."""

    async def steps(*_: Any) -> Any:
        tasks = api.dispatcher._requests.tasks
        part = tasks.run("a part", given(tasks.sleep(1)))
        part.cancel()
        await part

    api, reply = looked_up_by(steps, monkeypatch)
    turns(api)
    (topic,) = api.decoded(reply.reply.result(), 2, 7).topics
    assert {one.error_code for one in topic.partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_offsets_of_many_topics_without_partitions_are_listed_in_steps() -> None:
    """As many topics as fit into a request. Nothing is looked up, but each topic is part of the answer."""
    api = stepping_api(topic_image("t"))
    topics = [ListOffsetsTopic(name="t", partitions=[])] * (6 * COUNTED_A_STEP)
    request = ListOffsetsRequest(topics=topics)
    context = RequestContext(2, 7, 0, None, 1, "L", "h")
    pauses = list(pauses_of(list_offsets.in_steps(api.node, context, request)))
    assert pauses == [TURN_COST] * 12


def searching(monkeypatch: pytest.MonkeyPatch, paced: int) -> tuple[Api, Pending]:
    """A request for 1000 partitions by time, of which only `paced` may be searched at once."""
    monkeypatch.setattr(searches, "SEARCHES_PACED", paced)
    monkeypatch.setattr(searches, "SEARCHES_MAX", paced + LOOKED_UP_A_STEP)
    api = stepping_api(topic_image("t", 1000))
    while api.world.manager.opens_logs:
        api.world.time.advance(1)
        api.world.workers.run()
    asked = lookups(1000)
    for one in asked.topics[0].partitions:
        one.timestamp = 5
    reply = api.send(asked, 7)
    assert isinstance(reply, Pending)
    turns(api)
    return api, reply


def test_more_searches_than_may_wait_are_asked_for_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a search is refused with a retriable error, librdkafka's offsets_for_times fails."""
    api, reply = searching(monkeypatch, 300)
    assert api.world.manager._searches._unanswered == 400
    for _ in range(100):
        if not reply.reply.done:
            api.world.workers.run()
            turns(api)
    answers = api.decoded(reply.reply.result(), 2, 7).topics[0].partitions
    assert [one.error_code for one in answers] == [0] * 1000


def test_searches_are_let_go_with_a_connection_that_ends_while_there_is_no_room_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, _ = searching(monkeypatch, 300)
    api.dispatcher.connection_closed(api.connection)
    turns(api)
    (waiting,) = api.world.manager._searches._waiting._of_connection.values()
    assert waiting
    assert all(search.abandoned for search in waiting)
    assert not api.world.manager._searches._rooms


def test_many_topics_are_named_in_steps_and_those_absent_are_made() -> None:
    api = stepping_api(*[topic_image(f"t{index}") for index in range(600)])
    names = [f"t{index}" for index in range(1200)]
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    response, steps = in_steps(api, asked, 9)
    assert [topic.name for topic in response.topics] == names
    assert steps >= 3
    assert api.creator.asked == [names[600:]]
    response, steps = in_steps(api, MetadataRequest(topics=None), 9)
    assert len(response.topics) == 600
    assert steps >= 2


@pytest.mark.parametrize("version", [0, 9, 12])
def test_a_topic_of_many_partitions_is_described_and_told_in_steps(version: int) -> None:
    api = stepping_api(topic_image("t", 6000), topic_image("u"))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response, steps = in_steps(api, asked, version)
    assert [one.partition_index for one in response.topics[0].partitions] == list(range(6000))
    assert steps >= 6000 // DESCRIBED_A_STEP + 6000 // STEP_ELEMENTS
    again, steps = in_steps(api, asked, version)
    assert again == response
    assert steps <= 3  # it is in the cache
    assert api.call(MetadataRequest(topics=[MetadataRequestTopic(name="u")]), 9).topics[0].name == "u"


def test_a_topic_described_while_the_brokers_change_is_not_kept_for_the_new_ones() -> None:
    api = stepping_api(topic_image("t", 2000))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    reply = api.send(asked, 9)
    assert isinstance(reply, Pending)
    api.world.time.fire_next()
    # In the meantime all brokers have gone, and other requests have used the cache.
    api.publish(replace(api.node.image, brokers={}))
    api.node.encoded_topics.get(api.node.image.brokers, api.node.image.topics["t"], ("x", 9, False))
    while not reply.reply.done:
        api.world.time.advance(0)
    response, _ = in_steps(api, asked, 9)
    assert {one.leader_id for one in response.topics[0].partitions} == {-1}


def test_an_unknown_type_refuses_the_whole_of_a_long_request() -> None:
    api = stepping_api(*[topic_image(f"t{index}") for index in range(40)])
    resources = [DescribeConfigsResource(resource_type=2, resource_name=f"t{index}") for index in range(40)]
    resources.append(DescribeConfigsResource(resource_type=77, resource_name="x"))
    response = api.call(DescribeConfigsRequest(resources=resources), 4)
    assert [result.error_code for result in response.results] == [ErrorCode.INVALID_REQUEST] * 41


def test_records_of_many_partitions_are_deleted_in_steps() -> None:
    api = stepping_api(topic_image("t", 300))
    for _ in range(3):
        api.world.produce()
    partitions = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(400)]
    partitions[0].offset = 2
    topic = DeleteRecordsTopic(name="t", partitions=partitions)
    response, steps = in_steps(api, DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert steps >= 400 // DELETED_A_STEP
    (answered,) = response.topics
    told = sorted(answered.partitions, key=lambda one: one.partition_index)
    assert [one.partition_index for one in told] == list(range(400))
    assert told[0].low_watermark == 2
    codes = [one.error_code for one in told]
    assert codes == [0] * 300 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100


def test_offsets_of_many_partitions_are_encoded_in_steps() -> None:
    api = stepping_api(topic_image("t"))
    answered = OffsetFetchResponseTopics(
        name="t", partitions=[OffsetFetchResponsePartitions(partition_index=index) for index in range(9000)]
    )
    group = OffsetFetchResponseGroup(group_id="g", topics=[answered])

    class Groups:
        def offset_fetch(self, request: Any, context: Any) -> Deferred[Any]:
            assert request.groups[0].topics[0].partition_indexes == list(range(9000))
            return Deferred.of(OffsetFetchResponse(groups=[group]))

    api.node.groups = Groups()  # type: ignore[assignment]
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(9000)))
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    response, steps = in_steps(api, asked, 8)
    assert response.groups == [group]
    assert steps >= 9000 // STEP_ELEMENTS


class GrantsAll:
    """A coordinator that adds every partition it is asked to add."""

    def add_partitions(self, *asked: Any) -> Deferred[ErrorCode]:
        return Deferred.of(ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 5])
def test_many_partitions_are_added_to_a_transaction_in_steps_and_all_at_once(version: int) -> None:
    api = stepping_api(topic_image("t", 9_000))
    asked_for = []

    class Coordinator:
        def add_partitions(self, *asked: Any) -> Deferred[ErrorCode]:
            asked_for.append(asked[3])
            return Deferred.of(ErrorCode.NONE)

    api.node.transactions = Transactions(
        Coordinator(),  # type: ignore[arg-type]  # as much as is used
        Anything(),
        api.verifier,
        Tasks(api.world.time),
    )

    def added(count: int) -> tuple[list[int], int]:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(count)))]
        if version < 4:
            asked = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
        else:
            of_one = AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)
            asked = AddPartitionsToTxnRequest(transactions=[of_one])
        response, steps = in_steps(api, asked, version)
        results = response.results_by_topic_v3_and_below
        if version >= 4:
            (one,) = response.results_by_transaction
            results = one.topic_results
        (topic,) = results
        return [each.partition_error_code for each in topic.results_by_partition], steps

    codes, steps = added(9_000)
    assert codes == [0] * 9_000
    assert steps >= 2 * 9_000 // PARTITIONS_A_STEP
    assert [len(partitions) for partitions in asked_for] == [9_000]
    codes, _ = added(9_001)
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED] * 9_000 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(asked_for) == 1


@pytest.mark.parametrize("topics_each", [0, 1, 90], ids=["no topics", "one topic", "many topics"])
@pytest.mark.parametrize("partitions_each", [0, 9])
def test_what_many_transactions_name_a_little_of_is_looked_at_in_steps(
    topics_each: int, partitions_each: int
) -> None:
    """A step ends by the elements of all transactions together, even if they are nothing but names."""
    api = stepping_api(topic_image("t"))
    topic = AddPartitionsToTxnTopic(name="?", partitions=[0] * partitions_each)
    of_one = AddPartitionsToTxnTransaction(transactional_id="x", topics=[topic] * topics_each)
    looks = 0
    refusal = add_partitions_to_txn._refusal

    def counted(*asked: Any) -> Any:
        nonlocal looks
        looks += 1
        return refusal(*asked)

    request = AddPartitionsToTxnRequest(transactions=[of_one] * 300)
    context = RequestContext(24, 5, 0, None, 1, "L", "h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(add_partitions_to_txn, "_refusal", counted)
        api.node.transactions = Transactions(
            GrantsAll(),  # type: ignore[arg-type]  # as much as is used
            Anything(),
            api.verifier,
            Tasks(api.world.time),
        )
        steps, most = 0, 0
        for _ in pauses_of(add_partitions_to_txn.handle(api.node, context, request)):
            steps += 1
            most, looks = max(most, looks), 0
    named = 300 * (10 + topics_each * (1 + partitions_each))
    assert steps >= named // PARTITIONS_A_STEP
    assert most <= PARTITIONS_A_STEP + partitions_each


def test_what_the_controller_answers_of_many_topics_is_encoded_in_steps() -> None:
    api = stepping_api(topic_image("t"))
    asked = CreateTopicsRequest(topics=[CreatableTopic(name=f"n{index}") for index in range(100)])
    reply = api.send(asked, 7)
    assert isinstance(reply, Pending)
    ((_, _, answer),) = api.controller.calls
    while api.world.time.pending():
        api.world.time.advance(0)
    made = [CreatableTopicConfigs(name=f"c{index}") for index in range(100)]
    answer.resolve(
        CreateTopicsResponse(
            topics=[CreatableTopicResult(name=each.name, configs=made) for each in asked.topics]
        )
    )
    steps = 0
    while not reply.reply.done:
        api.world.time.fire_next()
        steps += 1
    assert steps >= 100 * 100 // STEP_ELEMENTS
    assert len(api.decoded(reply.reply.result(), 19, 7).topics) == 100


def test_what_is_encoded_already_is_put_together_in_steps_and_parts() -> None:
    route = Route(32, 4, Api().dispatcher.table)
    count = 5 * STEP_ELEMENTS
    element = encoded_element(
        DescribeConfigsResponse, 4, DescribeConfigsResult(resource_name="g", error_message="m" * 1_000)
    )
    steps = encoded_in_steps(route, DescribeConfigsResponse(results=[element] * count))
    pauses: list[int] = []
    answer = at_once(pausing(steps, pauses))
    assert len(pauses) >= count // STEP_ELEMENTS
    assert max(len(part) for part in answer.parts) <= PART_BYTES + STEP_ELEMENTS * len(element)
    told = decode(DescribeConfigsResponse, 4, b"".join(answer.parts))
    assert [each.resource_name for each in told.results] == ["g"] * count
    large = encoded_element(
        DescribeConfigsResponse, 4, DescribeConfigsResult(resource_name="g", error_message="m" * 32_000)
    )
    several = list(encoded_in_steps(route, DescribeConfigsResponse(results=[large] * STEP_ELEMENTS)))
    assert len(several) >= len(large) // ENCODED_BYTES_A_UNIT


def long_fetch(count: int, **options: Any) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    return FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=partitions)], **options)


def test_a_fetch_of_many_partitions_is_encoded_in_steps_and_brings_records() -> None:
    api = stepping_api(topic_image("t", 5000))
    api.world.produce()
    response, steps = in_steps(api, long_fetch(5000, max_wait_ms=0, min_bytes=1), 12)
    (topic,) = response.responses
    assert [one.partition_index for one in topic.partitions] == list(range(5000))
    assert len(topic.partitions[0].records) > 61
    assert steps >= 5000 // STEP_ELEMENTS


def test_a_long_fetch_that_waits_is_let_go_with_its_connection() -> None:
    api = stepping_api(topic_image("t", 2000))
    reply = api.send(long_fetch(2000, max_wait_ms=10_000, min_bytes=1), 12)
    assert isinstance(reply, Pending)
    for _ in range(100):
        api.world.time.advance(0)
    assert not reply.reply.done
    assert len(api.world.engine.purgatory) == 1
    api.dispatcher.connection_closed(api.connection)
    assert len(api.world.engine.purgatory) == 0
    # The same if the connection closes before the request is handled.
    api.send(long_fetch(2000, max_wait_ms=10_000, min_bytes=1), 12)
    api.dispatcher.connection_closed(api.connection)
    for _ in range(100):
        api.world.time.advance(0)
    assert len(api.world.engine.purgatory) == 0


def test_the_request_in_an_envelope_is_decoded_in_steps() -> None:
    names = [MetadataRequestTopic(name=f"a topic of some name {index}") for index in range(20_000)]
    frame = request_header_bytes(3, 9, 7, "client") + encode(MetadataRequest(topics=names), 9)
    body_offset = parse_request_header(memoryview(frame)).body_offset
    steps = envelope._decoded(Route(3, 9), bytes(frame), body_offset, 100_000)
    pauses: list[int] = []

    assert at_once(pausing(steps, pauses)).topics == names
    assert len(pauses) >= 4
    assert envelope.HANDLER.long is not None
    wrapping = EnvelopeRequest(request_data=bytes(frame))
    assert envelope.HANDLER.long.size(None, wrapping) > envelope.HANDLER.long.at_once


def test_what_one_step_decodes_is_answered_at_once() -> None:
    api = stepping_api(topic_image("t"))
    assert len(api.call(lookups(200), 7).topics[0].partitions) == 200


def test_more_elements_than_are_taken_close_the_connection() -> None:
    api = stepping_api(topic_image("t"), elements_max=5000)
    with pytest.raises(WireError, match="more than 5000 elements"):
        api.send(lookups(6000), 7)


def test_bytes_that_break_in_a_later_step_close_the_connection() -> None:
    api = stepping_api(topic_image("t"))
    reply = api.raw(api.frame(lookups(10_000), 7)[:-5])
    assert isinstance(reply, Pending)
    api.world.time.advance(0)
    with pytest.raises(WireError):
        reply.reply.result()


def test_a_topic_named_many_times_is_described_once() -> None:
    api = stepping_api(topic_image("t", 100))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 9000)
    response, _ = in_steps(api, asked, 9)
    assert len(response.topics) == 1


def test_configs_are_described_in_steps_and_each_resource_once() -> None:
    api = stepping_api(*[topic_image(f"t{index}") for index in range(40)])
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=f"t{index}") for index in (*range(40), 3, 3)
    ]
    response, steps = in_steps(api, DescribeConfigsRequest(resources=resources), 4)
    assert [result.resource_name for result in response.results] == [f"t{index}" for index in range(40)]
    (alone,) = api.call(DescribeConfigsRequest(resources=resources[:1]), 4).results
    assert all(len(result.configs) == len(alone.configs) for result in response.results)
    assert steps >= 8
    brokers = [DescribeConfigsResource(resource_type=4, resource_name="1") for _ in range(1000)]
    assert len(api.call(DescribeConfigsRequest(resources=brokers), 4).results) == 1


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ((["retention.ms"], ["segment.bytes"], ["retention.ms"]), ["retention.ms", "segment.bytes"]),
        ((["retention.ms"], None, ["segment.bytes"]), None),
    ],
)
def test_a_resource_named_twice_for_other_settings_is_described_for_all_of_them(
    keys: tuple[list[str] | None, ...], told: list[str] | None
) -> None:
    api = stepping_api(topic_image("t"))
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=each) for each in keys
    ]
    (result,) = api.call(DescribeConfigsRequest(resources=resources), 4).results
    names = sorted(entry.name for entry in result.configs)
    if told is None:
        of_all = DescribeConfigsResource(resource_type=2, resource_name="t")
        (every,) = api.call(DescribeConfigsRequest(resources=[of_all]), 4).results
        told = sorted(entry.name for entry in every.configs)
    assert names == told


def test_which_of_very_many_are_named_once_is_seen_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_requests, "NAMED_A_STEP", 10)
    api = stepping_api(topic_image("t"))
    resources = [DescribeConfigsResource(resource_type=2, resource_name="t") for _ in range(100)]
    response, steps = in_steps(api, DescribeConfigsRequest(resources=resources), 4)
    assert len(response.results) == 1
    assert steps >= 10


class Compared(str):
    """Counts its comparisons."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_settings_are_not_looked_for_among_very_many_names_one_by_one() -> None:
    api = stepping_api(topic_image("t"))
    keys = [Compared(f"no setting {index}") for index in range(2_000)] + [Compared("retention.ms")]
    asked = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=list(keys))
    asking = RequestContext(32, 4, 0, None, 0, "PLAINTEXT", "127.0.0.1")
    (result,) = describe_configs.handle(api.node, asking, DescribeConfigsRequest(resources=[asked])).results
    assert [entry.name for entry in result.configs] == ["retention.ms"]
    assert Compared.count < 2 * len(keys)


def test_an_error_in_a_later_step_is_answered_for_all() -> None:
    api = stepping_api(*[topic_image(f"t{index}") for index in range(40)])
    resources = [DescribeConfigsResource(resource_type=2, resource_name=f"t{index}") for index in range(40)]
    api.settings.describe_topic = lambda topic: 1 // (topic != "t30") and ()  # type: ignore[method-assign]
    response, _ = in_steps(api, DescribeConfigsRequest(resources=resources), 4)
    assert [result.error_code for result in response.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 40


def test_producers_of_a_partition_named_many_times_are_told_once() -> None:
    api = stepping_api(topic_image("t", 2))
    asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1] * 5000)] * 2)
    response = api.call(asked, 0)
    assert [[one.partition_index for one in topic.partitions] for topic in response.topics] == [[0, 1]]


def test_producers_of_a_topic_named_twice_with_other_partitions_are_told_for_each() -> None:
    api = stepping_api(topic_image("t", 2))
    asked = DescribeProducersRequest(
        topics=[TopicRequest(name="t", partition_indexes=[index]) for index in (0, 1)]
    )
    response = api.call(asked, 0)
    assert [one.partition_index for topic in response.topics for one in topic.partitions] == [0, 1]


def test_producers_of_a_partition_named_with_ever_other_ones_are_told_once() -> None:
    api = stepping_api(topic_image("t", 2))
    asked = DescribeProducersRequest(
        topics=[TopicRequest(name="t", partition_indexes=[0, index]) for index in range(1, 300)]
    )
    response, _ = in_steps(api, asked, 0)
    told = [one.partition_index for topic in response.topics for one in topic.partitions]
    assert told == list(range(300))


def fetch_of_many(api: Api) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(5_000)]
    topics = [FetchTopic(topic="t", topic_id=api.node.image.topics["t"].id, partitions=partitions)]
    return FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=1000, topics=topics)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 6])
def test_a_fetch_in_steps_is_not_parked_for_a_connection_that_is_gone(steps: int) -> None:
    """A wait may last for weeks, and the number of waiting fetches is bounded."""
    api = stepping_api(topic_image("t", 5_000))
    assert isinstance(api.send(fetch_of_many(api), 12), Pending)
    for _ in range(steps):
        api.world.time.advance(0)
    api.dispatcher.connection_closed(api.connection)
    for _ in range(20):
        api.world.time.advance(0)
    assert len(api.world.engine.purgatory) == 0
    assert not api.dispatcher._parked


def test_the_map_of_the_code_names_the_requests_that_wait_at_will_and_those_that_are_dropped() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    handlers = {entry.name: BROKER_APIS.load(entry.key) for entry in BROKER_APIS.entries}

    def told(sentence: str) -> set[str]:
        (found,) = re.findall(rf"((?:\w+, )*\w+ and \w+){sentence}", " ".join(text.split()))
        return set(re.split(", | and ", found))

    waits = {name for name, each in handlers.items() if each.waits_at_will}
    dropped = {name for name, each in handlers.items() if each.ends_with_connection or each.needs_connection}
    assert told(" may wait as long as the client allows") == waits
    assert told(" are dropped, because nothing but an answer comes of them") == dropped


@pytest.mark.parametrize("count", [4_000, long_requests.NAMED_A_STEP, long_requests.NAMED_A_STEP + 1])
def test_a_resource_is_described_once_however_often_a_request_names_it(count: int) -> None:
    """Also where decoding takes several steps, and where so few are named that they are compared in one."""
    api = stepping_api(topic_image("t"))
    resources = [DescribeConfigsResource(resource_type=2, resource_name="t")] * count
    response, _ = in_steps(api, DescribeConfigsRequest(resources=resources), 4)
    assert len(response.results) == 1


def test_a_broker_whose_number_is_written_in_many_ways_is_described_once() -> None:
    api = stepping_api(topic_image("t"))
    names = ["1", *["+" + "0" * zeros + "1" for zeros in range(50)], "\u0661", "2", "x"]
    resources = [DescribeConfigsResource(resource_type=4, resource_name=name) for name in names]
    response = api.call(DescribeConfigsRequest(resources=resources), 4)
    assert [each.error_code for each in response.results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize(("kind", "over"), [(32, 0), (32, 1), (16, 1)])
def test_more_groups_and_subscriptions_than_an_answer_may_describe_are_refused(kind: int, over: int) -> None:
    """They need not exist, so a request can name any number, and each answer is hundreds of times as long as its name."""
    asked = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=f"g{index}")
            for index in range(UNMADE_DESCRIBED_MAX + over)
        ]
    )
    assert refuses_to_describe(asked) is bool(over)
    if over:
        api = stepping_api(topic_image("t"))
        response, _ = in_steps(api, asked, 4)
        assert {each.error_code for each in response.results} == {ErrorCode.INVALID_REQUEST}
        assert not any(each.configs for each in response.results)


def test_of_resources_that_are_too_many_no_more_are_looked_at_than_decide_it() -> None:
    """A request may have half a million of them, and they are looked at in one step, two or three times."""
    resources = iter([DescribeConfigsResource(resource_type=32, resource_name="g")] * 50_000)
    assert refuses_to_describe(SimpleNamespace(resources=resources))
    assert len(list(resources)) == 50_000 - UNMADE_DESCRIBED_MAX - 1


class DescribedGroups:
    """Describes whatever it is asked for, and counts."""

    def __init__(self, response: type) -> None:
        self.share = self.streams = self
        self.count = 0
        self._response = response

    def consumer_group_describe(self, request: Any, context: Any) -> Deferred[Any]:
        return self.describe(request, context)

    def describe(self, request: Any, context: Any) -> Deferred[Any]:
        described = vars(import_module(self._response.__module__))["DescribedGroup"]
        self.count += len(request.group_ids)
        return Deferred.of(self._response(groups=[described(group_id=each) for each in request.group_ids]))


@pytest.mark.parametrize(
    ("asked", "response"),
    [
        (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        (ShareGroupDescribeRequest, ShareGroupDescribeResponse),
        (StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
    ],
)
def test_a_group_named_thousands_of_times_is_described_once_and_named_a_few_times_as_often(
    asked: Any, response: type
) -> None:
    """Its name takes two bytes, and each answer has all of its members."""
    api = stepping_api(topic_image("t"))
    levels = {"group.version": 1, "share.version": 1, "streams.version": 1}
    api.publish(replace(api.node.image, features=levels))
    groups = DescribedGroups(response)
    api.node.groups = groups  # type: ignore[assignment]
    version = asked.MAX_VERSION
    told = api.call(asked(group_ids=["g", "h", "g"]), version)
    assert [each.group_id for each in told.groups] == ["g", "h", "g"]
    for count in (100, 4_000, 2 * long_requests.NAMED_A_STEP):
        before = groups.count
        reply = api.send(asked(group_ids=["g", "h"] * (count // 2)), version)
        if isinstance(reply, Pending):
            while not reply.reply.done:
                api.world.time.fire_next()
            reply = api.decoded(reply.reply.result(), asked.API_KEY, version)
        assert [each.group_id for each in reply.groups] == ["g", "h"]
        assert groups.count - before == 2


def test_all_offsets_of_a_share_group_named_thousands_of_times_are_told_once() -> None:
    api = stepping_api(topic_image("t"))
    api.publish(replace(api.node.image, features={"share.version": 1}))
    count = 0

    class ShareOffsets:
        def describe(self, request: Any, context: Any) -> Deferred[Any]:
            nonlocal count
            count += 1
            groups = [
                DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id) for each in request.groups
            ]
            return Deferred.of(DescribeShareGroupOffsetsResponse(groups=groups))

    api.node.groups = SimpleNamespace(share_offsets=ShareOffsets())  # type: ignore[assignment]
    every = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    told = api.call(DescribeShareGroupOffsetsRequest(groups=[every, every]), 1)
    assert [each.group_id for each in told.groups] == ["g", "g"]
    for more in (100, 4_000, 2 * long_requests.NAMED_A_STEP):
        before = count
        reply = api.send(DescribeShareGroupOffsetsRequest(groups=[every] * more), 1)
        if isinstance(reply, Pending):
            while not reply.reply.done:
                api.world.time.fire_next()
            reply = api.decoded(reply.reply.result(), DescribeShareGroupOffsetsRequest.API_KEY, 1)
        assert [each.group_id for each in reply.groups] == ["g"]
        assert count - before == 1
