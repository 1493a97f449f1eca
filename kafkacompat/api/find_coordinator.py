"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

A key is mapped to a partition of the coordinator's topic, and the partition's leader to its endpoint on the caller's
listener. If the topic does not exist yet, it is created, and the answer waits for it for a moment: clients ask again only after
a pause, which may be a second. Only brokers look for the coordinators of share-partitions,
whose keys are `group:topic id:partition`. KIP-699, KIP-932.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from kafkacompat.api.access import CLUSTER_ACTION, REFUSALS, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.share_keys import share_partition_key
from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, partition_for_key
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, in_turns, pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest

FIRST_BATCHED_VERSION = 4
SHARE = 2
FIRST_VERSION_WITH_SHARES = 6
TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC, SHARE: SHARE_STATE_TOPIC}
"""The topic for each key type: groups, transactional ids, share-partitions."""
RESOURCES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
NO_NODE = (-1, "", -1)
LOCATED_A_STEP = 500
"""Keys per step. One takes several microseconds."""
CHARACTERS_LIKE_A_KEY = 64
"""Characters that take as long as one key. Each key is hashed."""
SUCCESS_MESSAGE = "NONE"
"""The error message that the single-key versions carry in a successful response."""
MESSAGES = {
    ErrorCode.NONE: SUCCESS_MESSAGE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Only brokers may request this type of coordinator.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Access to the group is refused.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Access to the transactional id is refused.",
    ErrorCode.INVALID_REQUEST: "The type of coordinator or the key is not supported.",
}


def find_coordinator(
    node: Node, context: RequestContext, request: FindCoordinatorRequest
) -> Work[FindCoordinatorResponse] | Awaitable[FindCoordinatorResponse]:
    topic = TOPICS.get(request.key_type)
    if topic is None or topic in node.image.topics:
        return _found(node, context, request)
    return _found_at_first_use(node, context, request, topic)


async def _found_at_first_use(
    node: Node, context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    response = await in_turns(_found(node, context, request))
    await node.auto_create.created(topic)
    await pause()  # all clients that have waited go on in this step
    if topic not in node.image.topics:
        return response
    return await in_turns(_found(node, context, request))


def _found(
    node: Node, context: RequestContext, request: FindCoordinatorRequest
) -> Work[FindCoordinatorResponse]:
    if context.api_version >= FIRST_BATCHED_VERSION:
        coordinators: list[Coordinator] = []
        pace = Pace(LOCATED_A_STEP)
        for key in request.coordinator_keys:
            coordinators.append(_batched(node, context, request.key_type, key))
            if pace.is_over(1 + len(key) // CHARACTERS_LIKE_A_KEY):
                yield TURN_COST
        return FindCoordinatorResponse(coordinators=coordinators)
    error, (node_id, host, port) = _locate(node, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=error, error_message=MESSAGES[error], node_id=node_id, host=host, port=port
    )


def _batched(node: Node, context: RequestContext, key_type: int, key: str) -> Coordinator:
    error, (node_id, host, port) = _locate(node, context, key_type, key)
    message = "" if error is ErrorCode.NONE else MESSAGES[error]
    return Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message
    )


def _locate(
    node: Node, context: RequestContext, key_type: int, key: str
) -> tuple[ErrorCode, tuple[int, str, int]]:
    """Return (error, (node id, host, port))."""
    access = access_of(node, context)
    name = TOPICS.get(key_type)
    if name is None or (key_type == SHARE and context.api_version < FIRST_VERSION_WITH_SHARES):
        return ErrorCode.INVALID_REQUEST, NO_NODE
    if key_type == SHARE:
        code = ErrorCode.NONE if access is None else CLUSTER_ACTION.refusal(access, None)
        if code is not ErrorCode.NONE:
            return code, NO_NODE
        try:
            key = share_partition_key(key).coordinator_key
        except ValueError:
            return ErrorCode.INVALID_REQUEST, NO_NODE
    elif access is not None and not access.allows(AclOperation.DESCRIBE, RESOURCES[key_type], key):
        return REFUSALS[RESOURCES[key_type]], NO_NODE
    topic = node.image.topics.get(name)
    if topic is None:
        node.auto_create.request([name])
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
    partition = topic.partitions.get(partition_for_key(key, len(topic.partitions)))
    broker = None if partition is None else node.image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoints.get(context.listener_name)
    if broker is None or endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
    return ErrorCode.NONE, (broker.id, endpoint.host, endpoint.port)


def _error_response(
    request: FindCoordinatorRequest, code: ErrorCode, version: int
) -> FindCoordinatorResponse:
    node_id, host, port = NO_NODE
    if version < FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            error_code=code, error_message=error_text(code), node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message=error_text(code),
            )
            for key in request.coordinator_keys
        ]
    )


HANDLER = Handler(
    function=find_coordinator,
    error_response=_error_response,
    waits_for_opening=True,
)
