"""EndTxnResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EndTxnResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EndTxnResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch")
    API_KEY: ClassVar[int | None] = 26
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":26,"type":"response","name":"EndTxnResponse","validVersions":"0-5","flexibleVersions":"3+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ProducerId","type":"int64","versions":"5+","entityType":"producerId","default":"-1","ignorable":true},{"name":"ProducerEpoch","type":"int16","versions":"5+","default":"-1","ignorable":true}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
