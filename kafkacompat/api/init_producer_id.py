"""InitProducerId (key 22, versions 0-5): producer ids for idempotent producers, and the start of transactional
producers.

Without a transactional id a new id is assigned. With one, the transaction coordinator is asked. If this broker has no
ids yet, the request waits a while, so that a first producer need not retry. Kafka refuses it instead. Version 6, with
two-phase commit, is served with unstable.api.versions.enable. KIP-98, KIP-360, KIP-939.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, may_write_somewhere
from kafkacompat.api.handler import Handler
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.tasks import in_turns
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.access import Access
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest

NO_EPOCH = -1
NO_PRODUCER_ID = -1
FENCED_SINCE = 4


def handle(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[Any]:
    access = access_of(node, context)
    if request.transactional_id is None and access is not None:
        return _answer_if_allowed(node, context, request, access)
    return _answer(node, context, request)


async def _answer_if_allowed(
    node: Node, context: RequestContext, request: InitProducerIdRequest, access: Access
) -> Any:
    if not (await in_turns(may_write_somewhere(access))):
        return error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, context.api_version)
    return _answer(node, context, request)


def _answer(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred[Any]:
    version = context.api_version
    if (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_EPOCH):
        return error_response(request, ErrorCode.INVALID_REQUEST, version)
    available = node.producer_ids.when_available()
    if request.transactional_id is None:
        return available.then(lambda _: _fresh(node, request, version))
    return available.and_then(lambda _: node.when_coordinating()).and_then(
        lambda _: node.transactions.coordinator.init_producer_id(request, context.connection_id).then(
            lambda response: _for_version(response, version)
        )
    )


def _fresh(node: Node, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    producer_id = node.producer_ids.next_producer_id()
    if producer_id is None:  # no block of ids was available
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _for_version(response: InitProducerIdResponse, version: int) -> InitProducerIdResponse:
    response.error_code = without_fenced(response.error_code, version, FENCED_SINCE)
    return response


def error_response(request: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


HANDLER = Handler(handle, error_response)
