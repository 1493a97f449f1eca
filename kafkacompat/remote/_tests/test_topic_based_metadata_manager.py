"""The topic of remote log metadata: led by this node on the real log, and by another one behind a channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.partition._tests.kit import (
    NODE_ID,
    LedPartitions,
    broker_image,
    partition_image,
    topic_image,
)
from kafkacompat.records.batch import BatchCorrupt, build_batch
from kafkacompat.records.record import Record
from kafkacompat.records.scan import walk_records
from kafkacompat.remote import topic_based_metadata_manager
from kafkacompat.remote._tests.test_metadata_follower import ONE, TWO, finished, segment
from kafkacompat.remote.metadata import (
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from kafkacompat.remote.ports import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.records import encode_record, metadata_partition
from kafkacompat.remote.topic_based_metadata_manager import (
    FLAWS_TOLD,
    LOOK_MS,
    RECORDS_AT_ONCE,
    REMOTE_LOG_METADATA_TOPIC,
    MetadataTopicSettings,
    TopicBasedRemoteLogMetadataManager,
)
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import fetch_response, list_offsets_response, produce_response
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
from kafkacompat.wire.messages.produce_request import ProduceRequest

OTHER = NODE_ID + 1
GZIP = 1
SETTINGS = MetadataTopicSettings(partition_count=2, consume_wait_ms=10_000)


class OtherNode:
    """The channel to a node that leads partitions of the topic, whose batches it keeps. It answers at once, but for a fetch that
    finds nothing."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {0: [], 1: []}
        self.refusals: list[ErrorCode | Exception] = []
        """Of the next Produce requests."""
        self.waiting: list[tuple[FetchRequest, Deferred[Any]]] = []
        self.limits_asked = 0

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if isinstance(message, ProduceRequest):
            refusal = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
            if isinstance(refusal, Exception):
                answer.fail(refusal)
                return answer
            part = produce_response.PartitionProduceResponse(error_code=refusal)
            if refusal is ErrorCode.NONE:
                data = message.topic_data[0].partition_data[0]
                part.base_offset = self.append(data.index, data.records)
            topics = [produce_response.TopicProduceResponse(partition_responses=[part])]
            answer.resolve(produce_response.ProduceResponse(responses=topics))
        elif isinstance(message, ListOffsetsRequest):
            self.limits_asked += 1
            parts = [
                list_offsets_response.ListOffsetsPartitionResponse(
                    partition_index=each.partition_index,
                    offset=0 if each.timestamp == -2 else self.end(each.partition_index),
                )
                for each in message.topics[0].partitions
            ]
            topic = list_offsets_response.ListOffsetsTopicResponse(partitions=parts)
            answer.resolve(list_offsets_response.ListOffsetsResponse(topics=[topic]))
        else:
            assert isinstance(message, FetchRequest)
            self.waiting.append((message, answer))
            self.answer_fetches()
        return answer

    def end(self, index: int) -> int:
        return len(self.batches[index])

    def append(self, index: int, records: bytes) -> int:
        batch = bytearray(records)
        batch[:8] = self.end(index).to_bytes(8, "big")
        self.batches[index].append(bytes(batch))
        return self.end(index) - 1

    def answer_fetches(self, *, ends: bool = False) -> None:
        """Those that find something; `ends`: all."""
        for message, answer in list(self.waiting):
            parts = [
                fetch_response.PartitionData(
                    partition_index=each.partition,
                    records=b"".join(self.batches[each.partition][each.fetch_offset :]),
                )
                for each in message.topics[0].partitions
            ]
            if ends or any(each.records for each in parts):
                self.waiting.remove((message, answer))
                topic = fetch_response.FetchableTopicResponse(partitions=parts)
                answer.resolve(fetch_response.FetchResponse(responses=[topic]))


class Node:
    def __init__(self, leader: int = NODE_ID, *, has_topic: bool = True, partitions: int = 2) -> None:
        self.led = LedPartitions(brokers=[broker_image(NODE_ID), broker_image(OTHER)])
        self.time = self.led.time
        self.other = OtherNode()
        self.created: list[Any] = []
        self.creation: ErrorCode | Exception = ErrorCode.NONE
        self.manager = TopicBasedRemoteLogMetadataManager(
            NODE_ID,
            SETTINGS,
            lambda: self.led.image,
            self.led.manager,
            lambda node: self.other if node == OTHER else None,
            self._create,
            self.time,
            Tasks(self.time),
            self.led.workers,
        )
        if has_topic:
            self.lead(leader, partitions)

    def _create(self, request: Any) -> Deferred[Any]:
        self.created += request.topics
        answer: Deferred[Any] = Deferred()
        if isinstance(self.creation, Exception):
            answer.fail(self.creation)
        else:
            result = CreatableTopicResult(error_code=self.creation, error_message="no")
            answer.resolve(CreateTopicsResponse(topics=[result]))
        return answer

    def lead(self, leader: int, partitions: int = 2, epoch: int = 0) -> None:
        """The topic, and who leads it."""
        replicas = (NODE_ID, OTHER) if leader == NODE_ID else (OTHER,)
        one = partition_image(replicas=replicas, isr=(leader,), leader=leader, epoch=epoch)
        topic = topic_image(REMOTE_LOG_METADATA_TOPIC, dict.fromkeys(range(partitions), one))
        old: MetadataImage = self.led.image
        self.led.publish(replace(old, topics={topic.name: topic}, topics_by_id={topic.id: topic}))
        for index in range(partitions):
            if leader == NODE_ID:
                self.led.manager.core((topic.name, index))  # type: ignore[arg-type]
        self.led.settle()
        self.manager.on_image()
        self.led.settle()

    def pass_time(self, ms: int = LOOK_MS) -> None:
        self.time.advance(ms)
        self.led.settle()

    def finish(self, waiting: Deferred[Any], within_ms: int = 1_000) -> None:
        """The step ends in time, and its failure is raised."""
        for _ in range(0, within_ms, LOOK_MS):
            self.led.settle()
            self.other.answer_fetches()
            if not waiting.done:
                self.pass_time()
        assert waiting.done
        waiting.result()

    def start(self) -> None:
        self.manager.start()
        self.manager.on_partition_leadership_changes([ONE], [TWO])
        self.pass_time()


@pytest.fixture(params=[NODE_ID, OTHER], ids=["led here", "led by another node"])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param)


def test_a_segment_is_known_when_its_step_is_recorded(node: Node) -> None:
    node.start()
    assert node.manager.is_ready(ONE)
    assert node.manager.is_ready(TWO)
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))
    assert node.manager.remote_log_segment_metadata(ONE, 0, 5) is None
    assert node.manager.list_remote_log_segments(ONE) == [segment(ONE, 0)]
    node.finish(node.manager.update_remote_log_segment_metadata(finished(ONE, 0)))
    copied = segment(ONE, 0).with_update(finished(ONE, 0))
    assert node.manager.remote_log_segment_metadata(ONE, 0, 5) == copied
    assert node.manager.list_remote_log_segments(ONE, 0) == [copied]
    assert node.manager.highest_offset_for_epoch(ONE, 0) == 9
    assert node.manager.next_segment_with_txn_index(ONE, 0, 0) == copied
    assert node.manager.remote_log_size(ONE, 0) == 1
    assert node.manager.list_remote_log_segments(TWO) == []


def test_another_node_reads_what_was_recorded() -> None:
    node = Node(OTHER)
    node.start()
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))
    node.finish(node.manager.update_remote_log_segment_metadata(finished(ONE, 0)))
    later = Node(OTHER)
    later.other.batches = node.other.batches
    later.start()
    assert later.manager.is_ready(ONE)
    assert later.manager.highest_offset_for_epoch(ONE, 0) == 9


def test_what_another_node_records_is_read(node: Node) -> None:
    node.start()
    node.finish(node.manager.add_remote_log_segment_metadata(segment(TWO, 1)))
    assert node.manager.list_remote_log_segments(TWO) == [segment(TWO, 1)]


def test_partitions_may_be_named_before_the_start() -> None:
    node = Node()
    node.manager.on_partition_leadership_changes([ONE], [])
    with pytest.raises(RemoteStorageNotReadyException):
        node.manager.list_remote_log_segments(ONE)
    node.manager.start()
    node.pass_time()
    assert node.manager.is_ready(ONE)


def test_the_topic_is_created_with_kafkas_settings_until_it_is_there() -> None:
    node = Node(has_topic=False)
    node.creation = ErrorCode.INVALID_REPLICATION_FACTOR
    node.start()
    node.creation = ConnectionLost("gone")
    node.pass_time(1_000)
    node.creation = ErrorCode.TOPIC_ALREADY_EXISTS
    node.pass_time(1_000)
    assert len(node.created) >= 3
    assert not node.manager.is_ready(ONE)
    topic = node.created[0]
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("__remote_log_metadata", 2, 3)
    assert {each.name: each.value for each in topic.configs} == {
        "retention.ms": "-1",
        "cleanup.policy": "delete",
        "remote.storage.enable": "false",
        "min.insync.replicas": "2",
    }
    node.lead(NODE_ID)
    node.pass_time(5_000)
    made = len(node.created)
    node.pass_time(10_000)
    assert node.manager.is_ready(ONE)
    assert len(node.created) == made


def test_a_topic_with_another_number_of_partitions_is_not_used() -> None:
    node = Node(partitions=3)
    node.start()
    assert not node.manager.is_ready(ONE)
    with pytest.raises(RetriableRemoteStorageException, match="LEADER_NOT_AVAILABLE"):
        node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)), 20_000)


def test_a_record_is_written_again_until_it_is_taken() -> None:
    node = Node(OTHER)
    node.start()
    node.other.refusals = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ConnectionLost("gone"),
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)), 3_000)
    assert node.manager.list_remote_log_segments(ONE) == [segment(ONE, 0)]


def test_a_record_that_is_refused_for_good_is_not_written_again() -> None:
    node = Node(OTHER)
    node.start()
    node.other.refusals = [ErrorCode.MESSAGE_TOO_LARGE]
    with pytest.raises(RemoteStorageException, match="MESSAGE_TOO_LARGE") as raised:
        node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))
    assert type(raised.value) is RemoteStorageException


def test_a_record_that_is_not_taken_in_time_is_given_up() -> None:
    node = Node(OTHER)
    node.start()
    node.other.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
    with pytest.raises(RetriableRemoteStorageException, match="NOT_ENOUGH_REPLICAS"):
        node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)), 20_000)


def test_a_record_that_is_not_read_back_in_time_is_given_up() -> None:
    node = Node(OTHER)
    node.start()
    waiting = node.manager.add_remote_log_segment_metadata(segment(ONE, 0))
    for _ in range(12):  # the fetch stays unanswered
        node.pass_time(1_000)
    with pytest.raises(RetriableRemoteStorageException, match="was not read up to offset 0"):
        waiting.result()
    node.other.answer_fetches()
    node.pass_time()
    assert node.manager.list_remote_log_segments(ONE) == [segment(ONE, 0)]


def test_the_leader_may_change() -> None:
    node = Node(OTHER)
    node.start()
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))
    node.lead(NODE_ID, epoch=1)
    node.other.answer_fetches(ends=True)
    # The new leader has none of the other's records, as after an unclean election: it is read from its start.
    node.finish(node.manager.add_remote_log_segment_metadata(segment(TWO, 0)), 3_000)
    assert node.manager.list_remote_log_segments(ONE) == [segment(ONE, 0)]
    assert node.manager.list_remote_log_segments(TWO) == [segment(TWO, 0)]


def test_only_partitions_that_were_named_are_known(node: Node) -> None:
    node.start()
    node.manager.on_stop_partitions([TWO])
    with pytest.raises(RemoteResourceNotFoundException):
        node.manager.list_remote_log_segments(TWO)
    with pytest.raises(RemoteResourceNotFoundException):
        node.finish(node.manager.add_remote_log_segment_metadata(segment(TWO, 0)))
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))


def test_a_stop_answers_whoever_waits() -> None:
    node = Node(OTHER)
    node.start()
    waiting = node.manager.add_remote_log_segment_metadata(segment(ONE, 0))
    assert not waiting.done
    node.manager.close()
    with pytest.raises(RemoteResourceNotFoundException):
        waiting.result()
    node.other.answer_fetches(ends=True)
    node.pass_time(60_000)
    with pytest.raises(RemoteResourceNotFoundException):
        node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)))


def test_steps_begin_where_segments_do(node: Node) -> None:
    with pytest.raises(ValueError, match="COPY_SEGMENT_FINISHED"):
        node.manager.add_remote_log_segment_metadata(segment(ONE, 0).with_update(finished(ONE, 0)))
    with pytest.raises(ValueError, match="COPY_SEGMENT_STARTED"):
        node.manager.update_remote_log_segment_metadata(
            replace(finished(ONE, 0), state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        )


def test_a_deleted_partition_is_not_known(node: Node) -> None:
    node.start()
    for state in RemotePartitionDeleteState:
        step = RemotePartitionDeleteMetadata(ONE, state, 1, NODE_ID)
        node.finish(node.manager.put_remote_partition_delete_metadata(step))
    with pytest.raises(RemoteResourceNotFoundException):
        node.manager.list_remote_log_segments(ONE)


def test_whoever_leads_the_topic_finds_deletions_that_are_not_finished() -> None:
    marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    before, later = (RemotePartitionDeleteMetadata(each, marked, 1, OTHER) for each in (ONE, TWO))
    index, node = metadata_partition(ONE, 2), Node()
    batch = build_batch([Record(0, 1, None, encode_record(before))])
    name = TopicPartition(REMOTE_LOG_METADATA_TOPIC, index)
    assert node.led.manager.append(name, batch, -1, 13, False).error is ErrorCode.NONE
    found: list[RemotePartitionDeleteMetadata] = []
    node.manager.deletion_is_begun = found.append
    node.start()
    assert found == [before]
    assert node.manager.is_deletion_unfinished(ONE)
    node.finish(node.manager.put_remote_partition_delete_metadata(later))
    node.lead(NODE_ID, epoch=1)
    node.pass_time()
    assert found == [before, later]
    end = RemotePartitionDeleteMetadata(ONE, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, 1, OTHER)
    node.finish(node.manager.put_remote_partition_delete_metadata(end))
    assert not node.manager.is_deletion_unfinished(ONE)


def test_a_node_that_does_not_lead_the_topic_looks_for_no_deletions() -> None:
    node = Node(OTHER)
    step = RemotePartitionDeleteMetadata(ONE, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 1, OTHER)
    node.other.append(
        metadata_partition(ONE, 2), bytes(build_batch([Record(0, 1, None, encode_record(step))]))
    )
    found: list[RemotePartitionDeleteMetadata] = []
    node.manager.deletion_is_begun = found.append
    node.start()
    assert node.manager.is_ready(ONE)
    assert found == []


def test_records_that_are_broken_are_passed_over() -> None:
    node = Node(OTHER)
    for index in (0, 1):
        node.other.append(index, bytes(build_batch([Record(0, 1, None, b"?")])))
    node.start()
    assert node.manager.is_ready(ONE)
    assert node.manager.is_ready(TWO)


def test_a_batch_of_many_records_is_read_in_pieces() -> None:
    node = Node()
    count = 2 * RECORDS_AT_ONCE + 1
    values = [encode_record(segment(ONE, number % 200)) for number in range(count)]
    batch = build_batch([Record(at, 1, None, value) for at, value in enumerate(values)])
    name = TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata_partition(ONE, 2))
    assert node.led.manager.append(name, batch, -1, 13, False).error is ErrorCode.NONE
    node.start()
    for _ in range(5):
        node.pass_time()
    assert len(node.manager.list_remote_log_segments(ONE)) == 200
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 201)))


def test_a_log_that_begins_within_a_batch_of_many_records_is_read_to_its_end() -> None:
    """Records may be deleted up to any offset. Nobody answers a fetch from below it."""
    node = Node()
    count = 3 * RECORDS_AT_ONCE
    batch = build_batch([Record(at, 1, None, None) for at in range(count)])
    name = TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata_partition(ONE, 2))
    assert node.led.manager.append(name, batch, -1, 13, False).error is ErrorCode.NONE
    node.led.settle()
    core = node.led.manager.core(name)
    assert core is not None
    core.log.set_high_watermark(count)
    assert core.log.increment_log_start_offset(count - RECORDS_AT_ONCE // 2)
    node.manager.start()
    node.manager.on_partition_leadership_changes([ONE], [TWO])
    for _ in range(20):
        node.pass_time()
    assert node.manager.is_ready(ONE)


def append_of_another_writer(node: Node, values: list[bytes | None]) -> None:
    """One compressed batch, as a client may write it."""
    batch = build_batch([Record(at, 1, None, value) for at, value in enumerate(values)], compression=GZIP)
    name = TopicPartition(REMOTE_LOG_METADATA_TOPIC, metadata_partition(ONE, 2))
    assert node.led.manager.append(name, batch, -1, 13, False).error is ErrorCode.NONE
    node.led.settle()


def test_a_batch_that_expands_to_many_records_takes_no_turn_of_the_loop_for_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch of some kilobytes, which a client may write, has millions of records."""
    node = Node()
    append_of_another_writer(node, [None] * 50 * RECORDS_AT_ONCE)
    count = 0

    def counted(*asked: Any) -> Iterator[Record]:
        nonlocal count
        for each in walk_records(*asked):
            count += 1
            yield each

    monkeypatch.setattr(topic_based_metadata_manager, "walk_records", counted)
    node.manager.start()
    node.manager.on_partition_leadership_changes([ONE], [TWO])
    most = 0
    for _ in range(200):
        before = count
        if node.time.pending():
            node.time.fire_next()
        node.led.workers.run()
        most = max(most, count - before)
    assert node.manager.is_ready(ONE)
    assert count >= 50 * RECORDS_AT_ONCE
    assert most <= 5 * RECORDS_AT_ONCE
    told = [each for each in caplog.messages if "passed over" in each]
    assert len(told) == FLAWS_TOLD + 1
    assert told[-1].startswith(f"{50 * RECORDS_AT_ONCE - FLAWS_TOLD} more records")


def test_a_batch_that_expands_beyond_the_bound_does_not_end_the_reading_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_based_metadata_manager, "UNPACKED_BYTES_MAX", 10_000)
    node = Node()
    append_of_another_writer(node, [bytes(200)] * 100)
    node.start()
    node.finish(node.manager.add_remote_log_segment_metadata(segment(ONE, 0)), 20_000)
    assert node.manager.list_remote_log_segments(ONE) == [segment(ONE, 0)]
    assert any("is passed over" in each for each in caplog.messages)


def elsewhere() -> TopicIdPartition:
    """A partition whose records are in another partition of the topic than those of ONE."""
    return next(
        each
        for number in range(100)
        if metadata_partition(each := TopicIdPartition(bytes(15) + bytes([number]), "t", 0), 2)
        != metadata_partition(ONE, 2)
    )


@pytest.mark.parametrize("problem", [BatchCorrupt("damaged on disk"), OSError(5, "the disk refuses")])
def test_a_partition_that_this_node_cannot_read_holds_up_no_other(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, index, other = Node(), metadata_partition(ONE, 2), elsewhere()
    batch = build_batch([Record(0, 1, None, encode_record(segment(ONE, 0)))])
    name = TopicPartition(REMOTE_LOG_METADATA_TOPIC, index)
    assert node.led.manager.append(name, batch, -1, 13, False).error is ErrorCode.NONE
    read = UnifiedLog.read

    def refused(log: UnifiedLog, *asked: Any) -> Any:
        if log.topic_partition.partition == index:
            raise problem
        return read(log, *asked)

    monkeypatch.setattr(UnifiedLog, "read", refused)
    node.manager.on_partition_leadership_changes([other], [])
    node.start()
    node.finish(node.manager.add_remote_log_segment_metadata(segment(other, 0)), 9_000)
    assert not node.manager.is_ready(ONE)
    assert node.manager.list_remote_log_segments(other) == [segment(other, 0)]


def test_a_damaged_batch_holds_up_only_its_partition() -> None:
    node = Node(OTHER)
    damaged = bytearray(build_batch([Record(0, 1, None, b"?")]))
    damaged[-1] ^= 1
    other = elsewhere()
    node.other.append(metadata_partition(ONE, 2), bytes(damaged))
    node.manager.on_partition_leadership_changes([other], [])
    node.start()
    for _ in range(20):
        node.pass_time(1_000)
        node.other.answer_fetches(ends=True)
    assert not node.manager.is_ready(ONE)
    assert node.manager.is_ready(other)


def test_settings_are_kafkas() -> None:
    prefix = "rlmm.config."
    assert MetadataTopicSettings.from_originals({}, prefix) == MetadataTopicSettings(
        3, 50, -1, 2, 120_000, 100
    )
    names = {
        f"{prefix}remote.log.metadata.{name}": value
        for name, value in {
            "topic.replication.factor": "1",
            "topic.num.partitions": "7",
            "topic.retention.ms": "5",
            "topic.min.isr": "1",
            "consume.wait.ms": "6",
            "initialization.retry.interval.ms": "8",
        }.items()
    }
    assert MetadataTopicSettings.from_originals(names, prefix) == MetadataTopicSettings(1, 7, 5, 1, 6, 8)
    for value in ("0", "x"):
        with pytest.raises(ConfigError, match=r"topic\.num\.partitions"):
            MetadataTopicSettings.from_originals(
                {f"{prefix}remote.log.metadata.topic.num.partitions": value}, prefix
            )
