"""ListTransactions (key 66): the transactions that this broker coordinates and the sender may describe,
filtered.

KIP-664, KIP-994, KIP-1152.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, seen_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.security.acl import ResourceType
from kafkacompat.tasks import in_turns
from kafkacompat.wire.messages.list_transactions_response import ListTransactionsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.list_transactions_request import ListTransactionsRequest


async def handle(node: Node, context: RequestContext, request: ListTransactionsRequest) -> Any:
    response: ListTransactionsResponse = await node.transactions.coordinator.list_transactions(request)
    access = access_of(node, context)
    if access is not None:
        response.transaction_states = await in_turns(
            seen_of(
                access,
                ResourceType.TRANSACTIONAL_ID,
                response.transaction_states,
                attrgetter("transactional_id"),
            )
        )
    return response


HANDLER = Handler(handle, top_level_error(ListTransactionsResponse), asks_coordinators=True)
