"""TransactionLogValue, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/transaction/TransactionLogValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionsSchema(Struct):
    __slots__ = ("topic", "partition_ids")

    def __init__(
        self,
        *,
        topic: str = "",
        partition_ids: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partition_ids = [] if partition_ids is EMPTY else partition_ids


class TransactionLogValue(Message):
    __slots__ = ("producer_id", "previous_producer_id", "next_producer_id", "producer_epoch", "next_producer_epoch", "transaction_timeout_ms", "transaction_status", "transaction_partitions", "transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms", "client_transaction_version")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-value","name":"TransactionLogValue","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"ProducerId","type":"int64","versions":"0+"},{"name":"PreviousProducerId","type":"int64","taggedVersions":"1+","tag":0,"default":-1},{"name":"NextProducerId","type":"int64","taggedVersions":"1+","tag":1,"default":-1},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"NextProducerEpoch","type":"int16","default":-1,"taggedVersions":"1+","tag":3},{"name":"TransactionTimeoutMs","type":"int32","versions":"0+"},{"name":"TransactionStatus","type":"int8","versions":"0+"},{"name":"TransactionPartitions","type":"[]PartitionsSchema","versions":"0+","nullableVersions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+"},{"name":"PartitionIds","type":"[]int32","versions":"0+"}]},{"name":"TransactionLastUpdateTimestampMs","type":"int64","versions":"0+"},{"name":"TransactionStartTimestampMs","type":"int64","versions":"0+"},{"name":"ClientTransactionVersion","type":"int16","default":0,"taggedVersions":"1+","tag":2}]}'

    def __init__(
        self,
        *,
        producer_id: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        producer_epoch: int = 0,
        next_producer_epoch: int = -1,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: list[PartitionsSchema] | None = EMPTY,
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        client_transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.next_producer_epoch = next_producer_epoch
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_status = transaction_status
        self.transaction_partitions = [] if transaction_partitions is EMPTY else transaction_partitions
        self.transaction_last_update_timestamp_ms = transaction_last_update_timestamp_ms
        self.transaction_start_timestamp_ms = transaction_start_timestamp_ms
        self.client_transaction_version = client_transaction_version
