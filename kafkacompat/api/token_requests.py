"""The check that the requests about delegation tokens share: the connections that may send them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ports.dispatcher import ANONYMOUS

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext

NO_TIMESTAMP = -1
"""The timestamp in a refusal by the broker. The controller's refusals have 0."""


def allows_token_requests(context: RequestContext) -> bool:
    """Whether the connection's authentication allows requests about tokens.

    A connection that was authenticated by a token may not get another token, and neither may a client that is not
    authenticated. For a request in an Envelope, the broker has already checked the client's connection.
    """
    principal = context.principal
    if principal.token_authenticated:
        return False
    return context.listener_is_sasl or context.is_forwarded or principal[:2] != ANONYMOUS[:2]
