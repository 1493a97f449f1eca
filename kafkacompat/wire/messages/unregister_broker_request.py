"""UnregisterBrokerRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/UnregisterBrokerRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UnregisterBrokerRequest(Message):
    __slots__ = ("broker_id",)
    API_KEY: ClassVar[int | None] = 64
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":64,"type":"request","listeners":["broker","controller"],"name":"UnregisterBrokerRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
    ) -> None:
        self.broker_id = broker_id
