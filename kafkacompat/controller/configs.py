"""AlterConfigs and IncrementalAlterConfigs, and the settings part of CreateTopics: image and request -> records and response.

Pure. Follows the two steps of Kafka: what the receiving broker refuses before it forwards (duplicates, nulls, broker settings
that are not dynamic), then what the controller refuses. With eligible leader replicas on, min.insync.replicas stays a cluster
default, and changing it anywhere clears the eligible leaders it concerns (KIP-966; eligible.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kafkacompat.config import (
    ConfigError,
    ConfigType,
    broker_keys,
    group_keys,
    topic_keys,
    validate_topic_configs,
)
from kafkacompat.config.describe import describe_topic
from kafkacompat.config.dynamic import validate_dynamic_broker
from kafkacompat.config.group import validate_group_configs
from kafkacompat.config.keys import render_value
from kafkacompat.config.topic import broker_default
from kafkacompat.controller.eligible import EVERY_TOPIC, clearing
from kafkacompat.controller.features import elr_enabled
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import told
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.controller.topic_name import topic_name_flaw
from kafkacompat.stepping.stepped import Stepped, Steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as OldResourceResponse,
)
from kafkacompat.wire.messages.alter_configs_response import AlterConfigsResponse
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.create_topics_response import CreatableTopicConfigs
from kafkacompat.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

MAX_VALUE_LENGTH = 32767
RESOURCES_A_STEP = 50
"""Up to 100 us each, with a few settings."""
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
CLIENT_METRICS, BROKER_LOGGER = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.BROKER_LOGGER


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigRefused(Exception):
    """One resource's refusal."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = told(message)


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceChange:
    type: int
    name: str
    changes: Sequence[Change]


def check_topic_configs(
    image: MetadataImage,
    settings: ControllerSettings,
    overrides: Mapping[str, str],
    existing: Mapping[str, str],
) -> None:
    """ConfigRefused INVALID_CONFIG for what a topic may not have."""
    _check_lengths(overrides.values())
    try:
        validate_topic_configs(overrides, settings.dynamic(image).effective, existing)
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error


def describe_new_topic(
    image: MetadataImage, settings: ControllerSettings, overrides: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """All settings of a topic as CreateTopics v5 answers them, sorted by name."""
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(settings.dynamic(image), overrides)
    ]


@Stepped
def incremental_alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: IncrementalAlterConfigsRequest
) -> Steps[ControllerResult[MetadataRecord, IncrementalAlterConfigsResponse]]:
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            [Change(config.name, config.config_operation, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    records, outcomes = yield from _alter(image, settings, resources, incremental=True)
    response = IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=each.type, resource_name=each.name
            )
            for each, (code, message) in zip(resources, outcomes, strict=True)
        ]
    )
    return ControllerResult(() if request.validate_only else records, response)


@Stepped
def alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: AlterConfigsRequest
) -> Steps[ControllerResult[MetadataRecord, AlterConfigsResponse]]:
    """The old call: what is not named is removed."""
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            [Change(config.name, Operation.SET, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    records, outcomes = yield from _alter(image, settings, resources, incremental=False)
    response = AlterConfigsResponse(
        responses=[
            OldResourceResponse(
                error_code=code, error_message=message, resource_type=each.type, resource_name=each.name
            )
            for each, (code, message) in zip(resources, outcomes, strict=True)
        ]
    )
    return ControllerResult(() if request.validate_only else records, response)


def _alter(
    image: MetadataImage, settings: ControllerSettings, resources: Sequence[ResourceChange], incremental: bool
) -> Steps[tuple[tuple[MetadataRecord, ...], list[tuple[ErrorCode, str | None]]]]:
    records: list[MetadataRecord] = []
    outcomes: list[tuple[ErrorCode, str | None]] = []
    named = Counter((each.type, each.name) for each in resources)
    for position, resource in enumerate(resources, 1):
        if position % RESOURCES_A_STEP == 0:
            yield
        try:
            if named[resource.type, resource.name] > 1:
                raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records.extend(_alter_one(image, settings, resource, incremental))
            outcomes.append((ErrorCode.NONE, None))
        except ConfigRefused as refusal:
            outcomes.append((refusal.code, refusal.message))
    return tuple(records), outcomes


def _alter_one(
    image: MetadataImage, settings: ControllerSettings, resource: ResourceChange, incremental: bool
) -> list[MetadataRecord]:
    _check_shape(image, settings, resource)
    current = image.config(resource.type, resource.name)
    wanted = dict(current) if incremental else {}
    written: dict[str, str | None] = {}
    for change in resource.changes:
        value = _new_value(image, settings, resource, change, current.get(change.name))
        if value is None:
            wanted.pop(change.name, None)
        else:
            wanted[change.name] = value
        if value != current.get(change.name) or resource.type == BROKER:
            # A broker's settings are stated again even when equal: brokers reload files by it (KAFKA-14136).
            written[change.name] = value
    if not incremental:
        written.update({name: None for name in current if name not in wanted})
    _check_resource(image, settings, resource, wanted, current)
    elr = elr_enabled(image.features)
    if elr and resource.type == BROKER and MIN_INSYNC_REPLICAS in written:
        if resource.name:
            text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
        if written[MIN_INSYNC_REPLICAS] is None:
            text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    records = [
        MetadataRecord(
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
        )
        for name, value in written.items()
    ]
    if elr and MIN_INSYNC_REPLICAS in written and resource.type in (TOPIC, BROKER):
        records.extend(clearing(image, resource.name if resource.type == TOPIC else EVERY_TOPIC))
    return records


def _check_shape(image: MetadataImage, settings: ControllerSettings, resource: ResourceChange) -> None:
    names = [change.name for change in resource.changes]
    if len(set(names)) < len(names):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if nulls:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    for change in resource.changes:
        if change.operation not in Operation.__members__.values():
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")
    if resource.type not in (TOPIC, BROKER, CLIENT_METRICS, GROUP):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")
    if resource.type == BROKER and resource.name:
        _check_node(image, settings, resource.name)
    _check_lengths(change.value for change in resource.changes if change.value is not None)


def _check_node(image: MetadataImage, settings: ControllerSettings, name: str) -> None:
    """Any node that the cluster knows: that a client asks the node itself is for the broker to see to."""
    try:
        node_id = int(name)
    except ValueError:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}") from None
    if not (node_id in image.brokers or node_id in image.controllers or node_id == settings.node_id):
        raise ConfigRefused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _check_lengths(values: Iterable[str]) -> None:
    if any(len(value) > MAX_VALUE_LENGTH for value in values):
        raise ConfigRefused(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_LENGTH} bytes.",
        )


def _new_value(
    image: MetadataImage,
    settings: ControllerSettings,
    resource: ResourceChange,
    change: Change,
    current: str | None,
) -> str | None:
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        return None
    operation = Operation(change.operation)
    keys = {TOPIC: topic_keys, BROKER: broker_keys, GROUP: group_keys}.get(ConfigResourceType(resource.type))
    key = keys().get(change.name) if keys is not None else None
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    if current is None:
        if resource.type == TOPIC:
            current = render_value(key, broker_default(settings.dynamic(image).effective, change.name))
        else:
            current = render_value(key, key.default)
    entries = [entry for entry in (current or "").split(",") if entry]
    assert change.value is not None
    operands = change.value.split(",")
    if operation is Operation.APPEND:
        entries.extend(entry for entry in dict.fromkeys(operands) if entry not in entries)
    else:
        entries = [entry for entry in entries if entry not in operands]
    return ",".join(entries)


def _check_resource(
    image: MetadataImage,
    settings: ControllerSettings,
    resource: ResourceChange,
    wanted: Mapping[str, str],
    current: Mapping[str, str],
) -> None:
    if resource.type == TOPIC:
        if not resource.name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        flaw = topic_name_flaw(resource.name)
        if flaw is not None:
            raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, flaw)
        check_topic_configs(image, settings, wanted, current)
        if resource.name not in image.topics:
            text = f"The topic '{resource.name}' does not exist."
            raise ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    elif resource.type == BROKER:
        try:
            validate_dynamic_broker(wanted, per_broker=bool(resource.name), current=settings.dynamic(image))
        except ConfigError as error:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
    elif resource.type == GROUP:
        if not resource.name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        try:
            validate_group_configs(wanted, settings.dynamic(image).effective)
        except ConfigError as error:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    else:
        _check_client_metrics(resource, wanted)


_CLIENT_METRICS_KEYS = frozenset({"interval.ms", "metrics", "match"})
_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000


def _check_client_metrics(resource: ResourceChange, wanted: Mapping[str, str]) -> None:
    code = ErrorCode.INVALID_REQUEST
    if not resource.name:
        raise ConfigRefused(code, "Subscription name can't be empty")
    for name in wanted:
        if name not in _CLIENT_METRICS_KEYS:
            raise ConfigRefused(code, f"Unknown client metrics configuration: {name}")
    interval = wanted.get("interval.ms")
    if interval is not None and not (
        interval.strip().isdigit() and _MIN_INTERVAL_MS <= int(interval) <= _MAX_INTERVAL_MS
    ):
        raise ConfigRefused(
            code,
            f"Invalid value {interval} for interval.ms, interval must be between {_MIN_INTERVAL_MS} and "
            f"{_MAX_INTERVAL_MS} (1 hour)",
        )
