"""Produces that take more than one step of the loop: their order, their waits, and what other requests see in between."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_long_requests import stepping_api
from kafkacompat.api._tests.test_produce import request, results
from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import batch_of, broker_image, image_of, partition_image, topic_image
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.records import compression, scan
from kafkacompat.records._tests.bombs import (
    batch_of_body,
    record_of_headers,
    record_of_value,
    records_of_headers,
)
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.records.validate import STEP_UNITS
from kafkacompat.wire.errors import ErrorCode

BOMB = batch_of_body(record_of_headers(10_000_000), compression.ZSTD)


def settle(api: Api) -> None:
    """Run until nothing is left to do: worker jobs, and steps, which are one timer each."""
    for _ in range(2000):
        if api.world.workers.submitted:
            api.world.workers.run()
        elif any(timer.at_ms <= api.world.time.ms for timer in api.world.time.pending()):
            api.world.time.advance(0)
        else:
            return
    raise AssertionError("it never ends")


def pending(api: Api, asked: Any, version: int = 9) -> Pending:
    reply = api.send(asked, version)
    assert isinstance(reply, Pending)
    assert reply.blocks, "the connection would be read on"
    assert not reply.reply.done
    return reply


def answered(api: Api, reply: Pending, version: int = 9) -> list[tuple[int, int, int]]:
    settle(api)
    assert reply.reply.done
    return results(api.decoded(reply.reply.result(), 0, version))


def large(size: int = 5_000_000, codec: int = compression.LZ4) -> bytearray:
    return batch_of_body(record_of_value(size), codec)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_bomb_is_refused_later_and_another_connection_served_meanwhile(version: int) -> None:
    api = Api(topic_image("t"))
    bomb = pending(api, request(("t", 0, BOMB), api=api), max(version, 7))
    assert results(api.call(request(("t", 0, batch_of(b"a")), api=api), version)) == [(0, 0, 0)]
    assert answered(api, bomb, max(version, 7)) == [(0, ErrorCode.INVALID_RECORD, -1)]
    assert api.world.log().log_end_offset == 1


def test_a_large_batch_is_appended_when_it_is_validated() -> None:
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(max_message_bytes=10_000_000)
    assert answered(api, pending(api, request(("t", 0, large()), api=api))) == [(0, 0, 0)]
    assert api.world.log().log_end_offset == 1


def test_without_acks_it_is_appended_in_silence_or_the_connection_closed() -> None:
    api = Api(topic_image("t"))
    reply = pending(api, request(("t", 0, large()), acks=0, api=api))
    settle(api)
    assert reply.reply.result() is None
    assert api.world.log().log_end_offset == 1
    refused = pending(api, request(("t", 0, BOMB), acks=0, api=api))
    settle(api)
    with pytest.raises(CloseConnection):
        refused.reply.result()


def test_partitions_of_one_request_are_each_answered_in_their_place() -> None:
    api = Api(topic_image("t", 4))
    asked = request(
        ("t", 0, batch_of(b"a")), ("t", 1, BOMB), ("t", 2, large()), ("t", 3, batch_of(b"b")), api=api
    )
    reply = pending(api, asked)
    assert [api.world.log("t", index).log_end_offset for index in range(4)] == [1, 0, 0, 0]
    assert answered(api, reply) == [(0, 0, 0), (1, ErrorCode.INVALID_RECORD, -1), (2, 0, 0), (3, 0, 0)]


def test_what_was_appended_before_a_pause_is_waited_for_from_then_on() -> None:
    """If leadership was lost and regained in between, other records may be at the same offset."""
    replicas = (1, 2)
    api = Api(topic_image("t", {index: partition_image(replicas=replicas) for index in range(2)}))
    reply = pending(api, request(("t", 0, batch_of(b"a")), ("t", 1, large()), acks=-1, api=api))
    elsewhere, kept = (
        partition_image(leader=2, replicas=replicas, epoch=6),
        partition_image(replicas=replicas),
    )
    api.publish(image_of(topic_image("t", {0: elsewhere, 1: kept})))
    again = partition_image(replicas=replicas, isr=(1,), epoch=7)
    api.publish(image_of(topic_image("t", {0: again, 1: kept})))
    settle(api)
    api.world.time.advance(2000)
    assert results(api.decoded(reply.reply.result(), 0, 9)) == [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0),
        (1, ErrorCode.REQUEST_TIMED_OUT, 0),
    ]


def test_a_partition_that_went_elsewhere_meanwhile_takes_nothing() -> None:
    api = Api(topic_image("t"))
    reply = pending(api, request(("t", 0, large()), api=api))
    api.publish(image_of(topic_image("t", {0: partition_image(leader=2, epoch=9)})))
    assert answered(api, reply) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_topic_deleted_meanwhile_takes_nothing() -> None:
    api = Api(topic_image("t"))
    reply = pending(api, request(("t", 0, large()), api=api))
    api.publish(image_of())
    assert answered(api, reply) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_many_small_batches_of_one_request_are_appended_in_portions() -> None:
    api = Api(topic_image("t", 600))
    parts = [("t", index, batch_of(b"a")) for index in range(600)]
    reply = pending(api, request(*parts, api=api))
    assert 0 < sum(log.log_end_offset for log in api.world.log_manager.logs.values()) < 300
    assert answered(api, reply) == [(index, 0, 0) for index in range(600)]


def test_many_unknown_partitions_are_refused_in_portions() -> None:
    api = stepping_api(topic_image("t"))
    reply = pending(api, request(*[("no", index, None) for index in range(2000)], api=api))
    assert [error for _, error, _ in answered(api, reply)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2000


def test_a_batch_of_usual_size_does_not_wait_for_huge_ones(monkeypatch: Any) -> None:
    """Eight clients each send one. Their bodies are compressed anew, which may take minutes."""
    from kafkacompat.partition import replica_manager

    monkeypatch.setattr(replica_manager, "USUAL_BYTES", 1_000_000)
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(compression_type="gzip")
    huge = [pending(api, request(("t", 0, large()), api=api)) for _ in range(8)]
    while len(api.world.workers.submitted) < 2:
        api.world.time.advance(0)
    usual = pending(api, request(("t", 0, large(500_000)), api=api))
    jobs = 0
    while not usual.reply.done:
        jobs += len(api.world.workers.submitted)
        api.world.workers.run()
        api.world.time.advance(0)
    assert not any(reply.reply.done for reply in huge)
    # It has three jobs itself. Between them, each batch in progress may have one.
    assert jobs <= 3 * (replica_manager.USUAL_AT_ONCE + replica_manager.HUGE_AT_ONCE)
    assert results(api.decoded(usual.reply.result(), 0, 9)) == [(0, 0, 0)]
    assert {answered(api, reply)[0][1] for reply in huge} == {0}


def test_many_bombs_wait_and_more_are_told_to_come_again(monkeypatch: Any) -> None:
    from kafkacompat.partition import replica_manager

    monkeypatch.setattr(replica_manager, "WAITING_MAX", 3)
    monkeypatch.setattr(replica_manager, "USUAL_AT_ONCE", 2)
    api = Api(topic_image("t"))
    replies = [pending(api, request(("t", 0, BOMB), api=api)) for _ in range(5)]
    assert len(api.world.workers.submitted) == 0
    api.world.time.advance(0)
    assert len(api.world.workers.submitted) <= 2
    sixth = api.send(request(("t", 0, BOMB), api=api), 9)
    decoded = sixth if not isinstance(sixth, Pending) else api.decoded(sixth.reply.result(), 0, 9)
    assert results(decoded) == [(0, ErrorCode.REQUEST_TIMED_OUT, -1)]
    for reply in replies:
        assert answered(api, reply) == [(0, ErrorCode.INVALID_RECORD, -1)]


def test_headers_of_many_records_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of each step is counted in units. Timers of other requests fire between two steps."""
    monkeypatch.setattr(scan, "_scan", None)  # one unit of the C scanner covers sixteen headers
    api = Api(topic_image("t"))
    count = 60
    batch = batch_of_body(records_of_headers(count, 1000), compression.ZSTD, count)
    reply = pending(api, request(("t", 0, batch), api=api))
    steps = 0
    while not reply.reply.done:
        api.world.workers.run()
        (timer,) = api.world.time.pending() or (None,)
        if timer is not None:
            timer.fire()
            steps += 1
    # A step ends after the record in which its units run out.
    assert steps >= count // (STEP_UNITS // 1000 + 1)


def test_an_ordinary_large_batch_is_appended_at_once() -> None:
    api = Api(topic_image("t"))
    batch = build_batch([Record(i, 0, b"k", bytes(1000)) for i in range(1000)], compression=compression.ZSTD)
    assert results(api.call(request(("t", 0, batch), api=api), 9)) == [(0, 0, 0)]


def test_a_large_batch_is_looked_at_on_the_way_once_before_it_is_opened_aside(monkeypatch: Any) -> None:
    """A producer under load may send nothing but such batches."""

    from kafkacompat.partition import replica_manager

    tried = []
    validate = replica_manager.validate_produce

    def counting(*arguments: Any, **options: Any) -> Any:
        tried.append(arguments)
        return validate(*arguments, **options)

    monkeypatch.setattr(replica_manager, "validate_produce", counting)
    api = Api(topic_image("t"))
    api.world.log().config = LogConfig(max_message_bytes=10_000_000)
    assert answered(api, pending(api, request(("t", 0, large()), api=api))) == [(0, 0, 0)]
    assert len(tried) == 1


def test_a_topic_made_anew_meanwhile_takes_nothing_that_was_sent_to_the_old_one_by_id() -> None:
    api = Api(topic_image("t", 2))
    topic = api.node.image.topics["t"]
    asked = request(("t", 0, large()), api=api)
    asked.topic_data[0].partition_data.append(
        type(asked.topic_data[0].partition_data[0])(index=1, records=batch_of(b"a"))
    )
    assert asked.topic_data[0].topic_id == topic.id
    reply = pending(api, asked, 13)
    api.publish(image_of(topic_image("t", 2, generation=1)))
    assert answered(api, reply, 13) == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (1, ErrorCode.UNKNOWN_TOPIC_ID, -1),
    ]


@pytest.mark.parametrize("kind", ["one batch", "several", "large", "in a transaction"])
def test_a_wait_that_fails_leaves_nobody_waiting(kind: str, monkeypatch: Any) -> None:
    followed = partition_image(
        replicas=(1, 2), isr=(1, 2)
    )  # for others a plain request may know that it need not wait
    api = Api(topic_image("t", {0: followed, 1: followed}), brokers=[broker_image(1), broker_image(2)])
    api.world.log().config = LogConfig(max_message_bytes=10_000_000)
    waits: list[Deferred[Any]] = []

    def when_replicated(*arguments: Any) -> Deferred[Any]:
        waits.append(Deferred())
        return waits[-1]

    monkeypatch.setattr(api.world.manager, "when_replicated", when_replicated)
    batch: Any = large() if kind == "large" else batch_of(b"a")
    others = [("t", 1, batch_of(b"b"))] if kind == "several" else []
    transactional_id = None
    if kind == "in a transaction":
        transactional_id = "tx"
        batch = build_batch(
            [Record(0, 0, b"k", b"v")],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        api.verifier.held = Deferred()
    reply = api.send(
        request(("t", 0, batch), *others, acks=-1, transactional_id=transactional_id, api=api), 9
    )
    if api.verifier.held is not None:
        api.verifier.held.resolve({TopicPartition("t", 0): ErrorCode.NONE})
    settle(api)
    assert isinstance(reply, Pending)
    assert not reply.reply.done
    for wait in waits:
        wait.fail(RuntimeError("a bug"))
    assert reply.reply.done
    if reply.blocks:
        _, error, _ = results(api.decoded(reply.reply.result(), 0, 9))[0]
        assert error == ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        assert reply.reply.has_failed, "the request is not there any more, so that the connection ends"
