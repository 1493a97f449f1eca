"""AddPartitionsToTxnRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AddPartitionsToTxnRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AddPartitionsToTxnTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class AddPartitionsToTxnTransaction(Struct):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "topics")

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        verify_only: bool = False,
        topics: list[AddPartitionsToTxnTopic] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verify_only = verify_only
        self.topics = [] if topics is EMPTY else topics


class AddPartitionsToTxnRequest(Message):
    __slots__ = ("transactions", "v3_and_below_transactional_id", "v3_and_below_producer_id", "v3_and_below_producer_epoch", "v3_and_below_topics")
    API_KEY: ClassVar[int | None] = 24
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":24,"type":"request","listeners":["broker"],"name":"AddPartitionsToTxnRequest","validVersions":"0-5","flexibleVersions":"3+","latestVersionUnstable":false,"commonStructs":[{"name":"AddPartitionsToTxnTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}],"fields":[{"name":"Transactions","type":"[]AddPartitionsToTxnTransaction","versions":"4+","fields":[{"name":"TransactionalId","type":"string","versions":"4+","mapKey":true,"entityType":"transactionalId"},{"name":"ProducerId","type":"int64","versions":"4+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"4+"},{"name":"VerifyOnly","type":"bool","versions":"4+","default":false},{"name":"Topics","type":"[]AddPartitionsToTxnTopic","versions":"4+"}]},{"name":"V3AndBelowTransactionalId","type":"string","versions":"0-3","entityType":"transactionalId"},{"name":"V3AndBelowProducerId","type":"int64","versions":"0-3","entityType":"producerId"},{"name":"V3AndBelowProducerEpoch","type":"int16","versions":"0-3"},{"name":"V3AndBelowTopics","type":"[]AddPartitionsToTxnTopic","versions":"0-3"}]}'

    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnTransaction] = EMPTY,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = EMPTY,
    ) -> None:
        self.transactions = [] if transactions is EMPTY else transactions
        self.v3_and_below_transactional_id = v3_and_below_transactional_id
        self.v3_and_below_producer_id = v3_and_below_producer_id
        self.v3_and_below_producer_epoch = v3_and_below_producer_epoch
        self.v3_and_below_topics = [] if v3_and_below_topics is EMPTY else v3_and_below_topics
