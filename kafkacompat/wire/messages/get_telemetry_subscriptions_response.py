"""GetTelemetrySubscriptionsResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/GetTelemetrySubscriptionsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class GetTelemetrySubscriptionsResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "client_instance_id", "subscription_id", "accepted_compression_types", "push_interval_ms", "telemetry_max_bytes", "delta_temporality", "requested_metrics")
    API_KEY: ClassVar[int | None] = 71
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":71,"type":"response","name":"GetTelemetrySubscriptionsResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ClientInstanceId","type":"uuid","versions":"0+"},{"name":"SubscriptionId","type":"int32","versions":"0+"},{"name":"AcceptedCompressionTypes","type":"[]int8","versions":"0+"},{"name":"PushIntervalMs","type":"int32","versions":"0+"},{"name":"TelemetryMaxBytes","type":"int32","versions":"0+"},{"name":"DeltaTemporality","type":"bool","versions":"0+"},{"name":"RequestedMetrics","type":"[]string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: bytes = bytes(16),
        subscription_id: int = 0,
        accepted_compression_types: list[int] = EMPTY,
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.accepted_compression_types = [] if accepted_compression_types is EMPTY else accepted_compression_types
        self.push_interval_ms = push_interval_ms
        self.telemetry_max_bytes = telemetry_max_bytes
        self.delta_temporality = delta_temporality
        self.requested_metrics = [] if requested_metrics is EMPTY else requested_metrics
