"""The cache of encoded topics: its answers are the same bytes as those of a node without a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.api._tests.kit import Api, pauseless
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.encoded_topics import ENTRY_BYTES, EncodedTopics
from kafkacompat.api.metadata import describe_topic
from kafkacompat.controller.image import BrokerRegistration
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.partition._tests.kit import broker_image, image_of, partition_image, topic_image
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkacompat.wire.messages.fence_broker_record import FenceBrokerRecord
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord
from kafkacompat.wire.messages.unfence_broker_record import UnfenceBrokerRecord
from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord

LISTENERS = ("PLAINTEXT", "OUTSIDE")
VERSIONS = (0, 1, 5, 6, 8, 9, 12, 13)
NAMES = ("a", "b", "__consumer_offsets")
BROKERS = (1, 2, 3)
DIRECTORIES = (b"h" * 16, b"g" * 16, bytes(16), bytes(15) + b"\2")


class History:
    """Committed metadata records, drawn so that each is valid for the image before it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.image = image_of()
        self.epoch = 0

    def step(self) -> None:
        kinds = ["create", "register", "nothing"]
        if self.image.topics:
            kinds += ["delete", "add partition", "change partition", "change partition"]
        if self.image.brokers:
            kinds += ["fence", "unfence", "unregister", "lose directories"]
        delta = MetadataDelta(self.image)
        records = getattr(self, self.draw(st.sampled_from(kinds)).replace(" ", "_"))()
        for record in records:
            delta.replay(type(record).API_KEY, record)
        self.image = delta.apply(self.image.offset + 1, 1)

    def some(self, values: Any) -> Any:
        return self.draw(st.sampled_from(sorted(values)))

    def ids(self) -> list[int]:
        return self.draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True))

    def nothing(self) -> list[Any]:
        return []

    def create(self) -> list[Any]:
        free = [name for name in NAMES if name not in self.image.topics]
        if not free:
            return []
        self.epoch += 1
        topic_id = self.epoch.to_bytes(16, "big")
        topic = TopicRecord(name=self.some(free), topic_id=topic_id)
        return [topic, *(self.partition(topic_id, index) for index in range(self.draw(st.integers(0, 3))))]

    def partition(self, topic_id: bytes, index: int) -> Any:
        replicas = self.ids()
        return PartitionRecord(
            topic_id=topic_id,
            partition_id=index,
            replicas=replicas,
            isr=replicas[:1],
            leader=self.draw(st.sampled_from((-1, *replicas))),
            leader_epoch=self.draw(st.integers(0, 3)),
            directories=[self.some(DIRECTORIES) for _ in replicas],
        )

    def delete(self) -> list[Any]:
        return [RemoveTopicRecord(topic_id=self.some(self.image.topics_by_id))]

    def add_partition(self) -> list[Any]:
        topic_id = self.some(self.image.topics_by_id)
        return [self.partition(topic_id, len(self.image.topics_by_id[topic_id].partitions))]

    def change_partition(self) -> list[Any]:
        topic = self.image.topics_by_id[self.some(self.image.topics_by_id)]
        if not topic.partitions:
            return []
        changes = self.draw(
            st.fixed_dictionaries(
                {}, optional={"leader": st.sampled_from((-1, *BROKERS)), "isr": st.just(self.ids())}
            )
        )
        index = self.some(topic.partitions)
        return [PartitionChangeRecord(topic_id=topic.id, partition_id=index, **changes)]

    def register(self) -> list[Any]:
        self.epoch += 1
        listeners = self.draw(st.lists(st.sampled_from(LISTENERS), unique=True))
        return [
            RegisterBrokerRecord(
                broker_id=self.some(BROKERS),
                broker_epoch=self.epoch,
                fenced=self.draw(st.booleans()),
                end_points=[
                    BrokerEndpoint(name=name, host=f"host-{self.epoch}", port=self.draw(st.integers(1, 9)))
                    for name in listeners
                ],
                log_dirs=self.draw(st.lists(st.sampled_from(DIRECTORIES[:2]), unique=True)),
            )
        ]

    def broker(self) -> BrokerRegistration:
        return self.image.brokers[self.some(self.image.brokers)]

    def fence(self) -> list[Any]:
        broker = self.broker()
        return [FenceBrokerRecord(id=broker.id, epoch=broker.epoch)]

    def unfence(self) -> list[Any]:
        broker = self.broker()
        return [UnfenceBrokerRecord(id=broker.id, epoch=broker.epoch)]

    def unregister(self) -> list[Any]:
        broker = self.broker()
        return [UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)]

    def lose_directories(self) -> list[Any]:
        broker = self.broker()
        return [
            BrokerRegistrationChangeRecord(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                in_controlled_shutdown=1,
                log_dirs=[DIRECTORIES[1]],
            )
        ]


def requests(history: History, version: int) -> list[MetadataRequest]:
    everything = MetadataRequest(topics=[] if version == 0 else None)
    named = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (*NAMES[::-1], "none")])
    asked = [everything, named]
    if version >= 8:
        asked.append(MetadataRequest(topics=None, include_topic_authorized_operations=True))
    if version >= 12:
        ids = [*history.image.topics_by_id, b"?" * 16]
        asked.append(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids]))
    return asked


@settings(max_examples=60)
@given(st.data(), st.sampled_from([ENTRY_BYTES + 60, 1500, 1 << 20]))
def test_what_is_kept_answers_as_if_nothing_were(data: Any, bytes_max: int) -> None:
    """After any history of the metadata log, cached answers have the current leaders, offline replicas and endpoints."""
    history = History(data.draw)
    api = Api()
    api.node.encoded_topics = EncodedTopics(bytes_max)
    for _ in range(data.draw(st.integers(1, 12))):
        history.step()
        api.node.image = history.image
        forgetful = ApiDispatcher(
            replace(api.node, encoded_topics=EncodedTopics(0)), pauseless(api.world.time)
        )
        for listener in LISTENERS:
            api.connection.listener_name = listener
            for version in data.draw(st.sets(st.sampled_from(VERSIONS), min_size=1, max_size=2)):
                for request in requests(history, version):
                    frame = api.frame(request, version)
                    told = api.raw(frame)
                    assert told == forgetful.dispatch(api.connection, memoryview(bytearray(frame)))
                    assert told == api.raw(frame)
                    assert api.node.encoded_topics.size_bytes <= bytes_max


@pytest.mark.parametrize("version", range(14))
def test_the_bytes_are_those_of_the_described_topic(version: int) -> None:
    api = Api(
        topic_image("t", {index: partition_image(replicas=(2, 1), leader=index) for index in range(3)}),
        brokers=[broker_image(1), broker_image(2, fenced=True)],
    )
    described = describe_topic(api.node.image, api.node.image.topics["t"], "PLAINTEXT", version)
    expected = decode(MetadataResponse, version, encode(MetadataResponse(topics=[described]), version))
    told = api.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    assert told.topics == expected.topics
    assert len(told.topics[0].partitions) == 3


def test_an_unchanged_topic_is_described_once_for_each_variant() -> None:
    api = Api(topic_image("t"), brokers=[broker_image(1, listeners=LISTENERS)])
    kept = api.node.encoded_topics
    image = api.node.image
    topic = image.topics["t"]

    def known(*variant: Any) -> Any:
        return kept.get(api.node.image.brokers, topic, variant)

    request = MetadataRequest(topics=None)
    api.raw(api.frame(request, 12))
    first = known("PLAINTEXT", 12, False)
    assert first is not None
    api.raw(api.frame(request, 12))
    assert known("PLAINTEXT", 12, False) is first
    assert (
        known("OUTSIDE", 12, False) is known("PLAINTEXT", 13, False) is known("PLAINTEXT", 12, True) is None
    )
    api.node.image = replace(image, offset=image.offset + 1)
    assert known("PLAINTEXT", 12, False) is first
    api.node.image = replace(image, brokers=dict(image.brokers))
    assert known("PLAINTEXT", 12, False) is None
    assert kept.size_bytes == 0


def test_when_it_is_full_it_begins_again() -> None:
    kept = EncodedTopics(3 * (ENTRY_BYTES + 10))
    variant = ("PLAINTEXT", 12, False)
    topics = [topic_image(name) for name in "abcd"]
    brokers = image_of().brokers
    for topic in topics[:3]:
        kept.get(brokers, topic, variant)
        kept.put(topic, variant, b"0123456789")
    assert [kept.get(brokers, topic, variant) for topic in topics] == [b"0123456789"] * 3 + [None]
    kept.put(topics[1], variant, b"9876543210")
    assert kept.size_bytes == 3 * (ENTRY_BYTES + 10)
    kept.put(topics[3], variant, b"0123456789")
    assert [kept.get(brokers, topic, variant) for topic in topics] == [None] * 3 + [b"0123456789"]
    kept.put(topics[0], variant, bytes(1000))
    assert kept.get(brokers, topics[0], variant) is None
