"""InitProducerId (key 22, versions 0-5): producer ids for idempotent producers (T21). KIP-98, KIP-360.

The API has to be advertised for idempotence, so a transactional id can arrive although transactions are not served
yet. It is refused with INVALID_REQUEST and a line in the log: not retriable, so a producer that asks for transactions fails
at once and clearly, where COORDINATOR_NOT_AVAILABLE would keep it retrying until its timeout, and an authorization error
would send people to look for ACLs. FindCoordinator for a transaction coordinator is refused before that as a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest

NO_EPOCH = -1


def handle(node: Node, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return error_response(request, ErrorCode.INVALID_REQUEST, context.api_version)
    producer_id = node.producer_ids.next_producer_id()
    if producer_id is None:  # a block is on its way (H1)
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context.api_version)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(request: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=NO_EPOCH)


HANDLER = Handler(22, 0, 5, handle, error_response)
