"""GetTelemetrySubscriptionsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/GetTelemetrySubscriptionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class GetTelemetrySubscriptionsRequest(Message):
    __slots__ = ("client_instance_id",)
    API_KEY: ClassVar[int | None] = 71
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":71,"type":"request","listeners":["broker"],"name":"GetTelemetrySubscriptionsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ClientInstanceId","type":"uuid","versions":"0+"}]}'

    def __init__(
        self,
        *,
        client_instance_id: bytes = bytes(16),
    ) -> None:
        self.client_instance_id = client_instance_id
