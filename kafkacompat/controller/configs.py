"""AlterConfigs and IncrementalAlterConfigs, and the settings part of CreateTopics: image and request -> records and response.

Pure. Refuses in the order of Kafka: what the receiving broker refuses before it forwards (duplicates, nulls, unknown operations),
then what the controller does (configuration_validator.py). With eligible leader replicas on, min.insync.replicas stays a cluster
default, and changing it anywhere clears the eligible leaders it concerns (KIP-966; eligible.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from kafkacompat.config import (
    ConfigType,
    broker_keys,
    group_keys,
    topic_keys,
)
from kafkacompat.config.describe import describe_topic
from kafkacompat.config.keys import render_value
from kafkacompat.config.topic import broker_default
from kafkacompat.controller.configuration_validator import (
    MAX_VALUE_LENGTH,
    ConfigRefused,
    check_node,
    too_long,
    validate,
)
from kafkacompat.controller.eligible import EVERY_TOPIC, clear_elr_records
from kafkacompat.controller.features import elr_enabled
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
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

STEP = 5_000
"""Units of work of a microsecond or two."""
RESOURCE_UNITS = 100
"""Of one that is named, with a few settings."""
CHARACTERS_A_UNIT = 32
"""Of a value."""
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS = frozenset(Operation)


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
def legacy_alter_configs(
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
        records.extend((yield from _alter_config_resource(image, settings, resource, incremental, pace)))
    except ConfigRefused as refusal:
        return refusal.code, refusal.message
    finally:
        if pace.is_over(RESOURCE_UNITS):
            yield
    return ErrorCode.NONE, None


def _alter_config_resource(
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
    validate(image, settings, resource.type, resource.name, wanted, current)
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
        records.extend(clear_elr_records(image, resource.name if resource.type == TOPIC else EVERY_TOPIC))
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
        check_node(image, settings, resource.name)
    if is_too_long:
        raise too_long()


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
