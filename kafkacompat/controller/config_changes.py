"""Changes to the settings of one resource, and the resulting values. Pure.

A broker checks changes to its own settings before it forwards the request; the active controller checks all changes.
Source: Kafka's ConfigAdminManager and ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kafkacompat.config import ConfigType, ServerConfig, broker_keys, group_keys, topic_keys
from kafkacompat.config.keys import render_value
from kafkacompat.config.topic import broker_default
from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.controller.refusals import told
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode

CHARACTERS_A_UNIT = 32
"""Characters of a value that count as one unit of a step."""
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
SETTINGS_MAX = 2_000
"""Of one resource, in one request. They are compared, checked and written in one step. A topic has some forty, a broker
some more for each listener."""
CHANGED_TYPES = frozenset({TOPIC, BROKER, GROUP, ConfigResourceType.CLIENT_METRICS})


class ConfigRefused(Exception):
    """The changes to one resource are refused."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = told(message)


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting (KIP-339). AlterConfigs only sets."""

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


def changes_of(element: Any, pace: Pace, *, incremental: bool) -> Work[ResourceChange]:
    """`element` is a resource of either request."""
    resource = ResourceChange(element.resource_type, element.resource_name, [])
    for config in element.configs:
        operation = config.config_operation if incremental else Operation.SET
        resource.changes.append(Change(config.name, operation, config.value))
        if pace.is_over(cost_of(config.value)):
            yield TURN_COST
    return resource


def cost_of(value: str | None) -> int:
    """The cost in units of a step."""
    return 1 if value is None else 1 + len(value) // CHARACTERS_A_UNIT


def check_shape(resource: ResourceChange, pace: Pace) -> Work[None]:
    """Raise ConfigRefused INVALID_REQUEST for duplicate names, missing values, unknown operations and unknown resource
    types."""
    names: set[str] = set()
    nulls: list[str] = []
    unknown: int | None = None
    for change in resource.changes:
        names.add(change.name)
        if change.value is None and change.operation != Operation.DELETE:
            nulls.append(change.name)
        if unknown is None and change.operation not in OPERATIONS:
            unknown = change.operation
        if pace.is_over():
            yield TURN_COST
    if len(names) < len(resource.changes):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    if unknown is not None:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    if resource.type not in CHANGED_TYPES:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")
    if len(names) > SETTINGS_MAX:
        text = f"More than {SETTINGS_MAX} settings of one resource in one request."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)


def new_values(
    resource: ResourceChange, current: Mapping[str, str], broker: ServerConfig, pace: Pace
) -> Work[dict[str, str | None]]:
    """The value after each change, None if it removes the setting. `broker` has the defaults of topics.

    Raises ConfigRefused INVALID_CONFIG for a list operation on a setting that is not a list.
    """
    values: dict[str, str | None] = {}
    for change in resource.changes:
        values[change.name] = _new_value(resource.type, change, current.get(change.name), broker)
        if pace.is_over(cost_of(change.value)):
            yield TURN_COST
    return values


def _new_value(resource_type: int, change: Change, current: str | None, broker: ServerConfig) -> str | None:
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        return None
    operation = Operation(change.operation)
    keys = {TOPIC: topic_keys, BROKER: broker_keys, GROUP: group_keys}.get(ConfigResourceType(resource_type))
    key = keys().get(change.name) if keys is not None else None
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    if current is None:
        default = broker_default(broker, change.name) if resource_type == TOPIC else key.default
        current = render_value(key, default)
    entries = [entry for entry in (current or "").split(",") if entry]
    assert change.value is not None
    # Each list may have 16,000 entries.
    operands = dict.fromkeys(change.value.split(","))
    if operation is Operation.APPEND:
        present = set(entries)
        entries.extend(entry for entry in operands if entry not in present)
    else:
        entries = [entry for entry in entries if entry not in operands]
    return ",".join(entries)


def wanted_settings(
    values: Mapping[str, str | None], current: Mapping[str, str], incremental: bool
) -> dict[str, str]:
    """All settings of the resource after the changes."""
    before = current if incremental else {}
    return {name: value for name, value in {**before, **values}.items() if value is not None}
