"""EndTxn (key 26): commit or abort a transaction. KIP-98, KIP-890 (transaction.version 2).

From version 5 on, the response contains the producer id and epoch of the next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.wire.messages.end_txn_response import EndTxnResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.end_txn_request import EndTxnRequest

FENCED_SINCE = 2
EPOCH_BUMP_SINCE = 5
EPOCH_BUMP_VERSION = 2


def handle(node: Node, context: RequestContext, request: EndTxnRequest) -> Deferred[Any]:
    version = context.api_version
    client_version = EPOCH_BUMP_VERSION if version >= EPOCH_BUMP_SINCE else 0

    def for_version(response: EndTxnResponse) -> EndTxnResponse:
        response.error_code = without_fenced(response.error_code, version, FENCED_SINCE)
        return response

    return node.transactions.coordinator.end_transaction(request, client_version).then(for_version)


HANDLER = Handler(handle, top_level_error(EndTxnResponse), asks_coordinators=True)
