"""DescribeTransactions (key 65): transactional ids whose coordinator is this broker. KIP-664."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, seen_of
from kafkacompat.api.handler import Handler
from kafkacompat.security.acl import ResourceType
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.describe_transactions_request import DescribeTransactionsRequest


LOOKED_AT_US = 1
"""Of one transaction."""


async def handle(node: Node, context: RequestContext, request: DescribeTransactionsRequest) -> Any:
    """Of a transaction's topics, return those that the sender may describe."""
    response: DescribeTransactionsResponse = await in_turns(
        node.transactions.coordinator.describe_transactions(request)
    )
    access = access_of(node, context)
    if access is not None:
        for each in response.transaction_states:
            if each.topics:
                each.topics = await in_turns(
                    seen_of(access, ResourceType.TOPIC, each.topics, attrgetter("topic"))
                )
            await pause(LOOKED_AT_US)
    return response


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=code) for each in request.transactional_ids
        ]
    )


HANDLER = Handler(handle, error_response, asks_coordinators=True)
