"""DescribeTransactions (key 65, version 0): transactional ids that are coordinated here. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.describe_transactions_request import DescribeTransactionsRequest


def handle(node: Node, context: RequestContext, request: DescribeTransactionsRequest) -> Steps[Any]:
    return node.transactions.coordinator.describe_transactions(request)


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=code) for each in request.transactional_ids
        ]
    )


HANDLER = Handler(handle, error_response)
