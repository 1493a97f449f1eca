"""ShareAcknowledgeRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ShareAcknowledgeRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AcknowledgementBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "acknowledge_types")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        acknowledge_types: list[int] = EMPTY,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types = [] if acknowledge_types is EMPTY else acknowledge_types


class AcknowledgePartition(Struct):
    __slots__ = ("partition_index", "acknowledgement_batches")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches = [] if acknowledgement_batches is EMPTY else acknowledgement_batches


class AcknowledgeTopic(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[AcknowledgePartition] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareAcknowledgeRequest(Message):
    __slots__ = ("group_id", "member_id", "share_session_epoch", "is_renew_ack", "topics")
    API_KEY: ClassVar[int | None] = 79
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":79,"type":"request","listeners":["broker"],"name":"ShareAcknowledgeRequest","validVersions":"1-2","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","nullableVersions":"0+","default":"null","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"ShareSessionEpoch","type":"int32","versions":"0+"},{"name":"IsRenewAck","type":"bool","versions":"2+","default":"false"},{"name":"Topics","type":"[]AcknowledgeTopic","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+","mapKey":true},{"name":"Partitions","type":"[]AcknowledgePartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"AcknowledgementBatches","type":"[]AcknowledgementBatch","versions":"0+","fields":[{"name":"FirstOffset","type":"int64","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"AcknowledgeTypes","type":"[]int8","versions":"0+"}]}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[AcknowledgeTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.is_renew_ack = is_renew_ack
        self.topics = [] if topics is EMPTY else topics
