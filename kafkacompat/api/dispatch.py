"""From a frame to a reply: header, version, codec, handler, codec. What a connection calls for every request.

Duty: refuse what is not served (the connection is closed, A4; ApiVersions is answered, T1), decode, call, encode, and stand
in for a handler that fails: a bug is logged and answered UNKNOWN_SERVER_ERROR at that request's level, a disk that refuses
KAFKA_STORAGE_ERROR. Must not know: any API but ApiVersions, sockets. Decoders, encoders and handlers are found once per
(key, version) and kept in a flat table, at most one entry for each version in the registry.
"""

from __future__ import annotations

import logging
import sys
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import RequestContext
from kafkacompat.api.handler import Message, NoResponse
from kafkacompat.api.registry import BY_KEY, load
from kafkacompat.deferred import Deferred
from kafkacompat.net.dispatcher import CloseConnection, Pending
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import decoder, encode_parts, encoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.net.dispatcher import ConnectionInfo, Reply

logger = logging.getLogger(__name__)

API_VERSIONS = 18
FETCH = 1
PREFIX = Layout(">ii")
"""Size, correlation id: the beginning of a reply with the old header."""
FLEXIBLE_PREFIX = Layout(">iix")
SIZE = Layout(">i")


class Route:
    """What serves one version of one API."""

    __slots__ = ("blocks", "decode", "encode", "error_response", "function", "key", "prefix", "version")

    def __init__(self, key: int, version: int) -> None:
        handler = load(key)
        self.key = key
        self.version = version
        self.function = handler.function
        self.error_response = handler.error_response
        self.blocks = handler.blocks
        self.decode = decoder(request_class(key), version)
        # Records of a fetch leave as file slices, between byte parts.
        self.encode = None if key == FETCH else encoder(response_class(key), version)
        flexible = version >= APIS[key].response_flexible_min
        self.prefix = FLEXIBLE_PREFIX if flexible else PREFIX

    def reply(self, correlation_id: int, message: Message) -> Reply:
        """The message behind size and header; EncodeError when this version cannot carry it."""
        out = bytearray(self.prefix.pack(0, correlation_id))
        if self.encode is not None:
            self.encode(message, out)
            SIZE.pack_into(out, 0, len(out) - 4)
            return [out]
        parts = encode_parts(message, self.version, out)
        SIZE.pack_into(parts[0], 0, sum(map(len, parts)) - 4)
        return parts


class ApiDispatcher:
    """net's Dispatcher over the registry."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._routes: dict[tuple[int, int], Route] = {}
        self._parked: dict[int, Deferred[Any]] = {}
        """The blocking request, of which a connection has one at most, that waits for its answer."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        header = parse_request_header(frame)
        route = self._routes.get((header.api_key, header.api_version))
        if route is None:
            if header.api_key == API_VERSIONS and not is_served(header):
                return unsupported_api_versions(header)
            route = self._open_route(header)
        request = route.decode(frame, header.body_offset)[0]
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
        try:
            answer = route.function(self._node, context, request)
            if type(answer) is Deferred:
                if not answer.done:
                    return self._pending(route, context, request, answer)
                answer = answer.result()
        except (CloseConnection, WireError):
            raise
        except Exception:
            answer = self._failed(route, context, request)
        if header.api_key == API_VERSIONS and context.client_software is not None:
            connection.client_software = " ".join(context.client_software)
        return self._reply(route, context, request, answer)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """A fetch that waits is let go; whatever changes state goes on, and fetch sessions outlive connections."""
        parked = self._parked.pop(connection.connection_id, None)
        if parked is not None:
            parked.abandon()

    def _open_route(self, header: RequestHeader) -> Route:
        if not is_served(header):
            raise CloseConnection(f"API {header.api_key} version {header.api_version} is not served")
        route = Route(header.api_key, header.api_version)
        self._routes[header.api_key, header.api_version] = route
        return route

    def _reply(
        self, route: Route, context: RequestContext, request: Any, answer: Message | NoResponse
    ) -> Reply | None:
        if answer is NoResponse.SILENT:
            return None
        if answer is NoResponse.CLOSE:
            raise CloseConnection("a request without a reply failed")
        try:
            return route.reply(context.correlation_id, answer)
        except Exception:
            stand_in = self._failed(route, context, request)
            if stand_in is NoResponse.CLOSE:
                raise CloseConnection("a request without a reply failed") from None
            return route.reply(context.correlation_id, stand_in)

    def _pending(self, route: Route, context: RequestContext, request: Any, answer: Deferred[Any]) -> Pending:
        reply: Deferred[Reply | None] = Deferred()
        # A request that lets others overtake it must not hold the receive buffer through its records.
        kept = request if route.blocks else None

        def finish(done: Deferred[Any]) -> None:
            if route.blocks:
                self._parked.pop(context.connection_id, None)
            try:
                try:
                    message = done.result()
                except (CloseConnection, WireError):
                    raise
                except Exception as error:
                    if kept is None:
                        raise CloseConnection("a parked request failed") from error
                    message = self._failed(route, context, kept)
                encoded = self._reply(route, context, kept, message)
            except Exception as error:
                reply.fail(error)
            else:
                reply.resolve(encoded)

        if route.blocks:
            self._parked[context.connection_id] = answer
        answer.on_done(finish)
        return Pending(reply, route.blocks)

    def _failed(self, route: Route, context: RequestContext, request: Any) -> Any:
        """Called where an exception is being handled: the disk's refusal, or our own bug; logged, never the end of the node."""
        error = sys.exception()
        logger.error(
            "%s version %d from client %r at %s failed: %s",
            BY_KEY[route.key].name,
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


def is_served(header: RequestHeader) -> bool:
    entry = BY_KEY.get(header.api_key)
    return entry is not None and entry.min_version <= header.api_version <= entry.max_version


def unsupported_api_versions(header: RequestHeader) -> Reply:
    """Always in the oldest form, whatever was asked for (T1, B1); the request's body is not looked at (B2)."""
    from kafkacompat.api.api_versions import unsupported_version

    return Route(API_VERSIONS, 0).reply(header.correlation_id, unsupported_version())
