"""AlterClientQuotas (key 49): forwarded to the controller (KIP-546). Each entity has a separate result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest


def handle(
    node: AnyNode, context: RequestContext, request: AlterClientQuotasRequest
) -> Deferred[AlterClientQuotasResponse]:
    return node.controller.alter_client_quotas(request, context)


def error_response(
    request: AlterClientQuotasRequest, code: ErrorCode, version: int
) -> AlterClientQuotasResponse:
    entries = [
        EntryData(
            error_code=code,
            error_message=None,
            entity=[
                EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in each.entity
            ],
        )
        for each in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


HANDLER = Handler(handle, error_response)
