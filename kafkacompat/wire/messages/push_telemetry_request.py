"""PushTelemetryRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/PushTelemetryRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class PushTelemetryRequest(Message):
    __slots__ = ("client_instance_id", "subscription_id", "terminating", "compression_type", "metrics")
    API_KEY: ClassVar[int | None] = 72
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":72,"type":"request","listeners":["broker"],"name":"PushTelemetryRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ClientInstanceId","type":"uuid","versions":"0+"},{"name":"SubscriptionId","type":"int32","versions":"0+"},{"name":"Terminating","type":"bool","versions":"0+"},{"name":"CompressionType","type":"int8","versions":"0+"},{"name":"Metrics","type":"bytes","versions":"0+","zeroCopy":true}]}'

    def __init__(
        self,
        *,
        client_instance_id: bytes = bytes(16),
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics
