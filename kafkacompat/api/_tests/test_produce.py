"""Produce through the dispatcher, over real logs: answers, refusals, and requests without a response."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.api import produce
from kafkacompat.api._tests.kit import Api
from kafkacompat.api.produce import FirstBatch
from kafkacompat.api.transactional_produce import CONCURRENT_RETRY_MS, producer_of
from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.late import Late
from kafkacompat.partition._tests.kit import (
    batch_of,
    broker_image,
    image_of,
    partition_image,
    topic_image,
)
from kafkacompat.ports import FileSlice, TransactionTerms
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.records import plain_produce
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.validate import Origin
from kafkacompat.tasks import Pace, Tasks, at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

ALL_VERSIONS = range(3, 14)


@pytest.fixture(params=["in one call", "decoded"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extension is built, a plain request takes another way than the others."""
    if request.param == "decoded":
        monkeypatch.setattr(plain_produce, "read_frame", plain_produce.read_nothing)


def request(
    *parts: tuple[str, int, Any], acks: int = 1, transactional_id: str | None = None, api: Api | None = None
) -> ProduceRequest:
    """One topic entry for each part, by name, or also by id if the api knows the topic."""
    topics = [] if api is None else api.node.image.topics
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topics[name].id if name in topics else b"?" * 16,  # type: ignore[call-overload]
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
            for name, index, records in parts
        ],
    )


def results(response: Any) -> list[tuple[int, int, int]]:
    """Return (index, error, base offset) of each partition."""
    return [
        (one.index, one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_each_version_appends_and_answers(version: int) -> None:
    api = Api(topic_image("t", 2))
    response = api.call(request(("t", 0, batch_of(b"a")), ("t", 1, batch_of(b"b")), api=api), version)
    assert results(response) == [(0, 0, 0), (1, 0, 0)]
    row = response.responses[0].partition_responses[0]
    assert row.log_append_time_ms == -1
    if version >= 5:
        assert row.log_start_offset == 0
    if version >= 13:
        assert response.responses[0].topic_id == api.node.image.topics["t"].id
    else:
        assert response.responses[0].name == "t"


def test_append_time_is_told_where_the_topic_stamps_it() -> None:
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(message_timestamp_type="LogAppendTime")
    api.world.time.ms += 5
    row = api.call(request(("t", 0, batch_of(b"a")), api=api), 9).responses[0].partition_responses[0]
    assert row.log_append_time_ms == api.world.time.now_ms()


def test_acks_zero_gets_no_response() -> None:
    api = Api(topic_image("t"))
    assert api.send(request(("t", 0, batch_of(b"a")), acks=0, api=api), 9) is None
    assert api.world.log().log_end_offset == 1


def test_an_error_with_acks_zero_closes_the_connection() -> None:
    api = Api()
    with pytest.raises(CloseConnection):
        api.send(request(("t", 0, batch_of(b"a")), acks=0), 9)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_on_every_partition_that_exists(acks: int) -> None:
    api = Api(topic_image("t"))
    response = api.call(request(("t", 0, batch_of(b"a")), ("no", 0, batch_of(b"a")), acks=acks, api=api), 9)
    assert results(response) == [
        (0, ErrorCode.INVALID_REQUIRED_ACKS, -1),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_unknown_topics_by_name_and_by_id() -> None:
    api = Api(topic_image("t"))
    asked = (("t", 9, batch_of(b"a")), ("no", 0, batch_of(b"a")))
    assert [error for _, error, _ in results(api.call(request(*asked, api=api), 12))] == [3, 3]
    assert [error for _, error, _ in results(api.call(request(*asked, api=api), 13))] == [3, 100]


@pytest.mark.parametrize(
    "records",
    [None, b"", b"short", bytes(61), batch_of(b"a") + batch_of(b"b"), batch_of(b"a", base_offset=4)],
    ids=["null", "empty", "short", "zeros", "two", "offset"],
)
def test_what_is_not_one_batch_is_refused_and_always_answered(records: Any) -> None:
    api = Api(topic_image("t"))
    (row,) = results(api.call(request(("t", 0, records), api=api), 9))
    assert row[1] in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert api.world.log().log_end_offset == 0


@pytest.mark.parametrize("others", [0, 1])
def test_a_topic_without_partitions_is_not_in_the_answer(others: int) -> None:
    api = Api(topic_image("t"))
    asked = request(*[("t", 0, batch_of(b"a"))][:others], api=api)
    asked.topic_data[:0] = [TopicProduceData(name=f"empty{each}") for each in range(3)]
    answer = api.call(asked, 9)
    assert [topic.name for topic in answer.responses] == ["t"][:others]


def test_a_wrong_crc_is_corrupt() -> None:
    api = Api(topic_image("t"))
    batch = batch_of(b"abc")
    batch[-2] ^= 1
    assert results(api.call(request(("t", 0, batch), api=api), 9)) == [(0, ErrorCode.CORRUPT_MESSAGE, -1)]


def test_control_batches_from_clients_are_refused() -> None:
    api = Api(topic_image("t"))
    batch = batch_of(b"a", is_control=True, producer_id=4, producer_epoch=0)
    assert results(api.call(request(("t", 0, batch), api=api), 9)) == [(0, ErrorCode.INVALID_RECORD, -1)]


def transactional(*values: bytes, **producer: int) -> bytearray:
    fields = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0} | producer
    return batch_of(*values, is_transactional=True, **fields)


def test_transactional_batches_need_a_transactional_id() -> None:
    api = Api(topic_image("t", 2))
    parts = (("t", 0, transactional(b"a")), ("t", 1, batch_of(b"b")))
    without = api.call(request(*parts, api=api), 9)
    assert [error for _, error, _ in results(without)] == [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ] * 2


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (9, ErrorCode.NONE, ErrorCode.NONE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_transaction_is_verified_before_it_is_written(
    version: int, code: ErrorCode, told: ErrorCode
) -> None:
    api = Api(topic_image("t", 2))
    api.verifier.code = code
    parts = (("t", 0, transactional(b"a")), ("t", 1, batch_of(b"b")))
    answer = api.call(request(*parts, transactional_id="tx", api=api), version)
    assert results(answer) == [(0, told, 0 if told is ErrorCode.NONE else -1), (1, ErrorCode.NONE, 0)]
    assert api.verifier.asked == [("tx", 4, 0, [TopicPartition("t", 0)], version >= 12)]


def test_what_waits_for_the_previous_transaction_is_written_although_its_client_has_left() -> None:
    api = Api(topic_image("t"))
    api.verifier.code = ErrorCode.CONCURRENT_TRANSACTIONS
    sent = api.send(request(("t", 0, transactional(b"a")), transactional_id="tx", api=api), 12)
    assert isinstance(sent, Pending)
    api.dispatcher.connection_closed(api.connection)
    api.verifier.code = ErrorCode.NONE
    api.world.time.advance(CONCURRENT_RETRY_MS)
    assert api.world.log().log_end_offset == 1


def test_nothing_of_a_transaction_is_written_while_its_coordinators_cannot_be_made() -> None:
    """Only what is outside is. The producer sends the rest again, and does not abort its transaction."""
    api = Api(topic_image("t", 2))
    workers = HandWorkers()
    api.node.coordinators = Late("kafkacompat.nowhere", lambda: None, workers, Tasks(HandTime()))
    parts = (("t", 0, transactional(b"a")), ("t", 1, batch_of(b"b")))
    sent = api.send(request(*parts, transactional_id="tx", api=api), 12)
    assert isinstance(sent, Pending)
    workers.run()
    answer = api.decoded(sent.reply.result(), 0, 12)
    assert results(answer) == [(0, ErrorCode.NOT_ENOUGH_REPLICAS, -1), (1, ErrorCode.NONE, 0)]
    assert api.verifier.asked == []


@pytest.mark.parametrize(("version", "verified"), [(9, "false"), (11, "true"), (12, "true")])
def test_a_transactional_request_has_one_producer(version: int, verified: str) -> None:
    """Otherwise nothing of the request is written, not even batches outside transactions."""
    overrides = {"transaction.partition.verification.enable": verified}
    api = Api(topic_image("t", 3), overrides=overrides)
    plain = ("t", 2, batch_of(b"b"))
    parts = (("t", 0, transactional(b"a")), ("t", 1, transactional(b"a", producer_epoch=1)), plain)
    answer = api.call(request(*parts, transactional_id="tx", api=api), version)
    assert [error for _, error, _ in results(answer)] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
    assert api.verifier.asked == []
    assert [api.world.log(partition=index).log_end_offset for index in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("length", [0, 13, -1])
def test_a_batch_that_lies_about_its_length_tells_of_no_producer(length: int) -> None:
    lying = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert producer_of(lying) == (7, 0, 0)
    lying[8:12] = length.to_bytes(4, "big", signed=True)
    assert producer_of(lying) is None


@pytest.mark.parametrize("length", [0, 1, 13, -1, -(2**31)])
def test_a_batch_that_lies_about_its_length_refuses_the_request(length: int) -> None:
    """The request is refused before it is known to be transactional: Kafka checks every first batch for that."""
    api = Api(topic_image("t", 2))
    lying = transactional(b"a")
    lying[8:12] = length.to_bytes(4, "big", signed=True)
    parts = (("t", 0, lying), ("t", 1, transactional(b"b")))
    answer = api.call(request(*parts, transactional_id="tx", api=api), 12)
    assert [error for _, error, _ in results(answer)] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert api.world.log(partition=1).log_end_offset == 0


@pytest.mark.parametrize("version", [3, 13])
def test_a_corrupt_first_batch_refuses_the_whole_request_before_names_are_looked_at(version: int) -> None:
    api = Api(topic_image("t"))
    for parts in ((("x", 0, b"\xff" * 61),), (("t", 0, batch_of(b"a")), ("x", 0, b"\xff" * 61))):
        answer = api.call(request(*parts, acks=7, api=api), version)
        assert {error for _, error, _ in results(answer)} == {ErrorCode.CORRUPT_MESSAGE}
    assert api.world.log().log_end_offset == 0


def test_records_of_no_batch_are_refused_before_acks_and_without_the_logs_start() -> None:
    api = Api(topic_image("t", 2))
    for acks in (1, 7):
        answer = api.call(request(("t", 0, b""), ("t", 1, b""), acks=acks, api=api), 9)
        for topic in answer.responses:
            for one in topic.partition_responses:
                assert (one.error_code, one.log_start_offset) == (ErrorCode.INVALID_RECORD, -1)


def test_a_whole_batch_that_is_shorter_than_its_header_is_corrupt() -> None:
    api = Api(topic_image("t"))
    short = bytes(8) + (18).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(13)
    answer = api.call(request(("t", 0, short), api=api), 9)
    assert results(answer) == [(0, ErrorCode.CORRUPT_MESSAGE, -1)]


def test_a_transactional_batch_of_no_producer_opens_no_transaction() -> None:
    """As in Kafka: the transactional bit alone has no effect."""
    api = Api(topic_image("t", 2))
    parts = (("t", 0, transactional(b"a", producer_id=-1, producer_epoch=-1, base_sequence=-1)),)
    answer = api.call(request(*parts, ("t", 1, transactional(b"b")), transactional_id="tx", api=api), 12)
    assert [error for _, error, _ in results(answer)] == [ErrorCode.NONE, ErrorCode.NONE]
    assert api.verifier.asked == [("tx", 4, 0, [TopicPartition("t", 1)], True)]


def test_nobody_is_asked_where_verification_is_off_and_the_client_adds_partitions_itself() -> None:
    overrides = {"transaction.partition.verification.enable": "false"}
    api = Api(topic_image("t", 2), overrides=overrides)
    asked = [request(("t", index, transactional(b"a")), transactional_id="tx", api=api) for index in range(2)]
    assert results(api.call(asked[0], 11)) == [(0, ErrorCode.NONE, 0)]
    assert api.verifier.asked == []
    assert results(api.call(asked[1], 12)) == [(1, ErrorCode.NONE, 0)]
    assert len(api.verifier.asked) == 1


def test_a_connection_is_not_read_while_its_transaction_is_verified() -> None:
    """Otherwise a later batch of the transaction would be appended before the first."""
    api = Api(topic_image("t"))
    api.verifier.held = Deferred()
    pending = api.send(request(("t", 0, transactional(b"a")), transactional_id="tx", api=api), 12)
    assert isinstance(pending, Pending)
    assert pending.blocks
    assert api.world.log().log_end_offset == 0
    api.verifier.held.resolve({TopicPartition("t", 0): ErrorCode.NONE})
    assert pending.reply.done
    assert api.world.log().log_end_offset == 1


def test_a_producer_is_answered_whatever_becomes_of_the_verification() -> None:
    api = Api(topic_image("t"))
    api.verifier.held = Deferred()
    asked = request(("t", 0, transactional(b"a")), transactional_id="tx", api=api)
    pending = api.send(asked, 12)
    api.verifier.held.fail(KeyError("of the verifier"))
    assert results(api.decoded(pending.reply.result(), 0, 12))[0][:2] == (0, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert api.world.log().log_end_offset == 0


@pytest.mark.parametrize(
    ("version", "marker_epoch", "told"),
    [(11, 0, ErrorCode.INVALID_TXN_STATE), (12, 1, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_what_the_transactions_end_overtakes_is_not_written(
    version: int, marker_epoch: int, told: ErrorCode
) -> None:
    """The coordinator confirmed the transaction, but the transaction ended before the append. No marker would follow the batch."""
    api = Api(topic_image("t"))
    api.verifier.held = Deferred()
    asked = request(("t", 0, transactional(b"a")), transactional_id="tx", api=api)
    pending = api.send(asked, version)
    marker = build_end_transaction_marker(
        committed=False,
        coordinator_epoch=0,
        producer_id=4,
        producer_epoch=marker_epoch,
        timestamp_ms=api.world.time.now_ms(),
    )
    name = TopicPartition("t", 0)
    ended = api.world.manager.append(name, marker, -1, 13, True, TransactionTerms(), Origin.COORDINATOR)
    assert ended.error is ErrorCode.NONE
    api.verifier.held.resolve({name: ErrorCode.NONE})
    assert results(api.decoded(pending.reply.result(), 0, version))[0][:2] == (0, told)
    assert api.world.log().log_end_offset == 1


@pytest.mark.parametrize("version", [11, 12, 13])
@pytest.mark.parametrize("comes", ["led", "known"])
def test_a_partition_that_comes_to_be_led_while_others_are_verified_is_not_written_unverified(
    version: int, comes: str
) -> None:
    """The coordinator would not know this partition, so no marker would come, and the last stable offset would never advance."""
    here = topic_image("t", 2)
    elsewhere = topic_image("u", {0: partition_image(replicas=(1, 2), leader=2)})
    led = topic_image("u", {0: partition_image(replicas=(1, 2), leader=1, epoch=1)})
    brokers = [broker_image(1), broker_image(2)]
    api = Api(*([here, elsewhere] if comes == "led" else [here]), brokers=brokers)
    api.verifier.held = Deferred()
    parts = (("t", 0, transactional(b"a")), ("u", 0, transactional(b"b")), ("t", 1, batch_of(b"c")))
    asked = request(*parts, transactional_id="tx", api=api)
    asked.topic_data[1].topic_id = led.id
    pending = api.send(asked, version)
    assert api.verifier.asked == [("tx", 4, 0, [TopicPartition("t", 0)], version >= 12)]
    api.publish(image_of(here, led, brokers=brokers))
    api.verifier.held.resolve({TopicPartition("t", 0): ErrorCode.NONE})
    answer = api.decoded(pending.reply.result(), 0, version)
    assert sorted(results(answer)) == [
        (0, ErrorCode.NONE, 0),
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (1, 0, 0),
    ]
    assert api.world.log("u").log_end_offset == 0


def test_single_records_are_named_from_version_eight() -> None:
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(cleanup_policy=("compact",))
    asked = request(("t", 0, batch_of(b"a", b"b", key=None)), api=api)
    row = api.call(asked, 8).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in row.record_errors] == [0, 1]
    assert row.error_message
    assert results(api.call(asked, 7)) == [(0, ErrorCode.INVALID_RECORD, -1)]


def test_internal_topics_are_for_the_admin_client_only() -> None:
    api = Api(topic_image(OFFSETS_TOPIC))
    asked = request((OFFSETS_TOPIC, 0, batch_of(b"a")), api=api)
    assert results(api.call(asked, 9))[0][1] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert results(api.call(asked, 9, client_id="__admin_client"))[0][1] == ErrorCode.NONE


def test_a_partition_twice_is_appended_once_with_its_last_mention() -> None:
    api = Api(topic_image("t"))
    response = api.call(request(("t", 0, batch_of(b"first")), ("t", 0, batch_of(b"second")), api=api), 9)
    assert results(response) == [(0, 0, 0)]
    read = api.world.log().read(0, 1000, 1, True).records
    assert b"second" in (read.read() if isinstance(read, FileSlice) else read)
    assert api.world.log().log_end_offset == 1


def replicated(isr: tuple[int, ...] = (1, 2)) -> Api:
    image = topic_image("t", {0: partition_image(replicas=(1, 2), isr=isr)})
    return Api(image, brokers=[broker_image(1), broker_image(2)])


def test_acks_all_parks_until_replicated_and_does_not_block() -> None:
    api = replicated()
    pending = api.send(request(("t", 0, batch_of(b"a")), acks=-1, api=api), 9)
    assert isinstance(pending, Pending)
    assert not pending.blocks
    assert results(api.call(request(("t", 0, batch_of(b"b")), acks=1, api=api), 9)) == [(0, 0, 1)]
    api.world.manager.follower_fetched(api.world.manager.by_name["t", 0], 2, 1)
    assert results(api.decoded(pending.reply.result(), 0, 9)) == [(0, 0, 0)]


def test_acks_all_times_out() -> None:
    api = replicated()
    pending = api.send(request(("t", 0, batch_of(b"a")), acks=-1, api=api), 9)
    assert isinstance(pending, Pending)
    api.world.time.advance(1000)
    assert results(api.decoded(pending.reply.result(), 0, 9)) == [(0, ErrorCode.REQUEST_TIMED_OUT, 0)]


def test_acks_all_is_immediate_with_one_replica() -> None:
    api = Api(topic_image("t"))
    assert results(api.call(request(("t", 0, batch_of(b"a")), acks=-1, api=api), 9)) == [(0, 0, 0)]


def test_flush_messages_delays_the_answer_until_the_sync() -> None:
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(flush_messages=1)
    pending = api.send(request(("t", 0, batch_of(b"a")), acks=-1, api=api), 9)
    assert isinstance(pending, Pending)
    api.world.workers.run()
    assert results(api.decoded(pending.reply.result(), 0, 9)) == [(0, 0, 0)]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_takes_longer_than_the_timeout_holds_back_no_answer(acks: int) -> None:
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(flush_messages=1)
    pending = api.send(request(("t", 0, batch_of(b"a")), acks=acks, api=api), 9)
    assert isinstance(pending, Pending)
    api.world.time.advance(999)
    assert not pending.reply.done
    api.world.time.advance(1)
    assert results(api.decoded(pending.reply.result(), 0, 9)) == [(0, ErrorCode.REQUEST_TIMED_OUT, 0)]
    api.world.workers.run()  # the sync ends after all, which answers nobody a second time


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("leader_id", [2, 0])
def test_stale_leaders_are_named_from_version_ten(leader_id: int, indexes: tuple[int, ...]) -> None:
    one = partition_image(replicas=(1, leader_id), leader=leader_id, epoch=3)
    brokers = [broker_image(1), broker_image(leader_id)]
    api = Api(topic_image("t", dict.fromkeys(indexes, one)), brokers=brokers)
    asked = request(*[("t", index, batch_of(b"a")) for index in indexes], api=api)
    response = api.call(asked, 10)
    named = [row.current_leader for row in response.responses[0].partition_responses]
    assert [(each.leader_id, each.leader_epoch) for each in named] == [(leader_id, 3)] * len(indexes)
    nodes = [(node.node_id, node.host) for node in response.node_endpoints]
    assert nodes == [(leader_id, f"host-{leader_id}")]
    assert api.call(asked, 9).node_endpoints == []


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
def test_a_broker_without_a_replica_names_the_leader_too(indexes: tuple[int, ...]) -> None:
    moved = partition_image(replicas=(2,), leader=2, epoch=5)
    api = Api(topic_image("t", dict.fromkeys(indexes, moved)), brokers=[broker_image(1), broker_image(2)])
    asked = request(*[("t", index, batch_of(b"a")) for index in indexes], api=api)
    response = api.call(asked, 10)
    assert results(response) == [(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1) for index in indexes]
    assert leaders_told(response) == [(2, 5)] * len(indexes)
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "host-2")]
    assert api.call(asked, 9).node_endpoints == []


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("is_replica", [True, False])
def test_a_produce_that_waits_while_the_leader_changes_is_told_the_new_one(
    indexes: tuple[int, ...], is_replica: bool
) -> None:
    brokers = [broker_image(1), broker_image(2)]
    led = partition_image(replicas=(1, 2), isr=(1, 2), epoch=3)
    api = Api(topic_image("t", dict.fromkeys(indexes, led)), brokers=brokers)
    asked = request(*[("t", index, batch_of(b"a")) for index in indexes], acks=-1, api=api)
    pending = [api.send(asked, version) for version in (9, 10)]
    replicas = (1, 2) if is_replica else (2,)
    moved = partition_image(replicas=replicas, leader=2, epoch=4)
    api.publish(image_of(topic_image("t", dict.fromkeys(indexes, moved)), brokers=brokers))
    earlier, response = [
        api.decoded(each.reply.result(), 0, version)
        for each, version in zip(pending, (9, 10), strict=True)
        if isinstance(each, Pending)
    ]
    assert results(response) == [(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1) for index in indexes]
    assert leaders_told(response) == [(2, 4)] * len(indexes)
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "host-2")]
    assert leaders_told(earlier) == [None] * len(indexes)


def leaders_told(response: Any) -> list[tuple[int, int] | None]:
    """The leader and its epoch of each partition."""
    told = [row.current_leader for topic in response.responses for row in topic.partition_responses]
    return [each and (each.leader_id, each.leader_epoch) for each in told]


def test_one_produce_to_several_partitions_wakes_a_fetch_once_with_all_of_it() -> None:
    api = Api(topic_image("t", 2))
    topic_id = api.node.image.topics["t"].id
    wanted = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(2)]
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=wanted)],
    )
    pending = api.send(fetch, 17)
    assert isinstance(pending, Pending)
    api.call(request(("t", 0, batch_of(b"a")), ("t", 1, batch_of(b"b")), api=api), 9)
    response = api.decoded(pending.reply.result(), 1, 17)
    assert [len(row.records) > 0 for row in response.responses[0].partitions] == [True, True]
    assert api.world.manager.log(TopicPartition("t", 1)) is not None


BLOBS = st.sampled_from(
    [
        batch_of(b"a"),
        batch_of(b"a"),
        batch_of(b"a"),
        batch_of(b"a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        batch_of(b"a")[:40],
        batch_of(b"a")[:16],
        batch_of(b"a")[:5],
        b"",
        None,
        bytes(61),
        b"\xff" * 61,
        bytes(8) + b"\x00\x00\x00\x31" + bytes(49),
    ]
)


@given(
    asked=st.lists(
        st.tuples(st.sampled_from("tu"), st.lists(st.tuples(st.integers(0, 3), BLOBS), max_size=3)),
        max_size=4,
    ),
    many=st.booleans(),
)
def test_a_plain_request_has_nothing_that_the_passes_would_find(
    asked: list[tuple[str, list[tuple[int, Any]]]], many: bool
) -> None:
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=records) for index, records in parts],
        )
        for name, parts in asked
    ]
    if many and topics:
        topics[0].partition_data = [
            PartitionProduceData(index=index, records=batch_of(b"a"))
            for index in range(produce.PLAIN_PARTITIONS_MAX + len(asked) - 1)
        ]
    if not produce._is_plain(topics):
        return
    before = [(topic.name, [*topic.partition_data]) for topic in topics]
    assert sum(len(each) for _, each in before) <= produce.PLAIN_PARTITIONS_MAX
    pace = Pace(produce.NAMED_A_STEP)
    assert at_once(produce._first_that_tells(topics, pace)) is FirstBatch.PLAIN
    after = at_once(produce.without_repeats(topics, pace))
    assert [(topic.name, topic.partition_data) for topic in after] == before


def test_a_usual_request_for_several_partitions_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(topic_image("t", 2), topic_image("u"))
    monkeypatch.setattr(produce, "_in_steps", None)
    asked = request(("t", 0, batch_of(b"a")), ("u", 0, batch_of(b"a")), api=api)
    asked.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch_of(b"b")))
    assert results(api.call(asked, 13)) == [(0, 0, 0), (1, 0, 0), (0, 0, 0)]
