"""AddPartitionsToTxnResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AddPartitionsToTxnResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AddPartitionsToTxnPartitionResult(Struct):
    __slots__ = ("partition_index", "partition_error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.partition_error_code = partition_error_code


class AddPartitionsToTxnTopicResult(Struct):
    __slots__ = ("name", "results_by_partition")

    def __init__(
        self,
        *,
        name: str = "",
        results_by_partition: list[AddPartitionsToTxnPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.results_by_partition = [] if results_by_partition is EMPTY else results_by_partition


class AddPartitionsToTxnResult(Struct):
    __slots__ = ("transactional_id", "topic_results")

    def __init__(
        self,
        *,
        transactional_id: str = "",
        topic_results: list[AddPartitionsToTxnTopicResult] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.topic_results = [] if topic_results is EMPTY else topic_results


class AddPartitionsToTxnResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "results_by_transaction", "results_by_topic_v3_and_below")
    API_KEY: ClassVar[int | None] = 24
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":24,"type":"response","name":"AddPartitionsToTxnResponse","validVersions":"0-5","flexibleVersions":"3+","commonStructs":[{"name":"AddPartitionsToTxnTopicResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"ResultsByPartition","type":"[]AddPartitionsToTxnPartitionResult","versions":"0+"}]},{"name":"AddPartitionsToTxnPartitionResult","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"PartitionErrorCode","type":"int16","versions":"0+"}]}],"fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"4+","ignorable":true},{"name":"ResultsByTransaction","type":"[]AddPartitionsToTxnResult","versions":"4+","fields":[{"name":"TransactionalId","type":"string","versions":"4+","mapKey":true,"entityType":"transactionalId"},{"name":"TopicResults","type":"[]AddPartitionsToTxnTopicResult","versions":"4+"}]},{"name":"ResultsByTopicV3AndBelow","type":"[]AddPartitionsToTxnTopicResult","versions":"0-3"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResult] = EMPTY,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results_by_transaction = [] if results_by_transaction is EMPTY else results_by_transaction
        self.results_by_topic_v3_and_below = [] if results_by_topic_v3_and_below is EMPTY else results_by_topic_v3_and_below
