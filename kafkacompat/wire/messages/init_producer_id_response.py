"""InitProducerIdResponse, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/InitProducerIdResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class InitProducerIdResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch", "ongoing_txn_producer_id", "ongoing_txn_producer_epoch")
    API_KEY: ClassVar[int | None] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":22,"type":"response","name":"InitProducerIdResponse","validVersions":"0-6","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId","default":-1},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"OngoingTxnProducerId","type":"int64","versions":"6+","entityType":"producerId","default":-1},{"name":"OngoingTxnProducerEpoch","type":"int16","default":-1,"versions":"6+"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch
