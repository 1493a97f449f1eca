"""Forwards clients' requests to the active controller (KIP-590).

This is the ForwardingService of broker listeners. It calls this node's own controller while that is active. Otherwise
it sends the request in an Envelope with the client's principal and address. The controller's answer goes to the client
unchanged. Failures:
- No answer in time: REQUEST_TIMED_OUT.
- An envelope that could not be opened: UNKNOWN_SERVER_ERROR.
- A version that the controller does not support: the client's connection is closed, as in Kafka. The client then asks
  for the versions again, and is told those that the controller supports too.
- This node stops: the client's connection is closed.

A long request is encoded with pauses, and a long answer is decoded with pauses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

from kafkacompat.api.long_requests import are_few
from kafkacompat.api.request_context import NO_CONNECTION, ControllerTimedOut, RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ConnectionLost, RequestTimedOut
from kafkacompat.node.node_to_controller_channel_manager import NodeToControllerChannelManager
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.tasks import Tasks, in_turns
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode, steps_decoder, steps_encoder
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.envelope_response import EnvelopeResponse
from kafkacompat.wire.principal import encode_principal

FORWARDING_TIMEOUT_MS = 60_000
"""The time limit of a forwarded request, whatever timeout its client has set."""
DECODED_AT_ONCE_BYTES = 16 * 1024


class EnvelopeRefused(Exception):
    """The controller did not open the envelope. Either this is a bug, or the controller is configured differently from
    its brokers."""


class ForwardingManager:
    """`local` lets this node's own controller handle a request. It fails with NotController if that is absent or not active."""

    def __init__(
        self,
        channel: NodeToControllerChannelManager,
        tasks: Tasks,
        local: Callable[[RequestContext, Any], Deferred[Any]] | None = None,
    ) -> None:
        self._channel = channel
        self._tasks = tasks
        self._local = local

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Return the controller's answer. Fails with ControllerTimedOut, CloseConnection, EnvelopeRefused or a ChannelError."""
        return self._tasks.run("a forwarded request", self._forward(request, context))

    def controller_versions(self, api_key: int) -> tuple[int, int] | None:
        return self._channel.versions(api_key)

    async def _forward(self, request: Any, context: RequestContext) -> Any:
        local = self._local
        try:
            message = await self._channel.request(
                request,
                FORWARDING_TIMEOUT_MS,
                local=None if local is None else partial(local, context),
                # This node sends its own requests without an envelope. The controller knows the node by its connection.
                wrap=None if context.connection_id == NO_CONNECTION else partial(_envelope, context),
            )
        except RequestTimedOut as error:
            raise ControllerTimedOut(str(error)) from error
        except ConnectionLost as error:
            # The whole channel is closed, because this node stops. A single lost connection would be retried.
            raise CloseConnection(str(error)) from error
        return await _opened(message, context) if isinstance(message, EnvelopeResponse) else message

    # Handlers that both kinds of listener have call these by name. What brokers only send on needs no line here.
    create_topics = forward
    delete_topics = forward
    create_partitions = forward
    incremental_alter_configs = forward
    alter_configs = forward
    elect_leaders = forward
    alter_partition_reassignments = forward
    list_partition_reassignments = forward
    create_acls = forward
    delete_acls = forward
    alter_client_quotas = forward
    alter_user_scram_credentials = forward
    create_delegation_token = forward
    renew_delegation_token = forward
    expire_delegation_token = forward


async def _envelope(context: RequestContext, request: Any) -> EnvelopeRequest:
    data = request_header_bytes(
        context.api_key, context.api_version, context.correlation_id, context.client_id
    )
    if are_few([request]):
        data += encode(request, context.api_version)
    else:
        await in_turns(steps_encoder(type(request), context.api_version, False)(request, data))
    kind, name, token_authenticated = context.principal
    return EnvelopeRequest(
        request_data=bytes(data),
        request_principal=encode_principal(
            DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
        ),
        client_host_address=ip_address(context.client_host).packed,
    )


async def _opened(envelope: EnvelopeResponse, context: RequestContext) -> Any:
    if envelope.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection(
            f"the controller does not know API {context.api_key} version {context.api_version}"
        )
    if envelope.error_code or envelope.response_data is None:
        raise EnvelopeRefused(f"the controller answers an envelope with error {envelope.error_code}")
    data = envelope.response_data
    _, position = parse_response_header(data, context.api_key, context.api_version)
    answer = response_class(context.api_key)
    if len(data) <= DECODED_AT_ONCE_BYTES:
        return decode(answer, context.api_version, data, position)
    message, _ = await in_turns(steps_decoder(answer, context.api_version)(data, position, sys.maxsize))
    return message
