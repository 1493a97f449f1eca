"""ElectLeaders (key 43): forwarded to the controller. Version 0 elects preferred leaders only. KIP-183, KIP-460."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest

FIRST_VERSION_WITH_ERROR = 1


async def handle(
    node: AnyNode, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    response: ElectLeadersResponse = await node.controller.elect_leaders(request, context)
    return response


def error_response(request: ElectLeadersRequest, code: ErrorCode, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code if version >= FIRST_VERSION_WITH_ERROR else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=None)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
