"""ShareFetchRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ShareFetchRequest.json."""

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


class FetchPartition(Struct):
    __slots__ = ("partition_index", "partition_max_bytes", "acknowledgement_batches")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_max_bytes: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.partition_max_bytes = partition_max_bytes
        self.acknowledgement_batches = [] if acknowledgement_batches is EMPTY else acknowledgement_batches


class FetchTopic(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[FetchPartition] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ForgottenTopic(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareFetchRequest(Message):
    __slots__ = ("group_id", "member_id", "share_session_epoch", "max_wait_ms", "min_bytes", "max_bytes", "max_records", "batch_size", "share_acquire_mode", "is_renew_ack", "topics", "forgotten_topics_data")
    API_KEY: ClassVar[int | None] = 78
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":78,"type":"request","listeners":["broker"],"name":"ShareFetchRequest","validVersions":"1-2","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","nullableVersions":"0+","default":"null","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"ShareSessionEpoch","type":"int32","versions":"0+"},{"name":"MaxWaitMs","type":"int32","versions":"0+"},{"name":"MinBytes","type":"int32","versions":"0+"},{"name":"MaxBytes","type":"int32","versions":"0+","default":"0x7fffffff"},{"name":"MaxRecords","type":"int32","versions":"1+"},{"name":"BatchSize","type":"int32","versions":"1+"},{"name":"ShareAcquireMode","type":"int8","versions":"2+","default":"0","ignorable":true},{"name":"IsRenewAck","type":"bool","versions":"2+","default":"false"},{"name":"Topics","type":"[]FetchTopic","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+","mapKey":true},{"name":"Partitions","type":"[]FetchPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"PartitionMaxBytes","type":"int32","versions":"0"},{"name":"AcknowledgementBatches","type":"[]AcknowledgementBatch","versions":"0+","fields":[{"name":"FirstOffset","type":"int64","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"AcknowledgeTypes","type":"[]int8","versions":"0+"}]}]}]},{"name":"ForgottenTopicsData","type":"[]ForgottenTopic","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[FetchTopic] = EMPTY,
        forgotten_topics_data: list[ForgottenTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.share_acquire_mode = share_acquire_mode
        self.is_renew_ack = is_renew_ack
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = [] if forgotten_topics_data is EMPTY else forgotten_topics_data
