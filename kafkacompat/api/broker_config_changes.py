"""Validates changes to this broker's settings, and the stores that they name, before the broker forwards them. Source:
Kafka's ConfigAdminManager.

The broker's refusals come before those for missing rights, because only the controller checks rights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import ControllerNode
from kafkacompat.api.listener_stores import check_stores
from kafkacompat.api.node_names import COUNTED_A_STEP
from kafkacompat.config import ConfigError, DynamicConfig
from kafkacompat.config.dynamic import check_thread_counts, validate_dynamic_broker
from kafkacompat.controller.configuration_control_manager import (
    ConfigRefused,
    changes_of,
    check_shape,
    new_values,
    wanted_settings,
)
from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, Node
    from kafkacompat.api.request_context import RequestContext

CHANGES_A_STEP = 5_000
"""Units of work per step. A change costs one unit, and more if its value is long."""
BROKER = ConfigResourceType.BROKER


def refused_broker_changes(
    node: AnyNode, context: RequestContext, resources: Sequence[Any], *, incremental: bool
) -> Work[dict[int, tuple[ErrorCode, str | None]]]:
    """Return the error code and message of each refused resource, by position. A controller refuses nothing here.

    Only this broker's settings and the cluster default can be named, so at most two resources are validated.
    """
    refused: dict[int, tuple[ErrorCode, str | None]] = {}
    if isinstance(node, ControllerNode):
        return refused
    pace = Pace(CHANGES_A_STEP)
    own_names = ("", str(node.node_id))
    named: Counter[str] = Counter()
    for position, each in enumerate(resources, 1):
        if each.resource_type == BROKER and each.resource_name in own_names:
            named[each.resource_name] += 1
        if position % COUNTED_A_STEP == 0:
            yield TURN_COST
    for position, each in enumerate(resources):
        if position and position % COUNTED_A_STEP == 0:
            yield TURN_COST
        if each.resource_type != BROKER or named[each.resource_name] != 1:
            continue
        try:
            yield from _check(node, context, each, incremental, pace)
        except ConfigRefused as refusal:
            refused[position] = refusal.code, refusal.message
    return refused


def _check(node: Node, context: RequestContext, element: Any, incremental: bool, pace: Pace) -> Work[None]:
    resource = yield from changes_of(element, pace, incremental=incremental)
    yield from check_shape(resource, pace)
    current = node.image.config(BROKER, resource.name)
    values = yield from new_values(resource, current, node.config, pace)
    wanted = wanted_settings(values, current, incremental)
    layers = node.image.config(BROKER, ""), node.image.config(BROKER, str(node.node_id))
    in_effect = DynamicConfig(node.config, *layers)
    try:
        validate_dynamic_broker(wanted, per_broker=bool(resource.name), current=in_effect)
        check_thread_counts(wanted, per_broker=bool(resource.name), current=in_effect)
        if resource.name:
            check_stores(node, context, current.keys() | values.keys(), wanted)
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
