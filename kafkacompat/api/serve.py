"""One way to the handlers, for a connection, for this node's own requests and for those in an Envelope.

What is to be known or decided of every request, whoever asks, is done here once: whether it waits until this broker takes part,
whether it is handled in steps of the loop, and what is answered where the handler fails. It knows neither frames nor sockets.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from struct import Struct as Layout
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Message, NoResponse
from kafkacompat.api.long_requests import EncodedAnswer, answer_in_steps, as_deferred, go_on, is_long
from kafkacompat.api.registry import BROKER_APIS, ApiTable
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import decoder, encode_parts, encoder
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.long_requests import RequestSteps
    from kafkacompat.ports.dispatcher import Reply

logger = logging.getLogger(__name__)

PRODUCE = 0
FETCH = 1
PREFIX = Layout(">ii")
"""Size, correlation id: the beginning of a reply with the old header."""
FLEXIBLE_PREFIX = Layout(">iix")
SIZE = Layout(">i")
DECODED_AT_ONCE_MAX = 16 * 1024
"""Bytes of a request; the worst of them takes about a microsecond for one."""
PRODUCE_DECODED_AT_ONCE_MAX = 64 * 1024

Answer = Message | Deferred[Message] | NoResponse


class Route:
    """What serves one version of one API."""

    __slots__ = (
        "blocks",
        "decode",
        "decoded_at_once_max",
        "encode",
        "ends_with_connection",
        "error_response",
        "function",
        "key",
        "long",
        "may_be_long",
        "prefix",
        "slices",
        "version",
        "waits_at_will",
        "waits_for_opening",
    )

    def __init__(self, key: int, version: int, table: ApiTable = BROKER_APIS) -> None:
        handler = table.load(key)
        self.key = key
        self.version = version
        self.function = handler.function
        self.error_response = handler.error_response
        self.blocks = handler.blocks
        self.waits_for_opening = handler.waits_for_opening
        self.waits_at_will = handler.waits_at_will
        self.ends_with_connection = handler.ends_with_connection
        self.slices = handler.slices
        self.long = handler.long
        self.may_be_long = self.long is not None or self.slices is not None
        self.decode = decoder(request_class(key), version)
        # Of a produce most bytes are records, which are not looked at here.
        self.decoded_at_once_max = PRODUCE_DECODED_AT_ONCE_MAX if key == PRODUCE else DECODED_AT_ONCE_MAX
        # Records of a fetch leave as file slices, between byte parts.
        self.encode = None if key == FETCH else encoder(response_class(key), version)
        flexible = version >= APIS[key].response_flexible_min
        self.prefix = FLEXIBLE_PREFIX if flexible else PREFIX

    def reply(self, correlation_id: int, message: Message) -> Reply:
        """The message behind size and header; EncodeError when this version cannot carry it."""
        out = bytearray(self.prefix.pack(0, correlation_id))
        if type(message) is EncodedAnswer:
            first, *others = message.parts
            out += first
            SIZE.pack_into(out, 0, sum(map(len, others), len(out)) - 4)
            return [out, *others]
        if self.encode is not None:
            self.encode(message, out)
            SIZE.pack_into(out, 0, len(out) - 4)
            return [out]
        parts = encode_parts(message, self.version, out)
        SIZE.pack_into(parts[0], 0, sum(map(len, parts)) - 4)
        return parts


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
