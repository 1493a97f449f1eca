"""One way to the handlers, for a connection, for this node's own requests and for those in an Envelope.

What is to be known or decided of every request, whoever asks, is done here once: whether it waits until this broker takes part,
whether it is handled in steps of the loop, and what is answered where the handler fails. It knows neither frames nor sockets.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, refusal_of
from kafkacompat.api.handler import Message, NoResponse
from kafkacompat.api.long_requests import answer_in_steps, as_deferred, go_on, is_long
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.api.route import Route
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.security.authorizer import AuthorizerNotReady
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.long_requests import RequestSteps

logger = logging.getLogger(__name__)

Answer = Message | Deferred[Message] | NoResponse


def serve(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    stepping: RequestSteps | None = None,
    is_large: bool = False,
) -> Answer:
    """What the handler gives, now or later; what it raises passes through.

    With `stepping` a long request is handled in steps of the loop, and its answer may come in bytes (EncodedAnswer).
    `is_large`: it is long whatever its handler says of it.
    """
    opening = node.opening
    if route.waits_for_opening and opening is not None and not opening.is_open:
        return opening.hold(partial(_later, route, node, context, request, stepping, is_large))
    return _handled(route, node, context, request, stepping, is_large)


def serve_own(route: Route, node: AnyNode, context: RequestContext, request: Any) -> Deferred[Message]:
    """A request without a connection: late in any case, never in bytes, and what the handler raises is the failure."""
    try:
        return as_deferred(serve(route, node, context, request))
    except Exception as error:
        return _failed(error)


def _later(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    stepping: RequestSteps | None,
    is_large: bool,
) -> Deferred[Any]:
    try:
        return as_deferred(_handled(route, node, context, request, stepping, is_large))
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.fail(error)
    return failed


def _handled(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    stepping: RequestSteps | None,
    is_large: bool,
) -> Answer:
    if route.needs and (access := access_of(node, context)) is not None:
        code = refusal_of(route.needs, access, request)
        if code != ErrorCode.NONE:
            return route.error_response(request, code, route.version)
    is_large = is_large or (route.may_be_long and is_long(route, node, request))
    if is_large and stepping is not None:
        return answer_in_steps(stepping.handling, route, node, context, request)
    answer = route.function(node, context, request)
    return go_on(stepping, route, answer) if type(answer) is GeneratorType else answer


def stand_in_for_failure(route: Route, context: RequestContext, request: Any) -> Message | NoResponse:
    """The answer where an exception is being handled: a controller's refusal, the disk's, or our own bug; logged.

    Never the end of the node. CloseConnection when the request is not there any more.
    """
    error = sys.exception()
    if isinstance(error, (NotController, ControllerTimedOut)):
        late = isinstance(error, ControllerTimedOut)
        code = ErrorCode.REQUEST_TIMED_OUT if late else ErrorCode.NOT_CONTROLLER
        return route.error_response(request, code, route.version)
    if isinstance(error, AuthorizerNotReady):
        return route.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, route.version)
    logger.error(
        "%s version %d from client %r at %s failed: %s",
        APIS[route.key].name,
        route.version,
        context.client_id,
        context.client_host,
        error,
        exc_info=None if isinstance(error, OSError) else error,
    )
    if request is None:
        raise CloseConnection("a parked request failed")
    code = ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return route.error_response(request, code, route.version)
