"""Envelope (key 58): a client's request that a broker forwards to the controller. KIP-590.

The inner request is unwrapped, checked (not every API may be forwarded), and handled as if the client had sent it
here. Its response is wrapped. Errors of the inner request are in the inner response. An error of the envelope means
that it could not be opened, or that this node is not the active controller (NOT_CONTROLLER). In that case the broker
tries another controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.addresses import host_address
from kafkacompat.api.handler import Handler, LongHandling, top_level_error
from kafkacompat.api.long_requests import are_few
from kafkacompat.api.registry import CONTROLLER_APIS
from kafkacompat.api.request_context import NotController, RequestContext
from kafkacompat.api.route import DECODED_AT_ONCE_MAX, Route
from kafkacompat.api.serve import serve_own, stand_in_for_failure
from kafkacompat.ports.dispatcher import CloseConnection, Principal
from kafkacompat.tasks import Work, in_turns
from kafkacompat.wire.apis import APIS, request_class
from kafkacompat.wire.codec import encode, steps_decoder, steps_encoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_request_header, response_header_bytes
from kafkacompat.wire.messages.describe_quorum_response import DescribeQuorumResponse
from kafkacompat.wire.messages.envelope_response import EnvelopeResponse
from kafkacompat.wire.principal import decode_principal
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode
    from kafkacompat.wire.messages.envelope_request import EnvelopeRequest


class _Unopenable(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


async def handle(node: ControllerNode, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    """Handle the envelope. A large inner request is decoded with pauses, and a long answer is encoded with pauses."""
    try:
        route, inner, message = await in_turns(_open(node, context, request))
    except _Unopenable as problem:
        return EnvelopeResponse(response_data=None, error_code=problem.code)
    try:
        answer = await serve_own(route, node, inner, message)
    except NotController:
        return EnvelopeResponse(response_data=None, error_code=ErrorCode.NOT_CONTROLLER)
    except (CloseConnection, WireError):  # the broker closes the connection of its client
        return EnvelopeResponse(response_data=None, error_code=ErrorCode.UNSUPPORTED_VERSION)
    except Exception:
        answer = stand_in_for_failure(route, inner, message)
    if _is_elsewhere(answer):
        return EnvelopeResponse(response_data=None, error_code=ErrorCode.NOT_CONTROLLER)
    data = response_header_bytes(inner.api_key, inner.api_version, inner.correlation_id)
    if are_few([answer]):
        data += encode(answer, inner.api_version)
    else:
        await in_turns(steps_encoder(type(answer), inner.api_version, False)(answer, data))
    return EnvelopeResponse(response_data=bytes(data))


def _open(
    node: ControllerNode, context: RequestContext, request: EnvelopeRequest
) -> Work[tuple[Route, RequestContext, Any]]:
    """Return the route of the inner request, its sender's context, and the request."""
    try:
        principal = decode_principal(request.request_principal or b"")
    except WireError:
        raise _Unopenable(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    try:
        client_host = host_address(request.client_host_address)
    except ValueError:
        raise _Unopenable(ErrorCode.INVALID_REQUEST) from None
    frame = request.request_data
    try:
        header = parse_request_header(frame)
    except WireError:
        raise _Unopenable(ErrorCode.UNSUPPORTED_VERSION) from None
    api = APIS.get(header.api_key)
    if api is None:
        raise _Unopenable(ErrorCode.UNSUPPORTED_VERSION)
    if not api.forwardable:
        raise _Unopenable(ErrorCode.INVALID_REQUEST)
    if not CONTROLLER_APIS.serves(header.api_key, header.api_version):
        raise _Unopenable(ErrorCode.UNSUPPORTED_VERSION)
    route = _route(header.api_key, header.api_version)
    try:
        message = yield from _decoded(
            route, frame, header.body_offset, node.config.get_int("request.max.elements")
        )
    except WireError:
        raise _Unopenable(ErrorCode.UNSUPPORTED_VERSION) from None
    inner = RequestContext(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        context.connection_id,
        context.listener_name,
        client_host,
        context.listener_is_sasl,
        Principal(principal.type, principal.name, principal.token_authenticated),
    )
    inner.is_forwarded = True
    return route, inner, message


def _decoded(route: Route, frame: bytes, position: int, elements_max: int) -> Work[Any]:
    if len(frame) <= route.decoded_at_once_max:
        return route.decode(frame, position)[0]
    decoded = yield from steps_decoder(request_class(route.key), route.version)(frame, position, elements_max)
    return decoded[0]


def _is_elsewhere(answer: Any) -> bool:
    """Return whether only another controller can answer. DescribeQuorum reports that in its partition."""
    if isinstance(answer, DescribeQuorumResponse):
        return any(
            partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            for topic in answer.topics
            for partition in topic.partitions
        )
    return bool(getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER)


@remembered
def _route(key: int, version: int) -> Route:
    return Route(key, version, CONTROLLER_APIS)


def _size(node: ControllerNode, request: EnvelopeRequest) -> int:
    return len(request.request_data)


HANDLER = Handler(
    handle,
    top_level_error(EnvelopeResponse),
    long=LongHandling(_size, DECODED_AT_ONCE_MAX, handle),
)
