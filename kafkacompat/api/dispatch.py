"""From a frame to a reply: header, version, codec, handler, codec. What a connection calls for every request.

Duty: refuse what is not served (the connection is closed; ApiVersions is answered), decode, call, encode, and stand
in for a handler that fails: a bug is logged and answered UNKNOWN_SERVER_ERROR at that request's level, a disk that refuses
KAFKA_STORAGE_ERROR, a controller that is not the active one NOT_CONTROLLER. Must not know: any API but ApiVersions, sockets.
Decoders, encoders and handlers are found once per (key, version) and kept in a flat table, at most one entry for each
version in the registry. Broker and controller listeners have a dispatcher each, with a node and a table of their own.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from struct import Struct as Layout
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import HoldingDeferred, Message, NoResponse
from kafkacompat.api.long_requests import (
    EncodedAnswer,
    LongAnswer,
    RequestSteps,
    answer_in_steps,
    as_deferred,
    go_on,
    is_long,
)
from kafkacompat.api.registry import BROKER_APIS, ApiTable
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.net.dispatcher import CloseConnection, Pending
from kafkacompat.stepping.jobs import driven
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import decoder, encode_parts, encoder, steps_decoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.api.context import AnyNode, Opening
    from kafkacompat.api.handler import HandlerFunction
    from kafkacompat.net.dispatcher import ConnectionInfo, Reply
    from kafkacompat.stepping.jobs import Steps

logger = logging.getLogger(__name__)

PRODUCE = 0
API_VERSIONS = 18
FETCH = 1
PREFIX = Layout(">ii")
"""Size, correlation id: the beginning of a reply with the old header."""
FLEXIBLE_PREFIX = Layout(">iix")
SIZE = Layout(">i")
DECODED_AT_ONCE_MAX = 16 * 1024
"""Bytes of a request; the worst of them takes about a microsecond for one."""
PRODUCE_DECODED_AT_ONCE_MAX = 64 * 1024
ELEMENTS_MAX = 500_000
"""request.max.elements, where nobody says otherwise."""


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


class ApiDispatcher:
    """net's Dispatcher over one table of the registry."""

    def __init__(
        self,
        node: AnyNode,
        table: ApiTable = BROKER_APIS,
        when_closed: Callable[[int], None] | None = None,
        opening: Opening | None = None,
        stepping: RequestSteps | None = None,
        elements_max: int = ELEMENTS_MAX,
    ) -> None:
        """`when_closed` is told the id of each connection that ended; `opening` holds what must wait for it.

        With `stepping` large requests are decoded in steps of the loop; `elements_max` bounds what their arrays hold.
        """
        self._stepping = stepping
        self._elements_max = elements_max
        self._node = node
        self.table = table
        self._when_closed = when_closed
        self._opening = opening
        self._routes: dict[tuple[int, int], Route] = {}
        self._parked: dict[int, Deferred[Any]] = {}
        """The blocking request, of which a connection has one at most, that waits for its answer."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        header = parse_request_header(frame)
        route = self._routes.get((header.api_key, header.api_version))
        if route is None:
            if header.api_key == API_VERSIONS and not self.table.serves(header.api_key, header.api_version):
                return unsupported_api_versions(header, self.table)
            route = self._open_route(header)
        if len(frame) > route.decoded_at_once_max:
            return self._decode_in_steps(connection, frame, header, route)
        request = route.decode(frame, header.body_offset)[0]
        return self._handle(connection, header, route, request)

    def _decode_in_steps(
        self, connection: ConnectionInfo, frame: memoryview, header: RequestHeader, route: Route
    ) -> Reply | Pending | None:
        """As much as one step takes is decoded at once, which is all of most; the connection waits for the rest."""
        make = steps_decoder(request_class(route.key), route.version)
        steps = make(frame, header.body_offset, self._elements_max)
        try:
            next(steps)
            while self._stepping is None:
                next(steps)
        except StopIteration as end:
            return self._handle(connection, header, route, end.value[0])
        reply: Deferred[Reply | None] = Deferred()
        connection_id = connection.connection_id
        is_gone = False

        def gone() -> None:
            nonlocal is_gone
            is_gone = True

        reply.when_abandoned = gone
        self._parked[connection_id] = reply

        def carried_out() -> Steps[None]:
            """Others have their turn when it is answered, or rests."""
            try:
                request, _ = yield from steps
                self._parked.pop(connection_id, None)
                answer = self._handle(connection, header, route, request, is_large=True)
            except Exception as error:
                self._parked.pop(connection_id, None)
                reply.fail(error)
                return
            if not isinstance(answer, Pending):
                reply.resolve(answer)
                return
            answer.reply.pass_to(reply)
            del request
            handled = self._parked.get(connection_id)
            if is_gone:
                self._let_go(connection_id)
            if isinstance(handled, LongAnswer):
                yield handled.resting()

        at_will = route.waits_at_will
        (self._stepping.large_at_will if at_will else self._stepping.large).submit(carried_out())
        return Pending(reply, True)

    def _handle(
        self,
        connection: ConnectionInfo,
        header: RequestHeader,
        route: Route,
        request: Any,
        is_large: bool = False,
    ) -> Reply | Pending | None:
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection.connection_id,
            connection.listener_name,
            connection.client_host,
            connection.listener_is_sasl,
        )
        answer: Message | Deferred[Message] | NoResponse
        try:
            if route.waits_for_opening and self._opening is not None and not self._opening.is_open:
                answer = self._opening.hold(partial(called, route.function, self._node, context, request))
            elif (
                is_large or (route.may_be_long and is_long(route, self._node, request))
            ) and self._stepping is not None:
                answer = answer_in_steps(self._stepping.handling, route, self._node, context, request)
            else:
                answer = route.function(self._node, context, request)
                if type(answer) is GeneratorType:
                    answer = go_on(self._stepping, route, answer)
            if isinstance(answer, Deferred):
                if not answer.done:
                    return self._pending(route, context, request, answer)
                answer = answer.result()
        except (CloseConnection, WireError):
            raise
        except Exception:
            answer = stand_in_for_failure(route, context, request)
        if header.api_key == API_VERSIONS and context.client_software is not None:
            connection.client_software = " ".join(context.client_software)
        return self._reply(route, context, request, answer)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """A fetch that waits is let go; whatever changes state goes on, and fetch sessions outlive connections."""
        self._let_go(connection.connection_id)
        if self._when_closed is not None:
            self._when_closed(connection.connection_id)

    def _let_go(self, connection_id: int) -> None:
        parked = self._parked.pop(connection_id, None)
        if parked is not None:
            parked.abandon()

    def call(self, context: RequestContext, request: Message) -> Deferred[Message]:
        """A request of this node's own to the handlers of this table, without bytes.

        Fails with NotController where a connection would be answered NOT_CONTROLLER; a bug passes through too.
        """
        handler = self.table.load(context.api_key)
        answer = partial(called, handler.function, self._node, context, request)
        if handler.waits_for_opening and self._opening is not None:
            return self._opening.hold(answer)
        return answer()

    def _open_route(self, header: RequestHeader) -> Route:
        if not self.table.serves(header.api_key, header.api_version):
            raise CloseConnection(f"API {header.api_key} version {header.api_version} is not served")
        route = Route(header.api_key, header.api_version, self.table)
        self._routes[header.api_key, header.api_version] = route
        return route

    def _reply(
        self, route: Route, context: RequestContext, request: Any, answer: Message | NoResponse
    ) -> Reply | None:
        if isinstance(answer, NoResponse):
            if answer is NoResponse.SILENT:
                return None
            raise CloseConnection("a request without a reply failed")
        try:
            return route.reply(context.correlation_id, answer)
        except Exception:
            stand_in = stand_in_for_failure(route, context, request)
            if stand_in is NoResponse.CLOSE:
                raise CloseConnection("a request without a reply failed") from None
            return route.reply(context.correlation_id, stand_in)

    def _pending(self, route: Route, context: RequestContext, request: Any, answer: Deferred[Any]) -> Pending:
        reply: Deferred[Reply | None] = Deferred()
        blocks = route.blocks or isinstance(answer, HoldingDeferred)
        # A request that lets others overtake it must not hold the receive buffer through its records.
        kept = request if blocks else None

        def finish(done: Deferred[Any]) -> None:
            if blocks:
                self._parked.pop(context.connection_id, None)
            try:
                try:
                    message = done.result()
                except (CloseConnection, WireError):
                    raise
                except Exception as error:
                    if kept is None:
                        raise CloseConnection("a parked request failed") from error
                    message = stand_in_for_failure(route, context, kept)
                encoded = self._reply(route, context, kept, message)
            except Exception as error:
                reply.fail(error)
            else:
                reply.resolve(encoded)

        if blocks:
            self._parked[context.connection_id] = answer
        answer.on_done(finish)
        return Pending(reply, blocks)


def called(
    function: HandlerFunction, node: AnyNode, context: RequestContext, request: Message
) -> Deferred[Message]:
    """A handler's answer, late in any case; what it raises becomes the failure."""
    try:
        answer = function(node, context, request)
    except Exception as error:
        failed: Deferred[Message] = Deferred()
        failed.fail(error)
        return failed
    if isinstance(answer, GeneratorType):
        return driven(answer).and_then(as_deferred)
    return as_deferred(answer)


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


def unsupported_api_versions(header: RequestHeader, table: ApiTable) -> Reply:
    """Always in the oldest form, whatever was asked for; the request's body is not looked at."""
    from kafkacompat.api.api_versions import unsupported_version

    return Route(API_VERSIONS, 0, table).reply(header.correlation_id, unsupported_version())
