"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, DescribeLogDirs, InitProducerId, Fetch's shapes, SASL."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import (
    NODE_ID,
    batch_of,
    broker_image,
    image_of,
    partition_image,
    topic_image,
)
from kafkacompat.partition.list_offsets import Question
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest
from kafkacompat.wire.messages.describe_producers_request import TopicRequest as ProducersTopic
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def filled(records: int = 3, epoch: int = 2, directories: int = 1) -> Api:
    api = Api(topic_image("t", {0: partition_image(epoch=epoch)}), directories=directories)
    for _ in range(records):
        api.world.produce()
    return api


def list_offsets(*timestamps: int, isolation: int = 0, index: int | None = None) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=position if index is None else index, timestamp=timestamp)
        for position, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
    )


def rows(response: Any) -> list[tuple[int, int, int]]:
    return [(one.error_code, one.offset, one.leader_epoch) for one in response.topics[0].partitions]


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_offset_in_every_version(version: int) -> None:
    api = filled()
    assert rows(api.call(list_offsets(-1), version)) == [(0, 3, 2 if version >= 4 else -1)]


@pytest.mark.parametrize(("version", "told_ms"), [(9, 0), (10, 5000), (11, 5000)])
def test_a_lookup_is_told_how_long_its_client_waits(
    version: int, told_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = filled()
    questions: list[Question] = []

    def list_offset(partition: TopicPartition, question: Question) -> OffsetLookup:
        questions.append(question)
        return OffsetLookup(ErrorCode.NONE)

    monkeypatch.setattr(api.world.manager, "_list_offset", list_offset)
    request = list_offsets(0)
    request.timeout_ms = 5000
    api.call(request, version)
    assert [question.timeout_ms for question in questions] == [told_ms]


@pytest.mark.parametrize(("timestamp", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_by_version(timestamp: int, first: int) -> None:
    api = filled()
    before = rows(api.call(list_offsets(timestamp), first - 1))
    assert before == [(ErrorCode.UNSUPPORTED_VERSION, -1, -1)]
    assert rows(api.call(list_offsets(timestamp), first))[0][0] == 0


def test_unknown_negative_timestamps_are_unsupported() -> None:
    assert rows(filled().call(list_offsets(-9), 11))[0][0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_that_is_named_twice_is_answered_once_and_one_without_partitions_not_at_all() -> None:
    topics = [
        ListOffsetsTopic(name="x", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for index in (0, 1)
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[*topics, ListOffsetsTopic(name="y", partitions=[])])
    (only,) = filled().call(request, 5).topics
    assert [(one.partition_index, one.error_code) for one in only.partitions] == [(0, 3), (1, 3)]


def test_an_unknown_topic_that_is_named_twice_is_refused_once() -> None:
    commits = [OffsetCommitRequestPartition(partition_index=index) for index in (0, 1)]
    for version in (9, 10):
        topics = [
            OffsetCommitRequestTopic(name="x", topic_id=b"?" * 16, partitions=[each]) for each in commits
        ]
        (only,) = filled().call(OffsetCommitRequest(group_id="g", topics=topics), version).topics
        assert [(one.partition_index, one.error_code) for one in only.partitions] == [
            (0, 3 if version == 9 else 100),
            (1, 3 if version == 9 else 100),
        ]


def test_a_transactional_commit_names_an_unknown_topic_without_partitions() -> None:
    asked = TxnOffsetCommitRequest(topics=[TxnOffsetCommitRequestTopic(name="x", partitions=[])])
    (only,) = filled().call(asked, 3).topics
    assert (only.name, only.partitions) == ("x", [])


def test_a_transactional_commit_names_topics_by_id_from_version_6_on() -> None:
    parts = [TxnOffsetCommitRequestPartition(partition_index=index) for index in (0, 7)]
    topics = [
        TxnOffsetCommitRequestTopic(name="x", topic_id=topic_id, partitions=parts[:1])
        for topic_id in (b"?" * 16, bytes(16))
    ]
    topics.append(TxnOffsetCommitRequestTopic(name="x", topic_id=topic_image("t").id, partitions=parts[1:]))
    answer = filled().call(TxnOffsetCommitRequest(topics=topics), 6)
    assert [
        (one.name, one.topic_id, [each.error_code for each in one.partitions]) for one in answer.topics
    ] == [
        ("", b"?" * 16, [ErrorCode.UNKNOWN_TOPIC_ID]),
        ("", bytes(16), [ErrorCode.UNKNOWN_TOPIC_ID]),
        ("", topic_image("t").id, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]


def test_partitions_of_an_epoch_request_that_names_a_topic_twice_are_all_answered() -> None:
    topics = [
        OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=index)])
        for index in (0, 7)
    ]
    (only,) = filled().call(OffsetForLeaderEpochRequest(topics=topics), 4).topics
    assert [(one.partition, one.error_code) for one in only.partitions] == [(0, 0), (7, 3)]


def test_a_fetch_reads_a_partition_that_is_named_twice_once() -> None:
    asked = [FetchPartition(partition=7, partition_max_bytes=1000) for _ in range(2)]
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=asked)])
    (topic,) = filled().call(request, 4).responses
    assert [one.partition_index for one in topic.partitions] == [7]


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_a_fetch_without_a_leader_epoch_says_so_by_any_negative_one(epoch: int) -> None:
    one = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1000)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[one])])
    (topic,) = filled().call(request, 12).responses
    assert [each.error_code for each in topic.partitions] == [0]


def test_duplicate_partitions_are_refused() -> None:
    assert [row[0] for row in rows(filled().call(list_offsets(-1, -2, index=0), 5))] == [42]


def test_other_isolation_levels_are_an_error_on_all_partitions() -> None:
    api = filled()
    assert rows(api.call(list_offsets(-1, isolation=7), 5)) == [(-1, -1, -1)]
    response = api.call(fetch_request(api, isolation=7), 12)
    assert [one.error_code for one in response.responses[0].partitions] == [-1]
    by_id = api.call(fetch_request(api, isolation=7), 13)
    assert (by_id.error_code, by_id.responses) == (-1, [])


def test_unknown_partitions_and_timestamps_that_match_nothing() -> None:
    api = filled()
    assert rows(api.call(list_offsets(-1, index=7), 5)) == [(3, -1, -1)]
    assert rows(api.call(list_offsets(api.world.time.now_ms() + 1), 5)) == [(0, -1, -1)]


def test_before_version_five_offsets_not_available_is_leader_not_available() -> None:
    api = Api(topic_image("t", {0: partition_image(replicas=(1, 2), epoch=1)}))
    api.world.produce()
    api.publish(
        type(api.node.image)(
            offset=2,
            topics={"t": (changed := topic_image("t", {0: partition_image(replicas=(1, 2), epoch=2)}))},
            topics_by_id={changed.id: changed},
        )
    )
    assert rows(api.call(list_offsets(-1), 5))[0][0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert rows(api.call(list_offsets(-1), 4))[0][0] == ErrorCode.LEADER_NOT_AVAILABLE


def epochs(epoch: int, current: int = -1, partition: int = 0) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="t",
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ]
    )


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(version: int) -> None:
    api = filled()

    def told(request: OffsetForLeaderEpochRequest) -> tuple[int, int, int]:
        one = api.call(request, version).topics[0].partitions[0]
        return (one.error_code, one.leader_epoch, one.end_offset)

    assert told(epochs(2)) == (0, 2, 3)
    assert told(epochs(5)) == (0, -1, -1)
    assert told(epochs(2, current=1)) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert told(epochs(2, current=9)) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert told(epochs(2, partition=8)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records(version: int) -> None:
    api = filled()

    def told(offset: int, partition: int = 0) -> tuple[int, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
                )
            ],
            timeout_ms=1000,
        )
        one = api.call(request, version).topics[0].partitions[0]
        return (one.error_code, one.low_watermark)

    assert told(2) == (0, 2)
    assert told(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert told(-1) == (0, 3)
    assert told(0, partition=5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    api.world.log().config = LogConfig(cleanup_policy=("compact",))
    assert told(-1) == (ErrorCode.POLICY_VIOLATION, -1)


def test_describe_producers() -> None:
    api = filled()
    api.world.produce("t", 0, b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0)
    request = DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=[0, 4])])
    known, unknown = api.call(request, 0).topics[0].partitions
    (producer,) = known.active_producers
    assert (
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
    ) == (7, 1, 1, api.world.time.now_ms())
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    absent = DescribeProducersRequest(
        topics=[ProducersTopic(name=name, partition_indexes=[0]) for name in ("absent", "not/legal", "")]
    )
    assert [topic.partitions[0].error_code for topic in api.call(absent, 0).topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_follower_describes_the_producers_of_its_replica() -> None:
    api = filled()
    api.world.produce("t", 0, b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0)
    followed = partition_image(replicas=(NODE_ID, 2), leader=2, epoch=3)
    elsewhere = partition_image(replicas=(2,), leader=2)
    brokers = [broker_image(NODE_ID), broker_image(2)]
    api.publish(image_of(topic_image("t", {0: followed, 1: elsewhere}), brokers=brokers))
    request = DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=[0, 1])])
    here, not_here = api.call(request, 0).topics[0].partitions
    assert here.error_code == ErrorCode.NONE
    assert [(each.producer_id, each.last_sequence) for each in here.active_producers] == [(7, 1)]
    assert not_here.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(version: int) -> None:
    api = filled(directories=2)
    logs = api.world.log_manager
    logs.fail_directory(logs.directories[1], OSError(5, "broken"))
    online, offline = api.call(DescribeLogDirsRequest(topics=None), version).results
    assert (online.log_dir, online.error_code) == ("/data/a", 0)
    (partition,) = online.topics[0].partitions
    assert partition.partition_size == api.world.log().size_bytes()
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert (offline.error_code, offline.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    if version >= 4:
        assert (online.total_bytes, online.usable_bytes, offline.total_bytes) == (1 << 40, 1 << 39, -1)
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="nope", partitions=[0])])
    assert api.call(asked, version).results[0].topics == []


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(version: int) -> None:
    api = Api()
    api.producer_ids.ids = [41, 42]
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    assert [api.call(request, version).producer_id for _ in range(2)] == [41, 42]
    none = api.call(request, version)
    assert (none.error_code, none.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)


def test_init_producer_id_waits_for_the_first_block() -> None:
    """Apache Kafka refuses the request, and librdkafka then waits for a second."""
    api = Api()
    api.producer_ids.waits = Deferred()
    parked = api.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000), 5)
    assert isinstance(parked, Pending)
    assert not parked.reply.done
    api.producer_ids.ids = [41]
    api.producer_ids.waits.resolve(None)
    assert api.decoded(parked.reply.result(), 22, 5).producer_id == 41


def test_a_producer_expects_an_id_and_an_epoch_or_neither() -> None:
    api = Api()
    api.producer_ids.ids = [41]
    for request in (
        InitProducerIdRequest(transactional_id=None, producer_id=3, producer_epoch=-1),
        InitProducerIdRequest(transactional_id="tx", producer_id=-1, producer_epoch=3),
    ):
        response = api.call(request, 4)
        assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert api.producer_ids.ids == [41]


def test_sasl_on_a_listener_without_it_is_answered() -> None:
    api = Api()
    for version in (0, 1):
        assert (
            api.call(SaslHandshakeRequest(mechanism="PLAIN"), version).error_code
            == ErrorCode.ILLEGAL_SASL_STATE
        )
    for version in (0, 1, 2):
        response = api.call(SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.error_message


def fetch_request(api: Api, offset: int = 0, isolation: int = 0, **fields: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        isolation_level=isolation,
        topics=[
            FetchTopic(
                topic="t",
                topic_id=api.node.image.topics["t"].id,
                partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=10**6)],
            )
        ],
        **fields,
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_in_every_version(version: int) -> None:
    api = filled()
    response = api.call(fetch_request(api), version)
    (topic,) = response.responses
    if version >= 13:
        assert topic.topic_id == api.node.image.topics["t"].id
    else:
        assert topic.topic == "t"
    (partition,) = topic.partitions
    assert bytes(partition.records) == b"".join(api.world.batches())
    assert partition.preferred_read_replica == -1
    assert partition.aborted_transactions is None


@pytest.mark.parametrize("version", [7, 12, 17])
def test_sessions_through_the_wire(version: int) -> None:
    api = filled()
    full = api.call(fetch_request(api, session_id=0, session_epoch=0), version)
    assert full.session_id != 0
    pending = api.send(fetch_request(api, offset=3, session_id=full.session_id, session_epoch=1), version)
    assert isinstance(pending, Pending)
    assert pending.blocks
    api.world.time.advance(500)
    response = api.decoded(pending.reply.result(), 1, version)
    assert (response.session_id, response.responses) == (full.session_id, [])


def test_the_followers_id_moves_into_a_tag_at_version_15() -> None:
    api = filled()
    old = api.call(fetch_request(api, replica_id=5), 14)
    new = api.call(fetch_request(api, replica_state=ReplicaState(replica_id=5, replica_epoch=1)), 15)
    for response in (old, new):
        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_of_a_fetch_are_a_part_of_their_own() -> None:
    """The bytes of a slice must not be copied between head and tail: net/ sends them from the file."""
    api = Api(topic_image("t"))
    api.world.manager.append(TopicPartition("t", 0), batch_of(b"x" * 5000), 1, 9, False)
    parts = api.raw(api.frame(fetch_request(api), 12))
    assert api.world.batches()[0] in [part.read() for part in parts if isinstance(part, FileSlice)]
    assert sum(map(len, parts)) - 4 == int.from_bytes(parts[0][:4], "big")
