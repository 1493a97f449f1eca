"""Resources that a particular node answers for: the name of a broker resource must be this node's id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.context import ControllerNode
from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.ids import parse_int

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode


T = TypeVar("T")
R = TypeVar("R")

LOOKED_AT_A_STEP = 1_000
"""Resources per step."""
COUNTED_A_STEP = 10_000
"""The same, if only their type is looked at."""


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
