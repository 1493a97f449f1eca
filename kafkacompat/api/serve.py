"""Calls the handlers for all requests: those of connections, of this node itself, and in an Envelope.

Everything that applies to every request is done here: whether the request waits until this broker has joined the
cluster, or until the coordinators are made, whether a task handles it, and which error response it
gets if the handler raises. This module knows neither frames nor sockets.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, refusal_of
from kafkacompat.api.handler import Message, NoResponse
from kafkacompat.api.long_requests import (
    HANDLINGS,
    answer_large,
    answer_of,
    are_few,
    as_deferred,
    given,
    is_long,
)
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.api.route import PRODUCE, Route
from kafkacompat.deferred import Deferred
from kafkacompat.late import NotMade, came_of_an_import
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.security.authorizer import AuthorizerNotReady
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.long_requests import RequestTasks

logger = logging.getLogger(__name__)

Answer = Message | Deferred[Message] | NoResponse

REFUSED_AT_ONCE = 10_000
"""Elements of a request whose refusal is made and encoded in one step, at one or two microseconds each."""


def serve(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    requests: RequestTasks | None = None,
    is_large: bool = False,
) -> Answer:
    """Return the handler's result, now or later. Exceptions of the handler reach the caller.

    With `requests`, what takes longer is a task, and its answer may be encoded (EncodedAnswer). Without, it is whatever the
    handler returns. `is_large`: treat the request as long, whatever its handler decides.
    """
    opening = node.opening
    if route.waits_for_opening and opening is not None and not opening.is_open:
        return opening.hold(partial(_later, route, node, context, request, requests, is_large))
    if route.asks_coordinators:
        coordinators = node.coordinators
        if coordinators is not None and coordinators.made is None:
            return coordinators.hold(partial(_later, route, node, context, request, requests, is_large))
    try:
        return _handled(route, node, context, request, requests, is_large)
    except (ImportError, OSError) as error:
        # What a handler imports, it imports before it has any effect. A Produce may have appended to other partitions.
        if (
            node.provisions is None
            or node.provisions.is_complete
            or route.key == PRODUCE
            or not came_of_an_import(error)
        ):
            raise
        return node.provisions.hold(partial(_later, route, node, context, request, requests, is_large))


async def serve_own(route: Route, node: AnyNode, context: RequestContext, request: Any) -> Message:
    """Serve a request without a connection. The message is not encoded. Raises the handler's exception."""
    return await given(serve(route, node, context, request))


def _later(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    requests: RequestTasks | None,
    is_large: bool,
) -> Deferred[Any]:
    try:
        return as_deferred(_handled(route, node, context, request, requests, is_large))
    except Exception as error:
        failed: Deferred[Any] = Deferred()
        failed.fail(error)
        return failed


def _handled(
    route: Route,
    node: AnyNode,
    context: RequestContext,
    request: Any,
    requests: RequestTasks | None,
    is_large: bool,
) -> Answer:
    if route.is_served is not None and not route.is_served(node):
        return _refusal(route, request, ErrorCode.UNSUPPORTED_VERSION)
    if route.needs and (access := access_of(node, context)) is not None:
        code = refusal_of(route.needs, access, request)
        if code != ErrorCode.NONE:
            return _refusal(route, request, code)
    is_large = is_large or (route.may_be_long and is_long(route, node, request))
    if is_large and requests is not None:
        return answer_large(requests, route, node, context, request)
    answer: Any = route.function(node, context, request)
    if type(answer) in HANDLINGS and requests is not None:
        return answer_of(requests, route, context, answer)
    return answer


def _refusal(route: Route, request: Any, code: ErrorCode) -> Message | NoResponse:
    """Of the whole request. Who names very many elements without any right is not answered for each of them."""
    if not are_few([request], REFUSED_AT_ONCE):
        raise CloseConnection(f"{code.name} for more than {REFUSED_AT_ONCE} elements")
    return route.error_response(request, code, route.version)


def stand_in_for_failure(route: Route, context: RequestContext, request: Any) -> Message | NoResponse:
    """Return the response for the exception that is being handled: a controller's refusal, a disk error, coordinators
    that could not be made, or a bug, which is logged.

    The node never ends here. Raises CloseConnection if the request is no longer available.
    """
    error = sys.exception()
    if isinstance(error, (NotController, ControllerTimedOut)):
        late = isinstance(error, ControllerTimedOut)
        code = ErrorCode.REQUEST_TIMED_OUT if late else ErrorCode.NOT_CONTROLLER
        return route.error_response(request, code, route.version)
    if isinstance(error, AuthorizerNotReady):
        return route.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, route.version)
    reason = error.reason if isinstance(error, NotMade) else error
    logger.error(
        "%s version %d from client %r at %s failed: %s",
        APIS[route.key].name,
        route.version,
        context.client_id,
        context.client_host,
        error,
        exc_info=None if isinstance(reason, OSError) else reason,
    )
    if request is None:
        raise CloseConnection("a parked request failed")
    is_import = came_of_an_import(error)
    if isinstance(error, NotMade) or (is_import and route.asks_coordinators):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the client tries again
    elif is_import or isinstance(error, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR  # here too
    else:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return route.error_response(request, code, route.version)
