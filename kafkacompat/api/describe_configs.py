"""DescribeConfigs (key 32): settings with their sources, synonyms and documentation.

This module decides which resources may be described and what an entry contains. The entries come from the node's
dynamic settings. KIP-133, KIP-226 (synonyms), KIP-569 (types and documentation), KIP-412 (loggers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkacompat.api import loggers
from kafkacompat.api.broker_configs import told_text
from kafkacompat.api.handler import Handler, Slices
from kafkacompat.api.named_rights import refuses_to_describe
from kafkacompat.api.topics import is_legal_topic_name
from kafkacompat.config.keys import ConfigError, ConfigType, parse_typed
from kafkacompat.controller.configuration_control_manager import topic_name_flaw
from kafkacompat.ids import parse_int
from kafkacompat.tasks import TURN_COST, Work, at_once
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_configs_request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
DEFAULT_CONFIG = 5
CLIENT_METRICS = (
    ("interval.ms", "300000", 3, "How often a client is to send its metrics."),
    ("match", "", 7, "Which clients are to send them."),
    ("metrics", "", 7, "Prefixes of the metrics' names; none stands for no metrics."),
)
"""Name, default, type and documentation of each setting."""


OF_NODES = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
REFUSED_A_STEP = 2_000
"""Resources per step."""


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = told_text(message)


def handle(
    node: AnyNode, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Work[DescribeConfigsResponse]:
    if refuses_to_describe(request):
        return _refused(request, ErrorCode.INVALID_REQUEST)  # the whole request is refused
    return DescribeConfigsResponse(results=[_describe(node, one, request) for one in request.resources])


def _describe(
    node: AnyNode, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = list(_entries(node, resource, request))
    except _Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    keys = resource.configuration_keys
    # A resource has few settings, but a request may name hundreds of thousands. One pass over the names is enough.
    wanted = {entry.name for entry in entries}.intersection(keys or ())
    result.configs = [entry for entry in entries if not keys or entry.name in wanted]
    return result


def _identity(resource: DescribeConfigsResource) -> object:
    """A number can be written in very many ways, and each answer for a broker takes fifty kilobytes."""
    name: str | int = resource.resource_name
    if resource.resource_type in OF_NODES:
        with suppress(ValueError):
            name = parse_int(resource.resource_name)
    return resource.resource_type, name


def _of_both(one: DescribeConfigsResource, other: DescribeConfigsResource) -> DescribeConfigsResource:
    """Merge two mentions of a resource. The result asks for the settings of both, or for all if one mention names none."""
    if one.configuration_keys and other.configuration_keys:
        one.configuration_keys.extend(other.configuration_keys)
    else:
        one.configuration_keys = None
    return one


def _entries(
    node: AnyNode, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not is_legal_topic_name(name):
            raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, topic_name_flaw(name))
        if name not in node.image.topics:
            raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        return _shaped(node.dynamic.describe_topic(name), request)
    if resource.resource_type == ConfigResourceType.BROKER:
        if name:
            _check_node(node, name, " or empty string,")
        return _shaped(node.dynamic.describe_broker(name), request)
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise _Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _check_node(node, name)
        return _plain(loggers.describe(), DYNAMIC_BROKER_LOGGER_CONFIG)
    if not name:
        is_group = resource.resource_type == ConfigResourceType.GROUP
        kind = "Group" if is_group else "Client metrics subscription"
        raise _Refused(ErrorCode.INVALID_REQUEST, f"{kind} name must not be empty")
    if resource.resource_type == ConfigResourceType.GROUP:
        return _shaped(node.dynamic.describe_group(name), request)
    return _client_metrics(node.image.config(ConfigResourceType.CLIENT_METRICS, name), request)


def _check_node(node: AnyNode, name: str, also: str = "") -> None:
    try:
        node_id = parse_int(name)
    except ValueError:
        text = f"Broker id must be an integer, but it is: {name}"
        raise _Refused(ErrorCode.INVALID_REQUEST, text) from None
    if node_id != node.node_id:
        text = f"Unexpected broker id, expected {node.node_id}{also} but received {name}"
        raise _Refused(ErrorCode.INVALID_REQUEST, text)


def _plain(values: Any, source: int) -> Iterable[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(name=name, value=value, config_source=source)
        for name, value in sorted(values.items())
    ]


def _client_metrics(
    values: Mapping[str, str], request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    """Describe a subscription to client metrics, which need not exist. Settings that are not set have their default."""
    given = {
        name: _as_read(name, kind, values[name]) for name, _, kind, _ in CLIENT_METRICS if name in values
    }
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=given.get(name, default),
            config_source=CLIENT_METRICS_CONFIG if name in given else DEFAULT_CONFIG,
            synonyms=[DescribeConfigsSynonym(name=name, value=given[name], source=CLIENT_METRICS_CONFIG)]
            if request.include_synonyms and name in given
            else [],
            config_type=kind,
            documentation=text if request.include_documentation else None,
        )
        for name, default, kind, text in CLIENT_METRICS
    ]


def _as_read(name: str, kind: int, text: str) -> str:
    """A setting's text without what Kafka does not read, as blanks around commas."""
    try:
        value = parse_typed(name, ConfigType(kind), text)
    except ConfigError:
        return text
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _shaped(
    entries: Iterable[Any], request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    """Convert config.describe.ConfigEntry values to the structs of the response."""
    return [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=one.name, value=one.value, source=int(one.source))
                for one in (entry.synonyms if request.include_synonyms else ())
            ],
            config_type=int(entry.type),
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
    ]


def error_response(request: DescribeConfigsRequest, code: ErrorCode, version: int) -> DescribeConfigsResponse:
    return at_once(_refused(request, code))


def _refused(request: DescribeConfigsRequest, code: ErrorCode) -> Work[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    message = error_text(code)
    for start in range(0, len(request.resources), REFUSED_A_STEP):
        if start:
            yield TURN_COST
        response.results += [
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources[start : start + REFUSED_A_STEP]
        ]
    return response


HANDLER = Handler(
    handle,
    error_response,
    slices=Slices(
        "resources",
        "results",
        5,
        _identity,
        of_both=_of_both,
        at_once=refuses_to_describe,
    ),
)
