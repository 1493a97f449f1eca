"""ConsumerGroupHeartbeatRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ConsumerGroupHeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ConsumerGroupHeartbeatRequest(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "instance_id", "rack_id", "rebalance_timeout_ms", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor", "topic_partitions")
    API_KEY: ClassVar[int | None] = 68
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":68,"type":"request","listeners":["broker"],"name":"ConsumerGroupHeartbeatRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"InstanceId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RackId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RebalanceTimeoutMs","type":"int32","versions":"0+","default":-1},{"name":"SubscribedTopicNames","type":"[]string","versions":"0+","nullableVersions":"0+","default":"null","entityType":"topicName"},{"name":"SubscribedTopicRegex","type":"string","versions":"1+","nullableVersions":"1+","default":"null"},{"name":"ServerAssignor","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"TopicPartitions","type":"[]TopicPartitions","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[TopicPartitions] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.subscribed_topic_names = subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.server_assignor = server_assignor
        self.topic_partitions = topic_partitions
