"""From a frame to a reply: parse the header, find the version, decode, `serve`, encode. Connections call it for every
request.

An unsupported version closes the connection, except for ApiVersions, which is answered. A handler that raises gets an
error response. The route of each version is built once and kept in a flat table. Broker listeners and controller
listeners have separate dispatchers, each with its node and table. This module knows no sockets, and no API except
ApiVersions.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Message, NoResponse
from kafkacompat.api.long_requests import LongAnswer
from kafkacompat.api.registry import BROKER_APIS, ApiTable
from kafkacompat.api.request_context import RequestContext
from kafkacompat.api.route import SIZE_MAX, EncodedAnswer, Repeat, Route
from kafkacompat.api.serve import serve, serve_own, stand_in_for_failure
from kafkacompat.api.throttling import throttle
from kafkacompat.deferred import Deferred
from kafkacompat.late import came_of_an_import
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import steps_decoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import RequestHeader, request_start, rest_of_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.long_requests import RequestTasks
    from kafkacompat.api.meters import RequestMeters, RouteMeter
    from kafkacompat.late import Provisions
    from kafkacompat.ports.dispatcher import ConnectionInfo, Reply

API_VERSIONS = 18
CORRELATION_ID = slice(4, 8)
"""Its bytes in a frame."""
AFTER_CORRELATION_ID = 8
NO_TAGS = b"\0"
CLIENT_ID_KEPT_MAX = 256
"""Bytes up to the end of a client id that is remembered."""
SOFTWARE_KEPT_MAX = 1_000
"""Characters of the name and of the version of a client's software. It may tell 64 KiB before it has logged in, which would stay
for as long as its connection. Subscriptions to client metrics match no more."""
ELEMENTS_MAX = 500_000
"""The default of request.max.elements."""
_NONE = ErrorCode.NONE
"""A module's name, because looking up an enum member is far slower."""


class ApiDispatcher:
    """Implements the Dispatcher of net/ for one table of the registry."""

    def __init__(
        self,
        node: AnyNode,
        requests: RequestTasks,
        table: ApiTable = BROKER_APIS,
        when_closed: Sequence[Callable[[int], None]] = (),
        elements_max: int = ELEMENTS_MAX,
        meters: RequestMeters | None = None,
    ) -> None:
        """Each of `when_closed` is called with the id of each connection that has ended. `meters` counts the requests.

        `elements_max` bounds the elements in a request's arrays.
        """
        self._requests = requests
        self._elements_max = elements_max
        self._meters = meters
        self._node = node
        self.table = table
        self._when_closed = when_closed
        self._routes: dict[tuple[int, int], Route] = {}
        self._parked: dict[int, Deferred[Any]] = {}
        """By connection id: the blocking request that waits for its answer. A connection has at most one."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        start = key, version, correlation_id = request_start(frame)
        route = self._routes.get((key, version))
        body, node = None, self._node
        request: Any = None
        is_read = False
        if route is None:
            header = rest_of_header(frame, *start)
            try:
                if header.api_key == API_VERSIONS and not self.table.serves(
                    header.api_key, header.api_version
                ):
                    return unsupported_api_versions(header, self.table)
                route = self._route(header.api_key, header.api_version)
            except (ImportError, OSError) as error:
                if node.provisions is None or node.provisions.is_complete or not came_of_an_import(error):
                    raise
                return self._dispatch_later(connection, frame, node.provisions)
        elif (
            route.repeats is not None
            and len(frame) <= SIZE_MAX
            and node.authorizer is None
            and not node.quotas.is_active
        ):
            body = bytes(frame[AFTER_CORRELATION_ID:])
            repeat = route.repeats.find(body)
            if repeat is not None:
                reply = self._answered_again(connection, route, repeat, frame, start)
                if reply is not None:
                    return reply
                route.repeats.forget(body)
        elif route.answer_frame is not None and not node.quotas.is_active:
            meter = route.meter
            if meter is None or (meter.requests + 1) & meter.mask:  # its times are not taken
                request, is_read = route.answer_frame(node, frame, version, correlation_id), True
                if type(request) is tuple:
                    answered: Reply = request[0]
                    if meter is not None:
                        meter.requests += 1
                        meter.errors[_NONE] += request[1]
                    return answered
        client_id, position = _client_id(connection, route, frame, start)
        if route.parse_plain is not None and not is_read:
            request = route.parse_plain(node, frame, position, version)
        context = RequestContext(
            key,
            version,
            correlation_id,
            client_id,
            connection.connection_id,
            connection.listener_name,
            connection.client_host,
            connection.listener_is_sasl,
            connection.principal,
            connection.client_port,
            connection.client_software,
        )
        if request is None:
            if len(frame) > route.decoded_at_once_max:
                return self._decode_in_steps(connection, frame, context, route, position)
            request = route.decode(frame, position)[0]
        if route.meter is not None:
            timed = route.meter.count(request)
            if timed is not None:
                return self._timed(timed, connection, context, route, request, len(frame), position, body)
        return self._handle(connection, context, route, request, len(frame), body)

    def _dispatch_later(
        self, connection: ConnectionInfo, frame: memoryview, provisions: Provisions
    ) -> Pending:
        """Dispatch a request whose modules cannot be imported now, as soon as all are there. Its connection waits."""
        called = request_start(frame)[:2]

        def dispatch() -> Deferred[Reply | None]:
            self._parked.pop(connection.connection_id, None)
            if self.table.serves(*called):
                self._route(*called)  # raises if it has waited in vain
            reply = self.dispatch(connection, frame)
            return reply.reply if isinstance(reply, Pending) else Deferred.of(reply)

        owed = self._parked[connection.connection_id] = provisions.hold(dispatch)
        return Pending(owed, blocks=True)

    def _answered_again(
        self,
        connection: ConnectionInfo,
        route: Route,
        repeat: Repeat,
        frame: memoryview,
        start: tuple[int, int, int],
    ) -> Reply | None:
        """Answer a request with the same bytes as an earlier one. None if it must take the usual way. `start`: of the
        frame's header."""
        node = self._node
        if repeat.client_host != connection.client_host:
            return None
        if route.is_served is not None and not route.is_served(node):
            return None
        meter = route.meter
        is_timed = meter is not None and not (meter.requests + 1) & meter.mask
        started_s = monotonic() if is_timed else 0.0
        if not repeat.again():
            return None
        reply = repeat.reply(frame[CORRELATION_ID])
        if meter is not None:
            meter.requests += 1
            meter.errors[_NONE] += 1
            if is_timed:
                size = len(frame) - _client_id(connection, route, frame, start)[1]
                meter.note(connection, started_s, size, reply)
        return reply

    def _timed(
        self,
        meter: RouteMeter,
        connection: ConnectionInfo,
        context: RequestContext,
        route: Route,
        request: Any,
        size: int,
        position: int,
        body: bytes | None = None,
    ) -> Reply | Pending | None:
        """`position` is that of the request in its frame of this size."""
        started_s = monotonic()
        answer = self._handle(connection, context, route, request, size, body)
        meter.note(connection, started_s, size - position, answer)
        return answer

    def _decode_in_steps(
        self,
        connection: ConnectionInfo,
        frame: memoryview,
        context: RequestContext,
        route: Route,
        position: int,
    ) -> Reply | Pending | None:
        """Decode one piece at once, which is enough for most requests. Otherwise a task does the rest, and the connection waits."""
        make = steps_decoder(request_class(route.key), route.version)
        steps = make(frame, position, self._elements_max)
        try:
            next(steps)
        except StopIteration as end:
            request, size = end.value[0], len(frame)
            timed = None if route.meter is None else route.meter.count(request)
            if timed is not None:
                return self._timed(timed, connection, context, route, request, size, position)
            return self._handle(connection, context, route, request, size)
        started_s, size = monotonic(), len(frame)
        reply: Deferred[Reply | None] = Deferred()
        connection_id = connection.connection_id
        is_gone = False

        def gone() -> None:
            """It waits for its place, or is decoded."""
            nonlocal is_gone
            if self._requests.keep_left(route, size):
                is_gone = True
            else:
                task.cancel()

        reply.when_abandoned = gone
        self._parked[connection_id] = reply

        async def carried_out() -> None:
            """Ends when the request is answered, or only waits. The next large request starts then."""
            async with self._requests.places(size, waits_at_will=route.waits_at_will):
                await pause()  # the first step has used its turn
                try:
                    request, _ = await in_turns(steps)
                    self._parked.pop(connection_id, None)
                    if route.meter is not None:
                        body_size, pending = size - position, Pending(reply, True)
                        route.meter.count_later(connection, request, started_s, body_size, pending)
                    answer = self._handle(connection, context, route, request, size, is_large=True)
                except Exception as error:
                    self._parked.pop(connection_id, None)
                    reply.fail(error)
                    return
                finally:
                    if is_gone:
                        self._requests.left_is_over(size)
                        _end_throttling(connection)
                if not isinstance(answer, Pending):
                    reply.resolve(answer)
                    return
                answer.reply.pass_to(reply)
                del request
                handled = self._parked.get(connection_id)
                if is_gone:
                    self._let_go(connection_id)
                if isinstance(handled, LongAnswer):
                    await handled.resting()

        task = self._requests.tasks.start("carrying out a large request", carried_out())
        return Pending(reply, True)

    def _handle(
        self,
        connection: ConnectionInfo,
        context: RequestContext,
        route: Route,
        request: Any,
        size_bytes: int,
        body: bytes | None = None,
        is_large: bool = False,
    ) -> Reply | Pending | None:
        """`body`: the bytes by which the route's repeats know the request."""
        if self._node.quotas.is_active:
            throttle(self._node, connection, route, context, size_bytes)
        try:
            answer = serve(route, self._node, context, request, self._requests, is_large)
            if isinstance(answer, Deferred):
                if not answer.done:
                    if context.throttling is not None:
                        context.throttling.waits(context)
                    return self._pending(route, context, request, answer)
                answer = answer.result()
        except (CloseConnection, WireError):
            raise
        except Exception:
            answer = stand_in_for_failure(route, context, request)
            context.again = None
        if context.client_software is not None:  # in ApiVersions
            connection.tell_software(" ".join([each[:SOFTWARE_KEPT_MAX] for each in context.client_software]))
        reply = self._reply(route, context, request, answer)
        if context.again is not None and body is not None and reply is not None:
            assert route.repeats is not None
            route.repeats.keep(body, Repeat(context.again, connection.client_host, reply))
        return reply

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """Abandon a waiting fetch. Requests that change state continue, up to a bound of large ones that are not begun. Fetch
        sessions outlive connections."""
        self._let_go(connection.connection_id)
        _end_throttling(connection)
        for when_closed in self._when_closed:
            when_closed(connection.connection_id)

    def _let_go(self, connection_id: int) -> None:
        parked = self._parked.pop(connection_id, None)
        if parked is not None:
            parked.abandon()

    def call(self, context: RequestContext, request: Message) -> Deferred[Message]:
        """Serve a request of this node itself, without encoding.

        Fails with NotController where a connection would get NOT_CONTROLLER. Exceptions of the handler also reach the
        caller.
        """
        route = self._route(context.api_key, context.api_version)
        return self._requests.tasks.run(
            "a request of this node", serve_own(route, self._node, context, request)
        )

    def refusal(self, header: RequestHeader, frame: memoryview, code: ErrorCode) -> Reply | None:
        """Return the request's response with this error, without serving it. None if the API has no response, or if
        the request is long."""
        if header.api_key == API_VERSIONS and not self.table.serves(header.api_key, header.api_version):
            route = self._route(API_VERSIONS, 0)
            return route.reply(header.correlation_id, route.error_response(None, code, 0))
        route = self._route(header.api_key, header.api_version)
        if len(frame) > route.decoded_at_once_max:
            return None
        answer = route.error_response(route.decode(frame, header.body_offset)[0], code, route.version)
        return None if isinstance(answer, NoResponse) else route.reply(header.correlation_id, answer)

    def _route(self, key: int, version: int) -> Route:
        route = self._routes.get((key, version))
        if route is None:
            if not self.table.serves(key, version):
                raise CloseConnection(f"API {key} version {version} is not served")
            route = self._routes[key, version] = Route(key, version, self.table)
            if self._meters is not None:
                route.meter = self._meters.of(key, version)
        return route

    def _reply(
        self, route: Route, context: RequestContext, request: Any, answer: Message | NoResponse
    ) -> Reply | None:
        if context.throttling is not None and type(answer) is not EncodedAnswer:
            context.throttling.tell(context, answer)
        if isinstance(answer, NoResponse):
            if answer is NoResponse.SILENT:
                return None
            raise CloseConnection("a request without a reply failed")
        meter = route.meter
        if meter is not None:
            count_errors = meter.count_errors  # called in this way it takes half the time
            count_errors(answer, meter.errors)
        try:
            return route.reply(context.correlation_id, answer)
        except Exception:
            context.again = None
            stand_in = stand_in_for_failure(route, context, request)
            if stand_in is NoResponse.CLOSE:
                raise CloseConnection("a request without a reply failed") from None
            return route.reply(context.correlation_id, stand_in)

    def _pending(self, route: Route, context: RequestContext, request: Any, answer: Deferred[Any]) -> Pending:
        reply: Deferred[Reply | None] = Deferred()
        blocks = route.blocks or isinstance(answer, LongAnswer)
        # While a request waits that does not block its connection, its records must not keep the receive buffer in
        # use.
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


def _end_throttling(connection: ConnectionInfo) -> None:
    if connection.throttling is not None:
        connection.throttling.settle()


def _client_id(
    connection: ConnectionInfo, route: Route, frame: memoryview, start: tuple[int, int, int]
) -> tuple[str | None, int]:
    """The client id of a request of the route, and the position after the header. A client sends the same in all its requests,
    and to compare takes a fourth of the time of reading."""
    known = connection.tagged_client_id_bytes if route.has_tagged_header else connection.client_id_bytes
    if known is not None:
        end = AFTER_CORRELATION_ID + len(known)
        if frame[AFTER_CORRELATION_ID:end] == known:
            return connection.client_id, end
    header = rest_of_header(frame, *start)
    length = frame[AFTER_CORRELATION_ID] << 8 | frame[AFTER_CORRELATION_ID + 1]
    end = AFTER_CORRELATION_ID + 2 + (0 if header.client_id is None else length)
    if end <= CLIENT_ID_KEPT_MAX:
        connection.client_id = header.client_id
        connection.client_id_bytes = bytes(frame[AFTER_CORRELATION_ID:end])
        connection.tagged_client_id_bytes = connection.client_id_bytes + NO_TAGS
    return header.client_id, header.body_offset


def unsupported_api_versions(header: RequestHeader, table: ApiTable) -> Reply:
    """Always answers in the oldest form, for any requested version. The request's body is not read."""
    from kafkacompat.api.api_versions import unsupported_version

    return Route(API_VERSIONS, 0, table).reply(header.correlation_id, unsupported_version())
