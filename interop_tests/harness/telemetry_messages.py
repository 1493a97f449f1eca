"""Definitions of the messages of clients' metrics (KIP-714), in the form of `consumer_group_messages`. No client library in
use contains them."""

from __future__ import annotations

from typing import Any

from interop_tests.harness.consumer_group_messages import Shape, in_kafkas_form

SHAPES: dict[str, tuple[int, Shape]] = {
    "GetTelemetrySubscriptionsRequest": (71, [("ClientInstanceId", "uuid")]),
    "GetTelemetrySubscriptionsResponse": (
        71,
        [
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("ClientInstanceId", "uuid"),
            ("SubscriptionId", "int32"),
            ("AcceptedCompressionTypes", "[]int8"),
            ("PushIntervalMs", "int32"),
            ("TelemetryMaxBytes", "int32"),
            ("DeltaTemporality", "bool"),
            ("RequestedMetrics", "[]string"),
        ],
    ),
    "PushTelemetryRequest": (
        72,
        [
            ("ClientInstanceId", "uuid"),
            ("SubscriptionId", "int32"),
            ("Terminating", "bool"),
            ("CompressionType", "int8"),
            ("Metrics", "bytes"),
        ],
    ),
    "PushTelemetryResponse": (72, [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16")]),
}


def definition(name: str) -> dict[str, Any] | None:
    """The definition of a message in Kafka's form. None for a message that is not defined here."""
    found = SHAPES.get(name)
    return None if found is None else in_kafkas_form(name, found[0], "0", found[1])
