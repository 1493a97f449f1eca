"""The settings of nodes: the resources that a particular node answers for, and the checks before its settings change.

The name of a broker resource must be this node's id. Stores of this node's listeners that a request would change are checked before
it is forwarded, because only this node can read them. The rights to brokers' settings are checked before, so a sender without
them learns nothing about this node's files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.context import ControllerNode
from kafkacompat.config import ConfigError, DynamicConfig
from kafkacompat.config.dynamic import check_thread_counts, validate_dynamic_broker
from kafkacompat.config.keys import listener_base
from kafkacompat.controller.configuration_control_manager import (
    ConfigRefused,
    changes_of,
    check_all,
    check_count,
    check_shape,
    new_values,
    wanted_settings,
)
from kafkacompat.ids import parse_int
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, Node

T = TypeVar("T")
R = TypeVar("R")

LOOKED_AT_A_STEP = 1_000
"""Resources per step."""
COUNTED_A_STEP = 10_000
"""The same, if only their type is looked at."""


TEXT_TOLD_MAX = 8_000
"""Characters of an error message, which may repeat a name. A string of the protocol has at most 32,767 bytes."""


def told_text(message: str | None) -> str | None:
    return None if message is None else message[:TEXT_TOLD_MAX]


async def with_the_controllers(
    own: Mapping[int, Any], others: list[Any], request: T, ask: Callable[[T], Any], response: R
) -> R:
    """Merge `own`, the results of this node by position, with the controller's results for `others`.

    `response` is a response without resources. `ask` sends a request to the controller.
    """
    if not own:
        whole: R = await ask(request)
        return whole
    if others:
        rest: Any = copy(request)
        rest.resources = others
        response = await ask(rest)
    answered: Any = response
    answered.responses = _in_their_places(own, answered.responses)
    return response


def _in_their_places(own: Mapping[int, Any], others: Sequence[Any]) -> list[Any]:
    rest = iter(others)
    return [own[position] if position in own else next(rest) for position in range(len(own) + len(others))]


def wrong_node(node: AnyNode, name: str) -> str | None:
    """Return the error message if the name is not this node's id. None if it is."""
    try:
        node_id = parse_int(name)
    except ValueError:
        return f"Node id must be an integer, but it is: {name}"
    if node_id != node.node_id:
        return f"Unexpected broker id, expected {node.node_id}, but received {name}"
    return None


def refused_here(node: AnyNode, resource_type: int, name: str) -> str | None:
    """Return the error message if the resource is another broker's settings. None on a controller, which changes all
    brokers' settings."""
    if resource_type != ConfigResourceType.BROKER or not name or isinstance(node, ControllerNode):
        return None
    return wrong_node(node, name)


OF_TLS = "ssl."


def check_stores(node: Node, names: Iterable[str], wanted: Mapping[str, str]) -> None:
    """Raise ConfigError if this broker's stores would not work with these settings of its own. `names` are the settings
    that it has now or that the request changes."""
    if node.check_listeners is None or not any(
        (listener_base(each) or "").startswith(OF_TLS) for each in names
    ):
        return
    node.check_listeners(
        DynamicConfig(node.config, node.image.config(ConfigResourceType.BROKER, ""), wanted).effective
    )


CHANGES_A_STEP = 5_000
"""Units of work per step. A change costs one unit, and more if its value is long."""
BROKER = ConfigResourceType.BROKER


def refused_broker_changes(
    node: AnyNode, resources: Sequence[Any], *, incremental: bool
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
            yield from _check(node, each, incremental, pace)
        except ConfigRefused as refusal:
            refused[position] = refusal.code, refusal.message
    return refused


def _check(node: Node, element: Any, incremental: bool, pace: Pace) -> Work[None]:
    check_count(element)
    resource = yield from changes_of(element, pace, incremental=incremental)
    yield from check_shape(resource, pace)
    current = node.image.config(BROKER, resource.name)
    values = yield from new_values(resource, current, node.config, pace)
    wanted = wanted_settings(resource, values, current, incremental)
    check_all(resource, wanted, current)
    layers = node.image.config(BROKER, ""), node.image.config(BROKER, str(node.node_id))
    in_effect = DynamicConfig(node.config, *layers)
    try:
        validate_dynamic_broker(wanted, per_broker=bool(resource.name), current=in_effect)
        check_thread_counts(wanted, per_broker=bool(resource.name), current=in_effect)
        if resource.name:
            check_stores(node, current.keys() | values.keys(), wanted)
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
