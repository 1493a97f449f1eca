"""GetTelemetrySubscriptions and PushTelemetry: what subscriptions are matched with, and what the end of a connection means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api, pauseless
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports.dispatcher import ConnectionInfo
from kafkacompat.telemetry.client_metrics_manager import Attributes, ClientMetricsManager
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from kafkacompat.wire.messages.push_telemetry_request import PushTelemetryRequest

CLIENT = b"c" * 16


class Taken:
    def __init__(self) -> None:
        self.attributes: list[Attributes] = []

    async def take(
        self, client: bytes, attributes: Attributes, codec: int, metrics: bytes, max_bytes: int
    ) -> None:
        self.attributes.append(attributes)

    def forget(self, client: bytes) -> None:
        raise AssertionError("nobody is silent for so long")


class Asking:
    """An api that offers telemetry, with one subscription."""

    def __init__(self, match: str = "") -> None:
        self.taken = Taken()
        self.api = api = Api(topic_image("t", 1))
        manager = ClientMetricsManager(1000, self.taken, api.node.random.uuid)
        api.node.client_metrics = manager
        api.dispatcher = ApiDispatcher(
            api.node,
            pauseless(api.world.time),
            BROKER_APIS_WITH_TELEMETRY,
            when_closed=[manager.on_connection_closed],
        )
        settings = {"metrics": "m."} | ({"match": match} if match else {})
        api.publish(
            replace(api.node.image, configs={(int(ConfigResourceType.CLIENT_METRICS), "s"): settings})
        )

    def introduces_itself(self, version: int, **software: str) -> None:
        assert self.api.call(ApiVersionsRequest(**software), version).error_code == 0

    def get(self) -> Any:
        return self.api.call(GetTelemetrySubscriptionsRequest(client_instance_id=CLIENT), 0)

    def push(self, subscription_id: int) -> int:
        request = PushTelemetryRequest(
            client_instance_id=CLIENT, subscription_id=subscription_id, metrics=b"x"
        )
        return int(self.api.call(request, 0).error_code)


@pytest.mark.parametrize(
    ("version", "software", "name"),
    [
        (None, {}, "unknown"),
        (0, {}, "unknown"),
        (3, {"client_software_name": "lib-x", "client_software_version": "1.2"}, "lib-x"),
    ],
)
def test_the_software_that_a_client_has_told(
    version: int | None, software: dict[str, str], name: str
) -> None:
    for match, metrics in ((name, ["m."]), ("other", [])):
        asking = Asking(f"client_software_name={match}")
        if version is not None:
            asking.introduces_itself(version, **software)
        answer = asking.get()
        assert (answer.error_code, list(answer.requested_metrics)) == (0, metrics)


def test_a_client_whose_connection_has_closed_starts_anew() -> None:
    asking = Asking()
    first = asking.get()
    assert asking.push(first.subscription_id) == 0
    assert asking.get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asking.api.dispatcher.connection_closed(asking.api.connection)
    asking.api.connection = ConnectionInfo(2, "PLAINTEXT", "127.0.0.1", 5556)
    assert asking.get().subscription_id == first.subscription_id
    assert asking.push(first.subscription_id) == 0
    assert [each["client_source_port"] for each in asking.taken.attributes] == ["5555", "5556"]
