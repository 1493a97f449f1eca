"""The name of a broker resource has to be this node's id: nobody else can answer for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.api.context import ControllerNode
from kafkacompat.controller.image import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode


T = TypeVar("T")

LOOKED_AT_A_STEP = 1_000
"""Resources."""


def in_their_places(own: Mapping[int, T], others: Sequence[T]) -> list[T]:
    """The answers of a request: those that were made here, by position, among those of the controller."""
    rest = iter(others)
    return [own[position] if position in own else next(rest) for position in range(len(own) + len(others))]


def wrong_node(node: AnyNode, name: str) -> str | None:
    """What to tell a client that names another node or none; None when the name is this node's."""
    try:
        node_id = int(name)
    except ValueError:
        return f"Node id must be an integer, but it is: {name}"
    if node_id != node.node_id:
        return f"Unexpected broker id, expected {node.node_id}, but received {name}"
    return None


def refused_here(node: AnyNode, resource_type: int, name: str) -> str | None:
    """What to tell a client that has another broker's settings changed here; controllers change everybody's."""
    if resource_type != ConfigResourceType.BROKER or not name or isinstance(node, ControllerNode):
        return None
    return wrong_node(node, name)
