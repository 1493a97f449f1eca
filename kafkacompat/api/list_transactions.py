"""ListTransactions (key 66, versions 0-2): what is coordinated here, filtered. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.list_transactions_response import ListTransactionsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.list_transactions_request import ListTransactionsRequest


def handle(node: Node, context: RequestContext, request: ListTransactionsRequest) -> Steps[Any]:
    return node.transactions.coordinator.list_transactions(request)


HANDLER = Handler(handle, top_level_error(ListTransactionsResponse))
