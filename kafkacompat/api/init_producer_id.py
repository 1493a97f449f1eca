"""InitProducerId (key 22): producer ids for idempotent producers, and the start of transactional
producers.

Without a transactional id a new id is assigned. With one, the transaction coordinator is asked. If this broker has no
ids yet, the request waits a while, so that a first producer need not retry. Kafka refuses it instead. Version 6, with
two-phase commit, is served with unstable.api.versions.enable. KIP-98, KIP-360, KIP-939.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import access_of, may_write_somewhere
from kafkacompat.api.handler import Handler
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.tasks import in_turns
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest

NO_EPOCH = -1
NO_PRODUCER_ID = -1
FENCED_SINCE = 4


async def handle(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    version = context.api_version
    access = access_of(node, context)
    if (
        request.transactional_id is None
        and access is not None
        and not await in_turns(may_write_somewhere(access))
    ):
        return error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version)
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_EPOCH):
        return error_response(request, ErrorCode.INVALID_REQUEST, version)
    await node.producer_ids.when_available()
    if request.transactional_id is None:
        return _fresh(node, request, version)
    await node.when_coordinating()
    response: InitProducerIdResponse = await node.transactions.coordinator.init_producer_id(
        request, context.connection_id
    )
    response.error_code = without_fenced(response.error_code, version, FENCED_SINCE)
    return response


def _fresh(node: Node, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    producer_id = node.producer_ids.next_producer_id()
    if producer_id is None:  # no block of ids was available
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(request: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


HANDLER = Handler(handle, error_response)
