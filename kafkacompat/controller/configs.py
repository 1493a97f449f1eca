"""AlterConfigs and IncrementalAlterConfigs, and the settings part of CreateTopics: image and request -> records and response.

Pure. Follows the two steps of Kafka: what the receiving broker refuses before it forwards (duplicates, nulls, broker settings
that are not dynamic), then what the controller refuses. With eligible leader replicas on, min.insync.replicas stays a cluster
default, and changing it anywhere clears the eligible leaders it concerns (KIP-966; eligible.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

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
from kafkacompat.stepping.jobs import Pace
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

T = TypeVar("T")

MAX_VALUE_LENGTH = 32767
STEP = 5_000
"""Units of work of a microsecond or two."""
RESOURCE_UNITS = 100
"""Of one that is named, with a few settings."""
CHARACTERS_A_UNIT = 32
"""Of a value."""
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
CLIENT_METRICS, BROKER_LOGGER = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.BROKER_LOGGER


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS = frozenset(Operation)


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
    changes: list[Change]


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
    records, responses = yield from _alter_all(
        image, settings, request.resources, AlterConfigsResourceResponse, incremental=True
    )
    response = IncrementalAlterConfigsResponse(responses=responses)
    return ControllerResult(() if request.validate_only else records, response)


@Stepped
def alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: AlterConfigsRequest
) -> Steps[ControllerResult[MetadataRecord, AlterConfigsResponse]]:
    """The old call: what is not named is removed."""
    records, responses = yield from _alter_all(
        image, settings, request.resources, OldResourceResponse, incremental=False
    )
    response = AlterConfigsResponse(responses=responses)
    return ControllerResult(() if request.validate_only else records, response)


def _alter_all(
    image: MetadataImage,
    settings: ControllerSettings,
    resources: Sequence[Any],
    answer_of: Callable[..., T],
    *,
    incremental: bool,
) -> Steps[tuple[tuple[MetadataRecord, ...], list[T]]]:
    pace = Pace(STEP)
    named = yield from _named(resources, pace)
    records: list[MetadataRecord] = []
    answers: list[T] = []
    for each in resources:
        resource = ResourceChange(each.resource_type, each.resource_name, [])
        for config in each.configs:
            operation = config.config_operation if incremental else Operation.SET
            resource.changes.append(Change(config.name, operation, config.value))
            if pace.is_over(cost_of(config.value)):
                yield
        code, message = yield from _alter(image, settings, resource, named, records, pace, incremental)
        answers.append(
            answer_of(
                error_code=code,
                error_message=message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
        )
    return tuple(records), answers


Named: TypeAlias = Counter[tuple[int, str]]
"""How often each resource is named, by type and name."""


def _named(resources: Sequence[Any], pace: Pace) -> Steps[Named]:
    named: Named = Counter()
    for each in resources:
        named[each.resource_type, each.resource_name] += 1
        if pace.is_over():
            yield
    return named


def cost_of(value: str | None) -> int:
    """In units of a step."""
    return 1 if value is None else 1 + len(value) // CHARACTERS_A_UNIT


def _alter(
    image: MetadataImage,
    settings: ControllerSettings,
    resource: ResourceChange,
    named: Named,
    records: list[MetadataRecord],
    pace: Pace,
    incremental: bool,
) -> Steps[tuple[ErrorCode, str | None]]:
    """The outcome of one; what it writes is added to the records."""
    try:
        if named[resource.type, resource.name] > 1:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        records.extend((yield from _alter_one(image, settings, resource, incremental, pace)))
    except ConfigRefused as refusal:
        return refusal.code, refusal.message
    finally:
        if pace.is_over(RESOURCE_UNITS):
            yield
    return ErrorCode.NONE, None


def _alter_one(
    image: MetadataImage,
    settings: ControllerSettings,
    resource: ResourceChange,
    incremental: bool,
    pace: Pace,
) -> Steps[list[MetadataRecord]]:
    yield from _check_shape(image, settings, resource, pace)
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
        if pace.is_over(cost_of(change.value)):
            yield
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


def _check_shape(
    image: MetadataImage, settings: ControllerSettings, resource: ResourceChange, pace: Pace
) -> Steps[None]:
    names: set[str] = set()
    nulls: list[str] = []
    unknown: int | None = None
    is_too_long = False
    for change in resource.changes:
        names.add(change.name)
        if change.value is None:
            if change.operation != Operation.DELETE:
                nulls.append(change.name)
        elif len(change.value) > MAX_VALUE_LENGTH:
            is_too_long = True
        if unknown is None and change.operation not in OPERATIONS:
            unknown = change.operation
        if pace.is_over():
            yield
    if len(names) < len(resource.changes):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    if unknown is not None:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    if resource.type not in (TOPIC, BROKER, CLIENT_METRICS, GROUP):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")
    if resource.type == BROKER and resource.name:
        _check_node(image, settings, resource.name)
    if is_too_long:
        raise too_long()


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
        raise too_long()


def too_long() -> ConfigRefused:
    return ConfigRefused(
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
    # Of either there may be 16,000.
    operands = dict.fromkeys(change.value.split(","))
    if operation is Operation.APPEND:
        present = set(entries)
        entries.extend(entry for entry in operands if entry not in present)
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
