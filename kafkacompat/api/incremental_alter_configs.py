"""IncrementalAlterConfigs (key 44): change single settings. Loggers change here, all else at the
controller.

Two kinds of resources are not forwarded: BROKER_LOGGER resources, because loggers belong to this process, and other
brokers' settings, because only those brokers may forward them. Their results are merged into the response at their
positions. An unknown operation is answered INVALID_REQUEST. KIP-339, KIP-412.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkacompat.api import loggers
from kafkacompat.api.broker_configs import (
    COUNTED_A_STEP,
    LOOKED_AT_A_STEP,
    refused_broker_changes,
    refused_here,
    told_text,
    with_the_controllers,
    wrong_node,
)
from kafkacompat.api.handler import Handler
from kafkacompat.controller.configuration_control_manager import ConfigRefused, check_count
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext


LOGGERS_US = 500
"""Of one resource: all loggers are looked at."""


async def handle(
    node: AnyNode, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    names: Counter[str] = Counter()
    for position, one in enumerate(request.resources, 1):
        if one.resource_type == ConfigResourceType.BROKER_LOGGER:
            names[one.resource_name] += 1
        if position % COUNTED_A_STEP == 0:
            await pause()
    own: dict[int, AlterConfigsResourceResponse] = {}
    others: list[AlterConfigsResource] = []
    refusals = await in_turns(refused_broker_changes(node, request.resources, incremental=True))
    for position, resource in enumerate(request.resources):
        if position and position % LOOKED_AT_A_STEP == 0:
            await pause()
        refused = refused_here(node, resource.resource_type, resource.resource_name)
        if position in refusals:
            own[position] = _answer(resource, *refusals[position])
        elif refused is not None:
            own[position] = _answer(resource, ErrorCode.INVALID_REQUEST, refused)
        elif resource.resource_type != ConfigResourceType.BROKER_LOGGER:
            others.append(resource)
        elif names[resource.resource_name] > 1:
            text = "Each resource must appear at most once."
            own[position] = _answer(resource, ErrorCode.INVALID_REQUEST, text)
        else:
            own[position] = _alter_loggers(node, resource, request.validate_only)
            await pause(LOGGERS_US)  # an id may be written in thousands of ways: 1, 01, 001

    def ask(rest: IncrementalAlterConfigsRequest) -> Any:
        return node.controller.incremental_alter_configs(rest, context)

    return await with_the_controllers(own, others, request, ask, IncrementalAlterConfigsResponse())


def _alter_loggers(
    node: AnyNode, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    refused = wrong_node(node, resource.resource_name)
    if refused is not None:
        return _answer(resource, ErrorCode.INVALID_REQUEST, refused)
    try:
        check_count(resource)
    except ConfigRefused as refusal:
        return _answer(resource, refusal.code, refusal.message)
    changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
    if len({name for name, _, _ in changes}) < len(changes):
        return _answer(resource, ErrorCode.INVALID_REQUEST, "A logger is named twice.")
    try:
        loggers.check(changes)
    except loggers.LoggerRefused as refusal:
        return _answer(resource, refusal.code, refusal.message)
    if not validate_only:
        loggers.apply(changes)
    return _answer(resource, ErrorCode.NONE, None)


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=told_text(message),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_answer(resource, code, None) for resource in request.resources]
    )


HANDLER = Handler(handle, error_response)
