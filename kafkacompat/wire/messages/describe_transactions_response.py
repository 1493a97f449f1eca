"""DescribeTransactionsResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeTransactionsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicData(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class TransactionState(Struct):
    __slots__ = ("error_code", "transactional_id", "transaction_state", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch", "topics")

    def __init__(
        self,
        *,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.topics = [] if topics is EMPTY else topics


class DescribeTransactionsResponse(Message):
    __slots__ = ("throttle_time_ms", "transaction_states")
    API_KEY: ClassVar[int | None] = 65
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":65,"type":"response","name":"DescribeTransactionsResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"TransactionStates","type":"[]TransactionState","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"TransactionalId","type":"string","versions":"0+","entityType":"transactionalId"},{"name":"TransactionState","type":"string","versions":"0+"},{"name":"TransactionTimeoutMs","type":"int32","versions":"0+"},{"name":"TransactionStartTimeMs","type":"int64","versions":"0+"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        transaction_states: list[TransactionState] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states = [] if transaction_states is EMPTY else transaction_states
