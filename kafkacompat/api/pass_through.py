"""APIs whose requests are passed on unchanged, to the controller or to this node's part in the metadata quorum.

The service returns the response message. A refusal is an error code for the whole response. The registry lists these
APIs.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.apis import APIS, response_class
from kafkacompat.wire.definition import snake_case
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred


@remembered
def forwarded(key: int) -> Handler:
    """Return a handler of broker listeners, which send the request on to the active controller."""

    def handle(node: Node, context: RequestContext, request: Any) -> Deferred[Any]:
        return node.controller.forward(request, context)

    return Handler(handle, top_level_error(response_class(key)))


@remembered
def to_controller(key: int) -> Handler:
    """Return a handler of controller listeners. It calls the controller's method with the API's name."""
    method = attrgetter(f"controller.{snake_case(APIS[key].name)}")

    def handle(node: ControllerNode, context: RequestContext, request: Any) -> Deferred[Any]:
        answer: Deferred[Any] = method(node)(request, context)
        return answer

    return Handler(handle, top_level_error(response_class(key)))


@remembered
def to_quorum(key: int) -> Handler:
    def handle(node: ControllerNode, context: RequestContext, request: Any) -> Deferred[Any]:
        return node.quorum.handle(request, context.api_version, context.listener_name)

    return Handler(handle, top_level_error(response_class(key)))
