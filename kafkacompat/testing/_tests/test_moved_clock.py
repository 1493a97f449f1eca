"""What follows a clock that a test moves: locks of share groups, quotas, producer ids, delegation tokens, streams groups, and the
timeouts of rebalances. No client is involved: the requests are those of clients that never come again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kafkacompat.client.blocking import Connection
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.testing import Kafka
from kafkacompat.testing.waiting import until
from kafkacompat.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkacompat.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.produce_response import ProduceResponse
from kafkacompat.wire.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        kafka.clock.freeze()
        yield kafka


def topic_id(kafka: Kafka, topic: str) -> bytes:
    broker = kafka.node.server.broker
    assert broker is not None
    return kafka.node.call(lambda: broker.partitions.image.topics[topic].id)


def produce_request(kafka: Kafka, topic: str, size: int = 1, **producer: int) -> ProduceRequest:
    records = build_batch([Record(0, kafka.clock.now_ms(), None, bytes(size), ())], **producer)
    data = TopicProduceData(
        name=topic,
        topic_id=topic_id(kafka, topic),
        partition_data=[PartitionProduceData(index=0, records=records)],
    )
    return ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])


def throttle_ms(kafka: Kafka, size: int) -> int:
    """What a client is told that produces so many bytes, by a connection of its own: one that is throttled is not read."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with closing(Connection(host, int(port))) as connection:
        answer = connection.call(produce_request(kafka, "t", size), ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


def test_a_lock_on_a_record_ends(kafka: Kafka) -> None:
    """share.record.lock.duration.ms is 30 seconds, and the member's session is longer."""
    kafka.create_topic("t")
    group = {"group_id": "g", "member_id": MEMBER}
    first = kafka.ask(1, ShareGroupHeartbeatRequest(**group, subscribed_topic_names=["t"]))
    assert (first.error_code, first.assignment is not None) == (0, True)
    delivered: list[int] = []

    def fetch(epoch: int) -> list[int]:
        partition = FetchPartition(partition_index=0)
        request = ShareFetchRequest(
            **group,
            share_session_epoch=epoch,
            max_records=10,
            batch_size=10,
            topics=[FetchTopic(topic_id=topic_id(kafka, "t"), partitions=[partition])],
        )
        answer = kafka.ask(1, request)
        assert answer.error_code == 0
        parts = [each for topic in answer.responses for each in topic.partitions]
        return [each.delivery_count for part in parts for each in part.acquired_records]

    def produced_and_fetched() -> list[int]:
        """The group begins at the end that it finds, which may be behind the first records."""
        kafka.produce("t", ["x"])
        delivered.extend(fetch(next(epochs)))
        return delivered

    fetch(0)
    epochs = iter(range(1, 1_000))
    until(produced_and_fetched, 30, lambda: "nothing is delivered")
    assert set(delivered) == {1}
    kafka.clock.advance(seconds=29)
    assert fetch(next(epochs)) == []
    kafka.clock.advance(seconds=2)
    assert fetch(next(epochs)) == [2] * len(delivered)


def test_what_was_too_much_for_a_quota_is_forgotten(kafka: Kafka) -> None:
    kafka.create_topic("t")
    quota = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=None)],
        ops=[OpData(key="producer_byte_rate", value=1_000.0)],
    )
    assert kafka.ask(1, AlterClientQuotasRequest(entries=[quota])).entries[0].error_code == 0
    kafka.clock.settle()  # the broker has learned of it
    assert throttle_ms(kafka, 100) == 0
    assert throttle_ms(kafka, 50_000) > 0
    assert throttle_ms(kafka, 100) > 0
    kafka.clock.advance(minutes=5)
    assert throttle_ms(kafka, 100) == 0


def test_a_producer_id_expires() -> None:
    settings = {"producer.id.expiration.ms": 300_000, "producer.id.expiration.check.interval.ms": 60_000}
    with Kafka(settings) as kafka:
        kafka.clock.freeze()
        kafka.create_topic("t")
        kafka.ask(1, produce_request(kafka, "t", producer_id=7, producer_epoch=0, base_sequence=0))

        def producers() -> list[int]:
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            (partition,) = kafka.ask(1, request).topics[0].partitions
            return [each.producer_id for each in partition.active_producers]

        assert producers() == [7]
        kafka.clock.advance(minutes=4)
        assert producers() == [7]
        kafka.clock.advance(minutes=3)
        assert producers() == []


def test_a_delegation_token_expires() -> None:
    settings = {
        "delegation.token.secret.key": "secret",
        "delegation.token.expiry.time.ms": 300_000,
        "delegation.token.expiry.check.interval.ms": 60_000,
    }
    with Kafka(settings, secure="SASL_PLAINTEXT") as kafka:
        kafka.clock.freeze()
        made = kafka.ask(1, CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert made.error_code == 0

        def tokens() -> list[str]:
            answer = kafka.ask(1, DescribeDelegationTokenRequest(owners=None))
            assert answer.error_code == 0
            return [each.token_id for each in answer.tokens]

        assert tokens() == [made.token_id]
        kafka.clock.advance(minutes=4)
        assert tokens() == [made.token_id]
        kafka.clock.advance(minutes=3)
        assert tokens() == []


def test_the_session_of_a_streams_member_ends(kafka: Kafka) -> None:
    """It is 45 seconds long."""
    kafka.create_topic("t")
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"])])
    joined = kafka.ask(
        1,
        StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id=MEMBER,
            process_id="p",
            rebalance_timeout_ms=10_000,
            topology=topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        ),
    )
    assert joined.error_code == 0
    kafka.clock.advance(seconds=44)
    assert len(kafka.groups()["g"].members) == 1
    kafka.clock.advance(seconds=2)
    assert kafka.groups()["g"].members == ()


def test_who_does_not_join_in_time_is_left_behind(kafka: Kafka) -> None:
    def join(member_id: str, instance_id: str) -> Any:
        return kafka.ask(
            1,
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=300_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
        )

    one = join("", "one")
    assert one.error_code == 0
    assigned = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"")]
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=one.generation_id,
        member_id=one.member_id,
        group_instance_id="one",
        protocol_type="consumer",
        protocol_name="range",
        assignments=assigned,
    )
    assert kafka.ask(1, sync).error_code == 0
    answers: list[Any] = []
    other = threading.Thread(target=lambda: answers.append(join("", "two")))
    other.start()
    until(lambda: kafka.groups()["g"].state == "PreparingRebalance", 30, lambda: str(kafka.groups()))
    kafka.clock.advance(seconds=59)
    assert kafka.groups()["g"].state == "PreparingRebalance"
    kafka.clock.advance(seconds=2)
    other.join()
    assert answers[0].error_code == 0
    assert answers[0].generation_id == one.generation_id + 1
