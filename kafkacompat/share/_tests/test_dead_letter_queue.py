"""The dead-letter queue over the real partition manager and logs on the memory disk."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.coordinator._tests.kit import NODE_ID, image_of, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.kit import failing, partition_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.partition.service import FetchedRemotely
from kafkacompat.ports import FileSlice, IndexesRebuilt
from kafkacompat.records.batch import build_batch, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.share import dead_letter_queue
from kafkacompat.share._tests.kit import Remote
from kafkacompat.share.dead_letter_queue import GROUP_ENABLE, DeadLetterQueue
from kafkacompat.share.dead_letters import ATTEMPTS, BACKOFF_MS, Cause, DeadLetterPolicy, DeadLetters
from kafkacompat.share.service import SharePartitionKey
from kafkacompat.tasks import Tasks
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

QUEUE = "dlq.orders"
SOURCE = TopicPartition("orders", 4)
OTHER = NODE_ID + 1


class Peer:
    """The channel to another broker. Requests wait for the test's answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Deferred[Any]]] = []

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.asked.append((message, answer))
        return answer

    def answer(self, code: ErrorCode) -> None:
        _, answer = self.asked[-1]
        part = PartitionProduceResponse(error_code=code)
        answer.resolve(ProduceResponse(responses=[TopicProduceResponse(partition_responses=[part])]))


class DeadLetterNode:
    def __init__(self, policy: DeadLetterPolicy | None = None) -> None:
        self.time = HandTime()
        self.workers = HandWorkers()
        self.disk = MemoryDisk()
        self.disk.make_directory("/data")
        self.policy = policy or DeadLetterPolicy(QUEUE)
        logs = LogManager(self.disk, [("/data", bytes(15) + b"\1")], LogConfig(), self.time)
        logs.load_all()
        self.manager = ReplicaManager(partition_services(NODE_ID, logs, self.time, self.workers))
        self.peer = Peer()
        self.created: list[Any] = []
        self.image = MetadataImage()
        self.queue = DeadLetterQueue(
            NODE_ID,
            lambda: self.image,
            lambda group: self.policy,
            lambda topic: LogConfig(max_message_bytes=2_000),
            self.manager,
            lambda node: self.peer,
            self._create,
            self.time,
            Tasks(self.time),
            self.workers,
        )
        self.publish(topic_image("orders", 5), topic_image(QUEUE, 3), enabled=True)
        self.key = SharePartitionKey("workers", self.image.topics["orders"].id, SOURCE.partition)

    def _create(self, request: Any) -> Deferred[Any]:
        self.created += request.topics
        return Deferred.of(
            CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name) for each in request.topics])
        )

    def publish(self, *topics: TopicImage, enabled: bool) -> None:
        old = self.image
        configs = {(ConfigResourceType.TOPIC, QUEUE): {GROUP_ENABLE: "true"}} if enabled else {}
        self.image = replace(image_of(topics, old.offset + 1), configs=configs)
        self.manager.on_image(old, self.image)
        self.time.advance(0)

    def fill(self, *values: bytes) -> None:
        for value in values:
            self.manager.append(SOURCE, build_batch([Record(0, 1, b"k", value)]), -1, 9, False)

    def one_letter(self, offset: int) -> tuple[SharePartitionKey, TopicPartition, DeadLetters]:
        return self.key, SOURCE, DeadLetters(offset, offset, 5, Cause.DELIVERY_COUNT_EXCEEDED)

    def send(self, first: int, last: int) -> Deferred[bool]:
        sent = self.queue.enqueue(
            self.key, SOURCE, DeadLetters(first, last, 5, Cause.DELIVERY_COUNT_EXCEEDED)
        )
        self.run()
        return sent

    def run(self) -> None:
        for _ in range(10):
            self.workers.run_all()
            self.time.advance(0)

    def letters(self, index: int = 1) -> list[tuple[bytes | None, str]]:
        """(value, source offset) of each dead letter in a partition of the queue. 4 % 3 is 1."""
        log = self.manager.log(TopicPartition(QUEUE, index))
        assert log is not None
        found = []
        if log.log_end_offset:
            read = log.read(0, 1 << 20, log.log_end_offset, True).records
            data = read.read() if isinstance(read, FileSlice) else read
            for header in iterate_batches(data):
                batch = bytes(data[header.position : header.position + header.size])
                for _, record in records_of(batch, header):
                    offset = dict(record.headers)["__dlq.errors.offset"] or b""
                    found.append((record.value, offset.decode()))
        return found


def counted(world: DeadLetterNode) -> tuple[int, int, int]:
    """Of the group: dead letters that were written, requests for it, letters that were given up after a request."""
    meter = world.queue.meters["workers"]
    return meter.written, meter.requests, meter.failed


def test_dead_letters_lie_in_the_partition_with_the_sources_number() -> None:
    world = DeadLetterNode()
    world.fill(b"a", b"b")
    assert world.send(0, 1).result() is True
    assert world.letters() == [(None, "0"), (None, "1")]
    assert counted(world) == (2, 1, 0)


def test_records_are_copied_where_the_group_says_so() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    assert world.send(0, 1).result() is True
    assert world.letters() == [(b"a", "0"), (b"b", "1")]


def test_a_record_that_retention_took_is_told_without_its_contents() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    log = world.manager.log(SOURCE)
    assert log is not None
    world.run()
    log.set_high_watermark(2)
    log.increment_log_start_offset(2)
    assert world.send(0, 1).result() is True
    assert world.letters() == [(None, "0"), (None, "1")]


@pytest.mark.parametrize("late", [None, ErrorCode.UNKNOWN_SERVER_ERROR], ids=["throttled", "fails"])
def test_records_of_the_remote_storage_are_copied_when_it_gives_them(late: ErrorCode | None) -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    log: Any = None
    for value in (b"a", b"b"):
        if value == b"b":
            log = world.manager.log(SOURCE)
            log.roll(1, world.time.now_ms())
        world.fill(value)
    world.run()
    log.set_high_watermark(2)
    batch = bytes(log.read(0, 1 << 20, 1, True).records.read())
    log._has_remote_storage = True
    log.config = LogConfig(remote_storage_enable=True, local_retention_bytes=1, retention_ms=-1)
    log.note_copied_to(0)
    assert log.enforce_retention(world.time.now_ms()) == 1
    remote = world.manager.remote = Remote()  # type: ignore[assignment]
    sent = world.send(0, 1)
    assert remote.asked == [(0, dead_letter_queue.READ_BYTES, True)]
    remote.answers[0].resolve([late])
    world.run()
    assert not sent.done
    world.time.advance(BACKOFF_MS)
    remote.answers[1].resolve([FetchedRemotely(memoryview(batch), ())])
    world.run()
    assert sent.result() is True
    assert world.letters() == [(b"a", "0"), (b"b", "1")]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_source_that_cannot_be_read_for_a_while_is_copied_later(number: int) -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    refused: list[str] = []

    def refuse(operation: str, path: str) -> OSError | None:
        if operation != "read" or "/orders-" not in path or len(refused) == ATTEMPTS - 1:
            return None
        refused.append(path)
        return OSError(number, "not now")

    world.disk.refuse = refuse
    sent = world.send(0, 1)
    for attempt in range(ATTEMPTS - 1):
        assert not sent.done
        world.time.advance(BACKOFF_MS << attempt)
        world.run()
    assert sent.result() is True
    assert world.letters() == [(b"a", "0"), (b"b", "1")]


def test_the_indexes_of_a_source_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    log = world.manager.log(SOURCE)
    assert isinstance(log, UnifiedLog)
    rebuilt = IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR)
    with monkeypatch.context() as patched:
        patched.setattr(UnifiedLog, "read", failing(log, "read", rebuilt))
        sent = world.send(0, 1)
    world.time.advance(BACKOFF_MS)
    world.run()
    assert sent.result() is True
    assert world.letters() == [(b"a", "0"), (b"b", "1")]


def test_a_source_that_stays_unreadable_is_told_without_its_contents() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    world.disk.refuse = lambda operation, path: (
        OSError(errno.EIO, "broken") if operation == "read" and "/orders-" in path else None
    )
    sent = world.send(0, 1)
    for attempt in range(ATTEMPTS - 1):
        assert not sent.done
        world.time.advance(BACKOFF_MS << attempt)
        world.run()
    assert sent.result() is True
    assert world.letters() == [(None, "0"), (None, "1")]


def test_records_are_copied_that_lie_behind_the_first_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_queue, "READ_BYTES", 300)
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    values = [b"%d" % number * 100 for number in range(5)]
    world.fill(*values)
    assert world.send(0, 4).result() is True
    assert world.letters() == [(value, str(offset)) for offset, value in enumerate(values)]


def test_records_are_copied_that_retention_has_left() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b", b"c")
    log = world.manager.log(SOURCE)
    assert log is not None
    world.run()
    log.set_high_watermark(3)
    log.increment_log_start_offset(2)
    assert world.send(0, 2).result() is True
    assert world.letters() == [(None, "0"), (None, "1"), (b"c", "2")]


def test_a_large_range_is_written_in_batches_that_the_topic_takes() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(*[b"x" * 600] * 9)
    assert world.send(0, 8).result() is True
    assert [offset for _, offset in world.letters()] == [str(offset) for offset in range(9)]


def test_ranges_of_a_share_partition_are_written_in_order() -> None:
    world = DeadLetterNode()
    world.fill(b"a", b"b", b"c")
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3, leader=OTHER), enabled=True)
    first = world.send(0, 0)
    second = world.send(1, 2)
    assert len(world.peer.asked) == 1
    world.peer.answer(ErrorCode.NONE)
    assert first.result() is True
    world.run()
    assert not second.done
    world.peer.answer(ErrorCode.NONE)
    assert second.result() is True


def test_the_leader_of_the_queue_is_asked() -> None:
    world = DeadLetterNode()
    world.fill(b"a")
    queue = topic_image(QUEUE, 3)
    queue = replace(
        queue, partitions={**queue.partitions, 1: partition_image(replicas=(OTHER,), leader=OTHER)}
    )
    world.publish(topic_image("orders", 5), queue, enabled=True)
    sent = world.send(0, 0)
    ((request, _),) = world.peer.asked
    (topic,) = request.topic_data
    assert (request.acks, topic.name, topic.topic_id, topic.partition_data[0].index) == (
        -1,
        QUEUE,
        queue.id,
        1,
    )
    world.peer.answer(ErrorCode.NONE)
    assert sent.result() is True


def test_a_lost_leader_is_tried_again_and_given_up_after_some_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = DeadLetterNode()
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3, leader=OTHER), enabled=True)
    sent = world.send(0, 2)
    for attempt in range(1, ATTEMPTS + 1):
        assert len(world.peer.asked) == attempt
        assert not sent.done
        world.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.time.advance(BACKOFF_MS << attempt - 1)
    assert sent.result() is False
    assert world.queue.given_up == 3
    assert counted(world) == (0, ATTEMPTS, 1)
    assert (
        f"'workers': no dead letters of orders-4, offsets 0 to 2: node {OTHER} answered NOT_LEADER_OR_FOLLOWER"
        in caplog.text
    )


def test_an_error_that_no_attempt_mends_is_given_up_at_once() -> None:
    world = DeadLetterNode()
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3, leader=OTHER), enabled=True)
    sent = world.send(0, 0)
    world.peer.answer(ErrorCode.MESSAGE_TOO_LARGE)
    assert sent.result() is False
    assert len(world.peer.asked) == 1
    assert counted(world) == (0, 1, 1)


def test_a_letter_that_is_given_up_unsent_is_no_failed_request() -> None:
    """As in Kafka: DeadLetterQueueFailedProduceRequestsPerSec."""
    world = DeadLetterNode(DeadLetterPolicy("wrong"))
    assert world.send(0, 0).result() is False
    assert (world.queue.given_up, world.queue.meters) == (1, {})


def test_no_more_groups_are_counted_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the ids of groups. The group whose letters were sent first is forgotten."""
    monkeypatch.setattr(dead_letter_queue, "GROUPS_COUNTED", 2)
    world = DeadLetterNode()
    world.fill(b"a")
    for group in ("a", "b", "a", "c", "x" * (dead_letter_queue.NAME_MAX + 1)):
        world.key = world.key._replace(group_id=group)
        assert world.send(0, 0).result() is True
    assert {group: meter.written for group, meter in world.queue.meters.items()} == {"a": 2, "c": 1}


def test_a_range_that_is_given_up_does_not_hold_up_the_next() -> None:
    world = DeadLetterNode()
    world.fill(b"a")
    world.policy = DeadLetterPolicy("wrong")
    assert world.send(0, 0).result() is False
    world.policy = DeadLetterPolicy(QUEUE)
    assert world.send(0, 0).result() is True


def test_a_missing_topic_is_created_where_the_broker_may() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, creates_topics=True))
    world.fill(b"a")
    world.publish(topic_image("orders", 5), enabled=False)
    sent = world.send(0, 0)
    (made,) = world.created
    assert (made.name, [(each.name, each.value) for each in made.configs]) == (
        QUEUE,
        [(GROUP_ENABLE, "true"), ("message.timestamp.type", "CreateTime")],
    )
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 1), enabled=True)
    assert not sent.done
    world.time.advance(1_000)
    world.run()
    assert sent.result() is True
    assert world.letters(0) == [(None, "0")]


def test_a_topic_that_was_made_without_leave_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = DeadLetterNode()
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3), enabled=False)
    assert world.send(0, 0).result() is False
    assert "errors.deadletterqueue.group.enable of topic dlq.orders is false" in caplog.text
    assert world.letters() == []


def test_nothing_is_written_after_the_end() -> None:
    world = DeadLetterNode()
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3, leader=OTHER), enabled=True)
    waiting = world.send(0, 0)
    world.queue.close()
    world.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.time.advance(60_000)
    assert len(world.peer.asked) == 1
    assert not waiting.done
    assert not world.send(0, 0).done, "the next leader writes it"
