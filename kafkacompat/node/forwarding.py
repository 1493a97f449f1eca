"""Clients' requests that a broker has the active controller carry out (KIP-590).

The ControllerService of broker listeners calls this node's own controller while it is active; else it sends the request in an
Envelope, with who asked and from where. The controller's answer goes to the client as it is; that there was none in time becomes
REQUEST_TIMED_OUT, an envelope that could not be opened UNKNOWN_SERVER_ERROR, and a version that the controller does not know ends
the client's connection, as in Kafka: the client then asks for the versions anew. So does this node's stop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

from kafkacompat.api.request_context import NO_CONNECTION, ControllerTimedOut, RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ConnectionLost, RequestTimedOut
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.envelope_response import EnvelopeResponse
from kafkacompat.wire.principal import encode_principal

FORWARDING_TIMEOUT_MS = 60_000
"""How long a request may be on its way, whatever its client says."""


class EnvelopeRefused(Exception):
    """The controller did not open the envelope: our own fault, or a controller set up otherwise than its brokers."""


class ForwardingController:
    """`local` has this node's own controller, if there is one, carry a request out; it fails with NotController if not active."""

    def __init__(
        self,
        channel: ControllerChannel,
        local: Callable[[RequestContext, Any], Deferred[Any]] | None = None,
    ) -> None:
        self._channel = channel
        self._local = local

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """The controller's answer. Fails with ControllerTimedOut, CloseConnection, EnvelopeRefused or a ChannelError."""
        local = self._local
        answer: Deferred[Any] = Deferred()

        def answered(done: Deferred[Any]) -> None:
            try:
                message = done.result()
                if isinstance(message, EnvelopeResponse):
                    message = _opened(message, context)
            except RequestTimedOut as error:
                answer.fail(ControllerTimedOut(str(error)))
            except ConnectionLost as error:
                # Of the whole way, since single connections are tried again: this node stops.
                answer.fail(CloseConnection(str(error)))
            except Exception as error:
                answer.fail(error)
            else:
                answer.resolve(message)

        self._channel.request(
            request,
            FORWARDING_TIMEOUT_MS,
            local=None if local is None else partial(local, context),
            # What this node wishes itself it asks in its own name, by which the controller knows its connection.
            wrap=None if context.connection_id == NO_CONNECTION else partial(_envelope, context),
        ).on_done(answered)
        return answer

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
    alter_user_scram_credentials = forward
    update_features = forward
    describe_quorum = forward
    unregister_broker = forward
    add_raft_voter = forward
    remove_raft_voter = forward


def _envelope(context: RequestContext, request: Any) -> EnvelopeRequest:
    data = request_header_bytes(
        context.api_key, context.api_version, context.correlation_id, context.client_id
    )
    data += encode(request, context.api_version)
    kind, name, token_authenticated = context.principal
    return EnvelopeRequest(
        request_data=bytes(data),
        request_principal=encode_principal(
            DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
        ),
        client_host_address=ip_address(context.client_host).packed,
    )


def _opened(envelope: EnvelopeResponse, context: RequestContext) -> Any:
    if envelope.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection(
            f"the controller does not know API {context.api_key} version {context.api_version}"
        )
    if envelope.error_code or envelope.response_data is None:
        raise EnvelopeRefused(f"the controller answers an envelope with error {envelope.error_code}")
    data = envelope.response_data
    _, position = parse_response_header(data, context.api_key, context.api_version)
    return decode(response_class(context.api_key), context.api_version, data, position)
