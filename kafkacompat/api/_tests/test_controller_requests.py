"""The thin handlers of the requests that brokers and controllers send to the controller."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS
from kafkacompat.wire.apis import APIS, ApiKey, request_class, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode

MODULES = {
    "alter_partition": "AlterPartition",
    "broker_registration": "BrokerRegistration",
    "broker_heartbeat": "BrokerHeartbeat",
    "unregister_broker": "UnregisterBroker",
    "unregister_controller": "UnregisterController",
    "allocate_producer_ids": "AllocateProducerIds",
    "controller_registration": "ControllerRegistration",
    "assign_replicas_to_dirs": "AssignReplicasToDirs",
}


@pytest.mark.parametrize(("module", "name"), MODULES.items())
def test_each_goes_to_the_controller_in_all_versions_of_kafka(module: str, name: str) -> None:
    request_type: Any = getattr(
        import_module(f"kafkacompat.wire.messages.{module}_request"), f"{name}Request"
    )
    response_type: Any = getattr(
        import_module(f"kafkacompat.wire.messages.{module}_response"), f"{name}Response"
    )
    handler = CONTROLLER_APIS.load(request_type.API_KEY)
    asked: list[Any] = []

    def controller(request: Any, context: Any) -> str:
        asked.append((request, context))
        return "answer"

    node: Any = SimpleNamespace(controller=SimpleNamespace(**{module: controller}))
    context: Any = object()
    request = request_type()
    assert handler.function(node, context, request) == "answer"
    assert asked == [(request, context)]
    for version in range(request_type.MIN_VERSION, request_type.MAX_VERSION + 1):
        refused = handler.error_response(request, ErrorCode.NOT_CONTROLLER, version)
        assert decode(response_type, version, encode(refused, version)).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("key", [each.key for each in BROKER_APIS.entries if each.passed])
def test_a_broker_sends_on_what_has_no_module(key: int) -> None:
    handler = BROKER_APIS.load(key)
    asked: list[Any] = []

    def forward(request: Any, context: Any) -> str:
        asked.append((request, context))
        return "answer"

    node: Any = SimpleNamespace(controller=SimpleNamespace(forward=forward))
    context, request = object(), request_class(key)()
    assert handler.function(node, context, request) == "answer"
    assert asked == [(request, context)]
    version = APIS[ApiKey(key)].latest
    refused = handler.error_response(request, ErrorCode.NOT_CONTROLLER, version)
    told: Any = decode(response_class(key), version, encode(refused, version))
    assert told.error_code == ErrorCode.NOT_CONTROLLER
