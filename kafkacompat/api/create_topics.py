"""CreateTopics (key 19): forwarded to the controller, which checks each topic and returns its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import ASKED_A_STEP, access_of
from kafkacompat.api.context import ControllerNode
from kafkacompat.api.handler import Handler
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Work, in_turns
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

if TYPE_CHECKING:
    from kafkacompat.api.access import Access
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest


async def handle(
    node: AnyNode, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    response: CreateTopicsResponse = await node.controller.create_topics(request, context)
    access = access_of(node, context)
    # A broker forwards the controller's answer, which already depends on the sender's rights.
    if access is not None and isinstance(node, ControllerNode):
        await in_turns(_hide_configs(response, access))
    return response


def _hide_configs(response: CreateTopicsResponse, access: Access) -> Work[None]:
    """Remove the settings from the result of topics that the sender may create but not describe."""
    for position, topic in enumerate(response.topics, 1):
        if topic.error_code == ErrorCode.NONE and not access.allows(
            AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, logs_denied=False
        ):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        if position % ASKED_A_STEP == 0:
            yield TURN_COST


def error_response(request: CreateTopicsRequest, code: ErrorCode, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
            for topic in request.topics
        ]
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
