"""TxnOffsetCommitRequest, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/TxnOffsetCommitRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TxnOffsetCommitRequestPartition(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class TxnOffsetCommitRequestTopic(Struct):
    __slots__ = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[TxnOffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class TxnOffsetCommitRequest(Message):
    __slots__ = ("transactional_id", "group_id", "producer_id", "producer_epoch", "generation_id_or_member_epoch", "member_id", "group_instance_id", "topics")
    API_KEY: ClassVar[int | None] = 28
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":28,"type":"request","listeners":["broker"],"name":"TxnOffsetCommitRequest","validVersions":"0-6","flexibleVersions":"3+","fields":[{"name":"TransactionalId","type":"string","versions":"0+","entityType":"transactionalId"},{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"GenerationIdOrMemberEpoch","type":"int32","versions":"3+","default":"-1"},{"name":"MemberId","type":"string","versions":"3+","default":""},{"name":"GroupInstanceId","type":"string","versions":"3+","nullableVersions":"3+","default":"null"},{"name":"Topics","type":"[]TxnOffsetCommitRequestTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0-5","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"6+","ignorable":true},{"name":"Partitions","type":"[]TxnOffsetCommitRequestPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"CommittedOffset","type":"int64","versions":"0+"},{"name":"CommittedLeaderEpoch","type":"int32","versions":"2+","default":"-1","ignorable":true},{"name":"CommittedMetadata","type":"string","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.topics = [] if topics is EMPTY else topics
